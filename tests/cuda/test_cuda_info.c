/* SPDX-License-Identifier: Apache-2.0 */
/* The list of GPUs: sound values where there are some, else a reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/cuda_info.h"

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

static void past_the_end_is_refused(void **state)
{
	struct ferry_cuda_device device;

	(void)state;
	assert_false(ferry_cuda_device_get(n_devices, &device));
	assert_false(ferry_cuda_device_get(-1, &device));
	assert_int_equal(device.name[0], 0);
	assert_false(ferry_cuda_peer(0, n_devices));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_are_sound),
		cmocka_unit_test(reach_is_mutual),
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
