/* SPDX-License-Identifier: Apache-2.0 */
/* Random planning problems. */
#include "plan_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"

static int32_t below(uint64_t *seed, int64_t n)
{
	return (int32_t)(rng_next(seed) % (uint64_t)n);
}

static void make_slots(struct plan_case *c, const struct plan_kind *kind,
                       uint64_t *seed)
{
	const int32_t most = kind->max_slots / c->n_ranks;
	const int32_t even = 1 + below(seed, most);

	c->n_slots = 0;
	for (int32_t r = 0; r < c->n_ranks; r++) {
		c->slots_of[r] = kind->uneven ? below(seed, most + 1) : even;
		if (r == c->n_ranks - 1 && c->n_slots == 0)
			c->slots_of[r] = even;
		for (int32_t i = 0; i < c->slots_of[r]; i++)
			c->rank_of[c->n_slots++] = r;
	}
}

static bool is_on(const struct plan_case *c, int32_t expert, int32_t rank)
{
	for (int32_t s = c->n_slots - 1; s >= 0; s--)
		if (c->rank_of[s] == rank && c->slot_expert[s] == expert)
			return true;
	return false;
}

/* A slot holds a new expert, no expert, or a replica of an earlier one. */
static void make_map(struct plan_case *c, const struct plan_kind *kind,
                     uint64_t *seed)
{
	memset(c->slot_expert, -1, sizeof(c->slot_expert));
	c->n_experts = 0;
	for (int32_t s = 0; s < c->n_slots; s++) {
		const int32_t dice = c->n_experts ? below(seed, 4) : 3;
		const int32_t earlier =
			c->n_experts ? below(seed, c->n_experts) : 0;

		if (kind->empty && dice == 0)
			continue;
		if (kind->replicas && dice == 1 &&
		    !is_on(c, earlier, c->rank_of[s]))
			c->slot_expert[s] = earlier;
		else
			c->slot_expert[s] = c->n_experts++;
		c->quota[s] = below(seed, 5);
	}
}

static void make_loads(struct plan_case *c, const struct plan_kind *kind,
                       uint64_t *seed)
{
	const int32_t range = 1 + below(seed, 40);

	for (int32_t e = 0; e < c->n_experts; e++) {
		if (kind->spread) {
			c->loads[e] = 1 + below(seed, 1 << 20);
			c->loads[e] <<= below(seed, 10);
			continue;
		}
		c->loads[e] = below(seed, range);
		if (below(seed, 4) == 0)
			c->loads[e] *= 1 + below(seed, 8);
	}
}

static void make_costs(struct plan_case *c, uint64_t *seed)
{
	for (int32_t i = 0; i < c->n_ranks * c->n_ranks; i++) {
		c->alpha[i] = 1 + below(seed, 10);
		c->ps[i] = 500 * below(seed, 8);
	}
	for (int32_t e = 0; e < c->n_experts; e++)
		c->bytes[e] = 1 + below(seed, 5);
	for (int32_t r = 0; r < c->n_ranks; r++)
		c->window[r] = below(seed, 60);
	c->cost = (struct ferry_cost)FERRY_COST_INIT;
	c->cost.n_ranks = c->n_ranks;
	c->cost.alpha_ns = c->alpha;
	c->cost.ps_per_byte = c->ps;
	c->cost.all_bytes = 3;
	c->cost.half_duplex = below(seed, 3) == 0;
	if (below(seed, 2))
		c->cost.expert_bytes = c->bytes;
	c->in.cost = &c->cost;
	c->in.rank_window_ns = c->window;
}

void plan_case_bind(struct plan_case *c)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;

	config.n_experts = c->n_experts;
	config.n_ranks = c->n_ranks;
	config.expert_slots = c->slots_of;
	config.slot_expert = c->slot_expert;
	config.split = c->split;
	if (c->split == FERRY_SPLIT_QUOTA)
		config.quota = c->quota;
	if (ferry_placement_create(&config, &c->placement)) {
		fprintf(stderr, "%s\n", ferry_last_error());
		abort();
	}
	c->in.placement = c->placement;
	c->in.loads = c->loads;
}

void plan_case_make(struct plan_case *c, const struct plan_kind *kind,
                    uint64_t *seed)
{
	memset(c, 0, sizeof(*c));
	c->n_ranks = kind->min_ranks +
	             below(seed, kind->max_ranks - kind->min_ranks + 1);
	c->split = kind->split;
	make_slots(c, kind, seed);
	make_map(c, kind, seed);
	make_loads(c, kind, seed);
	for (int32_t r = 0; r < c->n_ranks; r++)
		c->speed[r] = 200 * (1 + below(seed, 9));
	c->in = (struct ferry_plan_in)FERRY_PLAN_IN_INIT;
	c->in.speed = kind->speeds ? c->speed : NULL;
	c->in.max_swaps = 1 + below(seed, kind->max_swaps);
	c->in.max_copies = kind->empty ? below(seed, 3) : 0;
	if (kind->costs)
		make_costs(c, seed);
	plan_case_bind(c);
}

void plan_case_free(struct plan_case *c)
{
	ferry_placement_destroy(c->placement);
}

const char *plan_case_text(const struct plan_case *c)
{
	static char text[2048];
	size_t n =
		(size_t)snprintf(text, sizeof(text),
	                         "swaps %d copies %d, slots rank:expert(load)",
	                         c->in.max_swaps, c->in.max_copies);

	for (int32_t s = 0; s < c->n_slots && n < sizeof(text); s++) {
		const int32_t e = c->slot_expert[s];

		n += (size_t)snprintf(text + n, sizeof(text) - n,
		                      " %d:%d(%lld)", c->rank_of[s], e,
		                      e < 0 ? 0LL : (long long)c->loads[e]);
	}
	for (int32_t r = 0; c->in.speed && r < c->n_ranks && n < sizeof(text);
	     r++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, " speed %d",
		                      c->speed[r]);
	return text;
}
