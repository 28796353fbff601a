/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch on lines: dispatch_send, dispatch_recv, or both, in one kernel.
 *
 * Does
 *	What docs/protocol.md says of the two phases, for channels whose peers
 *	are reached by stores over NVLink. Blocks are of two kinds: a few
 *	clerks send tables and write counts, the workers move rows. Neither is
 *	tied to a token or an expert.
 * Buffers
 *	table[half][source], in lines of 128 bytes: written by the source in
 *	every rank's window, its own too; read by the owner.
 *	row[half][source][i], in lines; TOKEN: as they are, and a flag each.
 *	op: own_slots, own_weights, own_count written by send; copies, weights,
 *	offsets, n_tokens, dropped by recv; all read by combine. Own memory.
 *	slot: epoch and state, read by every block, advanced by the last one
 *	that has read them.
 * Steps
 *	1. load epoch, state, broken: relaxed. They are there before the ticket
 *	   is drawn, whose last drawer stores the new ones. Ids and the first
 *	   row are on their way at the same time
 *	2. send, clerks: lines of the table to every rank (volatile, 16 bytes
 *	   of each of 8 lanes; the epoch is in each line); partner 4. They
 *	   should leave before rows fill the link
 *	3. send, workers: row from x into shared memory, quantised there; lines
 *	   to every rank that serves it; partner 6. TOKEN: plain stores, fence
 *	   sys, then the flag; partner 7. No send waits for a peer
 *	4. recv, all blocks: lines of all tables until they are of this epoch;
 *	   one team of a block looks at a line, and tells how many will come
 *	   when it is the header
 *	5. all refuse alike what is to be refused; a warp counts, for each
 *	   choice of the block's tokens, the equal entries before it: its row
 *	6. own rows from shared memory, or x again, to their places; rows of
 *	   others as their lines come in, into shared memory, then to their
 *	   places (bulk copies, a warp for each, complete at the end)
 *	7. TOKEN: the flags, acquire
 * Flags
 *	The epoch, in lines and flags; never reset.
 * Threads
 *	512 to a block, eight to a line. Three buffers for parts of rows: while
 *	the copy engine reads one and the next is filled, the third is free.
 * Waits
 *	4, 6, 7 and weights: bounded, wait.cuh. Whoever leaves early sets the
 *	counts to 0, behind a fence; the clerk that wrote them looks for a
 *	failure behind one.
 * Cost
 *	dev/cuda-lines.md.
 */
#include <cuda_runtime_api.h>

#include "../proto/slot_state.h"
#include "cuda_kernels.h"
#include "dispatch_lean.h"
#include "dispatch_lean_trace.cuh"
#include "dispatch_lines_out.cuh"
#include "dispatch_lines_send.cuh"
#include "resident.cuh"

/* What the slot and the poison say. */
struct lines_slot {
	uint64_t broken, epoch;
	uint32_t state;
};

/* Begins to load them: by thread 0, before it loads anything else. */
static __device__ __forceinline__ struct lines_slot
look_at_slot(const struct lines *l)
{
	struct lines_slot s = {0, 0, 0};

	if (l->thread)
		return s;
	s.broken = load_relaxed_sys(&poison_of(l->ch, l->ch->rank)->any);
	s.epoch = load_relaxed_gpu(&l->d->op.slot->epoch);
	s.state = load_relaxed_gpu(&l->d->op.slot->state);
	return s;
}

/* When they are there, the block is told. */
static __device__ __forceinline__ void tell_slot(const struct lines *l,
                                                 const struct lines_slot *s)
{
	const bool send = l->d->parts & FERRY_CUDA_SEND;
	const bool legal = send ? s->state == FERRY_SLOT_IDLE ||
	                                   s->state == FERRY_SLOT_DISPATCHED
	                        : s->state == FERRY_SLOT_DISPATCH_SENT;

	if (l->thread)
		return;
	l->shared->epoch = send ? s->epoch + 1 : s->epoch;
	l->shared->state = s->state;
	l->shared->stop = s->broken ? 1 : !legal ? 2 : 0;
}

/* What the block adds up and finds out; synchronises. */
static __device__ __forceinline__ void clear_shared(const struct lines *l)
{
	if (l->thread == 0) {
		l->shared->bad = LINES_NOTHING;
		l->shared->malformed = LINES_NOTHING;
		l->shared->refusal = LINES_NOTHING;
		l->shared->bad_rank = LINES_NOTHING;
		l->shared->content_hash = 0;
		l->shared->n_rows = 0;
		l->shared->n_wanted = 0;
	}
	if (l->thread < (uint32_t)l->ch->n_ranks)
		l->shared->tables[l->thread] = 0;
	__syncthreads();
}

/* The block has read the slot; the last one to come here advances it. */
static __device__ __forceinline__ void advance_slot(const struct lines *l,
                                                    uint32_t ticket)
{
	struct ferry_cuda_slot *slot = l->d->op.slot;

	if (ticket != gridDim.x - 1)
		return;
	slot->epoch = l->epoch;
	slot->state = l->d->parts & FERRY_CUDA_RECV ? FERRY_SLOT_DISPATCHED
	                                            : FERRY_SLOT_DISPATCH_SENT;
	slot->tickets = 0;
}

/* The phase that a kernel begins with. */
static __device__ __forceinline__ int32_t phase_of(const struct lines *l)
{
	return l->d->parts & FERRY_CUDA_SEND ? FERRY_PHASE_DISPATCH_SEND
	                                     : FERRY_PHASE_DISPATCH_RECV;
}

static __device__ __noinline__ void refuse_order(const struct lines_args *a,
                                                 struct lines_shared *shared,
                                                 unsigned char *smem)
{
	const struct lines block = lines_begin(a, shared, smem, shared->epoch);
	const struct lines *l = &block;
	const struct wait w =
		wait_begin(l->ch, phase_of(l), l->d->slot, l->epoch);
	struct ferry_cuda_record r =
		record_of(FERRY_STATE, l->ch->rank, &w, FERRY_CUDA_BAD_ORDER);

	r.value = l->shared->state;
	fail(l->ch, &r);
}

/* The channel has ended: nothing is sent, and counts are 0. */
static __device__ __noinline__ void leave(const struct lines_args *a,
                                          struct lines_shared *shared,
                                          unsigned char *smem)
{
	const struct lines block = lines_begin(a, shared, smem, shared->epoch);
	const struct lines *l = &block;
	const struct wait w =
		wait_begin(l->ch, phase_of(l), l->d->slot, l->epoch);

	if (l->thread == 0)
		take_poison(&w, -1);
	if (l->d->parts & FERRY_CUDA_RECV)
		clear_counts(l);
}

/* Unit i of this worker's own tokens. Raw rows: all parts of a row in turn. */
static __device__ __forceinline__ struct lines_unit
own_unit(const struct lines *l, const struct lines_cut *cut, uint32_t i)
{
	const bool raw = !l->ch->row_lines;
	const uint32_t whole = quotient(i, &cut->n_parts);
	const uint32_t u =
		(uint32_t)l->worker + (raw ? whole : i) * l->a->n_workers;
	const uint32_t token = raw ? u : quotient(u, &cut->n_parts);
	struct lines_unit unit;

	unit.group = l->ch->group;
	unit.token = (int32_t)token;
	lines_take_part(&unit, cut,
	                raw ? i - whole * cut->n_parts.by
	                    : u - token * cut->n_parts.by);
	return unit;
}

/* Sends unit i, which has been staged. */
static __device__ __forceinline__ void send_unit(const struct lines *l,
                                                 const struct lines_cut *cut,
                                                 const struct lines_unit *unit,
                                                 uint32_t i)
{
	send_part(l, unit, i);
	if (l->ch->row_lines || unit->part + 1 < cut->n_parts.by)
		return;
	__syncthreads();
	if (l->thread == 0)
		raise_flags(l, unit->token, i);
}

/* A row of another rank into a buffer. False: the channel has ended. */
static __device__ __forceinline__ bool
receive_unit(const struct lines *l, const struct lines_unit *unit,
             uint32_t buffer)
{
	const int32_t peer = lines_carrier(l, unit->group, unit->token);

	return lines_receive(l, lines_buffer(l, buffer),
	                     lines_row(l, l->ch->rank, peer, unit->token), unit,
	                     peer);
}

/*
 * Rows of n units to their places, in order. n_filled counts the buffers that
 * were filled: of the last three one may still be read. A staged row is in
 * buffer 0.
 */
static __device__ inline bool deliver_units(const struct lines *l, uint32_t n,
                                            bool is_staged, uint32_t *n_filled)
{
#pragma unroll 1
	for (uint32_t i = 0; i < n; i++) {
		const struct lines_unit unit = l->shared->units[i];
		const bool own = unit.group == l->ch->group;
		uint32_t buffer = 0;
		bool ends = false;

		if (!unit.is_here)
			continue;
		if (!own || !is_staged) {
			buffer = ++*n_filled;
			if (own)
				load_unit(l, &unit, buffer);
			else
				ends = !receive_unit(l, &unit, buffer);
			fence_proxy_async_shared();
			if (__syncthreads_or(ends))
				return false;
		}
		deliver(l, &unit, i * l->a->by_max_topk.by, buffer);
		bulk_wait_read<1>();
	}
	return true;
}

/* TOKEN: the rows of n units must be in the window. A warp for each. */
static __device__ inline bool await_flags(const struct lines *l, uint32_t n)
{
#pragma unroll 1
	for (uint32_t i = l->warp; i < n; i += LINES_WARPS) {
		const struct lines_unit *unit = &l->shared->units[i];
		uint32_t n_looks = 0;

		if (!unit->is_here || unit->group == l->ch->group)
			continue;
		const int32_t peer = lines_carrier(l, unit->group, unit->token);
		const uint64_t *flag =
			lines_flag(l, l->ch->rank, peer, unit->token);

		/* Lanes may see different values: all go on, or none. */
		while (!__all_sync(0xffffffffu,
		                   load_acquire_sys(flag) == l->epoch))
			if (!lines_again(l, &n_looks, peer))
				return false;
	}
	return true;
}

/*
 * Publishes a reason, if there is one. By a whole block, behind a barrier of
 * who wrote the word, which nobody writes again.
 */
static __device__ __forceinline__ bool refuses(const struct lines *l,
                                               const uint32_t *reason)
{
	if (*reason == LINES_NOTHING)
		return false;
	if (l->thread == 0)
		refuse_tables(l->a, l->shared, l->smem, *reason);
	return true;
}

/* The units of a worker, as many at a time as there is room for. */
static __device__ inline bool work_units(const struct lines *l, bool is_staged)
{
	const struct lines_work work = work_of(l);
	const uint32_t n = lines_share(l, work.n);
	const uint32_t most = l->a->most_units;
	uint32_t n_filled = 0;

	is_staged = is_staged && lines_share(l, work.n_own) == 1;
#pragma unroll 1
	for (uint32_t first = 0; first < n; first += most) {
		const uint32_t n_now = min_u32(most, n - first);

		take_units(l, &work, first, n_now);
		if (__syncthreads_or(!place_units(l, n_now)) ||
		    refuses(l, &l->shared->refusal))
			return false;
		store_places(l, n_now);
		if (l->ch->row_lines &&
		    !deliver_units(l, n_now, is_staged, &n_filled))
			return false;
		if (!l->ch->row_lines &&
		    __syncthreads_or(!await_flags(l, n_now)))
			return false;
		is_staged = false;
		if (first + n_now < n)
			__syncthreads();
	}
	return true;
}

/* Totals of all slots, where this block needs them. */
static __device__ __forceinline__ bool needs_totals(const struct lines *l)
{
	return blockIdx.x == 0 || l->ch->layout != FERRY_EXPERT_PADDED ||
	       wants_padding(&l->d->out);
}

/* What the first clerk tells the caller. False: the channel has ended. */
static __device__ inline bool tell_counts(const struct lines *l)
{
	if (find_overflow(l)) {
		if (l->thread == 0)
			refuse_overflow(l->a, l->shared, l->smem);
		__syncthreads();
		return false;
	}
	store_counts(l);
	/* Orders them before the look, as clear_counts does after. */
	fence_sc_gpu();
	return !__syncthreads_or(is_broken(l->ch));
}

/* False: the channel has ended, or this has ended it. */
static __device__ inline bool receive(const struct lines *l, bool is_staged,
                                      uint32_t likely)
{
	const bool totals = needs_totals(l);

	lines_begin_wait(l);
#pragma unroll 1
	for (uint32_t s = l->thread;
	     totals && s < (uint32_t)l->ch->n_expert_slots; s += LINES_THREADS)
		lines_totals(l)[s] = 0;
	if (__syncthreads_or(!receive_tables(l, likely)) ||
	    refuses(l, &l->shared->malformed))
		return false;
	/* While others place; what it finds is looked at behind a barrier. */
	if (l->warp == LINES_WARPS - 1)
		check_tables(l);
	if (totals) {
		count_entries(l);
		__syncthreads();
		sum_totals(l);
	}
	if (blockIdx.x == 0 &&
	    (refuses(l, &l->shared->refusal) || !tell_counts(l)))
		return false;
	if (l->worker >= 0 && !work_units(l, is_staged))
		return false;
	if (wants_padding(&l->d->out))
		store_padding(l);
	if (l->d->out.token_slots || l->d->out.token_weights)
		store_empty_tokens(l);
	return true;
}

/* n_tokens as the caller gives it now. */
static __device__ __forceinline__ int32_t
given_tokens(const struct ferry_dispatch_in *in)
{
	return in->n_tokens_ptr ? *in->n_tokens_ptr : in->n_tokens;
}

/* The epoch of this kernel. False: it has nothing to do. */
static __device__ __forceinline__ bool take_epoch(struct lines *l)
{
	l->epoch = l->shared->epoch;
	l->half = (uint32_t)(l->epoch & 1);
	if (!l->shared->stop)
		return true;
	if (l->shared->stop == 2 && l->thread == 0)
		refuse_order(l->a, l->shared, l->smem);
	leave(l->a, l->shared, l->smem);
	return false;
}

static __global__ void __launch_bounds__(LINES_THREADS, 1)
	dispatch_lines(const __grid_constant__ struct lines_args a)
{
	extern __shared__ __align__(128) unsigned char smem[];
	__shared__ struct lines_shared shared;
	struct lines l = lines_begin(&a, &shared, smem, 0);
	const struct ferry_cuda_dispatch *d = &a.d;
	const bool sends = d->parts & FERRY_CUDA_SEND;

	clear_shared(&l);
	kernel_wait_previous();
	const struct lines_slot slot = look_at_slot(&l);
	const int32_t n_tokens = sends ? given_tokens(&d->in) : 0;
	const bool is_good = n_tokens >= 0 && n_tokens <= d->ch.max_tokens;
	const struct lines_cut *cut =
		lines_cut_for(&l, is_good ? (uint32_t)n_tokens : 0);
	uint32_t ticket = 0, n_units = 0;

	const bool is_clerk = sends && blockIdx.x < a.n_clerks;
	const struct lines_batch batch = batch_of(&l, n_tokens);
	ulonglong2 share = make_ulonglong2(0, 0);

	if (is_clerk && 1 + l.team < batch.n_lines)
		share = any_share(&l, &batch, 1 + l.team);
	if (is_good)
		n_units = d->ch.row_lines
		                  ? lines_share(&l, n_tokens * cut->n_parts.by)
		                  : lines_share(&l, n_tokens) * cut->n_parts.by;
#pragma unroll 1
	for (uint32_t i = 0; i == 0 || i < n_units; i++) {
		const struct lines_unit unit = own_unit(&l, cut, i);

		if (i < n_units)
			stage_unit(&l, &unit, i);
		if (i == 0)
			tell_slot(&l, &slot);
		__syncthreads();
		if (i == 0) {
			if (!take_epoch(&l))
				return;
			if (l.thread == 0)
				ticket = add_relaxed_gpu(&d->op.slot->tickets,
				                         1);
			if (is_clerk)
				send_table(&l, &batch, share);
			if (is_clerk && blockIdx.x == 0)
				latch_batch(&l, &batch);
		}
		if (i < n_units)
			send_unit(&l, cut, &unit, i);
	}
	if (d->parts & FERRY_CUDA_RECV &&
	    !receive(&l, sends, sends ? batch.n_lines : a.by_table_lines.by))
		leave(&a, &shared, smem);
	kernel_launch_next();
	bulk_wait<0>();
	if (l.thread == 0)
		advance_slot(&l, ticket);
}

static const char *refuse(const struct ferry_cuda_channel *ch)
{
	const size_t most = (size_t)1 << 30;

	if (!ch->table_lines)
		return "the tables of the channel are not in lines";
	if (!ch->row_lines && ch->row_chunk != 1)
		return "rows must have a flag each";
	if (ch->n_expert_slots > LINES_MAX_SLOTS)
		return "lines serve at most 8192 expert slots";
	if ((int64_t)ch->n_expert_slots * ch->alignment > (int64_t)most)
		return "alignment times expert slots is at most 2^30 for lines";
	if (ch->row_stride > most)
		return "lines serve rows of at most 1 GiB";
	if (lines_entry_bytes(ch) * ch->n_groups > most ||
	    lines_layout_of(ch).bytes > LINES_SMEM_BYTES)
		return "the tables of all ranks do not fit in shared memory";
	return NULL;
}

static size_t scratch_bytes(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	(void)ch;
	return lean_trace_bytes(ctas);
}

static int load(void)
{
	const cudaError_t error =
		resident_load((const void *)dispatch_lines, LINES_SMEM_BYTES);

	return error ? error : ferry_dispatch_lean_load();
}

static int measure(const struct ferry_cuda_channel *ch,
                   struct ferry_cuda_fit *fit)
{
	*fit = resident_begin(LINES_THREADS, (int)lines_layout_of(ch).bytes);
	return resident_count((const void *)dispatch_lines, fit);
}

/* Blocks that find something to do, at most `ctas`. */
static int32_t useful_ctas(const struct ferry_cuda_dispatch *d, int32_t ctas)
{
	const struct ferry_cuda_channel *ch = &d->ch;
	const int64_t rows = (int64_t)ch->n_groups * ch->max_tokens;
	const int64_t parts = lines_of_row(ch) / LINES_TEAMS + 1;
	const int64_t useful = rows * (ch->row_lines ? parts : 1) + 2;

	return useful < ctas ? (int32_t)useful : ctas;
}

static uint32_t min_of(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* With one block there is no difference between clerks and workers. */
static void take_roles(struct lines_args *a, uint32_t ctas)
{
	const uint32_t n = ctas < 32 ? 1 : ctas / 16;
	const uint32_t n_ranks = (uint32_t)a->d.ch.n_ranks;

	a->n_clerks = min_of(n_ranks, n);
	a->n_workers = ctas > 1 ? ctas - a->n_clerks : 1;
	a->few = a->n_workers / 4;
	a->by_workers = lines_div_of(a->n_workers);
}

static void cut_rows(struct lines_args *a)
{
	const uint32_t n_lines = (a->image.bytes + LINE_DATA - 1) / LINE_DATA;
	const uint32_t most = a->at.buffer_bytes / (2 * LINE_DATA) * 2;

	a->cut = lines_cut_of(n_lines, most);
	a->fine_cut = lines_cut_of(n_lines, min_of(most, LINES_TEAMS));
}

/* Can the copy engine take pieces of `bytes` to this array? */
static bool bulk_fits(const void *base, size_t stride, size_t bytes)
{
	return (uintptr_t)base % 16 == 0 && stride % 16 == 0 && bytes % 16 == 0;
}

/* Are ids and weights aligned as their types are? */
static bool lie_plainly(const struct ferry_dispatch_in *in)
{
	const size_t size = in->id_type == FERRY_ID_INT64 ? 8 : 4;

	return (uintptr_t)in->topk_ids % size == 0 &&
	       in->ids_stride % size == 0 &&
	       (uintptr_t)in->topk_weights % 4 == 0 &&
	       in->weights_stride % 4 == 0;
}

static void prepare(struct lines_args *a, uint32_t ctas)
{
	const struct ferry_cuda_dispatch *d = &a->d;
	const struct ferry_cuda_channel *ch = &d->ch;
	const uint32_t most = LINES_PLACES / (uint32_t)ch->max_topk;

	a->at = lines_layout_of(ch);
	a->image = row_image_of(d, ch->row_lines ? 0 : ch->scale_offset);
	take_roles(a, ctas);
	cut_rows(a);
	a->most_units = min_of(most, LINES_UNITS);
	a->by_group = lines_div_of((uint32_t)ch->group_size);
	a->by_topk = lines_div_of((uint32_t)d->in.topk);
	a->by_max_topk = lines_div_of((uint32_t)ch->max_topk);
	a->by_table_lines =
		lines_div_of((uint32_t)(ch->table_stride / LINE_BYTES));
	if (ch->even_slots)
		a->by_slots = lines_div_of((uint32_t)ch->even_slots);
	a->plain_ids = lie_plainly(&d->in);
	a->bulk_rows = ch->weight_use != FERRY_WEIGHT_INPUT &&
	               bulk_fits(d->out.rows, d->out.row_stride, d->row_bytes);
	a->bulk_scales = d->out.scale_form == FERRY_SCALES_ROW_MAJOR &&
	                 bulk_fits(d->out.scales, d->out.scales_stride,
	                           d->scale_row_bytes);
}

static int launch(const struct ferry_cuda_dispatch *args, int32_t ctas,
                  struct CUstream_st *stream)
{
	struct lines_args a = {};
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute early = {};

	if (ferry_dispatch_lean_fits(args, ctas))
		return ferry_dispatch_lean_launch(args, ctas, stream);
	a.d = *args;
	ctas = useful_ctas(args, ctas);
	prepare(&a, (uint32_t)ctas);
	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3((unsigned)ctas);
	config.blockDim = dim3(LINES_THREADS);
	config.dynamicSmemBytes = a.at.bytes;
	config.stream = stream;
	config.attrs = &early;
	config.numAttrs = args->ch.early ? 1 : 0;
	return cudaLaunchKernelEx(&config, dispatch_lines, a);
}

extern "C" const struct ferry_cuda_dispatch_ops ferry_cuda_dispatch_lines = {
	refuse, scratch_bytes, load, measure, launch};
