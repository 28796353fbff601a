/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_digest [SEED [PLANS]]: digests of many random plans, with all that
 * comes from pure functions around them, one line for every hundred.
 * plan_builds.sh compares them between compilers.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/eplb.h>

#include "core/bits.h"
#include "plan_case.h"

enum { LINE = 100 };

/* A program without a test framework: what should not fail ends it. */
static void must(enum ferry_status status)
{
	if (status == FERRY_OK)
		return;
	fprintf(stderr, "%s\n", ferry_last_error());
	exit(1);
}

static struct plan_kind draw_kind(uint64_t *seed)
{
	const uint64_t bits = rng_next(seed);
	struct plan_kind k = {.min_ranks = 1, .max_ranks = 64};

	k.max_slots = bits & 1 ? 128 : 512;
	k.max_ranks = bits & 2 ? 8 : 64;
	k.max_swaps = bits & 4 ? 2 : 16;
	k.uneven = bits >> 3 & 1;
	k.empty = bits >> 4 & 1;
	k.replicas = bits >> 5 & 1;
	k.speeds = bits >> 6 & 1;
	k.costs = bits >> 7 & 1;
	k.spread = bits >> 8 & 1;
	k.split = (enum ferry_split)((bits >> 9) % 3);
	return k;
}

static void draw_options(struct ferry_plan_in *in, uint64_t *seed)
{
	const uint64_t bits = rng_next(seed);
	static const int32_t gammas[] = {0, -1, 100, 3000};

	in->layer = (int32_t)(bits & 63);
	in->tight_bound = bits >> 6 & 1;
	in->rule = (enum ferry_plan_rule)(bits >> 7 & 1 ? 0 : (bits >> 8) % 3);
	in->gamma_milli = gammas[bits >> 16 & 3];
	in->threshold_ppm = bits >> 18 & 1 ? 1200000 : 0;
	/* Windows that let something move. */
	for (int32_t r = 0; in->cost && r < in->cost->n_ranks; r++)
		((int64_t *)(uintptr_t)in->rank_window_ns)[r] *= 4;
}

static uint64_t digest_moves(uint64_t h, const struct ferry_plan_in *in,
                             const struct ferry_plan *plan)
{
	char text[512];

	for (int32_t i = 0; i < plan->n_moves; i++) {
		const struct ferry_move *const m = &plan->moves[i];

		h = hash_u64(h, (uint64_t)m->kind);
		h = hash_u64(h, (uint64_t)m->expert);
		h = hash_u64(h, (uint64_t)m->other);
		h = hash_u64(h, (uint64_t)m->from_slot);
		h = hash_u64(h, (uint64_t)m->to_slot);
		h = hash_u64(h, (uint64_t)m->cost_ns);
		h = hash_u64(h, (uint64_t)m->gain);
		ferry_plan_explain(in, plan, i, text, sizeof(text));
		h = hash_text(h, text);
	}
	return h;
}

static uint64_t digest_numbers(uint64_t h, const int64_t *v, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		h = hash_u64(h, (uint64_t)v[i]);
	return h;
}

/* What is planned from the same loads without a plan. */
static uint64_t digest_rest(uint64_t h, const struct plan_case *c,
                            const struct ferry_plan *plan)
{
	struct ferry_placement *next;
	int64_t v[PLAN_CASE_SLOTS];
	int64_t most;

	must(ferry_plan_apply(c->placement, plan, c->loads, &next));
	h = hash_u64(h, ferry_placement_hash(next));
	must(ferry_rank_loads(next, c->loads, v));
	h = digest_numbers(h, v, c->n_ranks);
	must(ferry_split_quotas(next, c->loads, c->in.speed, v, &most));
	h = digest_numbers(hash_u64(h, (uint64_t)most), v, c->n_slots);
	ferry_placement_destroy(next);
	return h;
}

static uint64_t digest_eplb(uint64_t h, const struct plan_case *c)
{
	struct ferry_eplb_config config = FERRY_EPLB_CONFIG_INIT;
	int32_t slots[PLAN_CASE_SLOTS + PLAN_CASE_RANKS];

	config.n_experts = c->n_experts;
	config.n_ranks = c->n_ranks;
	config.n_slots = c->n_experts + c->n_ranks;
	must(ferry_eplb(&config, c->loads, slots));
	for (int32_t s = 0; s < config.n_slots; s++)
		h = hash_u64(h, (uint64_t)slots[s]);
	return h;
}

static uint64_t digest(struct ferry_planner *planner, struct plan_case *c)
{
	static struct ferry_plan plan = {.size = sizeof(plan)};

	must(ferry_plan_make(planner, &c->in, &plan));
	uint64_t h = hash_u64(plan.hash, (uint64_t)plan.load_before);

	h = hash_u64(h, (uint64_t)plan.load_after);
	h = hash_u64(h, (uint64_t)plan.bound);
	h = hash_u64(h, (uint64_t)plan.total);
	h = hash_u64(h, (uint64_t)plan.n_moves);
	h = digest_moves(h, &c->in, &plan);
	return digest_eplb(digest_rest(h, c, &plan), c);
}

int main(int argc, char **argv)
{
	static struct plan_case c;
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	const int n = argc > 2 ? atoi(argv[2]) : 3000;
	struct ferry_planner *planner;
	uint64_t h = 0;

	must(ferry_planner_create(PLAN_CASE_SLOTS, PLAN_CASE_SLOTS,
	                          PLAN_CASE_RANKS, &planner));
	for (int i = 1; i <= n; i++) {
		const struct plan_kind kind = draw_kind(&seed);

		plan_case_make(&c, &kind, &seed);
		draw_options(&c.in, &seed);
		h = hash_u64(h, digest(planner, &c));
		plan_case_free(&c);
		if (i % LINE == 0)
			printf("%d %016llx\n", i, (unsigned long long)h);
	}
	ferry_planner_destroy(planner);
	return 0;
}
