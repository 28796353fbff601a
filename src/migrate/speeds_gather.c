/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speeds from the work of all ranks. The tolerance travels with the work: with
 * another one a rank would compute other speeds from the same.
 */
#include <ferry/balance.h>

#include <stdlib.h>

#include "../fabric/world.h"

struct message {
	struct ferry_work work;
	int64_t tolerance_ppm;
};

/* The work of all ranks, if they have the same tolerance. */
static enum ferry_status take(struct ferry_world *world,
                              const struct message *all,
                              struct ferry_work *work)
{
	for (int32_t r = 0; r < world->n_ranks; r++) {
		if (all[r].tolerance_ppm != all[0].tolerance_ppm)
			return ferry_fail(&world->ctx, FERRY_MISMATCH,
			                  "speeds_gather: tolerance_ppm is "
			                  "%lld on rank %d, %lld on rank 0",
			                  (long long)all[r].tolerance_ppm, r,
			                  (long long)all[0].tolerance_ppm);
		work[r] = all[r].work;
	}
	return FERRY_OK;
}

enum ferry_status ferry_speeds_gather(struct ferry_world *world,
                                      const struct ferry_work *own,
                                      int32_t tolerance_ppm, int32_t *speed)
{
	if (!world || !own || !speed)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "speeds_gather: %s is NULL",
		                  !world ? "world"
		                  : !own ? "own"
		                         : "speed");
	const struct message mine = {*own, tolerance_ppm};
	const size_t n = (size_t)world->n_ranks;
	struct message *const all = calloc(n, sizeof(*all));
	struct ferry_work *const work = calloc(n, sizeof(*work));
	enum ferry_status status;

	if (all && work)
		status = ferry_world_allgather(world, &mine, all, sizeof(*all));
	else
		status = ferry_fail(&world->ctx, FERRY_NOMEM,
		                    "speeds_gather: work of %d ranks",
		                    world->n_ranks);
	if (status == FERRY_OK)
		status = take(world, all, work);
	if (status == FERRY_OK)
		status = ferry_speeds(work, world->n_ranks, tolerance_ppm,
		                      speed);
	free(all);
	free(work);
	return status;
}
