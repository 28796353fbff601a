/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from where ranks live: hosts, ranks and CPUs of a host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "fabric/place.h"

/* Ranks 0, 1, 3 on one host, 2 on another. */
static struct ferry_place places[4] = {
	{.machine_id = 5, .host_id = 5, .cpus = 1, .n_cpus = 1},
	{.machine_id = 5, .host_id = 5, .cpus = 2, .n_cpus = 1},
	{.machine_id = 6, .host_id = 6, .cpus = 1, .n_cpus = 1},
	{.machine_id = 5, .host_id = 5, .cpus = 2, .n_cpus = 1},
};

static void test_hosts(void **state)
{
	(void)state;
	assert_int_equal(ferry_place_hosts(places, 4), 2);
	assert_int_equal(ferry_place_host_ranks(places, 4, 0), 3);
	assert_int_equal(ferry_place_host_ranks(places, 4, 2), 1);
}

/* A launcher that binds ranks to CPUs of their own does not make them few. */
static void test_sets_of_cpus_add_up(void **state)
{
	(void)state;
	assert_int_equal(ferry_place_machine_cores(places, 1, 0), 1);
	assert_int_equal(ferry_place_machine_cores(places, 4, 2), 1);
	/* Without a quota of the control group, which may be 1. */
	const int32_t cores = ferry_place_machine_cores(places, 4, 0);

	assert_in_range(cores, 1, 2);
	assert_int_equal(cores, ferry_place_machine_cores(places, 2, 1));
}

static void test_equal_sets_count_once(void **state)
{
	struct ferry_place own[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		ferry_place_read(&own[i]);
	assert_true(own[0].n_cpus >= 1);
	assert_int_equal(own[0].cpus, own[1].cpus);
	assert_int_equal(ferry_place_machine_cores(own, 3, 0),
	                 ferry_place_machine_cores(own, 1, 0));
}

/* Threads of a process look at it at different times. */
static void test_process_stays_the_same(void **state)
{
	enum { BYTES = 64 << 20 };
	struct ferry_place before, after;

	(void)state;
	ferry_place_read(&before);
	void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	ferry_place_read(&after);
	munmap(p, BYTES);
	assert_true(ferry_place_same_process(&before, &after));
}

static void test_gpus_are_shared(void **state)
{
	const struct ferry_place on_gpus[5] = {
		{.machine_id = 1,
	         .host_id = 1,
	         .device = FERRY_DEVICE_CUDA,
	         .gpu = {1}},
		{.machine_id = 1,
	         .host_id = 1,
	         .device = FERRY_DEVICE_CUDA,
	         .gpu = {2}},
		{.machine_id = 1,
	         .host_id = 1,
	         .device = FERRY_DEVICE_CUDA,
	         .gpu = {1}},
		{.machine_id = 2,
	         .host_id = 2,
	         .device = FERRY_DEVICE_CUDA,
	         .gpu = {1}},
		{.machine_id = 1, .host_id = 1, .device = FERRY_DEVICE_CPU},
	};

	(void)state;
	assert_int_equal(ferry_place_gpu_ranks(on_gpus, 5, 0), 2);
	assert_int_equal(ferry_place_gpu_ranks(on_gpus, 5, 1), 1);
	assert_int_equal(ferry_place_gpu_ranks(on_gpus, 5, 2), 2);
	assert_int_equal(ferry_place_gpu_ranks(on_gpus, 5, 3), 1);
	assert_int_equal(ferry_place_gpu_ranks(on_gpus, 5, 4), 0);
	assert_int_equal(ferry_place_gpu_ranks(on_gpus, 1, 0), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_sets_of_cpus_add_up),
		cmocka_unit_test(test_equal_sets_count_once),
		cmocka_unit_test(test_process_stays_the_same),
		cmocka_unit_test(test_gpus_are_shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
