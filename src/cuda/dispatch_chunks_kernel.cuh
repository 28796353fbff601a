/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dispatch on path "chunks": rows as they are, and a flag for several of them.
 * dispatch_chunks.cu and dispatch_net.cu compile it; the latter with ranks that
 * are reached over a network only (net_port.cuh), whose rows and table go by
 * puts from `out`, and are counted.
 *
 * Does
 *	SEND: tells every rank where the own batch's tokens go, and stores each
 *	token once to each rank outside the own group that serves one of its
 *	choices. RECV: from the tables of all ranks, where every row goes; each
 *	row to its positions, as it arrives. TOKEN: rows stay in the window.
 * Buffers
 *	table[half][self], table_part[half][self][..], every window: written
 *	here, read by the owner.
 *	row[half][self][token / g], row_flag[half][self][..], windows of other
 *	groups: likewise. TOKEN: rows of the own group in the own window, too.
 *	op: own_slots, own_weights, own_count at SEND; n_tokens, copies,
 *	weights, offsets, dropped at RECV. Half is epoch & 1.
 *	op.scratch: words through which blocks talk, a set for each parity; rows
 *	of each slot; histograms of plan.cuh; memory of its teams, where a
 *	block's own does not suffice.
 * Steps
 *	1. each block: epoch and state of the slot, then a ticket; who has the
 *	   last one advances them. Block 0 clears the other epoch's words
 *	2. table parts: stores to all windows, barrier of the team, epoch in
 *	   the part's record, release sys; partner 4
 *	3. chunks of rows: bulk load of x, bulk stores to the windows that want
 *	   the row, bulk wait for complete, epoch in the chunks' flags at every
 *	   other group's ranks, release sys; partner 8
 *	4. own blocks of the tables: records, acquire sys; count; WORD_COUNTED,
 *	   acq_rel gpu
 *	5. WORD_COUNTED of all, acquire gpu; place; WORD_PLACED, acq_rel gpu
 *	6. WORD_PLACED of all, acquire gpu; padding
 *	7. own tokens: bulk load of x, bulk stores to the positions
 *	8. others: flags of the chunks, acquire sys, fence to the async proxy,
 *	   bulk load from the window, bulk stores to the positions. Chunks of
 *	   which no row goes here are awaited all the same
 *	9. after a failure: the counts are cleared by who finds it and by who
 *	   published them, each with a fence between its store and its look,
 *	   so that one of the two comes last
 *	Far ranks: the table (2) and rows (3) are stored once, in `out`, and
 *	put from there when they are complete; 4 and 8 wait for counters
 *	instead, for all rows of a source before its first one. TOKEN: rows
 *	that came over the network are copied into the window
 * Flags
 *	Epochs: table_part records and row_flag, by their source, never reset.
 * Threads
 *	8 warps a block, blocks persistent and resident. The last blocks send
 *	(3), TOKEN at once, else when the table is on its way (WORD_TABLED); the
 *	others are teams: 2, 4, 5, 6, then 7 and 8. Who has sent all delivers.
 *	Where there are few blocks, each has some warps that send and a team.
 *	Work is handed out by counters (WORD_SEND, WORD_OWN, WORD_ARRIVED).
 * Waits
 *	For peers in 4 and 8, bounded (wait.cuh); for blocks of this launch in
 *	5 and 6, which end when those do. Sending waits for nobody.
 * Cost
 *	x is read once to be sent and once to be delivered; each arriving row is
 *	read once. dev/cuda-bulk.md has times.
 */
#ifndef FERRY_DISPATCH_CHUNKS_KERNEL_CUH
#define FERRY_DISPATCH_CHUNKS_KERNEL_CUH

#include <cuda_runtime.h>

#include "../proto/slot_state.h"
#include "cuda_kernels.h"
#include "dispatch_chunks_plan.cuh"
#include "net_dispatch.cuh"
#include "resident.cuh"

struct start {
	uint64_t epoch;
	int32_t n_asked;
	uint32_t state; /* enum ferry_slot_state, before this */
	uint32_t runs;  /* the channel is whole, and this phase is next */
};

/* Shared memory of a block beside its rings. */
struct block {
	uint64_t barriers[CHUNKS_WARPS * CHUNKS_MAX_STAGES];
	struct plan_shared plan;
	struct start start;
};

static __device__ int32_t phase_of(const struct ferry_cuda_dispatch *a)
{
	return a->parts & FERRY_CUDA_SEND ? FERRY_PHASE_DISPATCH_SEND
	                                  : FERRY_PHASE_DISPATCH_RECV;
}

static __device__ void fail_order(const struct ferry_cuda_dispatch *a,
                                  uint64_t epoch, uint32_t state)
{
	const struct wait w = wait_begin(&a->ch, phase_of(a), a->slot, epoch);
	struct ferry_cuda_record r =
		record_of(FERRY_STATE, a->ch.rank, &w, FERRY_CUDA_BAD_ORDER);

	r.value = state;
	fail(&a->ch, &r);
}

/* The channel has ended before: the own host hears of it. */
static __device__ void tell_host(const struct ferry_cuda_dispatch *a,
                                 uint64_t epoch)
{
	const struct wait w = wait_begin(&a->ch, phase_of(a), a->slot, epoch);

	take_poison(&w, -1);
}

/* By one thread of each block: what all blocks must agree on. */
static __device__ struct start start_of(const struct ferry_cuda_dispatch *a)
{
	struct ferry_cuda_slot *slot = a->op.slot;
	const bool sends = a->parts & FERRY_CUDA_SEND;
	const bool broken = is_broken(&a->ch);
	const uint32_t state = load_relaxed_gpu(&slot->state);
	const bool legal = sends ? state == FERRY_SLOT_IDLE ||
	                                   state == FERRY_SLOT_DISPATCHED
	                         : state == FERRY_SLOT_DISPATCH_SENT;
	struct start s;

	s.epoch = load_relaxed_gpu(&slot->epoch) + (sends ? 1 : 0);
	s.state = state;
	s.runs = legal && !broken;
	s.n_asked = a->in.n_tokens;
	if (s.runs && !sends)
		s.n_asked = *a->op.own_count;
	else if (a->in.n_tokens_ptr)
		s.n_asked = *a->in.n_tokens_ptr;
	if (broken)
		tell_host(a, s.epoch);
	else if (!legal)
		fail_order(a, s.epoch, state);
	return s;
}

/* After all blocks have read it: the last one's ticket moves the slot on. */
static __device__ void advance(const struct ferry_cuda_dispatch *a,
                               const struct start *s, uint32_t ticket)
{
	struct ferry_cuda_slot *slot = a->op.slot;

	if (ticket != gridDim.x - 1)
		return;
	store_relaxed_gpu(&slot->tickets, 0);
	if (!s->runs)
		return;
	store_relaxed_gpu(&slot->epoch, s->epoch);
	store_relaxed_gpu(&slot->state, a->parts & FERRY_CUDA_RECV
	                                        ? FERRY_SLOT_DISPATCHED
	                                        : FERRY_SLOT_DISPATCH_SENT);
}

/*
 * Who sends: all warps of some blocks, the last ones, while the others have
 * teams; where there are few blocks, half of the warps of each. Who has rows to
 * deliver keeps most of the blocks for that; quantising needs more of them.
 */
static __device__ void share_work(struct chunks *c)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const bool token = ch->layout == FERRY_TOKEN;
	const bool delivers = !token && c->a->parts & FERRY_CUDA_RECV;
	const int32_t n = (int32_t)gridDim.x;
	int32_t senders = min(delivers ? n / 4 : n * 5 / 8,
	                      token ? (int32_t)CHUNKS_TOKEN_SENDERS
	                            : (int32_t)CHUNKS_SENDERS);

	if (ch->quantize)
		senders = n / 2;
	c->n_teams = n;
	c->n_senders = 0;
	c->all_senders = 1;
	if (!(c->a->parts & FERRY_CUDA_SEND))
		return;
	if (senders == 0) {
		c->n_senders = CHUNKS_WARPS / 2;
		c->all_senders = n * c->n_senders;
		return;
	}
	c->n_teams = n - senders;
	c->all_senders = senders * CHUNKS_WARPS;
	if ((int32_t)blockIdx.x >= c->n_teams)
		c->n_senders = CHUNKS_WARPS;
}

static __device__ struct chunks chunks_of(const struct ferry_cuda_dispatch *a,
                                          const struct start *s,
                                          unsigned char *ring,
                                          uint64_t *barriers)
{
	const bool good = s->n_asked >= 0 && s->n_asked <= a->ch.max_tokens;
	struct chunks c;

	c.a = a;
	c.epoch = s->epoch;
	c.half = (uint32_t)(s->epoch & 1);
	c.n_asked = s->n_asked;
	c.n_tokens = good ? s->n_asked : 0;
	c.own_rows = carried_by(&a->ch, a->ch.rank, c.n_tokens);
	c.payload = chunks_round(a->row_bytes);
	c.row_bytes = c.payload + chunks_round(a->scale_row_bytes);
	c.stage_bytes = chunks_stage_bytes(&a->ch);
	c.n_stages = chunks_stages(&a->ch);
	c.n_pieces =
		(int32_t)((c.row_bytes + c.stage_bytes - 1) / c.stage_bytes);
	/* Small batches: some rows for every warp. */
	c.batch_rows = max(min(c.n_tokens / (int32_t)(gridDim.x * CHUNKS_WARPS),
	                       c.n_stages),
	                   1);
	c.ring = ring;
	c.barriers = barriers;
	share_work(&c);
	return c;
}

/* The rings of the team: its memory before they are rings. */
static __device__ unsigned char *team_ring(const struct chunks *c)
{
	return c->ring +
	       (uint32_t)(c->n_senders * c->n_stages) * c->stage_bytes;
}

/* Where the team's arrays of the plan are. */
static __device__ unsigned char *plan_memory(const struct chunks *c,
                                             size_t histogram_end)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const size_t bytes = plan_team_bytes(ch);

	if (team_ring(c) - c->ring + bytes <= chunks_ring_bytes(ch))
		return team_ring(c);
	return (unsigned char *)c->a->op.scratch + histogram_end +
	       blockIdx.x * bytes;
}

static __host__ __device__ inline size_t
histogram_offset(const struct ferry_cuda_channel *ch)
{
	const size_t counts = (size_t)ch->own_expert_slots * 4;

	return 2 * N_WORDS * WORD_BYTES + (counts + 255) / 256 * 256;
}

static __device__ struct plan plan_of(const struct chunks *c,
                                      const struct team *team,
                                      struct plan_shared *shared)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const size_t at = histogram_offset(ch);
	struct plan p;

	p.ch = ch;
	p.op = &c->a->op;
	p.team = *team;
	p.sums = &shared->sums;
	plan_init(&p, c->n_teams, plan_memory(c, at + plan_histogram_bytes(ch)),
	          (uint32_t *)((unsigned char *)c->a->op.scratch + at));
	return p;
}

/* The team's part of RECV: all but rows. */
static __device__ bool team_receive(const struct chunks *c,
                                    const struct team *team,
                                    struct plan_shared *shared)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const struct plan p = plan_of(c, team, shared);
	const uint32_t thread = blockIdx.x * (uint32_t)team_threads(team) +
	                        (uint32_t)team_thread(team);
	const uint32_t n_threads = (uint32_t)(c->n_teams * team_threads(team));

	if (p.begin < p.end && !plan_own_blocks(c, &p, shared))
		return false;
	/* The plan's arrays become a ring again. */
	fence_proxy_async_shared();
	team_sync(team);
	if (!team_await(c, team, shared, WORD_PLACED, (uint32_t)p.n_owners))
		return false;
	fill_rows(c, thread, n_threads);
	fill_view(c, thread, n_threads);
	if (a->ch.layout != FERRY_TOKEN)
		return true;
	return await_all(c, thread, n_threads) &&
	       net_fill_view(c, thread, n_threads);
}

/* A warp that began with sending waits for the plan by itself. */
static __device__ bool sender_receive(const struct chunks *c, int32_t lane)
{
	const int32_t blocks = (int32_t)plan_blocks(&c->a->ch);
	const int32_t each = (blocks + c->n_teams - 1) / c->n_teams;
	bool here = true;

	if (lane == 0)
		here = await_word(c, WORD_PLACED,
		                  (uint32_t)((blocks + each - 1) / each));
	return __shfl_sync(~0u, (int)here, 0);
}

static __device__ void run_warp(const struct chunks *c, struct block *block)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const bool sends = a->parts & FERRY_CUDA_SEND;
	const bool receives = a->parts & FERRY_CUDA_RECV;
	const bool delivers = receives && a->ch.layout != FERRY_TOKEN;
	const int32_t warp = (int32_t)threadIdx.x / 32;
	const int32_t senders = c->n_senders;
	struct mover m = mover_of(c, warp, (int32_t)threadIdx.x % 32);
	bool whole = true;

	if (warp < senders) {
		send_queue(c, &m);
		whole = !delivers || sender_receive(c, m.lane);
	} else {
		const struct team team = {warp - senders,
		                          CHUNKS_WARPS - senders, m.lane};

		if (sends)
			send_table(c, &team, team_ring(c), &block->plan.found);
		whole = !receives || team_receive(c, &team, &block->plan);
	}
	if (whole && delivers)
		whole = deliver(c, &m);
	if (m.lane == 0)
		bulk_wait<0>();
	if (!whole)
		clear_counts(a, m.lane, 32);
}

/* The other epoch's words, which no block of this launch looks at. */
static __device__ void clear_words(const struct ferry_cuda_dispatch *a,
                                   const struct start *s)
{
	const uint32_t half = (uint32_t)(s->epoch & 1) ^ 1;

	if (blockIdx.x == 0 && threadIdx.x < N_WORDS &&
	    a->parts & FERRY_CUDA_SEND)
		store_relaxed_gpu(
			word_of(a, half, (enum chunks_word)threadIdx.x), 0);
}

static __global__ void __launch_bounds__(CHUNKS_THREADS, 1)
	dispatch_chunks(const __grid_constant__ struct ferry_cuda_dispatch a)
{
	extern __shared__ __align__(128) unsigned char ring[];
	__shared__ struct block block;
	uint32_t ticket = ~0u;

	if (threadIdx.x < CHUNKS_WARPS * CHUNKS_MAX_STAGES)
		barrier_init(&block.barriers[threadIdx.x], 1);
	fence_proxy_async_shared();
	if (threadIdx.x == 0)
		block.start = start_of(&a);
	__syncthreads();
	/* Its answer is looked at when all is done, and long there by then. */
	if (threadIdx.x == 0)
		ticket = add_relaxed_gpu(&a.op.slot->tickets, 1);
	if (block.start.runs) {
		const struct chunks c =
			chunks_of(&a, &block.start, ring, block.barriers);

		clear_words(&a, &block.start);
		if (blockIdx.x == 0 && a.parts & FERRY_CUDA_SEND)
			net_close_epoch(&c, block.start.state);
		run_warp(&c, &block);
	} else if (a.parts & FERRY_CUDA_RECV) {
		clear_counts(&a, (int32_t)threadIdx.x, CHUNKS_THREADS);
	}
	if (threadIdx.x == 0)
		advance(&a, &block.start, ticket);
}

static const char *refuse(const struct ferry_cuda_channel *ch)
{
	if (ch->table_lines || ch->row_lines)
		return "tables or rows are in lines";
	return NULL;
}

static size_t scratch_bytes(const struct ferry_cuda_channel *ch, int32_t ctas)
{
	return histogram_offset(ch) + plan_histogram_bytes(ch) +
	       (size_t)ctas * plan_team_bytes(ch);
}

static int load(void)
{
	return resident_load((const void *)dispatch_chunks, CHUNKS_RING_BYTES);
}

static int measure(const struct ferry_cuda_channel *ch,
                   struct ferry_cuda_fit *fit)
{
	*fit = resident_begin(CHUNKS_THREADS, (int)chunks_ring_bytes(ch));
	return resident_count((const void *)dispatch_chunks, fit);
}

static int launch(const struct ferry_cuda_dispatch *args, int32_t ctas,
                  struct CUstream_st *stream)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = dim3((unsigned)ctas);
	config.blockDim = dim3(CHUNKS_THREADS);
	config.dynamicSmemBytes = chunks_ring_bytes(&args->ch);
	config.stream = stream;
	/* Its own answer: the last error may be one of the caller's. */
	return cudaLaunchKernelEx(&config, dispatch_chunks, *args);
}

#endif
