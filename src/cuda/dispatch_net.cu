/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path "chunks" where some ranks are on other hosts: their rows go through the
 * proxy. dispatch_chunks_kernel.cuh has the kernel.
 */
#define FERRY_NET
#include "net_proxy.cuh"

#include "dispatch_chunks_kernel.cuh"

extern "C" const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_net = {
	refuse, scratch_bytes, load, measure, launch,
};
