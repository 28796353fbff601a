/* SPDX-License-Identifier: Apache-2.0 */
/* Speeds from the work of all ranks. */
#include <ferry/balance.h>

#include <stdlib.h>

#include "../fabric/world.h"

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
	struct ferry_work *all = calloc((size_t)world->n_ranks, sizeof(*all));
	enum ferry_status status;

	if (!all)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "speeds_gather: work of %d ranks",
		                  world->n_ranks);
	status = ferry_world_allgather(world, own, all, sizeof(*all));
	if (status == FERRY_OK)
		status =
			ferry_speeds(all, world->n_ranks, tolerance_ppm, speed);
	free(all);
	return status;
}
