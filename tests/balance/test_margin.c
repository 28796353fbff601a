/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a plan promises enough: by hand, at the limits, and over time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "balance/margin.h"

enum { ONE = 1000000 };

/* Nothing is known, or no plan was wrong: all are taken. */
static void test_no_error(void **state)
{
	struct ferry_margin m = {0};

	(void)state;
	assert_true(ferry_margin_allows(&m, 0, MARGIN_MOST_PPM));
	for (int i = 0; i < 100; i++)
		ferry_margin_add(&m, 1000 * i, 1000 * i);
	assert_true(ferry_margin_allows(&m, 0, MARGIN_MOST_PPM));
	assert_true(ferry_margin_allows(&m, 1, ONE));
}

/* Off by 3000 and by 4000, to either side: the error is sqrt(12500000). */
static void test_by_hand(void **state)
{
	struct ferry_margin m = {0};

	(void)state;
	ferry_margin_add(&m, 50000, 47000);
	assert_false(ferry_margin_allows(&m, 2999, ONE));
	assert_true(ferry_margin_allows(&m, 3000, ONE));
	ferry_margin_add(&m, 50000, 54000);
	assert_int_equal(m.mean_square, 12500000);
	assert_false(ferry_margin_allows(&m, 3535, ONE));
	assert_true(ferry_margin_allows(&m, 3536, ONE));
	assert_false(ferry_margin_allows(&m, 1767, ONE / 2));
	assert_true(ferry_margin_allows(&m, 1768, ONE / 2));
	assert_false(ferry_margin_allows(&m, 0, 1000));
	assert_true(ferry_margin_allows(&m, 0, 0));
}

/* The newest plans count: an error that is over is forgotten. */
static void test_forgets(void **state)
{
	struct ferry_margin m = {0};

	(void)state;
	for (int i = 0; i < 100; i++)
		ferry_margin_add(&m, 0, 100000);
	assert_false(ferry_margin_allows(&m, 90000, ONE));
	assert_true(ferry_margin_allows(&m, 100000, ONE));
	for (int i = 0; i < 10 * MARGIN_PLANS; i++)
		ferry_margin_add(&m, 100000, 99000);
	assert_true(ferry_margin_allows(&m, 2000, ONE));
	assert_false(ferry_margin_allows(&m, 900, ONE));
}

/* Gains and errors beyond what there can be. */
static void test_extremes(void **state)
{
	struct ferry_margin m = {0};

	(void)state;
	for (int i = 0; i < 100; i++)
		ferry_margin_add(&m, INT64_MAX, INT64_MIN);
	assert_int_equal(m.mean_square, INT64_C(1) << 60);
	assert_false(ferry_margin_allows(&m, INT64_MAX, MARGIN_MOST_PPM));
	assert_true(ferry_margin_allows(&m, INT64_MAX, ONE));
	assert_true(ferry_margin_allows(&m, 1, 0));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_no_error),
	cmocka_unit_test(test_by_hand),
	cmocka_unit_test(test_forgets),
	cmocka_unit_test(test_extremes),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
