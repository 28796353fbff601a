/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layers are worth a prediction, where not all are asked for (--recheck
 * above 1). Early routers compete with attention for the cores of a CPU. So a
 * layer whose ranks were even in the last step, by the true router and without
 * a move, is not predicted in this one. One that had to move for it may have
 * to move back: texts may take turns.
 */
#include "core/bits.h"
#include "prefill_rank.h"

/* Below the threshold, by rows that came to each rank? */
static bool was_even(const struct prefill_rank *r, int32_t layer)
{
	const int32_t n_ranks = r->job->shape->n_ranks;
	int64_t most = 0, total = 0;

	for (int32_t i = 0; i < n_ranks; i++) {
		const int64_t n =
			r->came_to[(int64_t)i * r->job->shape->n_layers +
		                   layer];

		most = max_i64(most, n);
		total += n;
	}
	return (double)most * n_ranks * 1e6 <
	       (double)total * (double)r->job->threshold_ppm;
}

/* History has to be told of every step: with it none is left out. */
bool prefill_even_meet(struct prefill_rank *rank)
{
	const int32_t n_layers = rank->job->shape->n_layers;

	if (!crew_good(rank->me,
	               ferry_world_allgather(
			       rank->world, rank->came, rank->came_to,
			       (size_t)n_layers * sizeof(*rank->came)),
	               "meeting"))
		return false;
	for (int32_t l = 0; l < n_layers; l++)
		rank->even[l] =
			rank->step > 0 && rank->job->recheck_steps > 1 &&
			!(rank->setup->run->policy & FERRY_BALANCE_EPLB) &&
			!rank->moved[l] && was_even(rank, l);
	return true;
}
