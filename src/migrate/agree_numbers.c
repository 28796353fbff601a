/* SPDX-License-Identifier: Apache-2.0 */
/* See agree_numbers.h. */
#include "agree_numbers.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../core/clock.h"

#undef ferry_agree_numbers /* a macro for the analyzer */

static enum ferry_status compare(struct ferry_world *world, const char *call,
                                 const struct ferry_agreed *own, int32_t n,
                                 const int64_t *all)
{
	for (int32_t i = n; i < world->n_ranks * n; i++)
		if (all[i] != all[i % n])
			return ferry_fail(&world->ctx, FERRY_MISMATCH,
			                  "%s: %s is %" PRId64
			                  " on rank %d, %" PRId64 " on rank 0",
			                  call, own[i % n].name, all[i], i / n,
			                  all[i % n]);
	return FERRY_OK;
}

enum ferry_status ferry_agree_numbers(struct ferry_world *world,
                                      const char *call, enum ferry_status mine,
                                      const struct ferry_agreed *own, int32_t n)
{
	const size_t bytes = (size_t)n * sizeof(int64_t);
	int64_t *const all = calloc((size_t)world->n_ranks, bytes);
	int64_t values[FERRY_AGREE_NUMBERS];

	if (!all && mine == FERRY_OK)
		mine = ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "%s: numbers of %d ranks", call,
		                  world->n_ranks);
	for (int32_t i = 0; i < n; i++)
		values[i] = own[i].value;
	enum ferry_status status =
		ferry_agree(world->boot, mine, values, all, bytes,
	                    ferry_deadline_ns(world->open_timeout_ms));

	if (status == FERRY_OK)
		status = compare(world, call, own, n, all);
	free(all);
	return status;
}
