/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of kernels that are not written yet: each refuses its channel. Who
 * lands a kernel takes its table out of here; the last one takes the file.
 */
#include <cuda_runtime_api.h>

#include "cuda_kernels.h"

static const char *refuse(const struct ferry_cuda_channel *ch)
{
	(void)ch;
	return "the kernel is not written yet";
}

static size_t scratch_bytes(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	(void)ch;
	(void)ctas;
	return 0;
}

static int load(const struct ferry_cuda_channel *ch, struct ferry_cuda_fit *fit)
{
	(void)ch;
	fit->threads = 32;
	fit->smem_bytes = 0;
	fit->ctas_per_sm = 1;
	return cudaSuccess;
}

static int launch_combine(const struct ferry_cuda_combine *args, int32_t ctas,
                          struct CUstream_st *stream)
{
	(void)args;
	(void)ctas;
	(void)stream;
	return cudaErrorNotSupported;
}

extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_chunks = {
	refuse, scratch_bytes, load, launch_combine};
