/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine for few tokens: rows come back as lines that carry their flag.
 *
 * Does
 *	parts SEND: sends the expert outputs back to every rank of the token's
 *	group: EXACT a row per (token, choice), REDUCED a row per (token, rank),
 *	summed here and rounded once. parts RECV: waits for what comes and
 *	writes the sum of each own token. Both in one launch: fused. Nobody
 *	waits for a SEND by itself, so REDUCED it forms the own parts, too.
 * Buffers
 *	y: the caller's. What own tokens need of it never passes the window.
 *	op->copies, weights, offsets, n_tokens, own_slots, own_weights, dropped:
 *	left by dispatch, read here.
 *	back[token][j], windows of the token's group: lines; written by the
 *	experts' ranks, read by the owner. EXACT: j is the choice. REDUCED: the
 *	sender among the ranks other than the receiver where `back` has a row
 *	for each, else the sender's first choice that is kept.
 *	op->scratch: a row of combine_dtype for each own token, REDUCED: the own
 *	part, left by a SEND by itself to the RECV. Ordinary stores and loads:
 *	one launch is behind the other.
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
 *	RECV by itself has a kernel of its own where rows lie on multiples of
 *	16: the same steps without boxes, and of 5 what it can find without the
 *	epoch before 2 has answered.
 * Flags
 *	The last 8 bytes of each line: the whole epoch. Never reset.
 * Threads
 *	A warp takes an item: some lines of a token's rows, one to four blocks
 *	of 16 bytes a lane; it knows all of the token's choices. Senders wait
 *	for nobody. Fused, EXACT: some blocks send, the others sum. REDUCED:
 *	warps of each block do, and those that sum start their loads when those
 *	that send have (a hardware barrier, at which senders only arrive).
 *	RECV by itself: two blocks a lane of up to four terms in registers.
 * Waits
 *	5, bounded by timeout_ns (wait.cuh).
 * Cost
 *	A chain of launch, three dependent loads, a flight, and the wire; the
 *	own rows are summed while lines fly. dev/cuda-combine.md.
 */
#include "combine_early.cuh"
#include "combine_lines_alone.cuh"
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

	begin_early(a.ch.early);
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

template <int DTYPE, int KIND>
static __global__ void __launch_bounds__(THREADS, 1)
	combine_lines_alone(const __grid_constant__ struct alone_args t)
{
	__shared__ struct alone_shared shared;

	begin_early(t.early);
	alone_receive<DTYPE, KIND>(&t, &shared);
}

typedef void kernel(const struct ferry_cuda_combine a);
typedef void alone_kernel(const struct alone_args t);

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

template <int DTYPE> static alone_kernel *alone_kernel_kind(int kind)
{
	return kind == ALONE_EXACT   ? combine_lines_alone<DTYPE, ALONE_EXACT>
	       : kind == ALONE_PARTS ? combine_lines_alone<DTYPE, ALONE_PARTS>
	                             : combine_lines_alone<DTYPE, ALONE_PAIR>;
}

static alone_kernel *alone_kernel_of(int32_t dtype, int kind)
{
	return dtype == FERRY_BF16   ? alone_kernel_kind<FERRY_BF16>(kind)
	       : dtype == FERRY_FP16 ? alone_kernel_kind<FERRY_FP16>(kind)
	                             : alone_kernel_kind<FERRY_FP32>(kind);
}

static const char *refuse(const struct ferry_cuda_channel *ch)
{
	return ch->back_lines ? NULL : "rows do not come back as lines";
}

static size_t scratch_bytes(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	(void)ctas;
	return ch->combine == FERRY_EXACT
	               ? 0
	               : (size_t)ch->max_tokens * kept_part_bytes(ch);
}

static int load(void)
{
	static const int32_t dtypes[] = {FERRY_BF16, FERRY_FP16, FERRY_FP32};
	cudaError_t error = cudaSuccess;

	for (int i = 0; i < 3 * 2 * N_HOWS && !error; i++)
		error = resident_load(
			(const void *)kernel_of(dtypes[i % 3], i / 3),
			BOX_BYTES);
	for (int i = 0; i < 3 * N_ALONE && !error; i++)
		error = resident_load(
			(const void *)alone_kernel_of(dtypes[i % 3], i / 3),
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
	for (int kind = 0; kind < N_ALONE && !error; kind++)
		error = resident_count(
			(const void *)alone_kernel_of(ch->combine_dtype, kind),
			fit);
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

static cudaLaunchConfig_t config_of(int32_t n_blocks, cudaStream_t stream)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = dim3(n_blocks > 0 ? (unsigned)n_blocks : 1);
	config.blockDim = dim3(THREADS);
	config.stream = stream;
	return config;
}

/* Is there a kernel for a recv of this kind by itself? */
static bool fits_alone(const struct ferry_cuda_combine *a)
{
	const int64_t n = stripes_of(a);

	/* Items are divided by multiplication; sizes are of 32 bits. */
	return a->parts == FERRY_CUDA_RECV && how_of(a) != HOW_ANY && n > 0 &&
	       n * n * a->ch.max_tokens < INT32_MAX &&
	       a->ch.back_rows * a->ch.back_stride < INT32_MAX;
}

static int alone_kind(const struct ferry_cuda_channel *ch)
{
	return ch->combine == FERRY_EXACT ? ALONE_EXACT
	       : ch->n_ranks == 2         ? ALONE_PAIR
	                                  : ALONE_PARTS;
}

static void find_terms(struct alone_args *t, const struct ferry_cuda_combine *a)
{
	const struct ferry_cuda_channel *ch = &a->ch;
	const struct ferry_cuda_op *op = &a->op;
	const unsigned char *window = ch->window[ch->rank];

	t->slot = op->slot;
	t->poison = (const uint64_t *)(window + ch->poison_offset);
	t->n_tokens = op->n_tokens + ch->group;
	t->own_slots = op->own_slots;
	t->dropped = op->dropped;
	t->back = window + (size_t)a->slot * ch->slot_bytes + ch->back_offset;
	t->back_stride = ch->back_stride;
	t->back_token_bytes = (uint32_t)(ch->back_rows * ch->back_stride);
	t->part = (const unsigned char *)op->scratch;
	t->part_bytes = (uint32_t)kept_part_bytes(ch);
	t->copies = op->copies + (size_t)ch->group * (size_t)ch->max_tokens *
	                                 (size_t)ch->max_topk;
	if (ch->weight_use == FERRY_WEIGHT_OUTPUT)
		t->own_weights = op->own_weights;
	if (a->in.layout != FERRY_FROM_PADDED)
		t->offsets = op->offsets;
	t->y = (const unsigned char *)a->in.y;
	t->y_stride = a->in.y_stride;
}

static struct alone_args alone_args_of(const struct ferry_cuda_combine *a)
{
	const struct ferry_cuda_channel *ch = &a->ch;
	struct alone_args t = {};

	find_terms(&t, a);
	t.topk = a->topk;
	t.max_topk = ch->max_topk;
	t.max_tokens = ch->max_tokens;
	t.row_bytes = (int32_t)a->row_bytes;
	t.n_items =
		(int32_t)((stripes_of(a) + ALONE_STRIPES - 1) / ALONE_STRIPES);
	t.last_line = (int32_t)((a->row_bytes + LINE_DATA - 1) / LINE_DATA) - 1;
	t.items_inverse = (uint64_t)UINT32_MAX / (uint32_t)t.n_items + 1;
	t.first_own = ch->first_slot[ch->rank];
	t.n_own = ch->own_expert_slots;
	t.early = ch->early;
	t.plain = ch->out_dtype == ch->combine_dtype && !a->out.residual;
	t.out = a->out;
	t.padded_rows = ch->padded_rows;
	t.a = *a;
	return t;
}

static int launch_alone(const struct ferry_cuda_combine *args, int32_t ctas,
                        cudaStream_t stream)
{
	const struct ferry_cuda_channel *ch = &args->ch;
	const struct alone_args t = alone_args_of(args);
	const int kind = alone_kind(ch);
	const int32_t useful = t.n_items * t.max_tokens;

	return launch_early(alone_kernel_of(ch->combine_dtype, kind), t,
	                    ch->early,
	                    config_of(useful < ctas ? useful : ctas, stream));
}

static int launch(const struct ferry_cuda_combine *args, int32_t ctas,
                  struct CUstream_st *stream)
{
	const struct ferry_cuda_channel *ch = &args->ch;
	const int32_t useful = useful_ctas(args);
	cudaLaunchConfig_t config =
		config_of(useful < ctas ? useful : ctas, stream);

	if (fits_alone(args))
		return launch_alone(args, ctas, stream);
	config.dynamicSmemBytes = BOX_BYTES;
	return launch_early(kernel_of(ch->combine_dtype, way_of(args, ctas)),
	                    *args, ch->early, config);
}

extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_lines = {
	refuse, scratch_bytes, load, measure, launch};
