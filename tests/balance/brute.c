/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny random planning problems, and their optimum by trying all plans. */
#include "brute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"

static int32_t below(uint64_t *seed, int64_t n)
{
	return (int32_t)(rng_next(seed) % (uint64_t)n);
}

/* ferry_fail's text, and the end: a test that cannot go on. */
static void must(enum ferry_status status)
{
	if (status == FERRY_OK)
		return;
	fprintf(stderr, "%s\n", ferry_last_error());
	abort();
}

static bool on_rank(const struct brute *b, const int32_t *slot_expert,
                    int32_t expert, int32_t rank)
{
	for (int32_t s = 0; s < b->n_slots; s++)
		if (slot_expert[s] == expert && b->rank_of[s] == rank)
			return true;
	return false;
}

static void make_slots(struct brute *b, const struct brute_kind *kind,
                       uint64_t *seed)
{
	const int32_t most = kind->max_slots / b->n_ranks;
	const int32_t even = 1 + below(seed, most);

	b->n_slots = 0;
	for (int32_t r = 0; r < b->n_ranks; r++) {
		b->slots_of[r] = kind->uneven ? below(seed, most + 1) : even;
		if (r == b->n_ranks - 1 && b->n_slots == 0)
			b->slots_of[r] = even;
		for (int32_t i = 0; i < b->slots_of[r]; i++)
			b->rank_of[b->n_slots++] = r;
	}
}

/* A slot holds a new expert, no expert, or a replica of an earlier one. */
static void make_map(struct brute *b, const struct brute_kind *kind,
                     uint64_t *seed)
{
	b->n_experts = 0;
	for (int32_t s = 0; s < b->n_slots; s++) {
		const int32_t dice = below(seed, 4);

		b->slot_expert[s] = -1;
		if (kind->empty && dice == 0 && b->n_experts)
			continue;
		if (kind->replicas && dice == 1 && b->n_experts) {
			const int32_t e = below(seed, b->n_experts);

			if (!on_rank(b, b->slot_expert, e, b->rank_of[s])) {
				b->slot_expert[s] = e;
				continue;
			}
		}
		b->slot_expert[s] = b->n_experts++;
	}
}

/* Some are alike, some are heavy, some are nothing. */
static void make_loads(struct brute *b, uint64_t *seed)
{
	const int32_t range = 1 + below(seed, 40);

	for (int32_t e = 0; e < b->n_experts; e++) {
		b->loads[e] = below(seed, range);
		if (below(seed, 4) == 0)
			b->loads[e] *= 1 + below(seed, 8);
	}
}

static void make_costs(struct brute *b, uint64_t *seed)
{
	const int32_t n_pairs = b->n_ranks * b->n_ranks;

	for (int32_t i = 0; i < n_pairs; i++) {
		b->alpha[i] = below(seed, 10);
		b->ps[i] = 1000 * below(seed, 4);
	}
	for (int32_t e = 0; e < b->n_experts; e++)
		b->bytes[e] = 1 + below(seed, 5);
	for (int32_t r = 0; r < b->n_ranks; r++)
		b->window[r] = below(seed, 60);
	b->cost = (struct ferry_cost)FERRY_COST_INIT;
	b->cost.n_ranks = b->n_ranks;
	b->cost.alpha_ns = b->alpha;
	b->cost.ps_per_byte = b->ps;
	b->cost.all_bytes = 3;
	if (below(seed, 2))
		b->cost.expert_bytes = b->bytes;
	b->in.cost = &b->cost;
	b->in.rank_window_ns = b->window;
}

void brute_make(struct brute *b, const struct brute_kind *kind, uint64_t *seed)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	memset(b, 0, sizeof(*b));
	b->n_ranks = kind->min_ranks +
	             below(seed, kind->max_ranks - kind->min_ranks + 1);
	make_slots(b, kind, seed);
	make_map(b, kind, seed);
	make_loads(b, seed);
	for (int32_t r = 0; r < b->n_ranks; r++)
		b->speed[r] = 200 * (1 + below(seed, 9));
	c.n_experts = b->n_experts;
	c.n_ranks = b->n_ranks;
	c.expert_slots = b->slots_of;
	c.slot_expert = b->slot_expert;
	c.split = b->split = kind->split;
	must(ferry_placement_create(&c, &b->placement));
	b->in = (struct ferry_plan_in)FERRY_PLAN_IN_INIT;
	b->in.placement = b->placement;
	b->in.loads = b->loads;
	b->in.speed = kind->speeds ? b->speed : NULL;
	b->in.max_swaps = 1 + below(seed, kind->max_swaps);
	b->in.max_copies = kind->empty ? below(seed, 3) : 0;
	if (kind->costs)
		make_costs(b, seed);
}

void brute_free(struct brute *b)
{
	ferry_placement_destroy(b->placement);
}

/* A state of the search: what has moved so far. */
struct search {
	const struct brute *b;
	int32_t slot_expert[BRUTE_SLOTS];
	bool slot_used[BRUTE_SLOTS];
	bool expert_used[BRUTE_SLOTS];
	int32_t copies[BRUTE_RANKS]; /* into each rank */
	int64_t out_ns[BRUTE_RANKS];
	int64_t in_ns[BRUTE_RANKS];
	int32_t n_swaps;
	int64_t best;
};

/* Parts that are as even as can be, the lower slots one more. */
static int64_t even_max(const struct search *s)
{
	int64_t load[BRUTE_RANKS] = {0};
	int64_t best = 0;

	for (int32_t e = 0; e < s->b->n_experts; e++) {
		int32_t n = 0;
		int32_t i = 0;

		for (int32_t k = 0; k < s->b->n_slots; k++)
			n += s->slot_expert[k] == e;
		for (int32_t k = 0; k < s->b->n_slots; k++)
			if (s->slot_expert[k] == e)
				load[s->b->rank_of[k]] +=
					s->b->loads[e] / n +
					(i++ < s->b->loads[e] % n);
	}
	for (int32_t r = 0; r < s->b->n_ranks; r++) {
		const int64_t speed =
			s->b->in.speed ? s->b->speed[r] : FERRY_SPEED_NORMAL;

		best = max_i64(best,
		               div_up(load[r] * FERRY_SPEED_NORMAL, speed));
	}
	return best;
}

/* Parts that make the fullest rank least full. */
static int64_t free_max(const struct search *s)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement;
	int64_t quota[BRUTE_SLOTS];
	int64_t best;

	c.n_experts = s->b->n_experts;
	c.n_ranks = s->b->n_ranks;
	c.expert_slots = s->b->slots_of;
	c.slot_expert = s->slot_expert;
	must(ferry_placement_create(&c, &placement));
	must(ferry_split_quotas(placement, s->b->loads, s->b->in.speed, quota,
	                        &best));
	ferry_placement_destroy(placement);
	return best;
}

static int64_t transfer_ns(const struct brute *b, int32_t from, int32_t to,
                           int32_t expert)
{
	const int32_t link = from * b->n_ranks + to;
	const int64_t bytes =
		b->cost.expert_bytes ? b->bytes[expert] : b->cost.all_bytes;

	return b->alpha[link] + div_up(bytes * b->ps[link], 1000);
}

/* Books a transfer (sign 1) or takes it back (-1); whether it fits. */
static bool transfer(struct search *s, int32_t from, int32_t to, int32_t expert,
                     int64_t sign)
{
	if (!s->b->in.cost)
		return true;
	const int64_t ns = sign * transfer_ns(s->b, from, to, expert);

	s->out_ns[from] += ns;
	s->in_ns[to] += ns;
	return s->out_ns[from] <= s->b->window[from] &&
	       s->in_ns[to] <= s->b->window[to] && s->b->window[from] > 0 &&
	       s->b->window[to] > 0;
}

/* Moves come in order of (slot, slot), so that each set is tried once. */
static void search(struct search *s, int32_t from);

static void mark(struct search *s, int32_t a, int32_t b, bool used)
{
	s->slot_used[a] = s->slot_used[b] = used;
	if (s->slot_expert[a] >= 0)
		s->expert_used[s->slot_expert[a]] = used;
	if (s->slot_expert[b] >= 0)
		s->expert_used[s->slot_expert[b]] = used;
}

static void try_swap(struct search *s, int32_t a, int32_t b, int32_t next)
{
	const int32_t rank_a = s->b->rank_of[a];
	const int32_t rank_b = s->b->rank_of[b];
	const int32_t ea = s->slot_expert[a];
	const int32_t eb = s->slot_expert[b];

	if (s->n_swaps == s->b->in.max_swaps || s->expert_used[ea] ||
	    s->expert_used[eb] || on_rank(s->b, s->slot_expert, ea, rank_b) ||
	    on_rank(s->b, s->slot_expert, eb, rank_a))
		return;
	const bool fits_there = transfer(s, rank_a, rank_b, ea, 1);
	const bool fits_back = transfer(s, rank_b, rank_a, eb, 1);

	if (fits_there && fits_back) {
		s->slot_expert[a] = eb;
		s->slot_expert[b] = ea;
		s->n_swaps++;
		mark(s, a, b, true);
		search(s, next);
		mark(s, a, b, false);
		s->n_swaps--;
		s->slot_expert[a] = ea;
		s->slot_expert[b] = eb;
	}
	transfer(s, rank_a, rank_b, ea, -1);
	transfer(s, rank_b, rank_a, eb, -1);
}

static void try_copy(struct search *s, int32_t from, int32_t to, int32_t next)
{
	const int32_t rank_to = s->b->rank_of[to];
	const int32_t e = s->slot_expert[from];

	if (s->copies[rank_to] == s->b->in.max_copies || s->expert_used[e] ||
	    on_rank(s->b, s->slot_expert, e, rank_to))
		return;
	if (transfer(s, s->b->rank_of[from], rank_to, e, 1)) {
		s->slot_expert[to] = e;
		s->copies[rank_to]++;
		mark(s, from, to, true);
		search(s, next);
		mark(s, from, to, false);
		s->copies[rank_to]--;
		s->slot_expert[to] = -1;
	}
	transfer(s, s->b->rank_of[from], rank_to, e, -1);
}

static void search(struct search *s, int32_t from)
{
	const int32_t n = s->b->n_slots;

	s->best =
		min_i64(s->best, s->b->split == FERRY_SPLIT_EVEN ? even_max(s)
	                                                         : free_max(s));
	for (int32_t i = from; i < n * n; i++) {
		const int32_t a = i / n;
		const int32_t b = i % n;

		if (s->b->rank_of[a] == s->b->rank_of[b] || s->slot_used[a] ||
		    s->slot_used[b] || s->slot_expert[a] < 0)
			continue;
		if (s->slot_expert[b] < 0)
			try_copy(s, a, b, i + 1);
		else if (a < b)
			try_swap(s, a, b, i + 1);
	}
}

int64_t brute_best(const struct brute *b)
{
	struct search s = {.b = b, .best = INT64_MAX};

	memcpy(s.slot_expert, b->slot_expert, sizeof(s.slot_expert));
	search(&s, 0);
	return s.best;
}

const char *brute_text(const struct brute *b)
{
	static char text[1024];
	int n = snprintf(text, sizeof(text), "swaps %d copies %d, slots",
	                 b->in.max_swaps, b->in.max_copies);

	for (int32_t s = 0; s < b->n_slots; s++)
		n += snprintf(text + n, sizeof(text) - (size_t)n,
		              " %d:%d(%lld)", b->rank_of[s], b->slot_expert[s],
		              b->slot_expert[s] < 0
		                      ? 0LL
		                      : (long long)b->loads[b->slot_expert[s]]);
	for (int32_t r = 0; r < b->n_ranks && b->in.speed; r++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " speed %d",
		              b->speed[r]);
	return text;
}
