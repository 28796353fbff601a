/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry plan and ferry replay ask alike: loads, ranks, budget, rule. */
#ifndef FERRY_BALANCE_ARGS_H
#define FERRY_BALANCE_ARGS_H

#include <ferry/plan.h>

#include "opt.h"
#include "route.h"

enum { BALANCE_MAX_RANKS = 4096 };

/* First member of a command's own struct. */
struct balance_args {
	const char *trace;
	const char *generate;
	int64_t experts, layers, draws;
	int64_t ranks;
	int64_t swaps;  /* -1: not given */
	int64_t copies; /* into each rank */
	int64_t window_us, expert_bytes, alpha_us, beta_gbps;
	const char *threshold, *gamma;
	int rule, split;
	bool fill; /* all empty slots */
	bool tight_bound;
	int64_t seed;
};

#define BALANCE_AT(field) offsetof(struct balance_args, field)

extern const char *const balance_splits[];

/* Numbers of the options in the library's units. */
struct balance_numbers {
	int32_t max_swaps; /* as in struct ferry_plan_in */
	int64_t window_ns;
	int64_t threshold_ppm;
	int32_t gamma_milli;
	struct ferry_cost *cost; /* NULL: moves cost nothing */
};

/*
 * A decimal number times scale, rounded down: "1.05" and 1000 are 1050. False
 * for anything else, and beyond 2^40.
 */
bool balance_decimal(const char *text, int64_t scale, int64_t *value);

/* The numbers, or EXIT_USAGE after a complaint; balance_numbers_free frees. */
int balance_numbers(const struct opt_command *command,
                    const struct balance_args *args,
                    struct balance_numbers *numbers);
void balance_numbers_free(struct balance_numbers *numbers);

/* Uniform links; free() frees it with its tables. */
struct ferry_cost *balance_cost(const struct balance_args *args,
                                bool half_duplex);

/*
 * The loads that the options name. EXIT_FAILED after a complaint; note[n] gets
 * what there is to say about them.
 */
int balance_source(const struct opt_command *command,
                   const struct balance_args *args, const struct route_ask *ask,
                   struct route *route, char *note, size_t n);

/* More ranks than experts would leave some empty: EXIT_USAGE. */
int balance_check_ranks(const struct opt_command *command,
                        const struct balance_args *args, int32_t n_experts);

/* Reads a placement from a file; NULL after a complaint. */
struct ferry_placement *balance_placement(const struct opt_command *command,
                                          const char *path);

#endif
