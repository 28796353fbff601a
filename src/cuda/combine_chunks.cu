/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine for many tokens: rows come back as they are, and a flag for every
 * few tokens says that they have.
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
 * Flags
 *	The whole epoch, for every chunk of a batch from every other rank, also
 *	where no row comes. Never reset.
 * Threads
 *	A fused block has a team that sends and a team that receives, so that it
 *	does both from the start; otherwise one team. A team takes a chunk at a
 *	time, so many warps a token. Copies are sent by a single thread.
 *	Senders wait for nobody.
 * Waits
 *	5, bounded by timeout_ns (wait.cuh).
 * Cost
 *	The larger of wire and device memory; dev/cuda-combine.md.
 */
#include <cuda_runtime_api.h>

#include "combine_terms.cuh"
#include "cuda_kernels.h"

enum {
	N_WARPS = 16,
	THREADS = N_WARPS * 32,
	STEP_BYTES = 32 * BLOCK_BYTES, /* of a row, by a warp at once */
	SUMS = 2,                      /* steps of a warp at once, of sums */
	COPIES = 4,                    /* of rows that are summed already */
	STAGES = 6,                    /* of the ring of copies */
	AHEAD = 3,                     /* copies on their way in */
	STAGE_BYTES = 16384,
	QUEUE = 8, /* chunks that wait for their flag */
};

struct team {
	int32_t warp, n_warps;
};

static __device__ __forceinline__ int32_t n_chunks_of(const struct combine *c,
                                                      int32_t group)
{
	const int32_t chunk = c->a->ch.back_chunk;

	return (c->shared->n_tokens[group] + chunk - 1) / chunk;
}

/* After what this thread knows to be written. */
static __device__ __forceinline__ void raise_flags(const struct combine *c,
                                                   int32_t group, int32_t chunk)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = group * ch->group_size;

#pragma unroll 1
	for (int32_t r = first; r < first + ch->group_size; r++)
		if (r != ch->rank)
			store_release_sys(back_flag_at(ch, r, c->a->slot,
			                               ch->rank, chunk),
			                  c->epoch);
}

/* What a warp does of a chunk: a token, and every n-th step of its rows. */
struct share {
	int32_t token, end, token_step;
	int32_t first, step; /* bytes of a row */
};

static __device__ __forceinline__ struct share share_of(const struct combine *c,
                                                        const struct team *team,
                                                        int32_t group,
                                                        int32_t chunk)
{
	const int32_t n = c->a->ch.back_chunk;
	const int32_t per_token = max(1, team->n_warps / n);
	const int32_t part = team->warp % per_token;
	struct share s;

	s.token = chunk * n + team->warp / per_token;
	s.end = min((chunk + 1) * n, c->shared->n_tokens[group]);
	s.token_step = team->n_warps / per_token;
	s.first = part * STEP_BYTES + c->lane * BLOCK_BYTES;
	s.step = per_token * STEP_BYTES;
	/* Warps that are left over have nothing. */
	if (team->warp >= s.token_step * per_token)
		s.token = s.end;
	return s;
}

/* Stores a block of row j to all ranks of a group but this one. */
template <int HOW>
static __device__ __forceinline__ void
store_to_group(const struct combine *c, int32_t group, int32_t token,
               int32_t first_choice, int32_t at, uint4 v)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = group * ch->group_size;

#pragma unroll 1
	for (int32_t r = first; r < first + ch->group_size; r++) {
		if (r == ch->rank)
			continue;
		const int32_t j = is_exact<HOW>(c) ? first_choice
		                                   : part_place(ch, ch->rank, r,
		                                                first_choice);

		store_16(back_at(ch, r, c->a->slot, token, j) + at, v);
	}
}

/* The choices of a token from `base` on, each as it is. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
send_choices(const struct combine *c, const struct choice *x,
             const struct share *s, int32_t group, int32_t token, int32_t base)
{
	const int32_t end = (int32_t)c->a->row_bytes;
	struct terms t;

	if (!here_terms(c, x, token, base, &t))
		return false;
#pragma unroll 1
	for (uint32_t left = t.all; left;) {
		const int32_t k = next_lane(&left);
		const unsigned char *row = row_of_lane(&t, k);

#pragma unroll 1
		for (int32_t at = s->first; at < end; at += s->step)
			store_to_group<HOW>(
				c, group, token, base + k, at,
				load_block<DTYPE, HOW != HOW_ANY>(
					row + at, block_bytes(c, at)));
		__syncwarp();
	}
	return true;
}

/* A token's part, SUMS blocks of a lane at a time. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool
send_part(const struct combine *c, const struct choice *x,
          const struct share *s, int32_t group, int32_t token)
{
	const int32_t first = first_here<HOW>(c, x, group, token);
	const int32_t end = (int32_t)c->a->row_bytes;

	if (first < 0)
		return true;
#pragma unroll 1
	for (int32_t at = s->first; __any_sync(ALL_LANES, at < end);
	     at += SUMS * s->step) {
		uint4 v[SUMS];

		if (!part_blocks<DTYPE, HOW, SUMS, IN_FLIGHT>(
			    c, *x, group, token, at, s->step, v))
			return false;
#pragma unroll
		for (int j = 0; j < SUMS; j++)
			if (at + j * s->step < end)
				store_to_group<HOW>(c, group, token, first,
				                    at + j * s->step, v[j]);
	}
	return true;
}

/* A token's rows, stored by this warp. False: the channel has ended. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool send_token(const struct combine *c,
                                                  const struct share *s,
                                                  int32_t group, int32_t token)
{
	const struct choice x = load_choice(c, group, token, 0);

	if (!is_exact<HOW>(c))
		return send_part<DTYPE, HOW>(c, &x, s, group, token);
#pragma unroll 1
	for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		const struct choice y =
			base ? load_choice(c, group, token, base) : x;

		if (!send_choices<DTYPE, HOW>(c, &y, s, group, token, base))
			return false;
	}
	return true;
}

/* Sums, and whatever bulk copies cannot reach. False: the channel has ended. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool send_by_stores(const struct combine *c,
                                                      const struct team *team)
{
	int32_t chunk = (int32_t)blockIdx.x;
	uint32_t round = 0;

#pragma unroll 1
	for (int32_t i = 1; i <= c->a->ch.n_groups; i++) {
		const int32_t group = nth_group(c, i);

		if (!has_receivers(c, group))
			continue;
		const int32_t n = n_chunks_of(c, group);

#pragma unroll 1
		for (; chunk < n; chunk += (int32_t)gridDim.x, round++) {
			struct share s = share_of(c, team, group, chunk);

#pragma unroll 1
			for (; s.token < s.end; s.token += s.token_step)
				if (!send_token<DTYPE, HOW>(c, &s, group,
				                            s.token))
					c->shared->stop_round = round;
			__barrier_sync_count(1, (unsigned)team->n_warps * 32);
			/* One that is ahead may have stopped a later round. */
			if (*(volatile uint32_t *)&c->shared->stop_round <=
			    round)
				return false;
			if (team->warp == 0 && c->lane == 0)
				raise_flags(c, group, chunk);
		}
		chunk -= n;
	}
	return true;
}

/* One piece of a row on its way through shared memory. */
struct flight {
	int32_t group, token, j, at, bytes;
};

struct ring {
	uint64_t full[STAGES];
	struct flight of[STAGES];
	struct {
		int32_t group, chunk;
		uint32_t end; /* pieces up to its last one */
	} waiting[QUEUE];
};

/* Thread state of the one thread that copies. */
struct copier {
	const struct combine *c;
	struct ring *ring;
	unsigned char *stages;
	uint32_t n_in, n_out;              /* pieces */
	uint32_t first_waiting, n_waiting; /* chunks */
};

template <int HOW>
static __device__ __forceinline__ void copy_out(struct copier *p)
{
	const struct combine *c = p->c;
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint32_t stage = p->n_out % STAGES;
	const struct flight f = p->ring->of[stage];
	const int32_t first = f.group * ch->group_size;

	barrier_wait(&p->ring->full[stage], p->n_out / STAGES & 1);
#pragma unroll 1
	for (int32_t r = first; r < first + ch->group_size; r++) {
		if (r == ch->rank)
			continue;
		const int32_t j = is_exact<HOW>(c)
		                          ? f.j
		                          : part_place(ch, ch->rank, r, f.j);

		bulk_store(back_at(ch, r, c->a->slot, f.token, j) + f.at,
		           p->stages + stage * STAGE_BYTES, (uint32_t)f.bytes);
	}
	bulk_commit();
	p->n_out++;
}

/* Raises flags of chunks whose pieces but the newest `n` have been written. */
static __device__ __forceinline__ void raise_waiting(struct copier *p,
                                                     uint32_t n)
{
#pragma unroll 1
	while (p->n_waiting) {
		const uint32_t i = p->first_waiting % QUEUE;

		if ((int32_t)(p->n_out - n - p->ring->waiting[i].end) < 0)
			return;
		raise_flags(p->c, p->ring->waiting[i].group,
		            p->ring->waiting[i].chunk);
		p->first_waiting++;
		p->n_waiting--;
	}
}

static __device__ __forceinline__ bool flag_is_due(const struct copier *p,
                                                   uint32_t n)
{
	return p->n_waiting &&
	       (int32_t)(p->n_out - n -
	                 p->ring->waiting[p->first_waiting % QUEUE].end) >= 0;
}

template <int HOW>
static __device__ __forceinline__ void copy_drain(struct copier *p)
{
#pragma unroll 1
	while (p->n_out != p->n_in)
		copy_out<HOW>(p);
	bulk_wait<0>();
	raise_waiting(p, 0);
}

template <int HOW>
static __device__ __forceinline__ void
copy_in(struct copier *p, const unsigned char *from, const struct flight *f)
{
	const uint32_t stage = p->n_in % STAGES;

	/* What was in this stage before is STAGES - AHEAD - 1 groups old. */
	bulk_wait_read<STAGES - AHEAD - 1>();
	p->ring->of[stage] = *f;
	barrier_expect(&p->ring->full[stage], (uint32_t)f->bytes);
	bulk_load(p->stages + stage * STAGE_BYTES, from, (uint32_t)f->bytes,
	          &p->ring->full[stage]);
	p->n_in++;
	if (p->n_in - p->n_out <= AHEAD)
		return;
	copy_out<HOW>(p);
	if (flag_is_due(p, 2)) {
		bulk_wait<2>();
		raise_waiting(p, 2);
	}
}

template <int HOW>
static __device__ __forceinline__ void
copy_row(struct copier *p, const unsigned char *row, struct flight f)
{
	const int32_t end = (int32_t)p->c->a->row_bytes;

#pragma unroll 1
	for (f.at = 0; f.at < end; f.at += STAGE_BYTES) {
		f.bytes = min(end - f.at, (int32_t)STAGE_BYTES);
		copy_in<HOW>(p, row + f.at, &f);
	}
}

template <int HOW>
static __device__ __forceinline__ void end_chunk(struct copier *p,
                                                 int32_t group, int32_t chunk)
{
	if (p->n_waiting == QUEUE)
		copy_drain<HOW>(p);
	const uint32_t i = (p->first_waiting + p->n_waiting++) % QUEUE;

	p->ring->waiting[i].group = group;
	p->ring->waiting[i].chunk = chunk;
	p->ring->waiting[i].end = p->n_in;
}

/* A token's rows; lane 0 copies. False: the channel has ended. */
template <int HOW>
static __device__ __forceinline__ bool
copy_token(struct copier *p, int32_t group, int32_t token, struct choice x)
{
	const struct combine *c = p->c;
	struct flight f = {group, token, 0, 0, 0};

	if (!is_exact<HOW>(c)) {
		f.j = first_here<HOW>(c, &x, group, token);
		if (f.j >= 0 && !c->a->in.y) {
			fail_row(c->a, c->epoch, token, -1, 0);
			return false;
		}
		if (f.j >= 0 && c->lane == 0)
			copy_row<HOW>(p, presummed_row(c, group, token), f);
		return true;
	}
#pragma unroll 1
	for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
	     base += 32) {
		struct terms t;

		if (base)
			x = load_choice(c, group, token, base);
		if (!here_terms(c, &x, token, base, &t))
			return false;
#pragma unroll 1
		for (uint32_t left = t.all; left;) {
			const int32_t k = next_lane(&left);
			const unsigned char *row = row_of_lane(&t, k);

			f.j = base + k;
			if (c->lane == 0)
				copy_row<HOW>(p, row, f);
			__syncwarp();
		}
	}
	return true;
}

/* One warp; rows and strides are multiples of 16. */
template <int HOW>
static __device__ __forceinline__ bool send_by_copies(const struct combine *c,
                                                      struct ring *ring,
                                                      unsigned char *stages)
{
	struct copier p = {c, ring, stages, 0, 0, 0, 0};
	const int32_t rows = c->a->ch.back_chunk;
	int32_t chunk = (int32_t)blockIdx.x;

	if (c->lane == 0) {
		for (int i = 0; i < STAGES; i++)
			barrier_init(&ring->full[i], 1);
		fence_proxy_async_shared();
	}
#pragma unroll 1
	for (int32_t i = 1; i <= c->a->ch.n_groups; i++) {
		const int32_t group = nth_group(c, i);

		if (!has_receivers(c, group))
			continue;
		const int32_t n = n_chunks_of(c, group);

#pragma unroll 1
		for (; chunk < n; chunk += (int32_t)gridDim.x) {
			const int32_t end = min((chunk + 1) * rows,
			                        c->shared->n_tokens[group]);

#pragma unroll 1
			for (int32_t t = chunk * rows; t < end; t++)
				if (!copy_token<HOW>(
					    &p, group, t,
					    load_choice(c, group, t, 0)))
					return false;
			if (c->lane == 0)
				end_chunk<HOW>(&p, group, chunk);
		}
		chunk -= n;
	}
	if (c->lane == 0)
		copy_drain<HOW>(&p);
	__syncwarp();
	return true;
}

/* Until every other rank has sent what it has for a chunk of own tokens. */
static __device__ __forceinline__ bool wait_for_chunk(const struct combine *c,
                                                      int32_t chunk)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	struct wait w =
		wait_begin(ch, FERRY_PHASE_COMBINE_RECV, c->a->slot, c->epoch);
	bool good = true;

#pragma unroll 1
	for (int32_t r = c->lane; r < ch->n_ranks && good; r += 32) {
		const uint64_t *flag =
			back_flag_at(ch, ch->rank, c->a->slot, r, chunk);

		if (r == ch->rank)
			continue;
#pragma unroll 1
		while (good && load_acquire_sys(flag) != c->epoch)
			good = wait_again(&w, r);
	}
	return __all_sync(ALL_LANES, good);
}

/* Adds BATCH blocks of up to 32 terms, all there, in order. */
template <int DTYPE, int HOW, int BATCH, int N>
static __device__ __forceinline__ void
add_terms(const struct combine *c, const struct terms *t,
          const uint4 own[BATCH], int32_t at, int32_t step,
          float acc[BATCH][BLOCK_MOST])
{
	struct terms part = *t;

	if (t->own >= 0) {
		part.all = t->all & ((1u << t->own) - 1);
		add_rows<DTYPE, HOW, BATCH, N>(c, &part, at, step, acc);
#pragma unroll
		for (int j = 0; j < BATCH; j++)
			add_block<DTYPE>(acc[j], own[j], 1);
		part.all = t->all & ~((2u << t->own) - 1);
	}
	add_rows<DTYPE, HOW, BATCH, N>(c, &part, at, step, acc);
}

/* Where a warp stands in an own token. */
struct own_token {
	const struct share *share;
	int32_t token, chunk;
	bool there; /* its chunk has come */
	struct own_choice x;
};

static __device__ __forceinline__ bool be_there(const struct combine *c,
                                                struct own_token *t)
{
	if (!t->there && !wait_for_chunk(c, t->chunk))
		return false;
	t->there = true;
	return true;
}

template <int DTYPE, int HOW, int BATCH>
static __device__ __forceinline__ void
finish_blocks(const struct combine *c, const struct own_token *t, int32_t at,
              float acc[BATCH][BLOCK_MOST])
{
#pragma unroll
	for (int j = 0; j < BATCH; j++) {
		const int32_t here = at + j * t->share->step;

		finish_block<DTYPE, HOW != HOW_ANY>(
			c->a, t->token, here, block_bytes(c, here), acc[j]);
	}
}

/* EXACT: choice after choice, from y and from `back`. */
template <int DTYPE, int HOW>
static __device__ __forceinline__ bool receive_exact(const struct combine *c,
                                                     struct own_token *t)
{
	const struct share *s = t->share;

	if (!be_there(c, t))
		return false;
#pragma unroll 1
	for (int32_t at = s->first;
	     __any_sync(ALL_LANES, at < (int32_t)c->a->row_bytes);
	     at += SUMS * s->step) {
		float acc[SUMS][BLOCK_MOST] = {{0}};

#pragma unroll 1
		for (int32_t base = 0; base < (HOW == HOW_ANY ? c->a->topk : 1);
		     base += 32) {
			struct own_choice x = t->x;
			struct terms terms;

			if (base)
				x = load_own_choice(c, t->token, base);
			if (!exact_terms(c, &x, t->token, base, &terms))
				return false;
			add_rows<DTYPE, HOW, SUMS, IN_FLIGHT>(c, &terms, at,
			                                      s->step, acc);
		}
		finish_blocks<DTYPE, HOW, SUMS>(c, t, at, acc);
	}
	return true;
}

/* REDUCED: the own part, which is not waited for, and those of others. */
template <int DTYPE, int HOW, int BATCH, int N>
static __device__ __forceinline__ bool receive_parts(const struct combine *c,
                                                     struct own_token *t)
{
	const struct share *s = t->share;
	struct rank_walk walk = walk_begin<HOW>(c, &t->x, t->token);
	struct terms terms;

	reduced_terms(c, &walk, t->token, &terms);
#pragma unroll 1
	for (int32_t at = s->first;
	     __any_sync(ALL_LANES, at < (int32_t)c->a->row_bytes);
	     at += BATCH * s->step) {
		struct rank_walk w = walk;
		struct terms more = terms;
		float acc[BATCH][BLOCK_MOST] = {{0}};
		uint4 own[BATCH];

		if (!part_blocks<DTYPE, HOW, BATCH, N>(c, t->x.here,
		                                       c->a->ch.group, t->token,
		                                       at, s->step, own) ||
		    !be_there(c, t))
			return false;
		add_terms<DTYPE, HOW, BATCH, 2>(c, &more, own, at, s->step,
		                                acc);
#pragma unroll 1
		while (more.all == ALL_LANES &&
		       reduced_terms(c, &w, t->token, &more))
			add_terms<DTYPE, HOW, BATCH, 2>(c, &more, own, at,
			                                s->step, acc);
		finish_blocks<DTYPE, HOW, BATCH>(c, t, at, acc);
	}
	return true;
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ bool receive_token(const struct combine *c,
                                                     struct own_token *t)
{
	if (is_exact<HOW>(c))
		return receive_exact<DTYPE, HOW>(c, t);
	if (is_presummed<HOW>(c))
		return receive_parts<DTYPE, HOW, COPIES, 1>(c, t);
	return receive_parts<DTYPE, HOW, SUMS, IN_FLIGHT>(c, t);
}

template <int DTYPE, int HOW>
static __device__ __forceinline__ void receive_all(const struct combine *c,
                                                   const struct team *team)
{
	const int32_t group = c->a->ch.group;
	const int32_t n = n_chunks_of(c, group);

#pragma unroll 1
	for (int32_t chunk = (int32_t)blockIdx.x; chunk < n;
	     chunk += (int32_t)gridDim.x) {
		const struct share s = share_of(c, team, group, chunk);
		struct own_token t = {&s, s.token, chunk, false};

#pragma unroll 1
		for (; t.token < s.end; t.token += s.token_step) {
			t.x = load_own_choice(c, t.token, 0);
			if (!receive_token<DTYPE, HOW>(c, &t))
				return;
		}
	}
}

template <int DTYPE, int HOW>
static __global__ void __launch_bounds__(THREADS, 1)
	combine_chunks(const __grid_constant__ struct ferry_cuda_combine a)
{
	extern __shared__ __align__(128) unsigned char stages[];
	__shared__ struct combine_shared shared;
	__shared__ struct ring ring;
	const int32_t warp = (int32_t)threadIdx.x / 32;
	const bool copies = HOW == HOW_EXACT || HOW == HOW_PRESUMMED;
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
		const struct team team = {warp - n_receive, n_send};

		if (copies)
			send_by_copies<HOW>(&c, &ring, stages);
		else
			send_by_stores<DTYPE, HOW>(&c, &team);
	} else if (receives) {
		const struct team team = {warp, n_receive};

		receive_all<DTYPE, HOW>(&c, &team);
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

static int load(const struct ferry_cuda_channel *ch, struct ferry_cuda_fit *fit)
{
	const int bytes = STAGES * STAGE_BYTES;
	int ctas = 0;

	for (int how = 0; how < N_HOWS; how++) {
		const void *k = (const void *)kernel_of(ch->combine_dtype, how);
		cudaError_t error = cudaFuncSetAttribute(
			k, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);

		if (error == cudaSuccess)
			error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
				&ctas, k, THREADS, (size_t)bytes);
		if (error != cudaSuccess)
			return (int)error;
	}
	fit->threads = THREADS;
	fit->smem_bytes = bytes;
	fit->ctas_per_sm = ctas;
	return cudaSuccess;
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

extern "C" const struct ferry_cuda_combine_ops ferry_cuda_combine_chunks = {
	refuse, scratch_bytes, load, launch};
