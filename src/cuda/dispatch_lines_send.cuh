/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch_send on lines: the table to every rank, by a few clerks, and each
 * row once to every rank outside the own group that serves it, by the workers.
 */
#ifndef FERRY_DISPATCH_LINES_SEND_CUH
#define FERRY_DISPATCH_LINES_SEND_CUH

#include "dispatch_lines.cuh"

static __device__ __noinline__ uint64_t load_odd(const unsigned char *at,
                                                 uint32_t bytes)
{
	uint64_t v = 0;

#pragma unroll 1
	for (uint32_t i = 0; i < bytes; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

static __device__ __forceinline__ int64_t
id_at(const struct ferry_dispatch_in *in, int32_t token, int32_t choice)
{
	const bool wide = in->id_type == FERRY_ID_INT64;
	const uint32_t size = wide ? 8 : 4;
	const unsigned char *at = (const unsigned char *)in->topk_ids +
	                          (size_t)token * in->ids_stride +
	                          (size_t)choice * size;

	if (!is_aligned(at, size)) {
		const uint64_t v = load_odd(at, size);

		return wide ? (int64_t)v : (int32_t)(uint32_t)v;
	}
	return wide ? *(const int64_t *)at : *(const int32_t *)at;
}

static __device__ __forceinline__ int32_t
id_limit(const struct ferry_cuda_dispatch *d)
{
	return d->in.id_kind == FERRY_ID_SLOT ? d->ch.n_expert_slots
	                                      : d->ch.n_experts;
}

/* Expert slot of a choice; -1: masked or skipped; -2: bad. */
static __device__ __forceinline__ int32_t
resolve_choice(const struct ferry_cuda_dispatch *d, int64_t id, int32_t token,
               int32_t choice)
{
	if (id < 0 || id >= id_limit(d))
		return id != -1 && d->ch.bad_id == FERRY_BAD_ID_ERROR ? -2 : -1;
	if (d->in.id_kind == FERRY_ID_SLOT)
		return (int32_t)id;
	return resolve_expert(&d->ch, &d->placement, (int32_t)id, token,
	                      choice);
}

/* Weight of a choice that is not masked. */
static __device__ __forceinline__ float
weight_at(const struct ferry_cuda_dispatch *d, int32_t token, int32_t choice)
{
	const unsigned char *at = (const unsigned char *)d->in.topk_weights +
	                          (size_t)token * d->in.weights_stride +
	                          (size_t)choice * 4;

	if (!d->in.topk_weights)
		return d->ch.routed_scale;
	const uint32_t v = is_aligned(at, 4) ? *(const uint32_t *)at
	                                     : (uint32_t)load_odd(at, 4);

	return __fmul_rn(__uint_as_float(v), d->ch.routed_scale);
}

static __device__ __forceinline__ bool
weights_travel(const struct ferry_cuda_dispatch *d)
{
	return d->ch.send_weights &&
	       (d->in.topk_weights || d->ch.routed_scale != 1.0f);
}

static __device__ __forceinline__ uint64_t mix(uint64_t v)
{
	v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
	v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
	return v ^ (v >> 31);
}

/*
 * One entry of the batch into shared memory; the first clerk latches it for
 * combine. Entries are summed into the hash in any order, each with its place.
 */
static __device__ __forceinline__ void
keep_choice(const struct lines *l, uint32_t i, int64_t id, bool latch)
{
	const struct ferry_cuda_dispatch *d = l->d;
	const int32_t token = (int32_t)(i / (uint32_t)d->in.topk);
	const int32_t choice = (int32_t)(i % (uint32_t)d->in.topk);
	const int32_t slot = resolve_choice(d, id, token, choice);
	const size_t at = (size_t)token * d->ch.max_topk + choice;
	float w = 0;

	lines_entries(l, 0)[i] = (uint16_t)(slot < 0 ? LINES_NO_SLOT : slot);
	if (slot == -2)
		atomicMin(&l->shared->bad, i);
	if (slot >= 0 && (latch || d->ch.group_size > 1))
		w = weight_at(d, token, choice);
	if (d->ch.group_size > 1)
		atomicAdd((unsigned long long *)&l->shared->content_hash,
		          mix((uint64_t)i << 48 ^
		              (uint64_t)(uint32_t)slot << 32 ^
		              __float_as_uint(w)));
	if (!latch)
		return;
	d->op.own_slots[at] = slot < 0 ? -1 : slot;
	d->op.own_weights[at] = w;
}

static __device__ inline void resolve_batch(const struct lines *l,
                                            int32_t n_tokens, bool latch)
{
	enum { OPEN = 2 }; /* ids of a thread that are loaded together */
	const uint32_t topk = (uint32_t)l->d->in.topk;
	const uint32_t n = (uint32_t)n_tokens * topk;

#pragma unroll 1
	for (uint32_t i = l->thread; i < n; i += OPEN * LINES_THREADS) {
		int64_t id[OPEN] = {-1, -1};

#pragma unroll
		for (uint32_t u = 0; u < OPEN; u++) {
			const uint32_t e = i + u * LINES_THREADS;

			if (e < n)
				id[u] = id_at(&l->d->in, (int32_t)(e / topk),
				              (int32_t)(e % topk));
		}
#pragma unroll
		for (uint32_t u = 0; u < OPEN; u++)
			if (i + u * LINES_THREADS < n)
				keep_choice(l, i + u * LINES_THREADS, id[u],
				            latch);
	}
}

static __device__ __forceinline__ uint64_t pair_u64(int32_t low, int32_t high)
{
	return (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
}

struct lines_mark {
	int32_t token, choice, limit;
	int64_t value;
	bool is_set;
};

/* This lane's sixteen bytes of the header, line 0 of the table. */
static __device__ inline ulonglong2 header_share(const struct lines *l,
                                                 int32_t n_tokens,
                                                 bool has_weights,
                                                 const struct lines_mark *mark)
{
	const struct ferry_cuda_dispatch *d = l->d;
	uint64_t hash = d->placement.hash;

	if (d->in.id_kind == FERRY_ID_SLOT)
		hash = 0;
	else if (!d->placement.first && n_tokens == 0)
		hash = 0;
	switch (l->team_lane) {
	case 0:
		return make_ulonglong2(l->epoch, hash);
	case 1:
		return make_ulonglong2(pair_u64(n_tokens, d->in.topk),
		                       pair_u64(d->in.hidden, has_weights));
	case 2:
		if (!mark->is_set)
			break;
		return make_ulonglong2(pair_u64(FERRY_RANGE, mark->token),
		                       pair_u64(mark->choice, mark->limit));
	case 3:
		/* Weights that are all 1, and none at all, differ. */
		return make_ulonglong2((uint64_t)mark->value,
		                       l->shared->content_hash +
		                               (d->in.topk_weights != NULL));
	}
	return make_ulonglong2(0, 0);
}

/* Word `i` of `words` behind the header: n expert slots, then weights. */
static __device__ __forceinline__ uint32_t table_word(const struct lines *l,
                                                      uint32_t i, uint32_t n,
                                                      uint32_t words)
{
	const uint16_t *entries = lines_entries(l, 0);
	const uint32_t e = i < n ? i : i - n;
	const uint32_t topk = (uint32_t)l->d->in.topk;

	if (i >= words)
		return 0;
	const uint16_t slot = entries[e];

	if (i < n)
		return slot == LINES_NO_SLOT ? ~0u : slot;
	if (slot == LINES_NO_SLOT)
		return 0;
	return __float_as_uint(
		weight_at(l->d, (int32_t)(e / topk), (int32_t)(e % topk)));
}

/* Line `i` > 0 of a table of n entries: four words of each lane. */
static __device__ inline ulonglong2
table_share(const struct lines *l, uint32_t i, uint32_t n, uint32_t words)
{
	const int32_t first = (int32_t)(i * LINE_DATA + l->team_lane * 16) -
	                      (int32_t)sizeof(struct ferry_table);
	uint32_t w[4] = {0, 0, 0, 0};

#pragma unroll
	for (int k = 0; k < 4; k++)
		if (first + 4 * k >= 0)
			w[k] = table_word(l, (uint32_t)(first + 4 * k) / 4, n,
			                  words);
	return make_ulonglong2((uint64_t)w[1] << 32 | w[0],
	                       (uint64_t)w[3] << 32 | w[2]);
}

static __device__ inline void send_table_lines(const struct lines *l,
                                               uint32_t clerk, int32_t n_tokens,
                                               const struct lines_mark *mark)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const bool has_weights = !mark->is_set && weights_travel(l->d);
	const uint32_t n = (uint32_t)n_tokens * (uint32_t)l->d->in.topk;
	const uint32_t words = has_weights ? 2 * n : n;
	const uint32_t n_lines = ((uint32_t)sizeof(struct ferry_table) +
	                          words * 4 + LINE_DATA - 1) /
	                         LINE_DATA;
	const uint32_t n_mine =
		((uint32_t)ch->n_ranks - clerk - 1) / l->a->n_clerks + 1;

#pragma unroll 1
	for (uint32_t i = l->team; i < n_mine * n_lines; i += LINES_TEAMS) {
		/* Peers first, the own window last. */
		const int32_t to =
			(ch->rank + 1 +
		         (int32_t)(i / n_lines * l->a->n_clerks + clerk)) %
			ch->n_ranks;
		const uint32_t line = i % n_lines;
		const ulonglong2 share =
			line ? table_share(l, line, n, words)
			     : header_share(l, n_tokens, has_weights, mark);

		line_store(table_at(ch, to, l->d->slot, l->half, ch->rank) +
		                   (size_t)line * LINE_BYTES,
		           l->team_lane, share.x, share.y, l->epoch);
	}
}

/* n_tokens as the caller gave it, which may be bad. */
static __device__ inline void send_table(const struct lines *l, uint32_t clerk,
                                         int32_t n_tokens)
{
	const struct ferry_cuda_dispatch *d = l->d;
	const bool bad_count = n_tokens < 0 || n_tokens > d->ch.max_tokens;
	struct lines_mark mark = {-1, -1, d->ch.max_tokens + 1, n_tokens,
	                          bad_count};

	if (!bad_count)
		resolve_batch(l, n_tokens, clerk == 0);
	__syncthreads();
	const uint32_t bad = l->shared->bad;

	if (!bad_count && bad != LINES_NOTHING) {
		mark.token = (int32_t)(bad / (uint32_t)d->in.topk);
		mark.choice = (int32_t)(bad % (uint32_t)d->in.topk);
		mark.limit = id_limit(d);
		mark.value = id_at(&d->in, mark.token, mark.choice);
		mark.is_set = true;
	}
	if (!mark.is_set)
		mark.value = 0;
	else
		n_tokens = 0;
	send_table_lines(l, clerk, n_tokens, &mark);
	if (clerk == 0 && l->thread == 0)
		*d->op.own_count = n_tokens;
}

/* Which ranks serve a token, as bits. By one warp. */
static __device__ inline void find_ranks(const struct lines *l, int32_t token,
                                         uint32_t *served)
{
	uint32_t bits[4] = {0, 0, 0, 0};

#pragma unroll 1
	for (int32_t k = (int32_t)l->lane; k < l->d->in.topk; k += 32) {
		const int32_t slot = resolve_choice(
			l->d, id_at(&l->d->in, token, k), token, k);

		if (slot < 0)
			continue;
		const int32_t rank = rank_of_slot(l->ch, slot);

#pragma unroll
		for (int i = 0; i < 4; i++)
			if (rank / 32 == i)
				bits[i] |= 1u << (rank % 32);
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (i * 32 >= l->ch->n_ranks)
			break;
		bits[i] = __reduce_or_sync(0xffffffffu, bits[i]);
		if (l->lane == 0)
			served[i] = bits[i];
	}
}

static __device__ __forceinline__ bool serves(const uint32_t *served,
                                              int32_t rank)
{
	return served[rank / 32] >> (rank % 32) & 1;
}

/* The i-th rank after the own, 1 <= i <= n_ranks: the own one last. */
static __device__ __forceinline__ int32_t
after_rank(const struct ferry_cuda_channel *ch, int32_t i)
{
	const int32_t rank = ch->rank + i;

	return rank < ch->n_ranks ? rank : rank - ch->n_ranks;
}

/* Does a rank get a row through its window? `carried`: by this rank. */
static __device__ __forceinline__ bool is_sent(const struct lines *l,
                                               const uint32_t *served,
                                               int32_t rank, bool carried)
{
	if (!serves(served, rank))
		return false;
	if (rank / l->ch->group_size != l->ch->group)
		return carried;
	return rank == l->ch->rank && !l->ch->row_lines;
}

/* A part of a row, which lies in a buffer, to all that it goes to. */
static __device__ inline void
send_part(const struct lines *l, const struct lines_unit *unit, uint32_t buffer)
{
	const unsigned char *part = lines_buffer(l, buffer);
	const uint32_t *served = l->shared->served[buffer % LINES_BUFFERS];
	const struct ferry_cuda_channel *ch = l->ch;
	const bool carried =
		unit->token % ch->group_size == ch->rank % ch->group_size;
	const int32_t source = carrier_of(ch, ch->group, unit->token);

#pragma unroll 1
	for (int32_t i = 1; i <= ch->n_ranks; i++) {
		const int32_t to = after_rank(ch, i);

		if (!is_sent(l, served, to, carried))
			continue;
		unsigned char *row = row_at(ch, to, l->d->slot, l->half, source,
		                            unit->token / ch->group_size);

		if (ch->row_lines) {
			lines_send(l, row, part, unit->first_line,
			           unit->end_line);
			continue;
		}
		const uint32_t begin = unit->first_line * LINE_DATA;
		const uint32_t end = min_u32((l->a->image.bytes + 15) & ~15u,
		                             unit->end_line * LINE_DATA);

		row_store(row + begin, part, end - begin, l->thread,
		          LINES_THREADS);
	}
}

/* TOKEN: the row has been stored by the whole block; its flags. */
static __device__ inline void raise_flags(const struct lines *l, int32_t token,
                                          uint32_t buffer)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const uint32_t *served = l->shared->served[buffer % LINES_BUFFERS];

	if (token % ch->group_size != ch->rank % ch->group_size)
		return;
	fence_acq_rel_sys();
#pragma unroll 1
	for (int32_t i = 1; i < ch->n_ranks; i++) {
		const int32_t to = after_rank(ch, i);

		if (to / ch->group_size != ch->group && serves(served, to))
			store_relaxed_sys(row_flag_at(ch, to, l->d->slot,
			                              l->half, ch->rank,
			                              token / ch->group_size),
			                  l->epoch);
	}
}

/* The row of an own unit into a buffer. */
static __device__ __forceinline__ void
load_unit(const struct lines *l, const struct lines_unit *unit, uint32_t buffer)
{
	row_load(lines_buffer(l, buffer), l->d, &l->a->image, unit->token,
	         make_uint2(unit->first_line * LINE_DATA,
	                    unit->end_line * LINE_DATA),
	         l->thread, LINES_THREADS);
}

/* The same, and the ranks that it goes to; the caller synchronises. */
static __device__ inline void stage_unit(const struct lines *l,
                                         const struct lines_unit *unit,
                                         uint32_t buffer)
{
	if (l->warp == LINES_WARPS - 1)
		find_ranks(l, unit->token,
		           l->shared->served[buffer % LINES_BUFFERS]);
	load_unit(l, unit, buffer);
	fence_proxy_async_shared(); /* it may be delivered from there */
}

#endif
