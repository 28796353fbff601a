/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash of everything that a plan depends on. Tables of costs grow with the
 * square of the ranks, so arrays go through four sums at a time that do not
 * wait for each other.
 */
#include "../core/bits.h"
#include "plan_inner.h"

enum { CHAINS = 4 };

/*
 * Each step of a lane is a bijection of what it holds and of the value, so one
 * changed value always changes the hash.
 */
static uint64_t hash_array(uint64_t h, const int64_t *v, int64_t n)
{
	uint64_t lane[CHAINS] = {1, 2, 3, 4};
	int64_t i = 0;

	for (; i + CHAINS <= n; i += CHAINS)
		for (int j = 0; j < CHAINS; j++)
			lane[j] = ((lane[j] << 23 | lane[j] >> 41) ^
			           (uint64_t)v[i + j]) *
			          0x9e3779b97f4a7c15u;
	for (; i < n; i++)
		lane[0] = (lane[0] ^ (uint64_t)v[i]) * 0xff51afd7ed558ccdu;
	for (int j = 0; j < CHAINS; j++)
		h = hash_u64(h, lane[j]);
	return h;
}

static uint64_t hash_cost(uint64_t h, const struct ferry_problem *p)
{
	const int64_t n_pairs = (int64_t)p->n_ranks * p->n_ranks;

	h = hash_u64(h, p->cost.half_duplex);
	h = hash_array(h, p->cost.alpha_ns, n_pairs);
	h = hash_array(h, p->cost.ps_per_byte, n_pairs);
	h = hash_array(h, p->window, p->n_ranks);
	if (p->cost.expert_bytes)
		return hash_array(h, p->cost.expert_bytes, p->n_experts);
	return hash_u64(h, (uint64_t)p->cost.all_bytes);
}

uint64_t ferry_plan_hash_inputs(const struct ferry_problem *p)
{
	uint64_t h = ferry_placement_hash(p->placement);

	h = hash_array(h, p->loads, p->n_experts);
	h = hash_u64(h, (uint64_t)p->layer);
	h = hash_u64(h, (uint64_t)p->max_swaps << 32 | (uint32_t)p->max_copies);
	h = hash_u64(h, (uint64_t)p->rule << 32 | (uint32_t)p->gamma_milli);
	h = hash_u64(h, (uint64_t)p->threshold_ppm);
	h = hash_u64(h, (uint64_t)p->spare_copies << 3 |
	                        (uint64_t)p->thorough << 2 |
	                        (uint64_t)p->has_speed << 1 | p->has_cost);
	for (int32_t r = 0; p->has_speed && r < p->n_ranks; r++)
		h = hash_u64(h, (uint64_t)p->speed[r]);
	return p->has_cost ? hash_cost(h, p) : h;
}
