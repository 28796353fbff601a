/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random cases of dispatch kernels, and of combine behind them, compared with
 * the oracle. They print what they try.
 */
#ifndef CUDA_TRY_CHECK_H
#define CUDA_TRY_CHECK_H

#include "cuda_harness.h"

struct drive_step;
struct random_case;

struct try_check {
	struct harness_kernels kernels; /* no combine kernel: none is tried */
	bool lean;    /* cases are made such that the lean kernel takes them */
	bool mixed;   /* every third launch is of lines instead */
	bool crowded; /* cases are made such that few blocks have much to do:
	               * more rows than warps, or rows of several stages */
	bool refused; /* every batch has ids, or a count, out of range */
	bool quotas;  /* every expert is on every rank, under split QUOTA */
	int n_wrong, n_failed, n_steps, n_lean; /* so far */
};

/* Dispatches by the lean kernel, and by lines where that does not fit. */
void try_check_lean(struct try_check *run);
/* Tries one case, until a step of it is wrong. */
void try_check_case(struct try_check *run, uint64_t seed, int32_t n_ranks);
/* What the ranks of a case are given in a step: specs[n_ranks]. */
void try_check_specs(const struct random_case *c, const struct drive_step *step,
                     struct traffic_spec *specs);

#endif
