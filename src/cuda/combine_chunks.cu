/* SPDX-License-Identifier: Apache-2.0 */
/* Path "chunks" where stores reach all ranks: combine_chunks_kernel.cuh. */
#include "combine_chunks_kernel.cuh"

extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_chunks = {
	refuse, scratch_bytes, load, measure, launch,
};
