/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path "chunks" where some ranks are reached by NVSHMEM's puts only.
 * dispatch_chunks_kernel.cuh has the kernel.
 */
#define FERRY_NET
#include "net_nvshmem.cuh"

#include "../cuda/dispatch_chunks_kernel.cuh"

extern "C" const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_nvshmem = {
	refuse, scratch_bytes, load, measure, launch,
};
