/* SPDX-License-Identifier: Apache-2.0 */
/* On what fabrics test_faults.c runs. */
#ifndef FAULT_SETTINGS_H
#define FAULT_SETTINGS_H

#include "ranks.h"

/* The list ends with a NULL name. */
struct fault_setting {
	const char *name;
	const char *fabric;
	enum ranks_kind kind;
	const char *options;
};

extern const struct fault_setting fault_settings[];

/*
 * GPUs that the ranks share, 0: they are worlds of the CPU; -1: there is none,
 * and the reason is printed.
 */
int32_t fault_gpus(void);
/* The last word on how ranks run. */
void fault_place(struct ranks *how);
/* An open that lacks a rank takes so long; the others are faster. */
extern const int32_t fault_open_ms;
/* Runs with random deaths: each costs a world. */
extern const int32_t fault_random_runs;

#endif
