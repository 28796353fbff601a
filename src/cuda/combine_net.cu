/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path "chunks" where some ranks are on other hosts: their rows go through the
 * proxy. combine_chunks_kernel.cuh has the kernel.
 */
#define FERRY_NET
#include "net_proxy.cuh"

#include "combine_chunks_kernel.cuh"

extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_net = {
	refuse, scratch_bytes, load, measure, launch,
};
