/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of this machine, for `ferry info` and for the choice of an engine.
 * Plain C, and in every build: without CUDA, or without a driver, there are 0
 * GPUs and a reason. No CUDA header is needed to include this.
 */
#ifndef FERRY_CUDA_INFO_H
#define FERRY_CUDA_INFO_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FERRY_CUDA_REASON_BYTES = 160 };

struct ferry_cuda_device {
	char name[256];
	char uuid[41]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
	char pci[16];  /* "0000:19:00.0" */
	int32_t compute_major, compute_minor;
	int32_t n_sms;
	uint64_t memory_bytes;
};

/*
 * Number of GPUs, and in reason where it is 0 why, else the versions of
 * driver and runtime. May take a second: the first call loads the driver.
 * Creates no context.
 */
int32_t ferry_cuda_count(char reason[FERRY_CUDA_REASON_BYTES]);

/* Properties of GPU i; false when it cannot be asked. */
bool ferry_cuda_device_get(int32_t i, struct ferry_cuda_device *device);

/* Can a kernel on `from` load and store the memory of `to`? */
bool ferry_cuda_peer(int32_t from, int32_t to);

#ifdef __cplusplus
}
#endif
#endif
