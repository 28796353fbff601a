/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the copies of experts fit into the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "../fault.h"
#include "prefill.h"

/* Qwen3-30B-A3B. */
static struct prefill_shape large(void)
{
	return (struct prefill_shape){
		.n_ranks = 8,
		.n_layers = 48,
		.n_experts = 128,
		.expert_bytes = 3 * 2048 * 768 * 2,
	};
}

static void test_bytes_of_all_pools(void **state)
{
	struct prefill_shape shape = large();

	(void)state;
	assert_int_equal(prefill_pool_bytes(&shape),
	                 (128 * 48 + 8 * 2 * 16) * shape.expert_bytes);
	shape.replicas = 2;
	assert_int_equal(prefill_pool_bytes(&shape),
	                 ((128 + 16) * 48 + 8 * 2 * 18) * shape.expert_bytes);
	/* The first two ranks have one more. */
	shape.n_experts = 130;
	assert_int_equal(prefill_pool_bytes(&shape),
	                 ((130 + 16) * 48 + 8 * 2 * 19) * shape.expert_bytes);
	shape.n_ranks = 1;
	shape.replicas = 0;
	assert_int_equal(prefill_pool_bytes(&shape),
	                 (130 * 48 + 1) * shape.expert_bytes);
}

static void test_what_does_not_fit(void **state)
{
	struct prefill_shape shape = large();
	const struct prefill_job job = {.shape = &shape};
	static const char wanted[] = "experts that can move are copied: "
				     "6400.0 TiB of memory in all ranks, the "
				     "machine has ";
	struct fault fault;

	(void)state;
	shape.expert_bytes = 1 << 10;
	assert_true(prefill_memory_check(&job, &fault));
	shape.expert_bytes = INT64_C(1) << 40;
	assert_false(prefill_memory_check(&job, &fault));
	if (strncmp(fault.text, wanted, strlen(wanted)) != 0)
		fail_msg("%s", fault.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes_of_all_pools),
		cmocka_unit_test(test_what_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
