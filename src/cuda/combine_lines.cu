/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine for few tokens: rows come back as lines that carry their flag.
 *
 * Does
 *	parts SEND: sends the expert outputs back to every rank of the token's
 *	group: EXACT a row per (token, choice), REDUCED a row per (token, rank),
 *	summed here and rounded once. parts RECV: waits for what comes and
 *	writes the sum of each own token. Both in one launch: fused.
 * Buffers
 *	y: the caller's. What own tokens need of it never passes the window.
 *	op->copies, weights, offsets, n_tokens, own_slots, own_weights, dropped:
 *	left by dispatch, read here.
 *	back[token][j], windows of the token's group: lines; written by the
 *	experts' ranks, read by the owner. EXACT: j is the choice. REDUCED: the
 *	sender among the ranks other than the receiver where `back` has a row
 *	for each, else the sender's first choice that is kept.
 *	boxes: shared memory, of one lane each, where rows arrive.
 * Steps
 *	1. the kernel in front has ended; nothing is read or written before
 *	2. op->slot: epoch, state; poison            relaxed
 *	3. a ticket for each block; the last one moves the state on
 *	4. y -> boxes -> back: a line of 128 bytes at once
 *	                                             volatile, partner 5
 *	5. back -> boxes, until the line has the epoch
 *	                                             volatile, partner 4
 *	6. boxes -> out                              plain
 * Flags
 *	The last 8 bytes of each line: the whole epoch. Never reset.
 * Threads
 *	A warp takes an item: some lines of a token's rows, one to four blocks
 *	of 16 bytes a lane; it knows all of the token's choices. Senders wait
 *	for nobody. Fused, EXACT: some blocks send, the others sum. REDUCED:
 *	warps of each block do, and those that sum start their loads when those
 *	that send have (a hardware barrier, at which senders only arrive).
 * Waits
 *	5, bounded by timeout_ns (wait.cuh).
 * Cost
 *	A chain of launch, three dependent loads, a flight, and the wire; the
 *	own rows are summed while lines fly. dev/cuda-combine.md.
 */
#include "combine_early.cuh"
#include "combine_lines_recv.cuh"
#include "combine_lines_send.cuh"
#include "resident.cuh"

/* Crews of a launch that does both; else all warps are of one. */
template <int WAY>
static __device__ __forceinline__ struct crew
crew_of(const struct ferry_cuda_combine *a)
{
	const bool exact = WAY % N_HOWS == HOW_EXACT;
	const int32_t warp = (int32_t)threadIdx.x / 32;
	const int32_t n = (int32_t)gridDim.x, block = (int32_t)blockIdx.x;
	const bool sends = a->parts & FERRY_CUDA_SEND;
	const bool receives = a->parts & FERRY_CUDA_RECV;

	if (!sends || !receives)
		return {sends, false, warp * n + block, N_WARPS * n};
	if (exact && n > 1) {
		const int32_t n_send = max(1, n * SEND_BLOCKS / N_WARPS);

		if (block < n_send)
			return {true, false, warp * n_send + block,
			        N_WARPS * n_send};
		return {false, false, warp * (n - n_send) + block - n_send,
		        N_WARPS * (n - n_send)};
	}
	if (warp < SEND_WARPS)
		return {true, true, warp * n + block, SEND_WARPS * n};
	return {false, true, (warp - SEND_WARPS) * n + block,
	        (N_WARPS - SEND_WARPS) * n};
}

template <int DTYPE, int WAY>
static __global__ void __launch_bounds__(THREADS, 1)
	combine_lines(const __grid_constant__ struct ferry_cuda_combine a)
{
	extern __shared__ uint4 all_boxes[];
	__shared__ struct combine_shared shared;
	__shared__ struct wait waits[N_WARPS];
	const struct crew crew = crew_of<WAY>(&a);
	const struct cut cut = cut_of<WAY>(&a, &crew);
	const int32_t token = crew.first / cut.n_items;
	struct combine c = {&a, &shared, 0, 0, (int32_t)threadIdx.x % 32};
	struct choice x = {-1, 0, 0};
	struct own_choice own = {x, -1};

	begin_early(&a.ch);
	/* On the way before the slot is known; within the arrays if unused. */
	if (token < a.ch.max_tokens) {
		if (crew.sends)
			x = load_choice(&c, nth_group(&c, 1), token, 0);
		else
			own = load_own_choice(&c, token, 0);
	}
	if (!combine_begin(&c, &shared))
		return;
	const uint32_t warp = threadIdx.x / 32;
	uint4 *boxes = all_boxes + warp * BOXES * 32 + c.lane;

	if (crew.sends) {
		struct boxes b = {boxes, crew.shares};

		send_all<DTYPE, WAY>(&c, &crew, &cut, x, &b);
		tell_receivers(&b);
	} else {
		receive_all<DTYPE, WAY>(&c, &crew, &cut, own,
		                        {{}, {}, &waits[warp], boxes});
	}
	combine_advance(&c);
}

typedef void kernel(const struct ferry_cuda_combine a);

template <int DTYPE> static kernel *kernel_way(int way)
{
	switch (way) {
	case HOW_EXACT:
		return combine_lines<DTYPE, HOW_EXACT>;
	case HOW_REDUCED:
		return combine_lines<DTYPE, HOW_REDUCED>;
	case HOW_PRESUMMED:
		return combine_lines<DTYPE, HOW_PRESUMMED>;
	case HOW_REDUCED + HOW_MANY:
		return combine_lines<DTYPE, HOW_REDUCED + HOW_MANY>;
	case HOW_PRESUMMED + HOW_MANY:
		return combine_lines<DTYPE, HOW_PRESUMMED + HOW_MANY>;
	default:
		return combine_lines<DTYPE, HOW_ANY>;
	}
}

static kernel *kernel_of(int32_t dtype, int way)
{
	return dtype == FERRY_BF16   ? kernel_way<FERRY_BF16>(way)
	       : dtype == FERRY_FP16 ? kernel_way<FERRY_FP16>(way)
	                             : kernel_way<FERRY_FP32>(way);
}

static const char *refuse(const struct ferry_cuda_channel *ch)
{
	return ch->back_lines ? NULL : "rows do not come back as lines";
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

	for (int i = 0; i < 3 * 2 * N_HOWS && !error; i++)
		error = resident_load(
			(const void *)kernel_of(dtypes[i % 3], i / 3),
			BOX_BYTES);
	return error;
}

static int measure(const struct ferry_cuda_channel *ch,
                   struct ferry_cuda_fit *fit)
{
	cudaError_t error = cudaSuccess;

	*fit = resident_begin(THREADS, BOX_BYTES);
	for (int way = 0; way < 2 * N_HOWS && !error; way++)
		error = resident_count(
			(const void *)kernel_of(ch->combine_dtype, way), fit);
	return error;
}

static int64_t stripes_of(const struct ferry_cuda_combine *a)
{
	const int64_t lines =
		((int64_t)a->row_bytes + LINE_DATA - 1) / LINE_DATA;

	return (lines + STRIPE_LINES - 1) / STRIPE_LINES;
}

/* Large items where there are more stripes than warps to send them. */
static int way_of(const struct ferry_cuda_combine *a, int32_t ctas)
{
	const int how = how_of(a);
	const bool many =
		stripes_of(a) * a->ch.max_tokens > (int64_t)ctas * N_WARPS / 2;

	return many && how != HOW_ANY && how != HOW_EXACT ? how + HOW_MANY
	                                                  : how;
}

/* Blocks that have something to do at the most tokens there can be. */
static int32_t useful_ctas(const struct ferry_cuda_combine *a)
{
	const int64_t warps = stripes_of(a) * a->ch.max_tokens * a->ch.n_groups;

	return warps < INT32_MAX ? (int32_t)warps : INT32_MAX;
}

static int launch(const struct ferry_cuda_combine *args, int32_t ctas,
                  struct CUstream_st *stream)
{
	struct ferry_cuda_combine a = *args;
	const int32_t useful = useful_ctas(args);
	const unsigned n = (unsigned)(useful < ctas ? useful : ctas);

	return launch_early(
		(const void *)kernel_of(a.ch.combine_dtype, way_of(&a, ctas)),
		&a, n, THREADS, BOX_BYTES, stream);
}

extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_lines = {
	refuse, scratch_bytes, load, measure, launch};
