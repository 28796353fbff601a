/* SPDX-License-Identifier: Apache-2.0 */
/* Who meets whom in a tournament of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fabric/pairs.h"

/* Everybody meets everybody else exactly once, and both know it. */
static void everybody_meets(int32_t n, int32_t a, int32_t b)
{
	int met = 0;

	for (int32_t s = 0; s < ferry_pairs_steps(n); s++) {
		const int32_t partner = ferry_pairs_partner(a, n, s);

		met += partner == b;
		assert_int_equal(ferry_pairs_partner(partner, n, s), a);
	}
	assert_int_equal(met, a == b ? n % 2 : 1);
}

static void test_partners(void **state)
{
	(void)state;
	assert_int_equal(ferry_pairs_steps(1), 0);
	for (int32_t n = 2; n <= 9; n++)
		for (int32_t a = 0; a < n; a++)
			for (int32_t b = 0; b < n; b++)
				everybody_meets(n, a, b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_partners),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
