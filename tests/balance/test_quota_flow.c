/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares by flow against two independent answers: all ways to share tiny
 * instances, and the maximum over all sets of ranks of what is confined to the
 * set (Hall's theorem).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "balance/quotas.h"
#include "core/bits.h"
#include "test_seed.h"

enum { RANKS = 10, EXPERTS = 24, REPLICAS = RANKS * EXPERTS };

static uint64_t seed;

struct instance {
	struct ferry_quota_in in;
	int32_t first[EXPERTS + 1];
	int32_t rank[REPLICAS];
	int64_t load[EXPERTS];
	int64_t fixed[RANKS];
	int32_t speed[RANKS];
	/* room */
	struct ferry_quota_room room;
	int64_t share[REPLICAS];
	int64_t rank_load[RANKS];
	int64_t cap[RANKS];
	int32_t rank_level[RANKS];
	int32_t expert_level[EXPERTS];
};

static int64_t below(int64_t n)
{
	return (int64_t)(rng_next(&seed) % (uint64_t)n);
}

/* Loads up to `most`; every third instance has speeds. */
static void make(struct instance *x, int32_t max_ranks, int32_t max_experts,
                 int64_t most)
{
	memset(x, 0xa5, sizeof(*x));
	x->in.n_ranks = 1 + (int32_t)below(max_ranks);
	x->in.n_experts = (int32_t)below(max_experts + 1);
	if (x->in.n_ranks == 1)
		x->in.n_experts = 0;
	x->first[0] = 0;
	for (int32_t e = 0; e < x->in.n_experts; e++) {
		int32_t n = x->first[e];

		while (n - x->first[e] < 2) {
			n = x->first[e];
			for (int32_t r = 0; r < x->in.n_ranks; r++)
				if (below(3) == 0)
					x->rank[n++] = r;
		}
		x->first[e + 1] = n;
		x->load[e] = below(4) ? below(most + 1) : 0;
	}
	for (int32_t r = 0; r < x->in.n_ranks; r++) {
		x->fixed[r] = below(2) ? below(most + 1) : 0;
		x->speed[r] = 500 + (int32_t)below(1000);
	}
	if (below(4) == 0)
		x->speed[0] = below(2) ? 1 : 1000000;
	x->in.first = x->first;
	x->in.rank = x->rank;
	x->in.load = x->load;
	x->in.fixed = x->fixed;
	x->in.speed = below(3) ? NULL : x->speed;
	x->room = (struct ferry_quota_room){x->share, x->rank_load, x->cap,
	                                    x->rank_level, x->expert_level};
}

/* Shares sum up to loads, of experts and of ranks; the fullest rank's level. */
static int64_t check_sums(const struct instance *x)
{
	int64_t rank_load[RANKS];
	int64_t most = 0;

	memcpy(rank_load, x->fixed, sizeof(rank_load));
	for (int32_t e = 0; e < x->in.n_experts; e++) {
		int64_t sum = 0;

		for (int32_t i = x->first[e]; i < x->first[e + 1]; i++) {
			assert_true(x->share[i] >= 0);
			sum += x->share[i];
			rank_load[x->rank[i]] += x->share[i];
		}
		assert_int_equal(sum, x->load[e]);
	}
	for (int32_t r = 0; r < x->in.n_ranks; r++) {
		assert_int_equal(rank_load[r], x->rank_load[r]);
		most = max_i64(most,
		               quota_level_of(x->in.speed, r, rank_load[r]));
	}
	return most;
}

/* Least level that a set of ranks needs for what cannot leave it. */
static int64_t level_of_set(const struct instance *x, uint32_t set)
{
	int64_t tokens = 0, low = 0, high = FERRY_MAX_LOAD * 1000;

	for (int32_t r = 0; r < x->in.n_ranks; r++)
		tokens += set >> r & 1 ? x->fixed[r] : 0;
	for (int32_t e = 0; e < x->in.n_experts; e++) {
		bool inside = true;

		for (int32_t i = x->first[e]; i < x->first[e + 1]; i++)
			inside &= set >> x->rank[i] & 1;
		tokens += inside ? x->load[e] : 0;
	}
	while (low < high) {
		const int64_t middle = (low + high) / 2;
		int64_t served = 0;

		for (int32_t r = 0; r < x->in.n_ranks; r++)
			if (set >> r & 1)
				served += min_i64(
					quota_capacity(x->in.speed, r, middle),
					FERRY_MAX_LOAD);
		if (served >= tokens)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static int64_t best_level(const struct instance *x)
{
	int64_t level = 0;

	for (uint32_t set = 1; set < 1u << x->in.n_ranks; set++)
		level = max_i64(level, level_of_set(x, set));
	return level;
}

static void level_is_halls(void **state)
{
	static struct instance x;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		static const int64_t most[] = {3, 100, INT64_C(1) << 31,
		                               FERRY_MAX_LOAD / 64};

		make(&x, i % 8 ? 6 : RANKS, i % 8 ? 8 : EXPERTS, most[i % 4]);
		const int64_t level =
			ferry_quota_level(&x.in, &x.room, INT64_MAX);
		const int64_t want = best_level(&x);

		assert_int_equal(level, want);
		assert_int_equal(check_sums(&x), want);
		ferry_quota_even(&x.in, &x.room);
		assert_int_equal(check_sums(&x), want);

		/* Giving up proves that it is right to. */
		const int64_t bound =
			ferry_quota_level(&x.in, &x.room, want - 1);

		assert_true(bound <= want && (want == 0 || bound >= want - 1));
		assert_int_equal(ferry_quota_level(&x.in, &x.room, want), want);
	}
}

/* Levels, highest first. */
static void sorted_levels(const struct instance *x, const int64_t *load,
                          int64_t *level)
{
	for (int32_t r = 0; r < x->in.n_ranks; r++) {
		const int64_t l = quota_level_of(x->in.speed, r, load[r]);
		int32_t i = r;

		for (; i > 0 && level[i - 1] < l; i--)
			level[i] = level[i - 1];
		level[i] = l;
	}
}

static int compare(const int64_t *a, const int64_t *b, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

struct search {
	const struct instance *x;
	int64_t load[RANKS];
	int64_t best[RANKS];
};

/* Tries all ways to share what is left of expert e from replica i on. */
static void search(struct search *s, int32_t e, int32_t i, int64_t left)
{
	const struct instance *const x = s->x;

	if (e == x->in.n_experts) {
		int64_t level[RANKS];

		sorted_levels(x, s->load, level);
		if (compare(level, s->best, x->in.n_ranks) < 0)
			memcpy(s->best, level, sizeof(level));
		return;
	}
	const bool last = i + 1 == x->first[e + 1];
	int64_t *const load = &s->load[x->rank[i]];

	for (int64_t n = last ? left : 0; n <= left; n++) {
		*load += n;
		search(s, last ? e + 1 : e, i + 1,
		       last && e + 1 < x->in.n_experts ? x->load[e + 1]
		                                       : left - n);
		*load -= n;
	}
}

static void even_is_least_of_all_ways(void **state)
{
	static struct instance x;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		struct search s = {.x = &x};
		int64_t level[RANKS];

		make(&x, 4, 3, 5);
		x.in.speed = NULL;
		memset(s.best, 0x7f, sizeof(s.best));
		memcpy(s.load, x.fixed, sizeof(s.load));
		search(&s, 0, 0, x.in.n_experts ? x.load[0] : 0);
		assert_int_equal(ferry_quota_level(&x.in, &x.room, INT64_MAX),
		                 s.best[0]);
		ferry_quota_even(&x.in, &x.room);
		check_sums(&x);
		sorted_levels(&x, x.rank_load, level);
		assert_int_equal(compare(level, s.best, x.in.n_ranks), 0);
	}
}

static void all_everywhere_is_perfect(void **state)
{
	static struct instance x;

	(void)state;
	for (int i = 0; i < 200; i++) {
		int64_t total = 0;

		make(&x, RANKS, EXPERTS, FERRY_MAX_LOAD / 64);
		x.in.n_ranks = 2 + (int32_t)below(RANKS - 1);
		x.in.n_experts = 1 + (int32_t)below(EXPERTS);
		x.in.speed = NULL;
		for (int32_t e = 0; e < x.in.n_experts; e++) {
			x.first[e + 1] = (e + 1) * x.in.n_ranks;
			x.load[e] = below(FERRY_MAX_LOAD / 64);
			total += x.load[e];
			for (int32_t r = 0; r < x.in.n_ranks; r++)
				x.rank[x.first[e] + r] = r;
		}
		memset(x.fixed, 0, sizeof(x.fixed));
		assert_int_equal(ferry_quota_level(&x.in, &x.room, INT64_MAX),
		                 div_up(total, x.in.n_ranks));
		ferry_quota_even(&x.in, &x.room);
		check_sums(&x);
		for (int32_t r = 0; r < x.in.n_ranks; r++)
			assert_in_range(x.rank_load[r], total / x.in.n_ranks,
			                div_up(total, x.in.n_ranks));
	}
}

/* Every compiler, at every level, on every machine. */
static void shares_are_the_same_everywhere(void **state)
{
	static struct instance x;
	const uint64_t before = seed;
	uint64_t hash = 0;

	(void)state;
	seed = 1;
	for (int i = 0; i < 500; i++) {
		make(&x, RANKS, EXPERTS, i % 2 ? 1000 : FERRY_MAX_LOAD / 64);
		hash = hash_u64(hash, (uint64_t)ferry_quota_level(
					      &x.in, &x.room, INT64_MAX));
		ferry_quota_even(&x.in, &x.room);
		for (int32_t r = 0; r < x.first[x.in.n_experts]; r++)
			hash = hash_u64(hash, (uint64_t)x.share[r]);
	}
	seed = before;
	assert_true(hash == UINT64_C(0x7a9b638a60e730ee));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(level_is_halls),
		cmocka_unit_test(even_is_least_of_all_ways),
		cmocka_unit_test(all_everywhere_is_perfect),
		cmocka_unit_test(shares_are_the_same_everywhere),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
