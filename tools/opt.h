/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a subcommand as a table. Parsing, --help, defaults and the
 * complaint about a misspelt name all come from the same lines, so they cannot
 * disagree.
 */
#ifndef FERRY_OPT_H
#define FERRY_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a command line program returns. */
enum opt_exit {
	EXIT_GOOD = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_HERE = 77, /* not possible on this machine or in this build */
};

enum opt_type {
	OPT_FLAG,   /* bool */
	OPT_INT,    /* int64_t; suffixes k, m, g are powers of 1024 */
	OPT_TEXT,   /* const char *, NULL when unset */
	OPT_CHOICE, /* int, index into choices */
	OPT_LIST,   /* struct opt_list */
	OPT_FILE,   /* const char *; the value may be left out: "-" */
	OPT_TEXTS,  /* struct opt_texts; all words up to the next option */
};

enum { OPT_LIST_MAX = 64 };

/* Numbers from "1,128,4k", "0:64:+16" or "1:4k:x2". */
struct opt_list {
	int n;
	int64_t values[OPT_LIST_MAX];
};

/* Words of all occurrences of an option. */
struct opt_texts {
	int n;
	const char *values[OPT_LIST_MAX];
};

struct opt {
	const char *name; /* without the dashes */
	char letter;      /* 0: none */
	enum opt_type type;
	size_t offset;       /* of the value in the command's own struct */
	const char *arg;     /* what help calls the value: "N" */
	const char *initial; /* default, parsed like any value; NULL: unset */
	int64_t min, max;    /* INT and LIST */
	const char *const *choices; /* CHOICE, ends with NULL */
	const char *help;           /* with unit; default and range are added */
};

/* What other commands call an option of this one. */
struct opt_elsewhere {
	const char *there, *here;
};

struct opt_command {
	const char *name;          /* "ferry bench" */
	const char *summary;       /* one line */
	const char *operands;      /* "-- PROGRAM [ARGUMENT...]"; NULL: none */
	const struct opt *options; /* ends with a NULL name */
	const char *examples;      /* lines, each with its newline */
	const struct opt_elsewhere *elsewhere; /* ends with NULLs; NULL: none */
};

/* Stands in for an exit status: go on. */
enum { OPT_GO_ON = -1 };

/*
 * Fills *values from the defaults and argv[1..]. Returns OPT_GO_ON, or the
 * exit status: EXIT_GOOD after --help, EXIT_USAGE after a complaint on stderr.
 * *first is the index of the first operand (argc: none).
 */
int opt_parse(const struct opt_command *command, int argc, char **argv,
              void *values, int *first);

/* One line "NAME: message" on stderr; returns EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int
opt_complain(const struct opt_command *command, const char *fmt, ...);

/* A whole number with optional suffix k, m, g; false for anything else. */
bool opt_parse_int(const char *text, int64_t *value);

#endif
