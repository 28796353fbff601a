/* SPDX-License-Identifier: Apache-2.0 */
/* The list of GPUs: sound values where there are some, else a reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/cuda_info.h"
#include "cuda/cuda_link.h"

static char reason[FERRY_CUDA_REASON_BYTES];
static int32_t n_devices;

static void devices_are_sound(void **state)
{
	(void)state;
	for (int32_t i = 0; i < n_devices; i++) {
		struct ferry_cuda_device device;

		assert_true(ferry_cuda_device_get(i, &device));
		printf("# %s, %s, %s, %d.%d, %d SMs, %llu MiB\n", device.name,
		       device.uuid, device.pci, device.compute_major,
		       device.compute_minor, device.n_sms,
		       (unsigned long long)(device.memory_bytes >> 20));
		assert_true(device.name[0]);
		assert_int_equal(strlen(device.uuid), 40);
		assert_memory_equal(device.uuid, "GPU-", 4);
		assert_int_equal(strlen(device.pci), 12);
		assert_in_range(device.compute_major, 5, 20);
		assert_in_range(device.n_sms, 1, 1000);
		assert_true(device.memory_bytes > (uint64_t)1 << 30);
		assert_true(ferry_cuda_peer(i, i));
	}
}

static void reach_is_mutual(void **state)
{
	(void)state;
	for (int32_t i = 0; i < n_devices; i++)
		for (int32_t j = 0; j < i; j++)
			assert_int_equal(ferry_cuda_peer(i, j),
			                 ferry_cuda_peer(j, i));
}

/* Figures of a working link, far from any machine's. */
static void links_are_measured(void **state)
{
	struct ferry_cuda_link link;

	(void)state;
	for (int32_t i = 0; i < n_devices; i++)
		for (int32_t j = 0; j < n_devices; j++) {
			if (i == j)
				continue;
			ferry_cuda_link_get(i, j, &link);
			assert_int_equal(link.kind != FERRY_LINK_NONE,
			                 ferry_cuda_peer(i, j));
			if (link.kind == FERRY_LINK_NONE)
				continue;
			assert_int_equal(ferry_cuda_link_measure(i, j, &link),
			                 FERRY_OK);
			printf("# %d to %d: kind %d, %d links, %.1f GB/s, "
			       "%.0f ns\n",
			       i, j, (int)link.kind, link.n_links,
			       link.gb_per_s, link.flag_ns);
			assert_true(link.gb_per_s > 1 && link.gb_per_s < 5000);
			assert_true(link.flag_ns > 100 && link.flag_ns < 1e6);
		}
}

static void past_the_end_is_refused(void **state)
{
	struct ferry_cuda_device device;

	(void)state;
	assert_false(ferry_cuda_device_get(n_devices, &device));
	assert_false(ferry_cuda_device_get(-1, &device));
	assert_int_equal(device.name[0], 0);
	assert_false(ferry_cuda_peer(0, n_devices));
	struct ferry_cuda_link link;

	ferry_cuda_link_get(0, n_devices, &link);
	assert_int_equal(link.kind, FERRY_LINK_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_are_sound),
		cmocka_unit_test(reach_is_mutual),
		cmocka_unit_test(links_are_measured),
		cmocka_unit_test(past_the_end_is_refused),
	};

	n_devices = ferry_cuda_count(reason);
	printf("# %d GPUs: %s\n", n_devices, reason);
	if (n_devices == 0) {
		printf("no GPU: %s\n", reason);
		return reason[0] ? 77 : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
