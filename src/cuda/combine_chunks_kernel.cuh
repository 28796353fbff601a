/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine for many tokens: rows come back as they are, and a flag for every
 * few tokens says that they have. combine_chunks.cu and combine_net.cu compile
 * it; the latter with ranks that are reached over a network only
 * (net_port.cuh), whose rows go by puts from `out`, and are counted.
 *
 * Does
 *	As combine_lines.cu, with raw rows.
 * Buffers
 *	As there; back[token][j] are rows. back_flag[source][chunk]: written by
 *	the source, read by the owner; chunk: back_chunk tokens of the owner.
 * Steps
 *	1. op->slot: epoch, state; poison            relaxed
 *	2. a ticket for each block; the last one moves the state on
 *	3. y -> back: sums by stores, copies by bulk copies through shared
 *	   memory
 *	4. when the rows of a chunk are written: back_flag = epoch, to each rank
 *	   of the group                              release, partner 5
 *	5. back_flag[every source][chunk] until it is the epoch
 *	                                             acquire, partner 4
 *	6. own rows and back -> out                  plain
 *	Far ranks: 3 to `out`, once for all of a group; 4 puts the rows of the
 *	chunk; 5 waits for all that a rank has for this batch
 * Flags
 *	The whole epoch, for every chunk of a batch from every other rank, also
 *	where no row comes. Never reset.
 * Threads
 *	A fused block has a crew that sends and a crew that receives, so that it
 *	does both from the start; otherwise one crew. A crew takes a chunk at a
 *	time, so many warps a token. Copies are sent by a single thread.
 *	Senders wait for nobody.
 * Waits
 *	5, bounded by timeout_ns (wait.cuh).
 * Cost
 *	The larger of wire and device memory; dev/cuda-combine.md.
 */
#ifndef FERRY_COMBINE_CHUNKS_KERNEL_CUH
#define FERRY_COMBINE_CHUNKS_KERNEL_CUH

#include <cuda_runtime_api.h>

#include "combine_chunks_copy.cuh"
#include "combine_chunks_recv.cuh"
#include "combine_chunks_send.cuh"
#include "resident.cuh"

template <int DTYPE, int HOW>
static __global__ void __launch_bounds__(THREADS, 1)
	combine_chunks(const __grid_constant__ struct ferry_cuda_combine a)
{
	extern __shared__ __align__(128) unsigned char stages[];
	__shared__ struct combine_shared shared;
	__shared__ struct ring ring;
	const int32_t warp = (int32_t)threadIdx.x / 32;
	/* What goes to far ranks is stored once for all of them. */
	const bool copies = !NET && (HOW == HOW_EXACT || HOW == HOW_PRESUMMED);
	const bool sends = a.parts & FERRY_CUDA_SEND;
	const bool receives = a.parts & FERRY_CUDA_RECV;
	struct combine c = {&a, &shared, 0, 0, (int32_t)threadIdx.x % 32};
	/* Of the warps, those that send are the last ones. */
	const int32_t n_send = !sends     ? 0
	                       : copies   ? 1
	                       : receives ? N_WARPS / 2
	                                  : N_WARPS;
	const int32_t n_receive = N_WARPS - n_send;

	if (!combine_begin(&c, &shared))
		return;
	combine_advance(&c);
	if (warp >= n_receive) {
		const struct crew crew = {warp - n_receive, n_send};

		if (copies)
			send_by_copies<HOW>(&c, &ring, stages);
		else
			send_by_stores<DTYPE, HOW>(&c, &crew);
	} else if (receives) {
		const struct crew crew = {warp, n_receive};

		receive_all<DTYPE, HOW>(&c, &crew);
	}
}

typedef void kernel(const struct ferry_cuda_combine a);

template <int DTYPE> static kernel *kernel_how(int how)
{
	return how == HOW_EXACT       ? combine_chunks<DTYPE, HOW_EXACT>
	       : how == HOW_REDUCED   ? combine_chunks<DTYPE, HOW_REDUCED>
	       : how == HOW_PRESUMMED ? combine_chunks<DTYPE, HOW_PRESUMMED>
	                              : combine_chunks<DTYPE, HOW_ANY>;
}

static kernel *kernel_of(int32_t dtype, int how)
{
	return dtype == FERRY_BF16   ? kernel_how<FERRY_BF16>(how)
	       : dtype == FERRY_FP16 ? kernel_how<FERRY_FP16>(how)
	                             : kernel_how<FERRY_FP32>(how);
}

static const char *refuse(const struct ferry_cuda_channel *ch)
{
	return ch->back_lines ? "rows come back as lines" : NULL;
}

static size_t scratch_bytes(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	(void)ch;
	(void)ctas;
	return 0;
}

static int load(void)
{
	static const int32_t dtypes[] = {FERRY_BF16, FERRY_FP16, FERRY_FP32};
	cudaError_t error = cudaSuccess;

	for (int i = 0; i < 3 * N_HOWS && !error; i++)
		error = resident_load(
			(const void *)kernel_of(dtypes[i % 3], i / 3),
			STAGES * STAGE_BYTES);
	return error;
}

static int measure(const struct ferry_cuda_channel *ch,
                   struct ferry_cuda_fit *fit)
{
	cudaError_t error = cudaSuccess;

	*fit = resident_begin(THREADS, STAGES * STAGE_BYTES);
	for (int how = 0; how < N_HOWS && !error; how++)
		error = resident_count(
			(const void *)kernel_of(ch->combine_dtype, how), fit);
	return error;
}

static int launch(const struct ferry_cuda_combine *args, int32_t ctas,
                  struct CUstream_st *stream)
{
	struct ferry_cuda_combine a = *args;
	void *arguments[] = {&a};
	const int64_t useful = (int64_t)a.ch.back_chunks *
	                       (a.parts & FERRY_CUDA_SEND ? a.ch.n_groups : 1);
	const unsigned n = (unsigned)(useful < ctas ? useful : ctas);

	return (int)cudaLaunchKernel(
		(const void *)kernel_of(a.ch.combine_dtype, how_of(&a)),
		dim3(n ? n : 1), dim3(THREADS), arguments, STAGES * STAGE_BYTES,
		stream);
}

#endif
