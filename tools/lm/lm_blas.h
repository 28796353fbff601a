/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenBLAS, opened when the first product is near: commands that compute
 * nothing need not have it, nor its threads, which it starts as soon as it is
 * loaded, one for each CPU. Here it has one thread, that of the caller.
 */
#ifndef FERRY_LM_BLAS_H
#define FERRY_LM_BLAS_H

#include <cblas.h>

#include "../fault.h"

struct lm_blas {
	__typeof__(&cblas_sgemm) sgemm;
	__typeof__(&openblas_get_num_threads) get_threads;
	__typeof__(&openblas_set_num_threads) set_threads;
};

/*
 * Opens it for this process and those that it forks; again: nothing. Before
 * other threads run, since it sets OPENBLAS_NUM_THREADS.
 */
bool lm_blas_open(struct fault *fault);

/* What was opened. */
extern struct lm_blas lm_blas;

#endif
