/* SPDX-License-Identifier: Apache-2.0 */
/* How tokens are divided among replicas, and who uses a placement. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "core/placement_inner.h"
#include "core/quota.h"
#include "test_seed.h"

enum { MAX_REPLICAS = 16 };

static uint64_t seed;

static int64_t below(int64_t n)
{
	return (int64_t)(rng_next(&seed) % (uint64_t)n);
}

/* Expert 0 once on each of n ranks; quota NULL: EVEN. */
static struct ferry_placement *replicated(int32_t n, const int64_t *quota)
{
	int32_t slots[MAX_REPLICAS], experts[MAX_REPLICAS] = {0};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;

	for (int32_t i = 0; i < n; i++)
		slots[i] = 1;
	c.n_experts = 1;
	c.n_ranks = n;
	c.expert_slots = slots;
	c.slot_expert = experts;
	c.split = quota ? FERRY_SPLIT_QUOTA : FERRY_SPLIT_EVEN;
	c.quota = quota;
	if (ferry_placement_create(&c, &p))
		fail_msg("%s", ferry_last_error());
	return p;
}

static void count_turns(const struct ferry_placement *p, int32_t first,
                        int32_t step, int32_t n, int64_t *count)
{
	memset(count, 0, MAX_REPLICAS * sizeof(*count));
	for (int32_t t = 0; t < n; t++)
		count[ferry_placement_resolve(p, 0, 0, first + t * step, 0)]++;
}

/*
 * The points of a run are spread so evenly that a share is off by a few tokens
 * at most: for n of them the discrepancy of multiples of the golden ratio
 * stays below 1 + log2(n) / 2.
 */
static void shares_are_kept_in_runs(void **state)
{
	static const int32_t lengths[] = {1, 7, 64, 500, 4096};
	int64_t quota[MAX_REPLICAS], count[MAX_REPLICAS];

	(void)state;
	for (int round = 0; round < 400; round++) {
		const int32_t n = 2 + (int32_t)below(MAX_REPLICAS - 1);
		const int32_t length = lengths[below(5)];
		int64_t sum = 0;
		double most = 2;

		for (int32_t l = length; l > 1; l /= 2)
			most += 0.5;
		for (int32_t i = 0; i < n; i++)
			sum += quota[i] = below(4) ? below(1000) : 0;
		quota[0] += sum == 0;
		sum += sum == 0;
		struct ferry_placement *const p = replicated(n, quota);

		count_turns(p, (int32_t)below(1 << 20), 1, length, count);
		for (int32_t i = 0; i < n; i++) {
			const double want =
				(double)quota[i] * length / (double)sum;

			if ((double)count[i] > want + most ||
			    (double)count[i] < want - most)
				fail_msg("replica %d of %d got %lld of %d, "
				         "its share is %.1f",
				         i, n, (long long)count[i], length,
				         want);
			assert_true(quota[i] > 0 || count[i] == 0);
		}
		ferry_placement_destroy(p);
	}
}

/* Strides of a group's carriers, and of an expert that every 8th token has. */
static void shares_are_kept_in_strides(void **state)
{
	static const int64_t quota[] = {1000, 3000, 500};
	int64_t count[MAX_REPLICAS];
	struct ferry_placement *const p = replicated(3, quota);

	(void)state;
	for (int32_t step = 1; step <= 64; step++) {
		count_turns(p, 5, step, 900, count);
		assert_in_range(count[0], 170, 230);
		assert_in_range(count[1], 570, 630);
		assert_in_range(count[2], 70, 130);
	}
	ferry_placement_destroy(p);
}

/* The rule of placement.h, word for word. */
static void rule_is_as_written(void **state)
{
	int64_t quota[MAX_REPLICAS];

	(void)state;
	for (int round = 0; round < 2000; round++) {
		const int32_t n = 2 + (int32_t)below(7);
		const int32_t rank = (int32_t)below(64);
		const int32_t token = (int32_t)below(1 << 30);
		const int32_t choice = (int32_t)below(64);
		const uint64_t turn =
			(uint64_t)(rank + (int64_t)token + choice);
		const uint64_t point = ((turn * 0x9e3779b9u) & 0xffffffffu) / 2;
		uint64_t sum = 0, before = 0;
		int32_t want = 0;

		for (int32_t i = 0; i < n; i++)
			sum += (uint64_t)(quota[i] = 1 + below(1 << 20));
		for (int32_t i = 0; i < n; i++) {
			if ((before << 31) / sum <= point)
				want = i;
			before += (uint64_t)quota[i];
		}
		struct ferry_placement *const p = replicated(n, quota);

		assert_int_equal(
			ferry_placement_resolve(p, 0, rank, token, choice),
			want);
		ferry_placement_destroy(p);
	}
}

static void quotas_of_nothing_are_alike(void **state)
{
	static const int64_t none[] = {0, 0, 0, 0};
	static const int64_t same[] = {9, 9, 9, 9};
	struct ferry_placement *const a = replicated(4, none);
	struct ferry_placement *const b = replicated(4, same);

	(void)state;
	for (int32_t t = 0; t < 1000; t++)
		assert_int_equal(ferry_placement_resolve(a, 0, 1, t, 2),
		                 ferry_placement_resolve(b, 0, 1, t, 2));
	ferry_placement_destroy(a);
	ferry_placement_destroy(b);
}

static void largest_quotas_do_not_wrap(void **state)
{
	int64_t quota[MAX_REPLICAS], count[MAX_REPLICAS];

	(void)state;
	for (int32_t i = 0; i < MAX_REPLICAS; i++)
		quota[i] = INT64_MAX;
	quota[3] = 0;
	struct ferry_placement *const p = replicated(MAX_REPLICAS, quota);

	count_turns(p, 0, 1, 15000, count);
	for (int32_t i = 0; i < MAX_REPLICAS; i++)
		assert_in_range(count[i], i == 3 ? 0 : 990, i == 3 ? 0 : 1010);
	ferry_placement_destroy(p);
}

/* Zeros at either end: no point falls to them. */
static void zeros_get_nothing(void **state)
{
	static const int64_t quota[] = {0, 5, 0, 1, 0};
	int64_t count[MAX_REPLICAS];
	struct ferry_placement *const p = replicated(5, quota);

	(void)state;
	count_turns(p, 0, 1, 600000, count);
	assert_int_equal(count[0] + count[2] + count[4], 0);
	assert_in_range(count[1], 499990, 500010);
	assert_int_equal(quota_choose(p->start, 5, 0), 1);
	ferry_placement_destroy(p);
}

static void quotas_belong_to_the_hash(void **state)
{
	int64_t quota[] = {1, 2, 3};
	struct ferry_placement *const a = replicated(3, quota);
	struct ferry_placement *const b = replicated(3, quota);
	struct ferry_placement *const even = replicated(3, NULL);

	(void)state;
	quota[2] = 4;
	struct ferry_placement *const c = replicated(3, quota);

	assert_int_equal(ferry_placement_hash(a), ferry_placement_hash(b));
	assert_int_not_equal(ferry_placement_hash(a), ferry_placement_hash(c));
	assert_int_not_equal(ferry_placement_hash(a),
	                     ferry_placement_hash(even));
	ferry_placement_destroy(a);
	ferry_placement_destroy(b);
	ferry_placement_destroy(c);
	ferry_placement_destroy(even);
}

/* The values themselves: the same on every machine and in every release. */
static void quotas_are_golden(void **state)
{
	static const int64_t quota[] = {1, 2, 3};
	static const int32_t want[] = {0, 2, 1, 2, 1, 0, 2, 1, 2, 2, 1, 2};
	struct ferry_placement *const p = replicated(3, quota);

	(void)state;
	for (int32_t t = 0; t < 12; t++)
		assert_int_equal(ferry_placement_resolve(p, 0, 0, t, 0),
		                 want[t]);
	assert_int_equal(ferry_placement_hash(p), 0x12d07195c78becdf);
	ferry_placement_destroy(p);
}

static void refused(const struct ferry_placement_config *config,
                    enum ferry_status status, const char *text)
{
	struct ferry_placement *p = NULL;

	assert_int_equal(ferry_placement_create(config, &p), status);
	assert_null(p);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void bad_quotas(void **state)
{
	static const int64_t quota[] = {1, -2};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	(void)state;
	c.n_experts = 2;
	c.n_ranks = 2;
	c.quota = quota;
	refused(&c, FERRY_INVAL, "quota is not NULL, but split is 0");
	c.split = FERRY_SPLIT_EXACT;
	refused(&c, FERRY_INVAL, "quota is not NULL, but split is 2");
	c.split = FERRY_SPLIT_QUOTA;
	refused(&c, FERRY_RANGE, "quota[1] is -2, allowed are 0..");
	c.quota = NULL;
	refused(&c, FERRY_INVAL, "quota is NULL, but split is 1");
	c.split = (enum ferry_split) - 1;
	refused(&c, FERRY_INVAL, "split is -1, allowed are 0");
}

static void what_it_answers(void **state)
{
	static const int32_t slots[] = {2, 0, 3}, map[] = {0, 1, 1, -1, 2};
	static const int64_t quota[] = {4, 5, 6, 7, 8};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;

	(void)state;
	c.n_experts = 3;
	c.n_ranks = 3;
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = FERRY_SPLIT_QUOTA;
	c.quota = quota;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	assert_int_equal(ferry_placement_n_ranks(p), 3);
	assert_int_equal(ferry_placement_split(p), FERRY_SPLIT_QUOTA);
	assert_int_equal(ferry_placement_first_slot(p, 0), 0);
	assert_int_equal(ferry_placement_first_slot(p, 1), 2);
	assert_int_equal(ferry_placement_first_slot(p, 2), 2);
	assert_int_equal(ferry_placement_first_slot(p, 3), 5);
	assert_int_equal(ferry_placement_first_slot(p, 4), -1);
	assert_int_equal(ferry_placement_first_slot(p, -1), -1);
	assert_int_equal(ferry_placement_quota(p, 2), 6);
	assert_int_equal(ferry_placement_quota(p, 3), 0);
	assert_int_equal(ferry_placement_quota(p, 5), 0);
	assert_int_equal(ferry_placement_quota(p, -1), 0);
	ferry_placement_destroy(p);
	assert_int_equal(ferry_placement_n_ranks(NULL), 0);
	assert_int_equal(ferry_placement_split(NULL), FERRY_SPLIT_EVEN);
	assert_int_equal(ferry_placement_first_slot(NULL, 0), -1);
	assert_int_equal(ferry_placement_quota(NULL, 0), 0);
}

static void exact_resolves_nothing(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;

	(void)state;
	c.n_experts = 4;
	c.n_ranks = 2;
	c.split = FERRY_SPLIT_EXACT;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	assert_int_equal(ferry_placement_split(p), FERRY_SPLIT_EXACT);
	assert_int_equal(ferry_placement_resolve(p, 1, 0, 0, 0), -1);
	assert_int_equal(ferry_placement_quota(p, 1), 0);
	ferry_placement_destroy(p);
}

static void users_are_counted(void **state)
{
	struct ferry_placement *const p = replicated(2, NULL);

	(void)state;
	assert_int_equal(ferry_placement_in_use(NULL), 0);
	assert_null(ferry_placement_enter(NULL));
	ferry_usage_leave(NULL);
	assert_int_equal(ferry_placement_in_use(p), 0);
	struct ferry_usage *const a = ferry_placement_enter(p);
	struct ferry_usage *const b = ferry_placement_enter(p);

	assert_int_equal(ferry_placement_in_use(p), 2);
	ferry_usage_leave(a);
	assert_int_equal(ferry_placement_in_use(p), 1);
	/* Who stays longer than the placement does no harm. */
	ferry_placement_destroy(p);
	ferry_usage_leave(b);
}

static void *come_and_go(void *placement)
{
	for (int i = 0; i < 20000; i++)
		ferry_usage_leave(ferry_placement_enter(placement));
	return ferry_placement_enter(placement);
}

/* Ranks that are threads share a placement; the last to leave frees. */
static void threads_count_together(void **state)
{
	struct ferry_placement *const p = replicated(2, NULL);
	pthread_t threads[4];
	void *usage[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, come_and_go, p), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], &usage[i]), 0);
	assert_int_equal(ferry_placement_in_use(p), 4);
	ferry_usage_leave(usage[0]);
	assert_int_equal(ferry_placement_in_use(p), 3);
	ferry_placement_destroy(p);
	for (int i = 1; i < 4; i++)
		ferry_usage_leave(usage[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_are_kept_in_runs),
		cmocka_unit_test(shares_are_kept_in_strides),
		cmocka_unit_test(rule_is_as_written),
		cmocka_unit_test(quotas_of_nothing_are_alike),
		cmocka_unit_test(largest_quotas_do_not_wrap),
		cmocka_unit_test(zeros_get_nothing),
		cmocka_unit_test(quotas_belong_to_the_hash),
		cmocka_unit_test(quotas_are_golden),
		cmocka_unit_test(bad_quotas),
		cmocka_unit_test(what_it_answers),
		cmocka_unit_test(exact_resolves_nothing),
		cmocka_unit_test(users_are_counted),
		cmocka_unit_test(threads_count_together),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
