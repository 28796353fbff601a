/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: a table of subcommands, and nothing else. */
#include <stdio.h>
#include <string.h>

#include <ferry/ferry.h>

#include "commands.h"
#include "core/nearest.h"
#include "opt.h"

struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *summary;
};

static const struct command commands[] = {
	{"info", cmd_info, "version, fabrics and why, CPU, caches, NUMA"},
	{"env", cmd_env, "environment variables, defaults, values in force"},
	{"run", cmd_run, "start a program as N ranks on this host"},
	{"check", cmd_check, "self-test of this machine, data verified"},
	{"bench", cmd_bench, "latency and bandwidth against floor and MPI"},
	{"model", cmd_model, "latencies predicted for links of any machine"},
	{"plan", cmd_plan, "which experts to move for loads, and why"},
	{"replay", cmd_replay, "a routing trace under placement policies"},
	{"prefill", cmd_prefill, "a MoE language model on ranks, balanced"},
};

enum { N_COMMANDS = sizeof(commands) / sizeof(*commands) };

static void help(FILE *to)
{
	fputs("ferry: dispatch and combine for Mixture-of-Experts\n\n"
	      "Usage: ferry COMMAND [options]\n\n",
	      to);
	for (int i = 0; i < N_COMMANDS; i++)
		fprintf(to, "  %-8s%s\n", commands[i].name,
		        commands[i].summary);
	fputs("\n'ferry COMMAND --help' has options, defaults and examples.\n"
	      "Exit status: 0 good, 1 failed, 2 usage, 77 not possible "
	      "here.\n\n"
	      "Examples:\n"
	      "  ferry check\n"
	      "  ferry bench --ranks 2 --tokens 1,128 --hidden 7168\n",
	      to);
}

static int unknown(const char *word)
{
	const char *names[N_COMMANDS];

	for (int i = 0; i < N_COMMANDS; i++)
		names[i] = commands[i].name;
	const char *near = ferry_nearest(word, names, N_COMMANDS);

	fprintf(stderr, "ferry: unknown command '%s'", word);
	if (near)
		fprintf(stderr, ", did you mean '%s'?\n", near);
	else
		fputs("; ferry --help lists all\n", stderr);
	return EXIT_USAGE;
}

static int run(int argc, char **argv)
{
	for (int i = 0; i < N_COMMANDS; i++)
		if (!strcmp(argv[0], commands[i].name))
			return commands[i].main(argc, argv);
	return unknown(argv[0]);
}

/* ferry help COMMAND is ferry COMMAND --help. */
static int help_of(char *command)
{
	char option[] = "--help";
	char *words[] = {command, option, NULL};

	return run(2, words);
}

static int command(int argc, char **argv)
{
	if (argc < 2) {
		help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "help") && argc > 2)
		return help_of(argv[2]);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help")) {
		help(stdout);
		return EXIT_GOOD;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("ferry %s\n", ferry_version_text());
		return EXIT_GOOD;
	}
	return run(argc - 1, argv + 1);
}

/* Results that did not arrive, on a full disk say, are no success. */
static int end_output(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	fprintf(stderr, "ferry: not all results could be written to stdout\n");
	return status == EXIT_GOOD ? EXIT_FAILED : status;
}

int main(int argc, char **argv)
{
	return end_output(command(argc, argv));
}
