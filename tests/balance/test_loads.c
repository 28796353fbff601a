/* SPDX-License-Identifier: Apache-2.0 */
/* Loads of ranks under each rule of dividing, and quotas of slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/plan.h>

#include "core/bits.h"
#include "random_map.h"
#include "test_seed.h"

enum { RANKS = 6, SLOTS = RANKS * RANDOM_MAP_SLOTS };

static uint64_t seed;

static int64_t below(int64_t n)
{
	return (int64_t)(rng_next(&seed) % (uint64_t)n);
}

/* Expert 0 on all ranks, 1 on ranks 0 and 2, 2 and 3 once, an empty slot. */
static const int32_t four_experts[] = {0, 1, 0, 2, 0, 1, 3, 0, -1};
static const int32_t four_slots[] = {2, 2, 3, 2};
enum { FOUR_SLOTS = 9 };

static struct ferry_placement *
create(const struct ferry_placement_config *config)
{
	struct ferry_placement *p = NULL;

	if (ferry_placement_create(config, &p))
		fail_msg("%s", ferry_last_error());
	return p;
}

static struct ferry_placement *create_four(enum ferry_split split,
                                           const int64_t *quota)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	c.n_experts = 4;
	c.n_ranks = 4;
	c.expert_slots = four_slots;
	c.slot_expert = four_experts;
	c.split = split;
	c.quota = quota;
	return create(&c);
}

static void refused(enum ferry_status got, enum ferry_status want,
                    const char *text)
{
	assert_int_equal(got, want);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void even_parts_first_slots_one_more(void **state)
{
	static const int64_t loads[] = {10, 5, 7, 100};
	struct ferry_placement *const p = create_four(FERRY_SPLIT_EVEN, NULL);
	int64_t rank_loads[4];

	(void)state;
	/* Expert 0: 3 3 2 2; expert 1: 3 . 2 . */
	assert_int_equal(ferry_rank_loads(p, loads, rank_loads), FERRY_OK);
	assert_int_equal(rank_loads[0], 3 + 3);
	assert_int_equal(rank_loads[1], 3 + 7);
	assert_int_equal(rank_loads[2], 2 + 2 + 100);
	assert_int_equal(rank_loads[3], 2);
	ferry_placement_destroy(p);
}

static void parts_by_quota(void **state)
{
	static const int64_t loads[] = {1000, 50, 7, 100};
	static const int64_t quota[] = {1, 0, 2, 9, 3, 0, 9, 4, 9};
	struct ferry_placement *const p = create_four(FERRY_SPLIT_QUOTA, quota);
	int64_t rank_loads[4];

	(void)state;
	/* Expert 0: 1 : 2 : 3 : 4; expert 1 has no quotas: alike. */
	assert_int_equal(ferry_rank_loads(p, loads, rank_loads), FERRY_OK);
	assert_int_equal(rank_loads[0], 100 + 25);
	assert_int_equal(rank_loads[1], 200 + 7);
	assert_int_equal(rank_loads[2], 300 + 25 + 100);
	assert_int_equal(rank_loads[3], 400);
	ferry_placement_destroy(p);
}

static void exact_parts_level_the_ranks(void **state)
{
	static const int64_t loads[] = {200, 50, 7, 103};
	struct ferry_placement *const p = create_four(FERRY_SPLIT_EXACT, NULL);
	int64_t rank_loads[4], quota[FOUR_SLOTS], most;

	(void)state;
	/* Rank 2 has 103 already; the others share 257. */
	assert_int_equal(ferry_rank_loads(p, loads, rank_loads), FERRY_OK);
	assert_int_equal(rank_loads[0] + rank_loads[1] + rank_loads[3], 257);
	assert_int_equal(rank_loads[2], 103);
	for (int r = 0; r < 4; r += r == 1 ? 2 : 1)
		assert_in_range(rank_loads[r], 85, 86);
	assert_int_equal(ferry_split_quotas(p, loads, NULL, quota, &most),
	                 FERRY_OK);
	assert_int_equal(most, 103);
	assert_int_equal(quota[0] + quota[1], rank_loads[0]);
	assert_int_equal(quota[2] + 7, rank_loads[1]);
	assert_int_equal(quota[3], 7);
	assert_int_equal(quota[4], 0);
	assert_int_equal(quota[5], 0);
	assert_int_equal(quota[6], 103);
	assert_int_equal(quota[7], rank_loads[3]);
	assert_int_equal(quota[8], 0);
	ferry_placement_destroy(p);
}

static void fast_ranks_get_more(void **state)
{
	static const int64_t loads[] = {1000, 0, 0, 0};
	static const int32_t speed[] = {500, 1000, 1500, 1000};
	struct ferry_placement *const p = create_four(FERRY_SPLIT_EVEN, NULL);
	int64_t quota[FOUR_SLOTS], most;

	(void)state;
	assert_int_equal(ferry_split_quotas(p, loads, speed, quota, &most),
	                 FERRY_OK);
	assert_int_equal(most, 250);
	assert_int_equal(quota[0], 125);
	assert_int_equal(quota[2], 250);
	assert_int_equal(quota[4], 375);
	assert_int_equal(quota[7], 250);
	/* One token a rank of speed 1 takes as long as 1000 elsewhere. */
	static const int32_t slow[] = {1, 1, 1, 1};
	static const int64_t one[] = {0, 0, 1, 0};

	assert_int_equal(ferry_split_quotas(p, one, slow, quota, &most),
	                 FERRY_OK);
	assert_int_equal(most, 1000);
	ferry_placement_destroy(p);
}

static void extremes(void **state)
{
	struct ferry_placement *const p = create_four(FERRY_SPLIT_EXACT, NULL);
	int64_t loads[4] = {0}, quota[FOUR_SLOTS], most = -1;
	static const int32_t slow[] = {1, 1000000, 1, 1};

	(void)state;
	assert_int_equal(ferry_split_quotas(p, loads, NULL, quota, &most),
	                 FERRY_OK);
	assert_int_equal(most, 0);
	for (int s = 0; s < FOUR_SLOTS; s++)
		assert_int_equal(quota[s], 0);
	/* One expert has everything. */
	loads[0] = FERRY_MAX_LOAD;
	assert_int_equal(ferry_split_quotas(p, loads, NULL, quota, &most),
	                 FERRY_OK);
	assert_int_equal(most, FERRY_MAX_LOAD / 4);
	assert_int_equal(quota[0], FERRY_MAX_LOAD / 4);
	loads[0] = INT64_C(0x80000001);
	assert_int_equal(ferry_split_quotas(p, loads, NULL, quota, &most),
	                 FERRY_OK);
	assert_int_equal(most, 0x20000001);
	/* It lies where nobody else is, and the rank is slow. */
	loads[0] = 0;
	loads[3] = FERRY_MAX_LOAD;
	assert_int_equal(ferry_split_quotas(p, loads, slow, quota, &most),
	                 FERRY_OK);
	assert_true(most == FERRY_MAX_LOAD * 1000);
	ferry_placement_destroy(p);
}

static void refusals(void **state)
{
	struct ferry_placement *const p = create_four(FERRY_SPLIT_EXACT, NULL);
	int64_t loads[4] = {1, 2, 3, 4}, out[FOUR_SLOTS];
	int32_t speed[4] = {1, 1, 0, 1};

	(void)state;
	memset(out, 0x55, sizeof(out));
	refused(ferry_rank_loads(NULL, loads, out), FERRY_INVAL,
	        "rank_loads: placement is NULL");
	refused(ferry_rank_loads(p, NULL, out), FERRY_INVAL,
	        "rank_loads: loads is NULL");
	refused(ferry_rank_loads(p, loads, NULL), FERRY_INVAL,
	        "rank_loads: rank_loads is NULL");
	refused(ferry_split_quotas(p, loads, NULL, NULL, NULL), FERRY_INVAL,
	        "split_quotas: quota is NULL");
	refused(ferry_split_quotas(p, loads, speed, out, NULL), FERRY_RANGE,
	        "split_quotas: speed[2] is 0, allowed are 1..1000000");
	loads[2] = -1;
	refused(ferry_rank_loads(p, loads, out), FERRY_RANGE,
	        "rank_loads: loads[2] is -1, allowed are 0..1099511627776");
	loads[2] = FERRY_MAX_LOAD;
	refused(ferry_split_quotas(p, loads, NULL, out, NULL), FERRY_RANGE,
	        "split_quotas: the sum of loads[0..3] is");
	for (int s = 0; s < FOUR_SLOTS; s++)
		assert_true(out[s] == INT64_C(0x5555555555555555));
	ferry_placement_destroy(p);
}

/* Tokens of experts that are nowhere but on ranks of a set. */
static int64_t confined(const struct ferry_placement *p, const int64_t *loads,
                        int32_t n_experts, uint32_t set)
{
	int64_t sum = 0;

	for (int32_t e = 0; e < n_experts; e++) {
		const int32_t *slots;
		int32_t n;
		bool inside = true;

		assert_int_equal(ferry_placement_replicas(p, e, &slots, &n),
		                 FERRY_OK);
		for (int32_t i = 0; i < n; i++)
			inside &= set >> ferry_placement_rank(p, slots[i]) & 1;
		sum += inside ? loads[e] : 0;
	}
	return sum;
}

/* Sums of quotas over experts, and over ranks. */
static void check_sums(const struct ferry_placement *p, const int64_t *quota,
                       const int64_t *loads, const int64_t *rank_loads)
{
	int64_t of_expert[SLOTS] = {0}, of_rank[RANKS] = {0};

	for (int32_t s = 0; s < ferry_placement_n_slots(p); s++) {
		const int32_t e = ferry_placement_expert(p, s);

		assert_true(quota[s] >= 0 && (e >= 0 || !quota[s]));
		of_rank[ferry_placement_rank(p, s)] += quota[s];
		of_expert[e >= 0 ? e : 0] += quota[s];
	}
	for (int32_t e = 0; e < ferry_placement_n_experts(p); e++)
		assert_int_equal(of_expert[e], loads[e]);
	for (int32_t r = 0; r < RANKS; r++)
		assert_int_equal(of_rank[r], rank_loads[r]);
}

static void quotas_of_random_placements(void **state)
{
	(void)state;
	for (int i = 0; i < 500; i++) {
		const int32_t n_ranks = 1 + (int32_t)below(RANKS);
		struct ferry_placement *const p =
			random_map(&seed, n_ranks, FERRY_SPLIT_EXACT);
		int64_t loads[SLOTS], quota[SLOTS], most, want = 0;
		int64_t rank_loads[RANKS] = {0};
		const int32_t n_experts = ferry_placement_n_experts(p);

		for (int32_t e = 0; e < n_experts; e++)
			loads[e] = below(i % 2 ? 20 : INT64_C(1) << 33);
		assert_int_equal(
			ferry_split_quotas(p, loads, NULL, quota, &most),
			FERRY_OK);
		assert_int_equal(ferry_rank_loads(p, loads, rank_loads),
		                 FERRY_OK);
		check_sums(p, quota, loads, rank_loads);
		for (uint32_t set = 1; set < 1u << n_ranks; set++)
			want = max_i64(
				want, div_up(confined(p, loads, n_experts, set),
			                     __builtin_popcount(set)));
		assert_int_equal(most, want);
		for (int32_t r = 0; r < n_ranks; r++)
			assert_true(rank_loads[r] <= want);
		ferry_placement_destroy(p);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(even_parts_first_slots_one_more),
		cmocka_unit_test(parts_by_quota),
		cmocka_unit_test(exact_parts_level_the_ranks),
		cmocka_unit_test(fast_ranks_get_more),
		cmocka_unit_test(extremes),
		cmocka_unit_test(refusals),
		cmocka_unit_test(quotas_of_random_placements),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
