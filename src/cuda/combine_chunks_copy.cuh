/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_send by chunks of rows that go as they are: one thread has them
 * copied through a ring in shared memory.
 */
#ifndef FERRY_COMBINE_CHUNKS_COPY_CUH
#define FERRY_COMBINE_CHUNKS_COPY_CUH

#include "combine_chunks.cuh"

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
		bulk_store(back_row_of<HOW>(c, r, f.token, f.j) + f.at,
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
	bool good = true;

	if (c->lane == 0) {
		for (int i = 0; i < STAGES; i++)
			barrier_init(&ring->full[i], 1);
		fence_proxy_async_shared();
	}
#pragma unroll 1
	for (int32_t i = 1; good && i <= c->a->ch.n_groups; i++) {
		const int32_t group = nth_group(c, i);

		if (!has_receivers(c, group))
			continue;
		const int32_t n = n_chunks_of(c, group);

#pragma unroll 1
		for (; good && chunk < n; chunk += (int32_t)gridDim.x) {
			const int32_t end = min((chunk + 1) * rows,
			                        c->shared->n_tokens[group]);

#pragma unroll 1
			for (int32_t t = chunk * rows; good && t < end; t++)
				good = copy_token<HOW>(
					&p, group, t,
					load_choice(c, group, t, 0));
			if (good && c->lane == 0)
				end_chunk<HOW>(&p, group, chunk);
		}
		chunk -= n;
	}
	/* Also after a failure: copies use the block's memory until then. */
	if (c->lane == 0)
		copy_drain<HOW>(&p);
	__syncwarp();
	return good;
}

#endif
