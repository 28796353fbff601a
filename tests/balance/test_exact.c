/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pure part of the exact split on random placements and batches: every
 * choice of every rank, put through encode, tally, serve and resolve, against
 * the rule in exact.h written down plainly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "balance/exact.h"
#include "core/bits.h"
#include "random_map.h"
#include "test_seed.h"

enum { RANKS = 6, SLOTS = RANKS * RANDOM_MAP_SLOTS, TOKENS = 40, TOPK = 5 };

static uint64_t seed;

static int32_t below(int32_t n)
{
	return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

/* All sources of one operation. */
struct round {
	struct ferry_placement *placement;
	int32_t n_ranks;
	int32_t n_experts;
	int32_t group_size;
	int32_t n_sources;
	int32_t n_tokens[RANKS]; /* by source, as all that follows */
	int32_t ids[RANKS][TOKENS][TOPK];
	struct ferry_exact_codes codes[RANKS];
	int32_t where[RANKS][TOKENS * TOPK];
	int32_t counts[RANKS][SLOTS];
	int32_t choice[RANKS][SLOTS];
	int32_t slots[RANKS][TOKENS][TOPK];
	int64_t loads[SLOTS];
};

static void make(struct round *x)
{
	static const int32_t sizes[][2] = {{1, 1}, {2, 1}, {4, 2}, {5, 1},
	                                   {6, 3}, {6, 1}, {2, 2}};
	const int32_t *const size = sizes[below(7)];
	int32_t code_of[SLOTS];

	memset(x, 0, sizeof(*x));
	x->n_ranks = size[0];
	x->group_size = size[1];
	x->n_sources = x->n_ranks / x->group_size;
	x->placement = random_map(&seed, x->n_ranks, FERRY_SPLIT_EXACT);
	x->n_experts = ferry_placement_n_experts(x->placement);
	ferry_exact_code_of(x->placement, code_of);
	const int32_t hot = 1 + below(x->n_experts);

	for (int32_t s = 0; s < x->n_sources; s++) {
		struct ferry_exact_bad bad;
		const struct ferry_exact_ids in = {
			.n_tokens = x->n_tokens[s] = below(TOKENS + 1),
			.topk = TOPK,
			.ids = x->ids[s],
			.stride = sizeof(x->ids[s][0]),
			.n_experts = x->n_experts,
		};
		int32_t fixed[RANKS] = {0};

		for (int i = 0; i < TOKENS * TOPK; i++)
			x->ids[s][i / TOPK][i % TOPK] = below(hot + 1) - 1;
		x->codes[s].code = x->slots[s][0];
		x->codes[s].where = x->where[s];
		assert_true(ferry_exact_encode(&in, code_of, &x->codes[s],
		                               x->counts[s], &bad));
		ferry_exact_tally(x->placement, x->counts[s], fixed,
		                  x->choice[s]);
		for (int32_t e = 0; e < x->n_experts; e++)
			x->loads[e] += x->counts[s][e];
	}
}

/* Every source turns its codes into slots, as its rank would. */
static void resolve(struct round *x, struct ferry_sharing *sharing)
{
	int32_t slot[SLOTS], left[SLOTS], at[SLOTS];
	struct ferry_exact_runs runs = {slot, left, at};

	for (int32_t s = 0; s < x->n_sources; s++) {
		ferry_sharing_ask(sharing, x->placement, x->loads, NULL);
		(void)ferry_sharing_answer(sharing);
		for (int32_t i = 0; i < sharing->in.n_experts; i++) {
			int32_t count[RANKS];

			for (int32_t o = 0; o < x->n_sources; o++)
				count[o] = x->choice[o][i];
			ferry_exact_serve(sharing, x->placement, i, count,
			                  x->group_size, s, &runs);
		}
		ferry_exact_resolve(&x->codes[s], &runs);
	}
}

/* The slot of the next choice of an expert by a source: the rule, plainly. */
static int32_t next_slot(const struct round *x, int64_t *home, int64_t *away,
                         const int32_t *slots, int32_t n, int32_t source)
{
	for (int32_t i = 0; i < n; i++) {
		const int32_t rank =
			ferry_placement_rank(x->placement, slots[i]);

		if (rank / x->group_size == source && home[i] > 0) {
			home[i]--;
			return slots[i];
		}
	}
	for (int32_t i = 0; i < n; i++)
		if (away[i] > 0) {
			away[i]--;
			return slots[i];
		}
	return -2;
}

static void check_expert(const struct round *x, const int64_t *quota,
                         int32_t expert)
{
	const int32_t *slots;
	int32_t n;
	int64_t home[RANKS], away[RANKS], want[RANKS];

	assert_int_equal(
		ferry_placement_replicas(x->placement, expert, &slots, &n),
		FERRY_OK);
	for (int32_t s = 0; s < x->n_sources; s++)
		want[s] = x->counts[s][expert];
	for (int32_t i = 0; i < n; i++) {
		const int32_t source =
			ferry_placement_rank(x->placement, slots[i]) /
			x->group_size;

		home[i] = min_i64(want[source], quota[slots[i]]);
		want[source] -= home[i];
		away[i] = quota[slots[i]] - home[i];
	}
	for (int32_t s = 0; s < x->n_sources; s++)
		for (int32_t i = 0; i < x->n_tokens[s] * TOPK; i++)
			if (x->ids[s][i / TOPK][i % TOPK] == expert)
				assert_int_equal(
					x->slots[s][i / TOPK][i % TOPK],
					next_slot(x, home, away, slots, n, s));
	for (int32_t i = 0; i < n; i++)
		assert_int_equal(home[i] + away[i], 0);
}

static void slots_are_by_the_rule(void **state)
{
	static struct round x;
	struct ferry_sharing sharing;

	(void)state;
	assert_int_equal(ferry_sharing_init(&sharing, SLOTS, SLOTS, RANKS),
	                 FERRY_OK);
	for (int i = 0; i < 500; i++) {
		int64_t quota[SLOTS];

		make(&x);
		resolve(&x, &sharing);
		assert_int_equal(ferry_split_quotas(x.placement, x.loads, NULL,
		                                    quota, NULL),
		                 FERRY_OK);
		for (int32_t e = 0; e < x.n_experts; e++)
			check_expert(&x, quota, e);
		for (int32_t s = 0; s < x.n_sources; s++)
			for (int32_t c = 0; c < x.n_tokens[s] * TOPK; c++)
				if (x.ids[s][c / TOPK][c % TOPK] < 0)
					assert_int_equal(
						x.slots[s][c / TOPK][c % TOPK],
						-1);
		ferry_placement_destroy(x.placement);
	}
	ferry_sharing_destroy(&sharing);
}

static void both_types_of_ids_and_strides(void **state)
{
	static const int32_t narrow[3][4] = {
		{2, -1, 0, 77}, {1, 1, 1, 77}, {-1, 0, 2, 77}};
	static const int64_t wide[3][5] = {
		{2, -1, 0, 7, 7}, {1, 1, 1, 7, 7}, {-1, 0, 2, 7, 7}};
	static const int32_t code[] = {5, -2, -3};
	static const int32_t want[] = {-3, -1, 5, -2, -2, -2, -1, 5, -3};
	int32_t out[9], where[9], counts[3] = {0};
	struct ferry_exact_codes codes = {out, where, 0};
	struct ferry_exact_bad bad;
	struct ferry_exact_ids in = {
		3, 3, narrow, sizeof(narrow[0]), FERRY_ID_INT32, 3, false};

	(void)state;
	assert_true(ferry_exact_encode(&in, code, &codes, counts, &bad));
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(codes.n, 5);
	assert_int_equal(where[0], 0);
	assert_int_equal(where[4], 8);
	memset(out, 0, sizeof(out));
	in.ids = wide;
	in.stride = sizeof(wide[0]);
	in.type = FERRY_ID_INT64;
	assert_true(ferry_exact_encode(&in, code, &codes, counts, &bad));
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(counts[0], 4);
	assert_int_equal(counts[1], 6);
	assert_int_equal(counts[2], 4);
}

static void bad_ids(void **state)
{
	static const int64_t ids[2][3] = {{0, 1, 2}, {1, -2, INT64_C(1) << 32}};
	static const int32_t code[] = {5, 6, 7};
	int32_t out[6], where[6], counts[3] = {0};
	struct ferry_exact_codes codes = {out, where, 0};
	struct ferry_exact_bad bad;
	struct ferry_exact_ids in = {
		2, 3, ids, sizeof(ids[0]), FERRY_ID_INT64, 3, false};

	(void)state;
	assert_false(ferry_exact_encode(&in, code, &codes, counts, &bad));
	assert_int_equal(bad.token, 1);
	assert_int_equal(bad.choice, 1);
	assert_int_equal(bad.value, -2);
	in.skip_bad = true;
	assert_true(ferry_exact_encode(&in, code, &codes, counts, &bad));
	assert_int_equal(out[3], 6);
	assert_int_equal(out[4], -1);
	assert_int_equal(out[5], -1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_by_the_rule),
		cmocka_unit_test(both_types_of_ids_and_strides),
		cmocka_unit_test(bad_ids),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
