/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command line in a test and keeps what it said. */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "core/clock.h"

const char ferry_program[] = FERRY_PROGRAM;

enum { WORDS_MAX = 64 };

static pid_t start(const char *const *words, int out, int err)
{
	const pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	const int null = open("/dev/null", O_RDONLY);

	dup2(null, 0);
	dup2(out, 1);
	dup2(err, 2);
	execv(ferry_program, (char *const *)(const void *)words);
	_exit(127);
}

int program_wait(pid_t pid)
{
	const uint64_t deadline = ferry_deadline_ns(PROGRAM_LIMIT_MS);
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (ferry_now_ns() > deadline) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			fail_msg("the program ran longer than %d ms",
			         PROGRAM_LIMIT_MS);
		}
		usleep(1000);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Files rather than pipes: nothing to drain while it runs. */
static char *file_text(FILE *f)
{
	fseek(f, 0, SEEK_END);
	const size_t bytes = (size_t)ftell(f);
	char *text = calloc(1, bytes + 1);

	assert_non_null(text);
	rewind(f);
	assert_int_equal(fread(text, 1, bytes, f), bytes);
	fclose(f);
	return text;
}

struct program program_run_words(const char *const *words)
{
	FILE *const out = tmpfile(), *const err = tmpfile();

	assert_non_null(out);
	assert_non_null(err);
	struct program p = {
		program_wait(start(words, fileno(out), fileno(err))),
		file_text(out), file_text(err)};

	return p;
}

struct program program_run(const char *line)
{
	char *copy = strdup(line);
	const char *words[WORDS_MAX] = {"ferry"};
	int n = 1;

	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
		assert_true(n < WORDS_MAX - 1);
		words[n++] = word;
	}
	const struct program p = program_run_words(words);

	free(copy);
	return p;
}

void program_free(struct program *program)
{
	free(program->out);
	free(program->err);
}

void program_refuses(const char *line, int status, const char *words)
{
	struct program p = program_run(line);

	if (p.status != status || !strstr(p.err, words) || p.out[0])
		fail_msg("%s: status %d, not %d, or no '%s': %s%s", line,
		         p.status, status, words, p.err, p.out);
	program_free(&p);
}

pid_t program_start(const char *const *words, int *out)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	const pid_t pid = start(words, ends[1], ends[1]);

	close(ends[1]);
	*out = ends[0];
	return pid;
}

char *program_read_all(int fd)
{
	size_t used = 0, size = 1 << 16;
	char *text = calloc(1, size);
	ssize_t n;

	assert_non_null(text);
	while ((n = read(fd, text + used, size - used - 1)) > 0) {
		used += (size_t)n;
		assert_true(used < size - 1);
	}
	close(fd);
	return text;
}

cJSON *program_json(const struct program *program, const char *schema)
{
	cJSON *document = cJSON_ParseWithOpts(program->out, NULL, true);

	if (!document)
		fail_msg("no JSON: %.200s%.200s", program->out, program->err);
	assert_string_equal(
		cJSON_GetStringValue(cJSON_GetObjectItem(document, "schema")),
		schema);
	return document;
}

cJSON *program_json_of(const char *line, const char *schema)
{
	struct program p = program_run(line);

	if (p.status != 0)
		fail_msg("ferry %s: status %d: %s%.2000s", line, p.status,
		         p.err, p.out);
	cJSON *document = program_json(&p, schema);

	program_free(&p);
	return document;
}

struct program program_run_or_skip(const char *line)
{
	struct program p = program_run(line);

	if (p.status == 77) {
		printf("%s", p.err);
		program_free(&p);
		skip();
	}
	if (p.status != 0)
		fail_msg("%d: %s", p.status, p.err);
	return p;
}

double program_number(const cJSON *object, const char *name)
{
	const cJSON *item = cJSON_GetObjectItem(object, name);

	if (!cJSON_IsNumber(item))
		fail_msg("no number '%s'", name);
	return item->valuedouble;
}

const char *program_text(const cJSON *object, const char *name)
{
	const char *value =
		cJSON_GetStringValue(cJSON_GetObjectItem(object, name));

	if (!value)
		fail_msg("no text '%s'", name);
	return value;
}

void assert_contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in: %.2000s", part, text);
}
