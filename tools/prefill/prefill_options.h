/* SPDX-License-Identifier: Apache-2.0 */
/* The options of ferry prefill. */
#ifndef FERRY_PREFILL_OPTIONS_H
#define FERRY_PREFILL_OPTIONS_H

#include "../opt.h"
#include "prefill.h"
#include "prefill_text.h"

struct prefill_args {
	const char *model;
	struct opt_texts texts;
	int64_t ranks, batch, length, steps, warm_up;
	int order, calibrate, split, start, logits;
	const char *balance, *budget, *threshold, *margin, *gamma;
	int64_t swaps; /* -1: not given */
	int64_t replicas, recheck, eplb_every;
	const char *fabric, *record, *trace, *report, *json;
	bool check, threads;
};

enum { PREFILL_MAX_RANKS = 64, PREFILL_N_POLICIES = 6 };

extern const struct opt_command prefill_command;
extern const char *const prefill_policy_names[PREFILL_N_POLICIES];

/* Policies of --balance, in their order. */
struct prefill_policies {
	int32_t n;
	enum ferry_balance_policy each[PREFILL_N_POLICIES];
};

/*
 * Reads the command line, and what of it needs no look at model and texts:
 * numbers of the job in the library's units, its fabric, and policies. Returns
 * OPT_GO_ON, or an exit status after a complaint.
 */
int prefill_options(int argc, char **argv, struct prefill_args *args,
                    struct prefill_job *job, struct prefill_policies *policies);

#endif
