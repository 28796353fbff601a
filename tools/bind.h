/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One CPU for each rank, as mpirun does it: without it the scheduler may put
 * two ranks that wait for each other on one core.
 */
#ifndef FERRY_BIND_H
#define FERRY_BIND_H

#include <stdint.h>

/*
 * A CPU for each of n ranks, spread over cores and packages, of those that
 * this process may use; freed by free(). NULL when there are fewer.
 */
int *bind_plan(int32_t n_ranks);

/* Binds the calling thread. */
void bind_to(int cpu);

#endif
