/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan of a tiny problem, by trying all. */
#include "brute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"

/* The text of ferry_fail, and the end: a test that cannot go on. */
static void must(enum ferry_status status)
{
	if (status == FERRY_OK)
		return;
	fprintf(stderr, "%s\n", ferry_last_error());
	abort();
}

/* Whether the map has an expert on a rank. */
static bool on_rank(const struct plan_case *b, const int32_t *slot_expert,
                    int32_t expert, int32_t rank)
{
	for (int32_t s = 0; s < b->n_slots; s++)
		if (slot_expert[s] == expert && b->rank_of[s] == rank)
			return true;
	return false;
}

/* A state of the search: what has moved so far. */
struct search {
	const struct plan_case *b;
	int32_t slot_expert[BRUTE_SLOTS];
	bool slot_used[BRUTE_SLOTS];
	int32_t swapped[BRUTE_SLOTS]; /* expert is in a swap */
	int32_t copied[BRUTE_SLOTS];  /* copies of it */
	int32_t copies[BRUTE_RANKS];  /* into each rank */
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

static int64_t transfer_ns(const struct plan_case *b, int32_t from, int32_t to,
                           int32_t expert)
{
	const int32_t link = from * b->n_ranks + to;
	const int64_t bytes =
		b->cost.expert_bytes ? b->bytes[expert] : b->cost.all_bytes;

	return b->alpha[link] + div_up(bytes * b->ps[link], 1000);
}

/* ns of the outgoing side of `from` and the incoming one of `to`. */
static void book(struct search *s, int32_t from, int32_t to, int64_t ns)
{
	s->out_ns[from] += ns;
	s->in_ns[to] += ns;
}

static bool fits(const struct search *s, int32_t r)
{
	const int64_t out = s->out_ns[r];
	const int64_t in = s->in_ns[r];
	const int64_t window = s->b->window[r];

	if (s->b->cost.half_duplex)
		return window > 0 && out + in <= window;
	return window > 0 && out <= window && in <= window;
}

/* A swap's time on a half-duplex link counts once on either rank. */
static int64_t half_ns(const struct plan_case *b, int32_t ra, int32_t ea,
                       int32_t rb, int32_t eb)
{
	const int64_t alpha = max_i64(b->alpha[ra * b->n_ranks + rb],
	                              b->alpha[rb * b->n_ranks + ra]);

	return transfer_ns(b, ra, rb, ea) + transfer_ns(b, rb, ra, eb) - alpha;
}

/* Books a move (sign 1), eb -1 being a copy, or takes it back (-1). */
static bool transfer(struct search *s, int32_t ra, int32_t ea, int32_t rb,
                     int32_t eb, int64_t sign)
{
	if (!s->b->in.cost)
		return true;
	if (eb < 0) {
		book(s, ra, rb, sign * transfer_ns(s->b, ra, rb, ea));
	} else if (s->b->cost.half_duplex) {
		book(s, ra, rb, sign * half_ns(s->b, ra, ea, rb, eb));
	} else {
		book(s, ra, rb, sign * transfer_ns(s->b, ra, rb, ea));
		book(s, rb, ra, sign * transfer_ns(s->b, rb, ra, eb));
	}
	return fits(s, ra) && fits(s, rb);
}

/* Moves come in order of (slot, slot), so that each set is tried once. */
static void search(struct search *s, int32_t from);

static void mark_swap(struct search *s, int32_t a, int32_t b, int32_t by)
{
	s->slot_used[a] = s->slot_used[b] = by > 0;
	s->swapped[s->slot_expert[a]] += by;
	s->swapped[s->slot_expert[b]] += by;
	s->n_swaps += by;
}

static void try_swap(struct search *s, int32_t a, int32_t b, int32_t next)
{
	const int32_t rank_a = s->b->rank_of[a];
	const int32_t rank_b = s->b->rank_of[b];
	const int32_t ea = s->slot_expert[a];
	const int32_t eb = s->slot_expert[b];

	if (s->n_swaps == s->b->in.max_swaps || s->swapped[ea] ||
	    s->swapped[eb] || s->copied[ea] || s->copied[eb] ||
	    on_rank(s->b, s->slot_expert, ea, rank_b) ||
	    on_rank(s->b, s->slot_expert, eb, rank_a))
		return;
	if (transfer(s, rank_a, ea, rank_b, eb, 1)) {
		s->slot_expert[a] = eb;
		s->slot_expert[b] = ea;
		mark_swap(s, a, b, 1);
		search(s, next);
		mark_swap(s, a, b, -1);
		s->slot_expert[a] = ea;
		s->slot_expert[b] = eb;
	}
	transfer(s, rank_a, ea, rank_b, eb, -1);
}

static void try_copy(struct search *s, int32_t from, int32_t to, int32_t next)
{
	const int32_t rank_to = s->b->rank_of[to];
	const int32_t e = s->slot_expert[from];

	if (s->copies[rank_to] == s->b->in.max_copies || s->swapped[e] ||
	    on_rank(s->b, s->slot_expert, e, rank_to))
		return;
	if (transfer(s, s->b->rank_of[from], e, rank_to, -1, 1)) {
		s->slot_expert[to] = e;
		s->copies[rank_to]++;
		s->copied[e]++;
		s->slot_used[to] = true;
		search(s, next);
		s->slot_used[to] = false;
		s->copied[e]--;
		s->copies[rank_to]--;
		s->slot_expert[to] = -1;
	}
	transfer(s, s->b->rank_of[from], e, rank_to, -1, -1);
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

int64_t brute_best(const struct plan_case *b)
{
	struct search s = {.b = b, .best = INT64_MAX};

	if (b->n_ranks > BRUTE_RANKS || b->n_slots > BRUTE_SLOTS)
		abort();
	memcpy(s.slot_expert, b->slot_expert, sizeof(s.slot_expert));
	search(&s, 0);
	return s.best;
}
