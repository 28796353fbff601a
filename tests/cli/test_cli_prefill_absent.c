/* SPDX-License-Identifier: Apache-2.0 */
/* ferry prefill in a build without the libraries that it needs. */
#include "cli_cmocka.h"
#include "program.h"

static void test_it_says_why(void **state)
{
	struct program p = program_run("prefill --help");

	(void)state;
	assert_int_equal(p.status, 77);
	assert_string_equal(p.out, "");
	assert_contains(p.err, "ferry prefill: not in this build: ");
	program_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_says_why)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
