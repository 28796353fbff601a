/* SPDX-License-Identifier: Apache-2.0 */
/* The small float formats of device code: all 2^32 floats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "gpus.h"
#include "number_all.h"

static void all_floats(void **state)
{
	uint64_t n_wrong = 1, first = 0;

	(void)state;
	assert_int_equal(number_compare_all(&n_wrong, &first), 0);
	if (n_wrong)
		printf("# first 0x%08llx\n", (unsigned long long)first);
	assert_int_equal(n_wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_floats)};
	char reason[GPUS_REASON];

	if (gpus_count(reason) == 0) {
		printf("# skipped: %s\n", reason);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
