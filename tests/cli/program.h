/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command line in a test and keeps what it said. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

#include <cjson/cJSON.h>

enum { PROGRAM_LIMIT_MS = 60000 };

/* The tool under test. */
extern const char ferry_program[];

struct program {
	int status; /* exit status; 128 + n after signal n */
	char *out, *err;
};

/*
 * Runs "ferry" with the words of a line, blanks between them, as a shell would
 * without any quoting: use program_run_words for anything else. A program
 * that runs longer than PROGRAM_LIMIT_MS fails the test.
 */
struct program program_run(const char *line);
struct program program_run_words(const char *const *words);
void program_free(struct program *program);

/*
 * The same of a line that must exit with 0; with 77 the test is skipped, for
 * the reason that the program gave.
 */
struct program program_run_or_skip(const char *line);

/* A line that is refused: exit status, words on stderr, nothing on stdout. */
void program_refuses(const char *line, int status, const char *words);

/* Starts without waiting; *out reads its stdout and stderr. */
pid_t program_start(const char *const *words, int *out);

/* Ends it when it should not be there any more; its exit status. */
int program_wait(pid_t pid);

/* Everything up to the end, as text. */
char *program_read_all(int fd);

/* The program's stdout as JSON with this schema; fails the test otherwise. */
cJSON *program_json(const struct program *program, const char *schema);

/* The same of a line that must exit with 0. */
cJSON *program_json_of(const char *line, const char *schema);

/* A member of a JSON object; fails the test where there is none of its kind. */
double program_number(const cJSON *object, const char *name);
const char *program_text(const cJSON *object, const char *name);

/* Fails the test unless text contains the part. */
void assert_contains(const char *text, const char *part);

#endif
