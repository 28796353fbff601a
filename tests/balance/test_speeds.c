/* SPDX-License-Identifier: Apache-2.0 */
/* Speeds of ranks from measured work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/balance.h>

#define EXPECT(work, n, tolerance, ...)                                        \
	do {                                                                   \
		const int32_t want_[] = {__VA_ARGS__};                         \
		int32_t got_[8] = {0};                                         \
		assert_int_equal(ferry_speeds(work, n, tolerance, got_),       \
		                 FERRY_OK);                                    \
		for (int i_ = 0; i_ < n; i_++)                                 \
			assert_int_equal(got_[i_], want_[i_]);                 \
	} while (0)

/* One GPU of eight is throttled: it alone counts as slower. */
static void test_one_slow_rank(void **state)
{
	const struct ferry_work work[] = {
		{4096, 1000000}, {4000, 1000000}, {4100, 1000000},
		{4096, 1700000}, {8192, 2000000}, {4090, 1000000},
		{4096, 1010000}, {0, 0},
	};

	(void)state;
	EXPECT(work, 8, 30000, 1000, 1000, 1000, 589, 1000, 1000, 1000, 1000);
	EXPECT(work, 8, 0, 1001, 978, 1002, 589, 1001, 1000, 992, 1000);
}

static void test_ends(void **state)
{
	const struct ferry_work none[] = {{0, 5}, {5, 0}, {0, 0}};
	const struct ferry_work alone[] = {{7, 3}};
	const struct ferry_work far[] = {
		{1, INT64_MAX}, {100, 100}, {FERRY_MAX_LOAD, 1}};
	const struct ferry_work two[] = {{100, 1}, {200, 1}};

	(void)state;
	EXPECT(none, 3, 0, 1000, 1000, 1000);
	EXPECT(alone, 1, 0, 1000);
	EXPECT(far, 3, 0, 1, 1000, 1000000);
	EXPECT(two, 2, 0, 1000, 2000); /* the lower median */
}

static void test_refused(void **state)
{
	struct ferry_work work[] = {{1, 1}, {1, 1}};
	int32_t speed[2] = {77, 77};

	(void)state;
	assert_int_equal(ferry_speeds(NULL, 2, 0, speed), FERRY_INVAL);
	assert_int_equal(ferry_speeds(work, 2, 0, NULL), FERRY_INVAL);
	assert_int_equal(ferry_speeds(work, 0, 0, speed), FERRY_RANGE);
	assert_int_equal(ferry_speeds(work, 2, -1, speed), FERRY_RANGE);
	assert_int_equal(ferry_speeds(work, 2, 1000001, speed), FERRY_RANGE);
	work[1].ns = -4;
	assert_int_equal(ferry_speeds(work, 2, 0, speed), FERRY_RANGE);
	assert_non_null(
		strstr(ferry_last_error(), "work[1] is 1 tokens in -4"));
	work[1].ns = 4;
	work[0].tokens = FERRY_MAX_LOAD + 1;
	assert_int_equal(ferry_speeds(work, 2, 0, speed), FERRY_RANGE);
	assert_int_equal(speed[0], 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_slow_rank),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
