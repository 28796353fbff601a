/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch on lines for calls that want nothing unusual: send and recv in one
 * kernel, groups of one rank, at most eight ranks, EXPERT layouts, rows that
 * the copy engine can store. What is unusual takes dispatch_lines.cu.
 *
 * Does
 *	What docs/protocol.md says of both phases, in as few steps as the way
 *	from GPU to GPU allows. Block 0 sends the table and writes counts; the
 *	others have a token of every rank each, or some.
 * Buffers
 *	As dispatch_lines.cu; the own table does not pass the window, as every
 *	block makes it from the ids. All rows of a block have their own place
 *	in shared memory: nothing there is used twice.
 * Steps
 *	1. load slot, poison, all ids, the token's row; none waits for another
 *	2. lines of the row to the peers that serve it; block 0: table
 *	   (volatile, the epoch is in each line); partner 3
 *	3. lines of the peers' tables until they are of this epoch, and in the
 *	   same loop those of the row that the other rank would send
 *	4. all refuse alike what is to be refused; a warp for each choice counts
 *	   equal entries before it, and hands an own row to the copy engine
 *	5. the rest of the peers' rows; then these to the copy engine
 * Flags
 *	The epoch, in lines; never reset.
 * Early launch
 *	Where ch.early allows it, blocks may start while the kernel in front in
 *	the stream still runs. Until kernel_wait_previous returns, a block
 *	touches its own shared memory and its argument only: neither the slot,
 *	poison, windows, nor anything of the caller's, which that kernel may
 *	write (input, n_tokens_ptr) or read (output of the last dispatch, the
 *	tables of combine). It returns when that kernel has ended and what it
 *	wrote is seen; as every thread of every kernel of ours calls it before
 *	it ends, all that is in front has ended, too. What a caller's kernel
 *	lets in early, or an event, a copy, a graph in front orders, is ordered
 *	as for any kernel. The next kernel is let in when this block waits for
 *	no peer any more, so a kernel that holds room beside this one never
 *	keeps the other rank from what this one waits for; it, too, reads
 *	nothing of ours before we have ended: bulk stores and the slot may come
 *	behind. Peers: what we store in a half of a window at epoch e was read
 *	by their kernel of e - 2, which had ended before they sent e - 1, which
 *	our kernel of e - 1 has seen.
 * Threads
 *	512 to a block, eight to a line.
 * Waits
 *	3, 5 and weights: bounded, wait.cuh. Whoever leaves early sets the
 *	counts to 0, behind a fence; block 0, which wrote them, looks for a
 *	failure behind one.
 * Cost
 *	dev/cuda-lean.md.
 */
#include "dispatch_lean.h"

#include <cuda_runtime_api.h>

#include "dispatch_lean_recv.cuh"

/* The thread that reads the slot. */
enum { LEAN_READER = LEAN_THREADS - 32 };

static __device__ __forceinline__ struct lean
lean_begin(const struct lean_args *a, struct lean_shared *shared,
           unsigned char *smem)
{
	struct lean l;

	l.a = a;
	l.d = &a->d;
	l.ch = &a->d.ch;
	l.shared = shared;
	l.smem = smem;
	l.epoch = 0;
	l.table_half = l.row_half = 0;
	l.thread = threadIdx.x;
	l.warp = threadIdx.x / 32;
	l.lane = threadIdx.x % 32;
	l.team = threadIdx.x / LINE_LANES;
	l.team_lane = threadIdx.x % LINE_LANES;
	l.own = (uint32_t)a->d.ch.rank;
	l.is_clerk = blockIdx.x == 0;
	l.counts = l.is_clerk || a->d.ch.layout == FERRY_EXPERT_PACKED;
	l.works = blockIdx.x > 0 || gridDim.x == 1;
	l.worker = blockIdx.x > 0 ? blockIdx.x - 1 : 0;
	return l;
}

/* What the block adds up and finds out. */
static __device__ __forceinline__ void clear_shared(const struct lean *l)
{
#pragma unroll 1
	for (uint32_t s = l->thread;
	     l->counts && s < (uint32_t)l->ch->n_expert_slots;
	     s += LEAN_THREADS)
		lean_counts(l)[s] = 0;
	if (l->thread < LEAN_RANKS)
		l->shared->table_lines[l->thread] = 0;
	if (l->thread == LEAN_READER) {
		l->shared->bad = LEAN_NOTHING;
		l->shared->odd = 0;
		l->shared->bad_slots = 0;
		l->shared->n_rows = 0;
		l->shared->bad_rank = LEAN_NOTHING;
	}
	__syncthreads();
}

/* Loads of the slot, which are looked at when the row has been staged. */
struct lean_slot {
	uint64_t broken, epoch;
	uint32_t state;
};

static __device__ __forceinline__ void look_at_slot(const struct lean *l,
                                                    struct lean_slot *s)
{
	if (l->thread != LEAN_READER)
		return;
	s->broken = load_relaxed_sys(&poison_of(l->ch, l->ch->rank)->any);
	s->epoch = load_relaxed_gpu(&l->d->op.slot->epoch);
	s->state = load_relaxed_gpu(&l->d->op.slot->state);
}

static __device__ __forceinline__ void tell_slot(const struct lean *l,
                                                 const struct lean_slot *s)
{
	if (l->thread != LEAN_READER)
		return;
	l->shared->epoch = s->epoch + 1;
	l->shared->state = s->state;
	l->shared->stop = s->broken                           ? 1
	                  : s->state == FERRY_SLOT_IDLE       ? 0
	                  : s->state == FERRY_SLOT_DISPATCHED ? 0
	                                                      : 2;
}

static __device__ __forceinline__ void take_epoch(struct lean *l)
{
	l->epoch = l->shared->epoch;
	if (l->epoch & 1) {
		l->table_half = l->a->table_half;
		l->row_half = l->a->row_half;
	}
}

/* After the tables are in: may the block go on? */
static __device__ __forceinline__ bool is_agreed(const struct lean *l)
{
	const uint32_t odd = l->shared->odd;

	if (!odd)
		return true;
	if (odd & LEAN_FAILED)
		return false;
	return !__syncthreads_or(l->thread == 0 &&
	                         lean_refuses(l->a, l->shared));
}

/* Lines of the own table, as a guess at what others send. */
static __device__ __forceinline__ uint32_t likely_lines(uint32_t n)
{
	return ((uint32_t)sizeof(struct ferry_table) + n * 4 + LINE_DATA - 1) /
	       LINE_DATA;
}

/* False: the channel has ended. */
static __device__ __forceinline__ bool receive(const struct lean *l, uint32_t n)
{
	struct lean_guess g = guess_row(l);

	if (l->lane == 0)
		l->shared->waits[l->warp] =
			lean_wait(l->d, FERRY_PHASE_DISPATCH_RECV, l->epoch);
	__syncwarp();
	if (!receive_tables(l, likely_lines(n), &g) && l->lane == 0)
		atomicOr(&l->shared->odd, LEAN_FAILED);
	fence_proxy_async_shared();
	LEAN_MARK(l, 5);
	const bool guessed =
		__syncthreads_and(g.is_on && g.here == 3) && l->a->n_units == 1;

	LEAN_MARK(l, 6);
	if (!is_agreed(l))
		return false;
	if (l->is_clerk && (finds_overflow(l) || !tell_counts(l)))
		return false;
	if (!l->works)
		return true;
	bool good = place_all(l);
	LEAN_MARK(l, 7);

	if (!guessed) {
		good = good && receive_rows(l, &g);
		LEAN_MARK(l, 8);
		fence_proxy_async_shared();
		if (__syncthreads_or(!good))
			return false;
	} else if (l->d->op.weights && __syncthreads_or(!good)) {
		return false;
	}
	LEAN_MARK(l, 9);
	deliver_rows(l);
	return true;
}

__global__ void __launch_bounds__(LEAN_THREADS, 1)
	ferry_dispatch_lean_kernel(const __grid_constant__ struct lean_args a)
{
	extern __shared__ __align__(128) unsigned char smem[];
	__shared__ struct lean_shared shared;
	struct lean l = lean_begin(&a, &shared, smem);
	struct lean_slot slot = {0, 0, 0};
	uint32_t ticket = 0;

	clear_shared(&l);
	kernel_wait_previous();
	LEAN_MARK(&l, 0);
	look_at_slot(&l, &slot);
	const int32_t given =
		a.d.in.n_tokens_ptr ? *a.d.in.n_tokens_ptr : a.d.in.n_tokens;
	const uint32_t all = (uint32_t)given <= (uint32_t)a.d.ch.max_tokens
	                             ? (uint32_t)given
	                             : 0;

	stage(&l, all * a.by_topk.by, all);
	tell_slot(&l, &slot);
	__syncthreads();
	LEAN_MARK(&l, 1);
	take_epoch(&l);
	if (shared.stop) {
		lean_stop(&a, &shared);
		return;
	}
	const uint32_t n_tokens = shared.bad == LEAN_NOTHING ? all : 0;
	const uint32_t n = n_tokens * a.by_topk.by;

	if (l.works)
		send_rows(&l, n_tokens);
	if (l.thread == LEAN_READER)
		ticket = add_relaxed_gpu(&a.d.op.slot->tickets, 1);
	if (l.thread == 0)
		make_head(&l, given);
	if (l.is_clerk) {
		__syncwarp();
		send_table(&l, n);
		latch_batch(&l, n);
	}
	LEAN_MARK(&l, 2);
	if (!receive(&l, n))
		lean_leave(&a, &shared);
	LEAN_MARK(&l, 3);
	kernel_launch_next();
	bulk_commit();
	bulk_wait_read<0>();
	if (l.thread == LEAN_READER && ticket == gridDim.x - 1) {
		a.d.op.slot->epoch = l.epoch;
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
	at.entries = (uint32_t)(n_units * n_ranks * row);
	at.entry_stride = (uint32_t)up_to(n, 8);
	at.weights = at.entries + (uint32_t)n_ranks * at.entry_stride * 2;
	at.counts = at.weights + (uint32_t)up_to(n * 4, 16);
	at.rows =
		at.counts + (uint32_t)up_to((size_t)ch->n_expert_slots * 4, 16);
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

	return ch->table_lines && ch->row_lines && ch->group_size == 1 &&
	       (ch->layout == FERRY_EXPERT_PADDED ||
	        ch->layout == FERRY_EXPERT_PACKED) &&
	       bounds_fit(ch) && ch->weight_use == FERRY_WEIGHT_OUTPUT &&
	       ch->n_ranks >= 2 && ch->n_ranks <= LEAN_RANKS &&
	       ch->max_topk <= LEAN_TOPK && n <= LEAN_ENTRIES &&
	       ch->own_expert_slots < LEAN_THREADS &&
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

	return wide(out->rows, out->row_stride, d->row_bytes) &&
	       (!out->scales ||
	        (out->scale_form == FERRY_SCALES_ROW_MAJOR &&
	         wide(out->scales, out->scales_stride, d->scale_row_bytes))) &&
	       !out->row_expert_slot && !out->row_source && !out->row_token &&
	       !out->row_weight && !out->index && !out->token_slots &&
	       !out->token_weights;
}

bool ferry_dispatch_lean_fits(const struct ferry_cuda_dispatch *d, int32_t ctas)
{
	if (d->parts != (FERRY_CUDA_SEND | FERRY_CUDA_RECV) ||
	    !channel_fits(&d->ch) || !input_fits(d) || !output_fits(d))
		return false;
	const uint64_t units = units_of(&d->ch, ctas);

	return units * (uint64_t)d->ch.n_ranks * image_bytes_of(d) <
	               LEAN_SMEM_BYTES &&
	       layout_of(d, (uint32_t)units).bytes <= LEAN_SMEM_BYTES;
}

int ferry_dispatch_lean_load(void)
{
	return cudaFuncSetAttribute(ferry_dispatch_lean_kernel,
	                            cudaFuncAttributeMaxDynamicSharedMemorySize,
	                            LEAN_SMEM_BYTES);
}

/* Place of a source among those that have rows at `owner`. */
static int32_t place_of(int32_t owner, int32_t source)
{
	return source < owner ? source : source - 1;
}

static void find_windows(struct lean_args *a)
{
	const struct ferry_cuda_channel *ch = &a->d.ch;
	const size_t slot = (size_t)a->d.slot * ch->slot_bytes;
	const size_t row_region = (size_t)ch->cap * ch->row_stride;

	a->table_half = (size_t)ch->n_ranks * ch->table_stride;
	a->row_half = (size_t)ch->row_sources * row_region;
	for (int32_t r = 0; r < ch->n_ranks; r++) {
		unsigned char *theirs = ch->window[r] + slot;
		unsigned char *own = ch->window[ch->rank] + slot;

		a->table_to[r] = theirs + ch->table_offset +
		                 (size_t)ch->rank * ch->table_stride;
		a->table_in[r] =
			own + ch->table_offset + (size_t)r * ch->table_stride;
		if (r == ch->rank)
			continue;
		a->row_to[r] = theirs + ch->row_offset +
		               (size_t)place_of(r, ch->rank) * row_region;
		a->row_in[r] = own + ch->row_offset +
		               (size_t)place_of(ch->rank, r) * row_region;
	}
}

static void prepare(struct lean_args *a, int32_t ctas)
{
	const struct ferry_cuda_dispatch *d = &a->d;
	const struct ferry_cuda_channel *ch = &d->ch;
	const uint32_t round = LEAN_THREADS * (ch->quantize ? 16 : 32);

	find_windows(a);
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
	struct lean_args a = {};
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute early = {};

	ctas = useful_ctas(&d->ch, ctas);
	a.d = *d;
	prepare(&a, ctas);
	early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	early.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3((unsigned)ctas);
	config.blockDim = dim3(LEAN_THREADS);
	config.dynamicSmemBytes = a.at.bytes;
	config.stream = stream;
	config.attrs = &early;
	config.numAttrs = d->ch.early ? 1 : 0;
	return cudaLaunchKernelEx(&config, ferry_dispatch_lean_kernel, a);
}
