/* SPDX-License-Identifier: Apache-2.0 */
/* Edit distance and the nearest of a list of names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/nearest.h"

static void test_distance(void **state)
{
	(void)state;
	assert_int_equal(ferry_edit_distance("", ""), 0);
	assert_int_equal(ferry_edit_distance("abc", ""), 3);
	assert_int_equal(ferry_edit_distance("", "abcd"), 4);
	assert_int_equal(ferry_edit_distance("kitten", "sitting"), 3);
	assert_int_equal(ferry_edit_distance("ab", "ba"), 1);
	assert_int_equal(ferry_edit_distance("tokens", "TOKENS"), 0);
	assert_int_equal(ferry_edit_distance("hiddne", "hidden"), 1);
	assert_int_equal(ferry_edit_distance("saturday", "sunday"), 3);
}

static void test_long_names_are_cut(void **state)
{
	char a[200];
	char b[200];

	(void)state;
	memset(a, 'a', sizeof(a));
	memset(b, 'a', sizeof(b));
	a[199] = b[199] = 0;
	b[100] = 'b';
	assert_int_equal(ferry_edit_distance(a, b), 0);
	b[10] = 'b';
	assert_int_equal(ferry_edit_distance(a, b), 1);
}

static void test_nearest(void **state)
{
	static const char *const names[] = {"tokens", "hidden", "topk",
	                                    "experts", "timeout"};

	(void)state;
	assert_string_equal(ferry_nearest("hiden", names, 5), "hidden");
	assert_string_equal(ferry_nearest("expert", names, 5), "experts");
	assert_string_equal(ferry_nearest("TOPK", names, 5), "topk");
	assert_null(ferry_nearest("zzzzzzzz", names, 5));
	assert_null(ferry_nearest("hidden", names, 0));
	/* The first of equals. */
	assert_string_equal(ferry_nearest("toknes", names, 5), "tokens");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_distance),
		cmocka_unit_test(test_long_names_are_cut),
		cmocka_unit_test(test_nearest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
