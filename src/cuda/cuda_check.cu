/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stress of lines for tearing. See cuda_check.h.
 *
 * Does: block pair p of rank A writes lines into the memory of rank A + 1,
 * whose block pair p polls and verifies them; all ranks at once, in a ring.
 *
 * Buffers (of each rank): lines [pair][line], 128 bytes each, written by the
 * rank before, read by the owner; thanks [pair], 64-bit, written by the rank
 * behind, read by the owner.
 *
 * Steps: W1 wait until thanks[p] >= round (acquire, partner R3); W2 store every
 * line with epoch seed + round + 1 (volatile, 16 bytes of 8 lanes); R1 load
 * a line until its epoch has come (partner W2); R2 compare all of its data with
 * the pattern of line, lane and epoch; R3 all threads of the block being
 * through, store thanks[p] = round + 1 at the writer (release).
 *
 * Flags: the epoch in each line; thanks counts rounds. Both only grow.
 *
 * Threads: 256; 8 converged lanes have a line. Even blocks write, odd ones
 * read.
 *
 * Waits: W1 and R1, timeout_ns each; who gives up counts it and ends.
 *
 * Cost: about 2 us + lines / rate of NVLink a round.
 */
#include "cuda_check.h"

#include <cuda_runtime_api.h>

#include "../core/bits.h"
#include "line.cuh"

enum { CHECK_THREADS = 256, CHECK_TEAMS = CHECK_THREADS / LINE_LANES };

size_t ferry_cuda_lines_bytes(int32_t n_pairs, int32_t lines_of_pair)
{
	return (size_t)n_pairs *
	       ((size_t)lines_of_pair * LINE_BYTES + LINE_BYTES);
}

static __device__ uint64_t *thanks_of(const struct ferry_cuda_lines_check *c,
                                      unsigned char *memory, int32_t pair)
{
	const size_t lines = (size_t)c->n_pairs * (size_t)c->lines_of_pair;

	return (uint64_t *)(memory + (lines + (size_t)pair) * LINE_BYTES);
}

/* The two words of a lane: no two epochs share any of them. */
static __device__ uint64_t pattern(uint64_t line, uint32_t lane, uint64_t epoch)
{
	return epoch * 0x9e3779b97f4a7c15u ^
	       (line << 8 | lane) * 0xff51afd7ed558ccdu;
}

/* Has *word reached value? At most timeout_ns. */
static __device__ bool reached(const struct ferry_cuda_lines_check *c,
                               const uint64_t *word, uint64_t value)
{
	const uint64_t start = global_ns();

	while (load_acquire_sys(word) < value)
		if (global_ns() - start > c->timeout_ns) {
			atomicAdd(&c->found->late, 1ull);
			return false;
		}
	return true;
}

static __device__ void write_lines(const struct ferry_cuda_lines_check *c,
                                   int32_t pair)
{
	const uint32_t lane = threadIdx.x % LINE_LANES;
	const uint64_t *thanks = thanks_of(c, c->own, pair);
	__shared__ int go_on;

	for (int64_t round = 0; round < c->rounds; round++) {
		const uint64_t before = (uint64_t)(c->first_round + round);
		const uint64_t epoch = c->seed + before + 1;

		if (threadIdx.x == 0)
			go_on = reached(c, thanks, before);
		__syncthreads();
		const int on = go_on;

		__syncthreads();
		if (!on)
			return;
		for (int32_t i = (int32_t)threadIdx.x / LINE_LANES;
		     i < c->lines_of_pair; i += CHECK_TEAMS) {
			const uint64_t line =
				(uint64_t)pair * c->lines_of_pair + i;

			line_store(c->next + line * LINE_BYTES, lane,
			           pattern(line, lane * 2, epoch),
			           pattern(line, lane * 2 + 1, epoch), epoch);
		}
	}
}

static __device__ void note_torn(const struct ferry_cuda_lines_check *c,
                                 uint64_t line, uint32_t lane, uint64_t got,
                                 uint64_t wanted)
{
	if (atomicAdd(&c->found->torn, 1ull) != 0)
		return;
	c->found->first_torn[0] = line;
	c->found->first_torn[1] = lane;
	c->found->first_torn[2] = got;
	c->found->first_torn[3] = wanted;
}

/* Polls one line; false when its time is over. */
static __device__ bool read_line(const struct ferry_cuda_lines_check *c,
                                 uint64_t line, uint64_t epoch, uint32_t mask)
{
	const uint32_t lane = threadIdx.x % LINE_LANES;
	const unsigned char *const at = c->own + line * LINE_BYTES;
	const uint64_t start = global_ns();
	uint64_t a, b;

	while (!line_load(at, lane, epoch, mask, &a, &b)) {
		/* Converged lanes must leave together. */
		const bool late = global_ns() - start > c->timeout_ns;

		if (__any_sync(mask, late)) {
			if (lane == 0)
				atomicAdd(&c->found->late, 1ull);
			return false;
		}
	}
	const uint64_t want_a = pattern(line, lane * 2, epoch);
	const uint64_t want_b =
		lane == 7 ? epoch : pattern(line, lane * 2 + 1, epoch);

	if (a != want_a)
		note_torn(c, line, lane, a, want_a);
	else if (b != want_b)
		note_torn(c, line, lane, b, want_b);
	return true;
}

static __device__ void read_lines(const struct ferry_cuda_lines_check *c,
                                  int32_t pair)
{
	const uint32_t mask = 0xffu << (threadIdx.x % 32 & ~7u);
	unsigned long long seen = 0;

	for (int64_t round = 0; round < c->rounds; round++) {
		const uint64_t now = (uint64_t)(c->first_round + round) + 1;
		const uint64_t epoch = c->seed + now;
		bool good = true;

		for (int32_t i = (int32_t)threadIdx.x / LINE_LANES;
		     good && i < c->lines_of_pair; i += CHECK_TEAMS) {
			good = read_line(c,
			                 (uint64_t)pair * c->lines_of_pair + i,
			                 epoch, mask);
			seen += good && threadIdx.x % LINE_LANES == 0;
		}
		if (!__syncthreads_and(good))
			break;
		if (threadIdx.x == 0)
			store_release_sys(thanks_of(c, c->before, pair), now);
	}
	if (seen)
		atomicAdd(&c->found->seen, seen);
}

static __global__ void __launch_bounds__(CHECK_THREADS)
	lines_kernel(const __grid_constant__ struct ferry_cuda_lines_check c)
{
	if (blockIdx.x % 2)
		read_lines(&c, (int32_t)blockIdx.x / 2);
	else
		write_lines(&c, (int32_t)blockIdx.x / 2);
}

int ferry_cuda_lines_run(const struct ferry_cuda_lines_check *check,
                         struct CUstream_st *stream)
{
	lines_kernel<<<2 * (unsigned)check->n_pairs, CHECK_THREADS, 0,
	               stream>>>(*check);
	return cudaGetLastError();
}
