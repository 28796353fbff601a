/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch on lines for calls that want nothing unusual: send, recv, or both in
 * one kernel, groups of one rank, at most eight ranks, rows that the copy
 * engine can store. What is unusual takes dispatch_lines.cu.
 *
 * Does
 *	What docs/protocol.md says of both phases, in as few steps as the way
 *	from GPU to GPU allows. Block 0 sends the table and writes counts; the
 *	others have a token of every rank each, or some.
 * Buffers
 *	As dispatch_lines.cu. The own table passes the window only where recv
 *	is a launch of its own: else every block makes it from the ids. All
 *	rows of a block have their own place in shared memory: nothing there is
 *	used twice.
 * Steps
 *	1. load slot, poison, all ids, the token's row; none waits for another
 *	2. lines of the row to the peers that serve it; block 0: table
 *	   (volatile, the epoch is in each line); partner 3. TOKEN: a warp of
 *	   its own has the copy engine store the row in the views, waits until
 *	   it is acknowledged, and stores the flags (relaxed); partner 5
 *	3. lines of the peers' tables until they are of this epoch, and in the
 *	   same loop those of the row that the other rank would send
 *	4. all refuse alike what is to be refused; a warp for each choice counts
 *	   equal entries before it, and hands an own row to the copy engine
 *	5. the rest of the peers' rows; then these to the copy engine. TOKEN:
 *	   the flags
 *	Recv alone (recv_lean): the copy engine loads own rows again while
 *	the slot is looked at; then 3 for all ranks, each line asked for once,
 *	and TOKEN's flags with them. A block whose lines are all here delivers
 *	each row as soon as it has its place; else 3 to 5, as above.
 * Flags
 *	The epoch, in lines and flags; never reset.
 * Early launch
 *	Where ch.early allows it, blocks may start while the kernel in front in
 *	the stream still runs. Until kernel_wait_previous returns, a block
 *	touches its own shared memory and its argument only: neither the slot,
 *	poison, windows, nor anything of the caller's, which that kernel may
 *	write (input, n_tokens_ptr) or read (output of the last dispatch, the
 *	tables of combine). It returns when that kernel has ended and what it
 *	wrote is seen; as every thread of every kernel that we launch so calls
 *	it before it ends, all that is further in front has ended, too. What a
 *	caller's kernel lets in early, or an event, a copy, a graph in front
 *	orders, is ordered as for any kernel.
 *	The next kernel is let in when this block waits for no peer any more,
 *	never before: room that it takes may be what a kernel of another
 *	channel needs, here, for the peer that this one waits for. It reads
 *	nothing of ours before we have ended, so that places, counts, bulk
 *	stores and the slot may come behind.
 *	Peers: what we store in a half of a window at epoch e was read by their
 *	kernel of e - 2, which had ended before they sent e - 1, which our
 *	kernel of e - 1 has seen.
 * Threads
 *	512 to a block, eight to a line; TOKEN: and the carrier, a warp that
 *	takes no part in what the others wait for.
 * Waits
 *	3, 5 and weights: bounded, wait.cuh. Whoever leaves early sets the
 *	counts to 0, behind a fence; block 0, which wrote them, looks for a
 *	failure behind one.
 * Cost
 *	dev/cuda-lean.md.
 */
#include "dispatch_lean.h"

#include <cuda_runtime_api.h>

#include "dispatch_lean_alone.cuh"
#include "dispatch_lean_both.cuh"
#include "resident.cuh"

static __device__ __forceinline__ int32_t
tokens_given(const struct ferry_cuda_dispatch *d)
{
	return d->in.n_tokens_ptr ? *d->in.n_tokens_ptr : d->in.n_tokens;
}

template <bool TOKEN, int32_t PARTS>
static __global__ void
__launch_bounds__(TOKEN ? LEAN_THREADS + 32 : LEAN_THREADS, 1)
	dispatch_lean(const __grid_constant__ struct lean_args a)
{
	extern __shared__ __align__(128) unsigned char smem[];
	__shared__ struct lean_shared shared;
	struct lean l = lean_begin(&a, &shared, smem);
	const bool carries = TOKEN && l.warp == LEAN_CARRIER;
	struct lean_slot slot = {0, 0, 0};
	uint32_t ticket = 0;

	if (!carries)
		clear_shared(&l);
	LEAN_MARK(&l, 10);
	kernel_wait_previous();
	LEAN_MARK(&l, 0);
	look_at_slot(&l, &slot);
	const int32_t given = tokens_given(&a.d);
	const uint32_t all = (uint32_t)given <= (uint32_t)a.d.ch.max_tokens
	                             ? (uint32_t)given
	                             : 0;

	if (!carries) {
		stage<PARTS>(&l, all * a.by_topk.by, all);
		tell_slot<PARTS>(&l, &slot);
	}
	__syncthreads();
	LEAN_MARK(&l, 1);
	take_epoch(&l);
	if (shared.stop) {
		if (!carries)
			lean_stop(&a, &shared);
		return;
	}
	const uint32_t n_tokens = shared.bad == LEAN_NOTHING ? all : 0;
	const uint32_t n = n_tokens * a.by_topk.by;

	if (carries) {
		if (l.works)
			carry_rows(&l, n_tokens);
		return;
	}
	if (!TOKEN && l.works)
		send_rows(&l, n_tokens);
	if (l.thread == LEAN_READER)
		ticket = add_relaxed_gpu(&a.d.op.slot->tickets, 1);
	if (l.thread == 0)
		make_head(&l, given);
	if (l.is_clerk) {
		__syncwarp();
		send_table<PARTS>(&l, n);
		latch_batch(&l, n);
	}
	LEAN_MARK(&l, 2);
	if (PARTS & LEAN_RECV &&
	    (TOKEN ? !receive_views(&l, n) : !receive(&l, n)))
		lean_leave(&a, &shared);
	LEAN_MARK(&l, 3);
	kernel_launch_next();
	bulk_commit();
	bulk_wait_read<0>();
	if (l.thread == LEAN_READER && ticket == gridDim.x - 1) {
		a.d.op.slot->epoch = l.epoch;
		a.d.op.slot->state = PARTS & LEAN_RECV
		                             ? FERRY_SLOT_DISPATCHED
		                             : FERRY_SLOT_DISPATCH_SENT;
		a.d.op.slot->tickets = 0;
	}
	LEAN_MARK(&l, 4);
}

template <bool TOKEN>
static __global__ void __launch_bounds__(LEAN_THREADS, 1)
	recv_lean(const __grid_constant__ struct lean_args a)
{
	extern __shared__ __align__(128) unsigned char smem[];
	__shared__ struct lean_shared shared;
	struct lean l = lean_begin(&a, &shared, smem);
	struct lean_asked asked = {};
	struct lean_slot slot = {0, 0, 0};
	uint32_t ticket = 0;
	bool good = true;

	kernel_wait_previous();
	LEAN_MARK(&l, 0);
	look_at_slot(&l, &slot);
	ask_early<TOKEN>(&l, &asked);
	clear_entries(&l);
	clear_shared(&l);
	LEAN_MARK(&l, 10);
	tell_slot<LEAN_RECV>(&l, &slot);
	lean_sync();
	LEAN_MARK(&l, 1);
	take_epoch(&l);
	if (shared.stop) {
		lean_stop(&a, &shared);
	} else {
		if (l.thread == LEAN_READER)
			ticket = add_relaxed_gpu(&a.d.op.slot->tickets, 1);
		good = TOKEN ? receive_views_alone(&l, &asked)
		             : receive_alone(&l, &asked);
		if (!good)
			lean_leave(&a, &shared);
	}
	LEAN_MARK(&l, 3);
	kernel_launch_next();
	if (!TOKEN && !a.d.ch.quantize && l.thread == LEAN_LOADER)
		barrier_wait(&shared.own_rows, 0);
	bulk_commit();
	bulk_wait_read<0>();
	if (l.thread == LEAN_READER && !shared.stop &&
	    ticket == gridDim.x - 1) {
		a.d.op.slot->state = FERRY_SLOT_DISPATCHED;
		a.d.op.slot->tickets = 0;
	}
	LEAN_MARK(&l, 4);
}

static size_t up_to(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static uint32_t workers_of(int32_t ctas)
{
	return ctas > 1 ? (uint32_t)ctas - 1 : 1;
}

/* Blocks that can find something to do. */
static int32_t useful_ctas(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	return ch->max_tokens + 1 < ctas ? ch->max_tokens + 1 : ctas;
}

static uint32_t image_bytes_of(const struct ferry_cuda_dispatch *d)
{
	return (uint32_t)(d->row_bytes + d->scale_row_bytes);
}

static uint32_t units_of(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	const uint32_t n = workers_of(ctas);

	return ((uint32_t)ch->max_tokens + n - 1) / n;
}

static struct lean_layout layout_of(const struct ferry_cuda_dispatch *d,
                                    uint32_t n_units)
{
	const struct ferry_cuda_channel *ch = &d->ch;
	const size_t n_ranks = (size_t)ch->n_ranks;
	const size_t lines = (image_bytes_of(d) + LINE_DATA - 1) / LINE_DATA;
	const size_t row = up_to(lines * LINE_DATA, 128);
	const size_t n = (size_t)ch->max_tokens * (size_t)ch->max_topk;
	struct lean_layout at;

	at.row_stride = (uint32_t)row;
	at.n_images = ch->layout == FERRY_TOKEN ? 1 : (uint32_t)n_ranks;
	at.entries = (uint32_t)(n_units * at.n_images * row);
	at.entry_stride = (uint32_t)up_to(n, 8);
	at.weights = at.entries + (uint32_t)n_ranks * at.entry_stride * 2;
	at.counts = at.weights + (uint32_t)up_to(n * 4, 16);
	at.rows = at.counts +
	          (uint32_t)up_to(((size_t)ch->n_expert_slots + 1) * 4, 16);
	at.bytes = at.rows +
	           n_units * (uint32_t)n_ranks * (uint32_t)ch->max_topk * 8;
	return at;
}

/* Can the copy engine, and loads of 16 bytes, take rows of this array? */
static bool wide(const void *base, size_t stride, size_t bytes)
{
	return base && (uintptr_t)base % 16 == 0 && stride % 16 == 0 &&
	       bytes % 16 == 0;
}

/* What may be left out takes the other way. */
static bool bounds_fit(const struct ferry_cuda_channel *ch)
{
	return !ch->bounded || (ch->layout == FERRY_EXPERT_PADDED &&
	                        ch->overflow == FERRY_OVERFLOW_ERROR);
}

static bool channel_fits(const struct ferry_cuda_channel *ch)
{
	const int64_t n = (int64_t)ch->n_ranks * ch->max_tokens * ch->max_topk;

	return ch->table_lines && ch->group_size == 1 &&
	       (ch->row_lines || ch->row_chunk == 1) && bounds_fit(ch) &&
	       ch->weight_use == FERRY_WEIGHT_OUTPUT && ch->n_ranks >= 2 &&
	       ch->n_ranks <= LEAN_RANKS && ch->max_topk <= LEAN_TOPK &&
	       n <= LEAN_ENTRIES && ch->own_expert_slots < LEAN_THREADS &&
	       ch->n_expert_slots <= LEAN_ENTRIES && ch->alignment <= 65536 &&
	       (!ch->quantize || ch->scale_block == ROW_QUANT_BLOCK);
}

static bool input_fits(const struct ferry_cuda_dispatch *d)
{
	const struct ferry_dispatch_in *in = &d->in;
	const size_t id = in->id_type == FERRY_ID_INT64 ? 8 : 4;

	if (in->topk < 1 || in->topk > d->ch.max_topk ||
	    (uintptr_t)in->topk_ids % id || in->ids_stride % id ||
	    (uintptr_t)in->topk_weights % 4 || in->weights_stride % 4)
		return false;
	if (!wide(in->x, in->x_stride, d->row_bytes) || d->scale_row_bytes % 16)
		return false;
	/* A view has its scales where the channel's longest rows have them. */
	if (d->ch.layout == FERRY_TOKEN && d->scale_row_bytes &&
	    d->row_bytes != d->ch.scale_offset)
		return false;
	if (d->ch.quantize)
		return d->ch.in_dtype == FERRY_BF16 &&
		       d->ch.dtype == FERRY_FP8_E4M3 &&
		       d->row_bytes % ROW_QUANT_BLOCK == 0;
	return !d->scale_row_bytes ||
	       wide(in->scales, in->scales_stride, d->scale_row_bytes);
}

static bool output_fits(const struct ferry_cuda_dispatch *d)
{
	const struct ferry_dispatch_out *out = &d->out;

	if (out->row_expert_slot || out->row_source || out->row_token ||
	    out->row_weight || out->token_slots || out->token_weights)
		return false;
	if (d->ch.layout == FERRY_TOKEN)
		return !out->index || d->ch.alignment == 1;
	return wide(out->rows, out->row_stride, d->row_bytes) &&
	       (!out->scales ||
	        (out->scale_form == FERRY_SCALES_ROW_MAJOR &&
	         wide(out->scales, out->scales_stride, d->scale_row_bytes)));
}

bool ferry_dispatch_lean_fits(const struct ferry_cuda_dispatch *d, int32_t ctas)
{
	if (!channel_fits(&d->ch) || !input_fits(d) ||
	    (d->parts & FERRY_CUDA_RECV && !output_fits(d)))
		return false;
	const uint64_t units = units_of(&d->ch, ctas);

	return units * (uint64_t)d->ch.n_ranks * image_bytes_of(d) <
	               LEAN_SMEM_BYTES &&
	       layout_of(d, (uint32_t)units).bytes <= LEAN_SMEM_BYTES;
}

typedef void lean_kernel(struct lean_args);

/* By layout and PARTS. */
enum { LEAN_WAYS = 8 };
static lean_kernel *const kernels[2][LEAN_WAYS] = {
	{NULL, dispatch_lean<false, LEAN_SEND>, recv_lean<false>,
         dispatch_lean<false, LEAN_BOTH>, NULL,
         dispatch_lean<false, LEAN_SEND | LEAN_QUOTA>, NULL,
         dispatch_lean<false, LEAN_BOTH | LEAN_QUOTA>},
	{NULL, dispatch_lean<true, LEAN_SEND>, recv_lean<true>,
         dispatch_lean<true, LEAN_BOTH>, NULL,
         dispatch_lean<true, LEAN_SEND | LEAN_QUOTA>, NULL,
         dispatch_lean<true, LEAN_BOTH | LEAN_QUOTA>},
};

static lean_kernel *kernel_of(const struct ferry_cuda_dispatch *d)
{
	const bool by_quota = d->parts & FERRY_CUDA_SEND && d->placement.start;

	return kernels[d->ch.layout == FERRY_TOKEN]
		      [d->parts | (by_quota ? LEAN_QUOTA : 0)];
}

int ferry_dispatch_lean_load(void)
{
	cudaError_t error = cudaSuccess;

	for (int i = 0; i < 2 * LEAN_WAYS && error == cudaSuccess; i++)
		if (kernels[i / LEAN_WAYS][i % LEAN_WAYS])
			error = resident_load(
				(const void *)
					kernels[i / LEAN_WAYS][i % LEAN_WAYS],
				LEAN_SMEM_BYTES);
	return error;
}

/* Place of a source among those that have rows at `owner`. */
static size_t place_of(const struct ferry_cuda_channel *ch, int32_t owner,
                       int32_t source)
{
	return (size_t)(ch->layout == FERRY_TOKEN || source < owner
	                        ? source
	                        : source - 1);
}

static void find_windows(struct lean_args *a)
{
	const struct ferry_cuda_channel *ch = &a->d.ch;
	const size_t slot = (size_t)a->d.slot * ch->slot_bytes;
	const size_t row_region = (size_t)ch->cap * ch->row_stride;

	a->table_half = (size_t)ch->n_ranks * ch->table_stride;
	a->row_half = (size_t)ch->row_sources * row_region;
	a->flag_half = (size_t)(ch->row_sources * ch->row_chunks);
	for (int32_t r = 0; r < ch->n_ranks; r++) {
		unsigned char *theirs = ch->window[r] + slot;
		unsigned char *own = ch->window[ch->rank] + slot;

		a->table_to[r] = theirs + ch->table_offset +
		                 (size_t)ch->rank * ch->table_stride;
		a->table_in[r] =
			own + ch->table_offset + (size_t)r * ch->table_stride;
		const size_t to = place_of(ch, r, ch->rank);
		const size_t in = place_of(ch, ch->rank, r);

		if (r == ch->rank && ch->row_lines)
			continue;
		a->row_to[r] = theirs + ch->row_offset + to * row_region;
		a->row_in[r] = own + ch->row_offset + in * row_region;
		a->flag_to[r] = (uint64_t *)(theirs + ch->row_flag_offset) +
		                to * (size_t)ch->row_chunks;
		a->flag_in[r] = (uint64_t *)(own + ch->row_flag_offset) +
		                in * (size_t)ch->row_chunks;
	}
}

/* Whole lines of 128 where there is room: NVLink carries those faster. */
static uint32_t carry_bytes_of(uint32_t bytes,
                               const struct ferry_cuda_channel *ch)
{
	const size_t lines = (bytes + LINE_DATA - 1) / LINE_DATA;
	const size_t whole = up_to(bytes, LINE_BYTES);

	return whole <= ch->row_stride && whole <= lines * LINE_DATA
	               ? (uint32_t)whole
	               : bytes;
}

static void prepare(struct lean_args *a, int32_t ctas)
{
	const struct ferry_cuda_dispatch *d = &a->d;
	const struct ferry_cuda_channel *ch = &d->ch;
	const uint32_t round = LEAN_THREADS * (ch->quantize ? 16 : 32);

	find_windows(a);
	a->own_image = ch->layout == FERRY_TOKEN ? 0 : (uint32_t)ch->rank;
	a->n_workers = workers_of(ctas);
	a->n_units = units_of(ch, ctas);
	a->at = layout_of(d, a->n_units);
	a->row_bytes = (uint32_t)d->row_bytes;
	a->scale_bytes = (uint32_t)d->scale_row_bytes;
	a->image_bytes = image_bytes_of(d);
	a->row_lines = (a->image_bytes + LINE_DATA - 1) / LINE_DATA;
	a->n_rounds =
		((ch->quantize ? a->row_bytes : a->row_lines * LINE_DATA) +
	         round - 1) /
		round;
	a->carry_bytes = carry_bytes_of(a->image_bytes, ch);
	a->weights_travel = ch->send_weights &&
	                    (d->in.topk_weights || ch->routed_scale != 1.0f);
	a->by_topk = lean_div_of((uint32_t)d->in.topk);
	a->by_max_topk = lean_div_of((uint32_t)ch->max_topk);
	a->by_ranks = lean_div_of((uint32_t)ch->n_ranks);
	a->by_table_lines =
		lean_div_of((uint32_t)(ch->table_stride / LINE_BYTES));
}

int ferry_dispatch_lean_launch(const struct ferry_cuda_dispatch *d,
                               int32_t ctas, struct CUstream_st *stream)
{
	const bool token = d->ch.layout == FERRY_TOKEN;
	const bool carries = token && d->parts & FERRY_CUDA_SEND;
	struct lean_args a = {};
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute early = {};

	ctas = useful_ctas(&d->ch, ctas);
	a.d = *d;
	prepare(&a, ctas);
	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3((unsigned)ctas);
	config.blockDim = dim3(carries ? LEAN_THREADS + 32 : LEAN_THREADS);
	config.dynamicSmemBytes = a.at.bytes;
	config.stream = stream;
	config.attrs = &early;
	config.numAttrs = d->ch.early ? 1 : 0;
	return cudaLaunchKernelEx(&config, kernel_of(d), a);
}
