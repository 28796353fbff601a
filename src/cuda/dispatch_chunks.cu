/* SPDX-License-Identifier: Apache-2.0 */
/* Path "chunks" where stores reach all ranks: dispatch_chunks_kernel.cuh. */
#include "dispatch_chunks_kernel.cuh"

extern "C" const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_chunks = {
	refuse, scratch_bytes, load, measure, launch,
};
