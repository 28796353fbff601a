/* SPDX-License-Identifier: Apache-2.0 */
/* The words of FERRY_FAULT: what they mean, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fault_text.h"

static struct ferry_faults read_good(const char *text, int32_t rank)
{
	struct ferry_faults faults;

	assert_int_equal(ferry_faults_read(NULL, text, rank, 4, &faults),
	                 FERRY_OK);
	return faults;
}

static void test_meaning(void **state)
{
	const char *text = "kill:rank=1,after=100 stall:ms=500,rank=2;"
			   "delay:us=50  reorder:rank=3 ";

	(void)state;
	for (int32_t rank = 0; rank < 4; rank++) {
		const struct ferry_faults f = read_good(text, rank);

		assert_int_equal(f.kill, rank == 1);
		assert_int_equal(f.kill_after, rank == 1 ? 100 : 0);
		assert_int_equal(f.stall_ms, rank == 2 ? 500 : 0);
		assert_int_equal(f.stall_after, 0);
		assert_int_equal(f.delay_us, 50);
		assert_int_equal(f.reorder, rank == 3);
		assert_int_equal(f.cut_peer, -1);
	}
	assert_true(read_good("kill:rank=0", 0).kill);
	assert_true(read_good("reorder", 2).reorder);
	assert_int_equal(read_good("stall:rank=3,ms=1,after=7", 3).stall_after,
	                 7);
	for (int32_t rank = 0; rank < 4; rank++) {
		const struct ferry_faults f =
			read_good("cut:rank=2,peer=1,after=5", rank);

		assert_int_equal(f.cut_peer, rank == 1   ? 2
		                             : rank == 2 ? 1
		                                         : -1);
		assert_int_equal(f.cut_after, f.cut_peer >= 0 ? 5 : 0);
	}
	assert_false(read_good("", 0).kill);
	assert_false(read_good(" ; ", 0).reorder);
}

static void test_refusals(void **state)
{
	static const char *const bad[][2] = {
		{"kil:rank=1", "'kil:rank=1', allowed is kill:rank=R"},
		{"kill", "allowed is kill:rank=R[,after=N]"},
		{"kill:", "allowed is kill:rank=R[,after=N]"},
		{"kill:after=3", "allowed is kill:rank=R[,after=N]"},
		{"kill:rank=1,ms=3", "allowed is kill:rank=R[,after=N]"},
		{"kill:rank=", "allowed is kill:rank=R[,after=N]"},
		{"kill:rank=-1", "allowed is kill:rank=R[,after=N]"},
		{"kill:rank=1x", "allowed is kill:rank=R[,after=N]"},
		{"kill:rank=1,", "allowed is kill:rank=R[,after=N]"},
		{"kill:rank=1,,after=2", "allowed is kill:rank=R[,after=N]"},
		{"kill:rank=4", "'kill:rank=4', allowed are ranks 0..3"},
		{"cut:rank=1", "allowed is cut:rank=R,peer=P[,after=N]"},
		{"cut:rank=1,peer=4", "allowed are ranks 0..3"},
		{"cut:rank=1,peer=1", "rank and peer must differ"},
		{"stall:rank=1", "allowed is stall:rank=R,ms=N[,after=N]"},
		{"stall:rank=1,ms=99999999999",
	         "allowed is stall:rank=R,ms=N[,after=N]"},
		{"delay", "allowed is delay:us=N[,rank=R]"},
		{"delay:us=1 reorder:us=2", "allowed is reorder[:rank=R]"},
		{"kill:rank=00000000000000000000000000000000000001",
	         "allowed is kill:rank=R[,after=N]"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ferry_faults faults;

		assert_int_equal(
			ferry_faults_read(NULL, bad[i][0], 0, 4, &faults),
			FERRY_INVAL);
		if (!strstr(ferry_last_error(), bad[i][1]))
			fail_msg("'%s' does not contain '%s'",
			         ferry_last_error(), bad[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_meaning),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
