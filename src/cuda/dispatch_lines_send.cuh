/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch_send on lines: the table to every rank, by a few clerks, and each
 * row once to every rank outside the own group that serves it, by the workers.
 */
#ifndef FERRY_DISPATCH_LINES_SEND_CUH
#define FERRY_DISPATCH_LINES_SEND_CUH

#include "dispatch_lines_ids.cuh"

/*
 * Entries, with their weights, are summed into the hash of the content in any
 * order, each with its place.
 */
static __device__ __noinline__ void
hash_entry(const struct lines_args *a, uint64_t *hash, uint32_t i, int32_t slot)
{
	const int32_t token = (int32_t)quotient(i, &a->by_topk);
	const int32_t choice = (int32_t)remainder(i, &a->by_topk);
	const float w = slot < 0 ? 0 : weight_at(&a->d, token, choice);
	uint64_t v = (uint64_t)i << 48 ^ (uint64_t)(uint32_t)slot << 32 ^
	             __float_as_uint(w);

	v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
	v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
	atomicAdd((unsigned long long *)hash, v ^ (v >> 31));
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
		return make_ulonglong2(mark->is_set ? (uint64_t)mark->value : 0,
		                       l->shared->content_hash +
		                               (d->in.topk_weights != NULL));
	}
	return make_ulonglong2(0, 0);
}

/* The i-th rank after the own, 1 <= i <= n_ranks: the own one last. */
static __device__ __forceinline__ int32_t
after_rank(const struct ferry_cuda_channel *ch, int32_t i)
{
	const int32_t rank = ch->rank + i;

	return rank < ch->n_ranks ? rank : rank - ch->n_ranks;
}

/* A batch as a clerk sends it. */
struct lines_batch {
	int32_t n_tokens; /* as given, maybe bad */
	bool is_good;
	uint32_t n;     /* entries */
	uint32_t words; /* behind the header: entries, then weights */
	uint32_t n_lines;
};

/* Entry `e` of the batch: its slot, or its weight when `is_weight`. */
static __device__ __forceinline__ uint32_t take_entry(const struct lines *l,
                                                      uint32_t e, int64_t id,
                                                      bool is_weight)
{
	const struct ferry_cuda_dispatch *d = l->d;
	const uint32_t token = quotient(e, &l->a->by_topk);
	const uint32_t choice = e - token * l->a->by_topk.by;
	const int32_t slot =
		resolve_choice(d, id, (int32_t)token, (int32_t)choice);

	if (is_weight)
		return slot < 0 ? 0
		                : __float_as_uint(weight_at(d, (int32_t)token,
		                                            (int32_t)choice));
	if (slot == -2)
		atomicMin(&l->shared->bad, e);
	if (d->ch.group_size > 1)
		hash_entry(l->a, &l->shared->content_hash, e, slot);
	return (uint32_t)(slot < 0 ? -1 : slot);
}

/* Offset of an entry in an array of the caller, [tokens][topk]. */
static __device__ __forceinline__ size_t entry_offset(const struct lines *l,
                                                      uint32_t e, uint32_t size,
                                                      size_t stride)
{
	const uint32_t token = quotient(e, &l->a->by_topk);

	return token * stride + (e - token * l->a->by_topk.by) * size;
}

/*
 * Line `line` > 0 of the table: four words of each lane. No branch stands
 * between the loads: they are all on their way before the first is used.
 */
static __device__ __forceinline__ ulonglong2 table_share(
	const struct lines *l, const struct lines_batch *batch, uint32_t line)
{
	const struct ferry_cuda_dispatch *d = l->d;
	const bool wide = d->in.id_type == FERRY_ID_INT64;
	const uint32_t limit = (uint32_t)id_limit(d);
	const int32_t first =
		(int32_t)(line * (LINE_DATA / 4) + l->team_lane * 4) -
		(int32_t)sizeof(struct ferry_table) / 4;
	const int32_t n_words = l->team_lane == 7 ? 2 : 4;
	int32_t low[4], high[4];
	uint32_t w[4];
	float weight[4];

#pragma unroll
	for (int32_t k = 0; k < 4; k++) {
		const uint32_t i = (uint32_t)(first + k);
		const bool exists =
			first + k >= 0 && i < batch->words && k < n_words;
		const bool weighs = i >= batch->n && d->in.topk_weights;
		const uint32_t e = i < batch->n ? i : i - batch->n;
		const int32_t *id =
			(const int32_t *)((const char *)d->in.topk_ids +
		                          entry_offset(l, e, wide ? 8 : 4,
		                                       d->in.ids_stride));
		const float *given =
			(const float *)((const char *)d->in.topk_weights +
		                        entry_offset(l, e, 4,
		                                     d->in.weights_stride));

		low[k] = exists ? id[0] : -1;
		high[k] = exists && wide ? id[1] : low[k] >> 31;
		weight[k] = exists && weighs ? given[0] : 1.0f;
	}
#pragma unroll
	for (int32_t k = 0; k < 4; k++) {
		const uint32_t i = (uint32_t)(first + k);
		const bool good = high[k] == 0 && (uint32_t)low[k] < limit;

		w[k] = good ? (uint32_t)low[k] : ~0u;
		if (i >= batch->n)
			w[k] = good ? __float_as_uint(__fmul_rn(
					      weight[k], d->ch.routed_scale))
			            : 0;
		else if (!good && (low[k] & high[k]) != -1 &&
		         d->ch.bad_id == FERRY_BAD_ID_ERROR)
			atomicMin(&l->shared->bad, i);
	}
	if (d->placement.start && d->in.id_kind != FERRY_ID_SLOT) {
		const uint4 q =
			words_by_quota(l->a, (uint32_t)first, batch->n,
		                       make_uint4(w[0], w[1], w[2], w[3]));

		w[0] = q.x;
		w[1] = q.y;
		w[2] = q.z;
		w[3] = q.w;
	} else if (d->placement.first && d->in.id_kind != FERRY_ID_SLOT) {
#pragma unroll
		for (int32_t k = 0; k < 4; k++) {
			const uint32_t i = (uint32_t)(first + k);
			const uint32_t token = quotient(i, &l->a->by_topk);

			if (i < batch->n && w[k] != ~0u)
				w[k] = (uint32_t)resolve_evenly(
					&d->ch, &d->placement, (int32_t)w[k],
					(int32_t)token,
					(int32_t)(i -
				                  token * l->a->by_topk.by));
		}
	}
	if (d->ch.group_size > 1) {
#pragma unroll
		for (int32_t k = 0; k < 4; k++)
			if ((uint32_t)(first + k) < batch->n && k < n_words)
				hash_entry(l->a, &l->shared->content_hash,
				           (uint32_t)(first + k),
				           (int32_t)w[k]);
	}
	return make_ulonglong2((uint64_t)w[1] << 32 | w[0],
	                       (uint64_t)w[3] << 32 | w[2]);
}

/* The same where ids or weights lie at odd addresses, and of later lines. */
static __device__ __noinline__ ulonglong2
far_share(const struct lines_args *a, struct lines_shared *shared,
          uint32_t line, const struct lines_batch *batch)
{
	const struct lines block = lines_begin(a, shared, NULL, 0);
	const struct lines *l = &block;
	const uint32_t n = batch->n;
	const int32_t first =
		(int32_t)(line * (LINE_DATA / 4) + l->team_lane * 4) -
		(int32_t)sizeof(struct ferry_table) / 4;
	uint64_t half[2] = {0, 0};

	if (a->plain_ids)
		return table_share(l, batch, line);
#pragma unroll 1
	for (int32_t k = 0; k < (l->team_lane == 7 ? 2 : 4); k++) {
		const uint32_t i = (uint32_t)(first + k);
		const uint32_t e = i < n ? i : i - n;

		if (first + k < 0 || i >= batch->words)
			continue;
		const uint32_t token = quotient(e, &a->by_topk);
		const int64_t id = id_at(&a->d.in, (int32_t)token,
		                         (int32_t)(e - token * a->by_topk.by));
		const uint64_t w = take_entry(l, e, id, i >= n);

		half[k / 2] |= w << (k % 2 * 32);
	}
	return make_ulonglong2(half[0], half[1]);
}

static __device__ __forceinline__ ulonglong2
any_share(const struct lines *l, const struct lines_batch *batch, uint32_t line)
{
	if (l->a->plain_ids)
		return table_share(l, batch, line);
	return far_share(l->a, l->shared, line, batch);
}

/* One line of the table to all ranks of a clerk: peers first. */
static __device__ __forceinline__ void send_table_line(const struct lines *l,
                                                       uint32_t clerk,
                                                       uint32_t line,
                                                       ulonglong2 share)
{
	const struct ferry_cuda_channel *ch = l->ch;

#pragma unroll 1
	for (uint32_t i = clerk; i < (uint32_t)ch->n_ranks; i += l->a->n_clerks)
		line_store(table_at(ch, after_rank(ch, (int32_t)i + 1),
		                    l->d->slot, l->half, ch->rank) +
		                   (size_t)line * LINE_BYTES,
		           l->team_lane, share.x, share.y, l->epoch);
}

/* n_tokens as the caller gave it, which may be bad. */
static __device__ __forceinline__ struct lines_batch
batch_of(const struct lines *l, int32_t n_tokens)
{
	const bool good = n_tokens >= 0 && n_tokens <= l->ch->max_tokens;
	struct lines_batch b;

	b.n_tokens = n_tokens;
	b.is_good = good;
	b.n = good ? (uint32_t)n_tokens * l->a->by_topk.by : 0;
	b.words = weights_travel(l->d) ? 2 * b.n : b.n;
	b.n_lines = ((uint32_t)sizeof(struct ferry_table) + b.words * 4 +
	             LINE_DATA - 1) /
	            LINE_DATA;
	return b;
}

/* The header, which may be marked: when all ids have been seen. */
static __device__ __noinline__ void send_mark(const struct lines_args *a,
                                              struct lines_shared *shared,
                                              int32_t n_tokens)
{
	const struct lines block = lines_begin(a, shared, NULL, shared->epoch);
	const struct lines *l = &block;
	const uint32_t bad = shared->bad;
	struct lines_mark mark = {-1, -1, a->d.ch.max_tokens + 1, n_tokens,
	                          true};

	if (n_tokens >= 0 && n_tokens <= a->d.ch.max_tokens) {
		mark.token = (int32_t)quotient(bad, &a->by_topk);
		mark.choice = (int32_t)remainder(bad, &a->by_topk);
		mark.limit = id_limit(&a->d);
		mark.value = id_at(&a->d.in, mark.token, mark.choice);
	}
	const ulonglong2 share = header_share(l, 0, false, &mark);

	if (l->team == 0)
		send_table_line(l, blockIdx.x, 0, share);
	if (blockIdx.x == 0 && l->thread == 0)
		*a->d.op.own_count = 0;
}

/* By the first warp. */
static __device__ __forceinline__ void
send_header(const struct lines *l, const struct lines_batch *batch)
{
	const struct lines_mark none = {0, 0, 0, 0, false};

	if (!batch->is_good || l->shared->bad != LINES_NOTHING) {
		send_mark(l->a, l->shared, batch->n_tokens);
		return;
	}
	const ulonglong2 share = header_share(l, batch->n_tokens,
	                                      batch->words != batch->n, &none);

	if (l->team == 0)
		send_table_line(l, blockIdx.x, 0, share);
	if (blockIdx.x == 0 && l->thread == 0)
		*l->d->op.own_count = batch->n_tokens;
}

/*
 * The table, of which each team has made its first line before the block knew
 * the epoch.
 */
static __device__ inline void send_table(const struct lines *l,
                                         const struct lines_batch *batch,
                                         ulonglong2 share)
{
	const uint32_t n_lines = batch->n_lines;

	if (n_lines <= 1 + LINES_TEAMS && l->warp == 0)
		send_header(l, batch);
	if (1 + l->team < n_lines)
		send_table_line(l, blockIdx.x, 1 + l->team, share);
	if (n_lines <= 1 + LINES_TEAMS)
		return;
#pragma unroll 1
	for (uint32_t i = 1 + LINES_TEAMS + l->team; i < n_lines;
	     i += LINES_TEAMS) {
		share = far_share(l->a, l->shared, i, batch);
		send_table_line(l, blockIdx.x, i, share);
	}
	__syncthreads();
	if (l->warp == 0)
		send_header(l, batch);
}

/* For combine, when the table has left: by the first clerk. */
static __device__ __forceinline__ void
latch_batch(const struct lines *l, const struct lines_batch *batch)
{
	const struct ferry_cuda_dispatch *d = l->d;

#pragma unroll 1
	for (uint32_t e = l->thread; e < batch->n; e += LINES_THREADS) {
		const int32_t token = (int32_t)quotient(e, &l->a->by_topk);
		const int32_t choice = (int32_t)remainder(e, &l->a->by_topk);
		const int32_t slot = resolve_choice(
			d, id_at(&d->in, token, choice), token, choice);
		const size_t at = (size_t)token * d->ch.max_topk + choice;

		d->op.own_slots[at] = slot < 0 ? -1 : slot;
		d->op.own_weights[at] =
			slot < 0 ? 0 : weight_at(d, token, choice);
	}
}

/*
 * Which ranks serve a token, as bits. By one warp; `id` is that of the lane's
 * first choice.
 */
static __device__ inline void find_ranks(const struct lines *l, int32_t token,
                                         int64_t id, uint32_t *served)
{
	uint32_t bits[4] = {0, 0, 0, 0};

#pragma unroll 1
	for (int32_t k = (int32_t)l->lane; k < l->d->in.topk; k += 32) {
		if (k >= 32)
			id = id_at(&l->d->in, token, k);
		const int32_t slot = resolve_choice(l->d, id, token, k);

		if (slot < 0)
			continue;
		const int32_t rank = lines_rank_of(l, slot);

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

/*
 * Does a rank get a row through its window? `mate`: the place in the group of
 * the rank that carries it.
 */
static __device__ __forceinline__ bool
is_sent(const struct lines *l, const uint32_t *served, int32_t to, int32_t mate)
{
	const int32_t first = l->ch->group * l->ch->group_size;

	if (!serves(served, to))
		return false;
	if (to < first || to >= first + l->ch->group_size)
		return first + mate == l->ch->rank;
	return to == l->ch->rank && !l->ch->row_lines;
}

/* A part of a row, which lies in a buffer, to all that it goes to. */
static __device__ inline void
send_part(const struct lines *l, const struct lines_unit *unit, uint32_t buffer)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const unsigned char *part = lines_buffer(l, buffer);
	const uint32_t *served = l->shared->served[buffer % LINES_BUFFERS];
	const int32_t mate = lines_mate(l, unit->token);

#pragma unroll 1
	for (int32_t i = 1; i <= ch->n_ranks; i++) {
		const int32_t to = after_rank(ch, i);

		if (!is_sent(l, served, to, mate))
			continue;
		unsigned char *row = lines_row(
			l, to, ch->group * ch->group_size + mate, unit->token);

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
	const int32_t mate = lines_mate(l, token);

	fence_acq_rel_sys();
#pragma unroll 1
	for (int32_t i = 1; i < ch->n_ranks; i++) {
		const int32_t to = after_rank(ch, i);

		if (is_sent(l, served, to, mate))
			store_relaxed_sys(lines_flag(l, to, ch->rank, token),
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
	const bool finds = l->warp == LINES_WARPS - 1;
	int64_t id = -1;

	if (finds && (int32_t)l->lane < l->d->in.topk)
		id = id_at(&l->d->in, unit->token, (int32_t)l->lane);
	load_unit(l, unit, buffer);
	if (finds)
		find_ranks(l, unit->token, id,
		           l->shared->served[buffer % LINES_BUFFERS]);
	fence_proxy_async_shared(); /* it may be delivered from there */
}

#endif
