/* SPDX-License-Identifier: Apache-2.0 */
/* Cost curves: values between, before and beyond their points; refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/plan.h>

static const int64_t tokens[] = {16, 64, 65, 1000};
static const int64_t cost[] = {100, 100, 181, 2051};

static struct ferry_cost_curve curve_of(const int64_t *t, const int64_t *c,
                                        int32_t n)
{
	struct ferry_cost_curve curve = FERRY_COST_CURVE_INIT;

	curve.tokens = t;
	curve.cost = c;
	curve.n_points = n;
	return curve;
}

static int64_t apply(const struct ferry_cost_curve *curve, int64_t n)
{
	int64_t out = -1;

	if (ferry_cost_curve_apply(curve, &n, 1, &out))
		fail_msg("%s", ferry_last_error());
	return out;
}

static void refused(const struct ferry_cost_curve *curve, int64_t n,
                    enum ferry_status status, const char *text)
{
	int64_t out = -1;

	assert_int_equal(ferry_cost_curve_apply(curve, &n, 1, &out), status);
	assert_int_equal(out, -1);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void between_and_beyond(void **state)
{
	const struct ferry_cost_curve curve = curve_of(tokens, cost, 4);

	(void)state;
	assert_int_equal(apply(&curve, 0), 0); /* nothing to do */
	assert_int_equal(apply(&curve, 1), 100);
	assert_int_equal(apply(&curve, 40), 100);
	assert_int_equal(apply(&curve, 64), 100);
	assert_int_equal(apply(&curve, 65), 181);
	assert_int_equal(apply(&curve, 66), 183);
	assert_int_equal(apply(&curve, 999), 2049);
	assert_int_equal(apply(&curve, 2000), 4051);
	assert_int_equal(apply(&curve, FERRY_MAX_LOAD / 4),
	                 FERRY_MAX_LOAD / 2 + 51);
}

static void rounds_to_nearest_ties_up(void **state)
{
	static const int64_t t[] = {10, 14}, c[] = {3, 9};
	const struct ferry_cost_curve curve = curve_of(t, c, 2);

	(void)state;
	assert_int_equal(apply(&curve, 11), 5); /* 4.5 */
	assert_int_equal(apply(&curve, 12), 6);
	assert_int_equal(apply(&curve, 13), 8); /* 7.5 */
	assert_int_equal(apply(&curve, 9), 2);  /* 1.5 */
	assert_int_equal(apply(&curve, 8), 0);
	assert_int_equal(apply(&curve, 7), 0); /* -1.5: not below 0 */
	assert_int_equal(apply(&curve, 1), 0);
}

static void in_place_and_large(void **state)
{
	static const int64_t t[] = {0, FERRY_MAX_LOAD};
	const struct ferry_cost_curve curve = curve_of(t, t, 2);
	int64_t v[] = {0, 1, INT64_C(1) << 31, FERRY_MAX_LOAD - 1,
	               FERRY_MAX_LOAD};
	int64_t want[5];

	(void)state;
	memcpy(want, v, sizeof(v));
	assert_int_equal(ferry_cost_curve_apply(&curve, v, 5, v), FERRY_OK);
	assert_memory_equal(v, want, sizeof(v));
	assert_int_equal(ferry_cost_curve_apply(&curve, NULL, 0, NULL),
	                 FERRY_OK);
}

static void refusals(void **state)
{
	static const int64_t same[] = {1, 1}, falls[] = {2, 1}, up[] = {1, 2};
	static const int64_t steep[] = {0, FERRY_MAX_LOAD};
	struct ferry_cost_curve curve = curve_of(tokens, cost, 1);

	(void)state;
	refused(NULL, 1, FERRY_INVAL, "cost curve is NULL");
	refused(&curve, 1, FERRY_INVAL, "n_points is 1, allowed are 2..");
	curve = curve_of(NULL, cost, 2);
	refused(&curve, 1, FERRY_INVAL, "tokens is NULL");
	curve = curve_of(same, cost, 2);
	refused(&curve, 1, FERRY_RANGE,
	        "tokens[1] is 1, allowed are 2..1099511627776");
	curve = curve_of(up, falls, 2);
	refused(&curve, 1, FERRY_RANGE, "cost[1] is 1, allowed are 2..");
	curve = curve_of(up, steep, 2);
	refused(&curve, -1, FERRY_RANGE, "in[0] is -1, allowed are 0..");
	refused(&curve, 3, FERRY_RANGE, "in[0] is 3 and would cost more than");
	assert_int_equal(ferry_cost_curve_apply(&curve, NULL, 1, NULL),
	                 FERRY_INVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(between_and_beyond),
		cmocka_unit_test(rounds_to_nearest_ties_up),
		cmocka_unit_test(in_place_and_large),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
