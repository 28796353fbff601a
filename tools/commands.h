/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands: argv[0] is the command's name; returns the exit status. */
#ifndef FERRY_COMMANDS_H
#define FERRY_COMMANDS_H

int cmd_info(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_model(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_prefill(int argc, char **argv);

#endif
