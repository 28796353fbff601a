/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what is to be planned, and counts the loads of slots and ranks. */
#include "problem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/placement_inner.h"
#include "../core/range.h"
#include "../core/sized.h"

enum { MAX_SPEED = 1000000, MAX_GAMMA_MILLI = 100000, WEIGHT_BITS = 22 };

/* Above these, no sum of costs could overflow any more. */
#define MAX_ALPHA_NS    (((int64_t)1 << 50) - 1)
#define MAX_PS_PER_BYTE (((int64_t)1 << 40) - 1)
#define MAX_BYTES       (((int64_t)1 << 50) - 1)

static enum ferry_status check_size(const char *name, int32_t n, int32_t most)
{
	if (n >= 1 && n <= most)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "planner: %s is %d, allowed are 1..%d", name, n,
	                  most);
}

enum ferry_status ferry_problem_init(struct ferry_problem *p,
                                     int32_t max_experts, int32_t max_slots,
                                     int32_t max_ranks)
{
	memset(p, 0, sizeof(*p));
	FERRY_TRY(check_size("max_experts", max_experts, FERRY_MAX_EXPERTS));
	FERRY_TRY(check_size("max_slots", max_slots, FERRY_MAX_EXPERTS));
	FERRY_TRY(check_size("max_ranks", max_ranks, FERRY_MAX_RANKS));
	const size_t n_slots = (size_t)max_slots;
	const size_t n_ranks = (size_t)max_ranks;

	p->max_experts = max_experts;
	p->max_slots = max_slots;
	p->max_ranks = max_ranks;
	p->slot_load = malloc(n_slots * sizeof(*p->slot_load));
	p->rank_load = malloc(n_ranks * sizeof(*p->rank_load));
	p->speed = malloc(n_ranks * sizeof(*p->speed));
	p->weight = malloc(n_ranks * sizeof(*p->weight));
	p->window = malloc(n_ranks * sizeof(*p->window));
	enum ferry_status status = FERRY_OK;

	if (!p->slot_load || !p->rank_load || !p->speed || !p->weight ||
	    !p->window)
		status = ferry_fail(NULL, FERRY_NOMEM,
		                    "planner: %d slots, %d ranks", max_slots,
		                    max_ranks);
	if (!status)
		status = ferry_sharing_init(&p->sharing, max_experts, max_slots,
		                            max_ranks);
	if (status)
		ferry_problem_destroy(p);
	return status;
}

void ferry_problem_destroy(struct ferry_problem *p)
{
	free(p->slot_load);
	free(p->rank_load);
	free(p->speed);
	free(p->weight);
	free(p->window);
	ferry_sharing_destroy(&p->sharing);
	memset(p, 0, sizeof(*p));
}

/* The first value of v[n] outside 0..most; -1: none. */
static int64_t find_beyond(const int64_t *v, int64_t n, int64_t most)
{
	for (int64_t i = 0; i < n; i++)
		if (v[i] < 0 || v[i] > most)
			return i;
	return -1;
}

/*
 * 0 where all of v[n] are 0..most, most being a power of two less one. Without
 * a branch, since a plan of many ranks reads large tables.
 */
static int64_t stray_bits(const int64_t *v, int64_t n, int64_t most)
{
	int64_t seen = 0;

	for (int64_t i = 0; i < n; i++)
		seen |= v[i];
	return seen & ~most;
}

static enum ferry_status check_values(const char *name, const int64_t *v,
                                      int64_t n, int64_t most)
{
	if (!v)
		return ferry_fail(NULL, FERRY_INVAL, "plan: %s is NULL", name);
	if (!stray_bits(v, n, most))
		return FERRY_OK;
	const int64_t i = find_beyond(v, n, most);

	return ferry_fail(NULL, FERRY_RANGE,
	                  "plan: %s[%lld] is %lld, allowed are 0..%lld", name,
	                  (long long)i, (long long)v[i], (long long)most);
}

static enum ferry_status refuse_loads(const char *what, const int64_t *loads,
                                      int32_t n_experts, int64_t sum)
{
	const int64_t e = find_beyond(loads, n_experts, FERRY_MAX_LOAD);

	if (e >= 0)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "%s: loads[%lld] is %lld, allowed are "
		                  "0..%lld",
		                  what, (long long)e, (long long)loads[e],
		                  (long long)FERRY_MAX_LOAD);
	return ferry_fail(NULL, FERRY_RANGE,
	                  "%s: the sum of loads[0..%d] is %lld, allowed are "
	                  "0..%lld",
	                  what, n_experts - 1, (long long)sum,
	                  (long long)FERRY_MAX_LOAD);
}

enum ferry_status ferry_check_loads(const char *what, const int64_t *loads,
                                    int32_t n_experts, int64_t *total)
{
	int64_t sum = 0;

	if (!loads)
		return ferry_fail(NULL, FERRY_INVAL, "%s: loads is NULL", what);
	/* With these bits clear, no sum of 2^24 loads overflows. */
	if (stray_bits(loads, n_experts, 2 * FERRY_MAX_LOAD - 1))
		return refuse_loads(what, loads, n_experts, 0);
	for (int32_t e = 0; e < n_experts; e++)
		sum += loads[e];
	if (sum > FERRY_MAX_LOAD)
		return refuse_loads(what, loads, n_experts, sum);
	*total = sum;
	return FERRY_OK;
}

enum ferry_status ferry_check_speed(const char *what, const int32_t *speed,
                                    int32_t n_ranks)
{
	for (int32_t r = 0; speed && r < n_ranks; r++)
		if (speed[r] < 1 || speed[r] > MAX_SPEED)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "%s: speed[%d] is %d, allowed are "
			                  "1..%d",
			                  what, r, speed[r], MAX_SPEED);
	return FERRY_OK;
}

static enum ferry_status check_options(const struct ferry_plan_in *in)
{
	FERRY_TRY(check_range(NULL, "plan", "max_swaps", in->max_swaps, -1,
	                      FERRY_PLAN_MOVES));
	FERRY_TRY(check_range(NULL, "plan", "max_copies", in->max_copies, 0,
	                      FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(NULL, "plan", "threshold_ppm", in->threshold_ppm,
	                      0, (int64_t)1 << 40));
	FERRY_TRY(check_range(NULL, "plan", "rule", (int64_t)in->rule, 0,
	                      FERRY_RULE_RESELECT));
	return check_range(NULL, "plan", "gamma_milli", in->gamma_milli, -1,
	                   MAX_GAMMA_MILLI);
}

/* Nothing is measured against a window without costs: a caller's slip. */
static enum ferry_status check_no_window(const struct ferry_plan_in *in)
{
	if (in->rank_window_ns)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "plan: rank_window_ns is set and cost is "
		                  "NULL: a window needs costs");
	if (in->window_ns)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "plan: window_ns is %" PRId64 " and cost is "
		                  "NULL: a window needs costs",
		                  in->window_ns);
	return FERRY_OK;
}

static enum ferry_status take_cost(struct ferry_problem *p,
                                   const struct ferry_plan_in *in)
{
	p->has_cost = in->cost != NULL;
	p->uneven_bytes = false;
	memset(&p->cost, 0, sizeof(p->cost));
	if (!in->cost)
		return check_no_window(in);
	FERRY_TRY(ferry_sized_copy(&p->cost, sizeof(p->cost), in->cost,
	                           "plan cost"));
	const int64_t n_pairs = (int64_t)p->n_ranks * p->n_ranks;

	if (p->cost.n_ranks != p->n_ranks)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "plan: cost.n_ranks is %d, the placement has "
		                  "%d ranks",
		                  p->cost.n_ranks, p->n_ranks);
	FERRY_TRY(check_values("cost.alpha_ns", p->cost.alpha_ns, n_pairs,
	                       MAX_ALPHA_NS));
	FERRY_TRY(check_values("cost.ps_per_byte", p->cost.ps_per_byte, n_pairs,
	                       MAX_PS_PER_BYTE));
	if (!p->cost.expert_bytes) {
		p->least_bytes = p->cost.all_bytes;
		p->uneven_bytes = false;
		return check_range(NULL, "plan", "cost.all_bytes",
		                   p->cost.all_bytes, 0, MAX_BYTES);
	}
	p->least_bytes = MAX_BYTES;
	p->uneven_bytes = false;
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int64_t bytes = p->cost.expert_bytes[e];

		p->least_bytes = min_i64(p->least_bytes, bytes);
		p->uneven_bytes |= bytes != p->cost.expert_bytes[0];
	}
	return check_values("cost.expert_bytes", p->cost.expert_bytes,
	                    p->n_experts, MAX_BYTES);
}

static void take_windows(struct ferry_problem *p,
                         const struct ferry_plan_in *in)
{
	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int64_t ns = in->rank_window_ns ? in->rank_window_ns[r]
		                                      : in->window_ns;

		/* Below 0 not even a transfer that takes no time fits. */
		p->window[r] = ns > 0 ? min_i64(ns, FERRY_COST_NEVER - 1) : -1;
	}
}

static int32_t bits_of(int64_t n)
{
	int32_t bits = 0;

	for (; n; n >>= 1)
		bits++;
	return bits;
}

static void take_speed(struct ferry_problem *p, const struct ferry_plan_in *in)
{
	int32_t least = MAX_SPEED;

	p->has_speed = false;
	p->sum_speed = 0;
	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int32_t s = in->speed ? in->speed[r] : FERRY_SPEED_NORMAL;

		p->speed[r] = s;
		p->weight[r] = 1;
		p->sum_speed += s;
		p->has_speed |= s != p->speed[0];
		least = s < least ? s : least;
	}
	if (!p->has_speed)
		return;
	int32_t bits = 54 - bits_of(p->n_ranks) - bits_of(p->total);

	bits = bits > WEIGHT_BITS ? WEIGHT_BITS : bits < 0 ? 0 : bits;
	for (int32_t r = 0; r < p->n_ranks; r++) {
		const int64_t s = p->speed[r];

		p->weight[r] =
			max_i64(1, (((int64_t)least << bits) + s / 2) / s);
	}
}

void ferry_share_even(int64_t load, const int32_t *slots, int32_t n,
                      int64_t *slot_load)
{
	for (int32_t i = 0; i < n; i++)
		slot_load[slots[i]] = load / n + (i < load % n);
}

void ferry_share_by_quota(int64_t load, const int32_t *slots, int32_t n,
                          const int64_t *quota, int64_t *slot_load)
{
	__uint128_t sum = 0;
	__uint128_t upto = 0;
	int64_t given = 0;

	for (int32_t i = 0; i < n; i++)
		sum += (__uint128_t)quota[slots[i]];
	if (!sum) {
		ferry_share_even(load, slots, n, slot_load);
		return;
	}
	/* Differences of running sums: rounding never loses a token. */
	for (int32_t i = 0; i < n; i++) {
		upto += (__uint128_t)quota[slots[i]];
		const int64_t end = (int64_t)((__uint128_t)load * upto / sum);

		slot_load[slots[i]] = end - given;
		given = end;
	}
}

static void share_load(struct ferry_problem *p, int32_t expert)
{
	const int32_t *const slots = p->replicas + p->first_replica[expert];
	const int32_t n = placement_n_replicas(p->placement, expert);

	if (p->placement->split == FERRY_SPLIT_QUOTA)
		ferry_share_by_quota(p->loads[expert], slots, n,
		                     p->placement->quota, p->slot_load);
	else
		ferry_share_even(p->loads[expert], slots, n, p->slot_load);
}

/* Slot loads of experts with a choice, as ferry_split_quotas would do it. */
static void share_exactly(struct ferry_problem *p)
{
	struct ferry_sharing *const s = &p->sharing;

	ferry_sharing_ask(s, p->placement, p->loads,
	                  p->has_speed ? p->speed : NULL);
	ferry_sharing_answer(s);
	for (int32_t e = 0; e < s->in.n_experts; e++) {
		const int32_t begin = s->in.first[e];
		const int32_t *const slots =
			p->replicas + p->first_replica[s->expert[e]];

		for (int32_t i = begin; i < s->in.first[e + 1]; i++)
			p->slot_load[slots[i - begin]] = s->room.share[i];
	}
}

static void take_loads(struct ferry_problem *p)
{
	const bool exact = p->placement->split == FERRY_SPLIT_EXACT;

	memset(p->slot_load, 0, (size_t)p->n_slots * sizeof(*p->slot_load));
	p->has_replicas = false;
	for (int32_t e = 0; e < p->n_experts; e++) {
		const int32_t first = p->first_replica[e];

		if (p->first_replica[e + 1] - first == 1) {
			p->slot_load[p->replicas[first]] = p->loads[e];
			continue;
		}
		p->has_replicas = true;
		if (!exact)
			share_load(p, e);
	}
	if (exact && p->has_replicas)
		share_exactly(p);
	for (int32_t r = 0; r < p->n_ranks; r++) {
		int64_t sum = 0;

		for (int32_t s = p->first_slot[r]; s < p->first_slot[r + 1];
		     s++)
			sum += p->slot_load[s];
		p->rank_load[r] = sum;
	}
}

static enum ferry_status take_placement(struct ferry_problem *p,
                                        const struct ferry_placement *map)
{
	if (!map)
		return ferry_fail(NULL, FERRY_INVAL, "plan: placement is NULL");
	p->placement = map;
	p->n_experts = map->n_experts;
	p->n_ranks = map->map.n_ranks;
	p->n_slots = map->map.n_slots;
	p->first_slot = map->map.first_slot;
	p->slot_rank = map->map.slot_rank;
	p->slot_expert = map->slot_expert;
	p->first_replica = map->first_replica;
	p->replicas = map->replicas;
	if (p->n_experts <= p->max_experts && p->n_ranks <= p->max_ranks &&
	    p->n_slots <= p->max_slots)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "plan: the placement has %d experts, %d slots, %d "
	                  "ranks, the planner is for %d, %d, %d",
	                  p->n_experts, p->n_slots, p->n_ranks, p->max_experts,
	                  p->max_slots, p->max_ranks);
}

enum ferry_status ferry_problem_fill(struct ferry_problem *p,
                                     const struct ferry_plan_in *in)
{
	FERRY_TRY(take_placement(p, in->placement));
	FERRY_TRY(
		ferry_check_loads("plan", in->loads, p->n_experts, &p->total));
	FERRY_TRY(ferry_check_speed("plan", in->speed, p->n_ranks));
	FERRY_TRY(check_options(in));
	FERRY_TRY(take_cost(p, in));
	take_windows(p, in);
	p->loads = in->loads;
	p->layer = in->layer;
	p->max_swaps = in->max_swaps == 0  ? FERRY_PLAN_MOVES
	               : in->max_swaps < 0 ? 0
	                                   : in->max_swaps;
	p->max_copies = in->max_copies;
	p->threshold_ppm = in->threshold_ppm;
	p->rule = in->rule;
	p->gamma_milli = in->gamma_milli == 0  ? 500
	                 : in->gamma_milli < 0 ? 0
	                                       : in->gamma_milli;
	p->tight_bound = in->tight_bound;
	p->thorough = in->thorough;
	p->spare_copies = in->spare_copies;
	take_speed(p, in);
	take_loads(p);
	return FERRY_OK;
}

int64_t ferry_problem_max_load(const struct ferry_problem *p,
                               const int64_t *rank_load)
{
	int64_t most = 0;

	if (!p->has_speed) { /* one division for all */
		for (int32_t r = 0; r < p->n_ranks; r++)
			most = max_i64(most, rank_load[r]);
		return ferry_normal_load(most, p->speed[0]);
	}
	for (int32_t r = 0; r < p->n_ranks; r++)
		most = max_i64(most,
		               ferry_normal_load(rank_load[r], p->speed[r]));
	return most;
}

int64_t ferry_problem_transfer_ns(const struct ferry_problem *p, int32_t a,
                                  int32_t b, int64_t bytes)
{
	const int64_t link = (int64_t)a * p->n_ranks + b;
	const __int128_t ps = (__int128_t)bytes * p->cost.ps_per_byte[link];
	const __int128_t ns = p->cost.alpha_ns[link] + (ps + 999) / 1000;

	return ns < FERRY_COST_NEVER ? (int64_t)ns : FERRY_COST_NEVER;
}
