/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The own table: ids are resolved, latched for combine, and stored to every
 * rank part by part, each closed by a record with the epoch.
 */
#ifndef FERRY_DISPATCH_CHUNKS_TABLE_CUH
#define FERRY_DISPATCH_CHUNKS_TABLE_CUH

#include "dispatch_chunks.cuh"

/* How ids and weights can be read; uniform. */
struct id_form {
	const unsigned char *ids, *weights; /* weights NULL: all 1 */
	size_t ids_stride, weights_stride;
	uint32_t id_bytes;
	bool aligned; /* each to its size */
};

static __device__ __forceinline__ struct id_form
id_form_of(const struct ferry_dispatch_in *in)
{
	struct id_form f;

	f.ids = (const unsigned char *)in->topk_ids;
	f.weights = (const unsigned char *)in->topk_weights;
	f.ids_stride = in->ids_stride;
	f.weights_stride = in->weights_stride;
	f.id_bytes = in->id_type == FERRY_ID_INT64 ? 8 : 4;
	f.aligned =
		(((uintptr_t)f.ids | f.ids_stride) & (f.id_bytes - 1)) == 0 &&
		(!f.weights ||
	         (((uintptr_t)f.weights | f.weights_stride) & 3) == 0);
	return f;
}

static __device__ inline uint64_t load_bytes(const unsigned char *from,
                                             uint32_t n)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < n; i++)
		v |= (uint64_t)from[i] << (8 * i);
	return v;
}

static __device__ __forceinline__ int64_t id_at(const struct id_form *f,
                                                int32_t token, int32_t choice)
{
	const unsigned char *at = f->ids + (size_t)token * f->ids_stride +
	                          (size_t)choice * f->id_bytes;

	if (f->aligned)
		return f->id_bytes == 8 ? *(const int64_t *)at
		                        : *(const int32_t *)at;
	const uint64_t v = load_bytes(at, f->id_bytes);

	return f->id_bytes == 8 ? (int64_t)v : (int64_t)(int32_t)(uint32_t)v;
}

static __device__ __forceinline__ float weight_at(const struct id_form *f,
                                                  int32_t token, int32_t choice)
{
	const unsigned char *at = f->weights +
	                          (size_t)token * f->weights_stride +
	                          (size_t)choice * 4;

	if (!f->weights)
		return 1;
	return f->aligned ? *(const float *)at
	                  : __uint_as_float((uint32_t)load_bytes(at, 4));
}

static __device__ __forceinline__ int32_t
id_limit(const struct ferry_cuda_dispatch *a)
{
	return a->in.id_kind == FERRY_ID_SLOT ? a->ch.n_expert_slots
	                                      : a->ch.n_experts;
}

/* Expert slot of an own choice, -1 where it has none. */
static __device__ __forceinline__ int32_t
slot_of_id(const struct ferry_cuda_dispatch *a, int64_t id, int32_t token,
           int32_t choice)
{
	if (id < 0 || id >= id_limit(a))
		return -1;
	if (a->in.id_kind == FERRY_ID_SLOT)
		return (int32_t)id;
	return resolve_expert(&a->ch, &a->placement, (int32_t)id, token,
	                      choice);
}

/* Are there weights other than 1, and do they travel? */
static __device__ __forceinline__ bool
sends_weights(const struct ferry_cuda_dispatch *a)
{
	return a->ch.send_weights &&
	       (a->in.topk_weights || a->ch.routed_scale != 1);
}

static __device__ __forceinline__ uint64_t mix_u64(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static __device__ __forceinline__ struct ferry_table *
table_of(const struct chunks *c, int32_t owner, int32_t source)
{
	return (struct ferry_table *)table_at(&c->a->ch, owner, c->a->slot,
	                                      c->half, source);
}

static __device__ __forceinline__ struct table_part *
table_record_at(const struct chunks *c, int32_t owner, int32_t source,
                int32_t part)
{
	return (struct table_part *)table_part_at(&c->a->ch, owner, c->a->slot,
	                                          c->half, source, part);
}

/* What the threads of a team find in a part; shared memory. */
struct table_found {
	uint64_t content[CHUNKS_WARPS];
	uint32_t bad[CHUNKS_WARPS]; /* lowest entry with a bad id */
};

/* Entries of a part that a thread has in hand: their loads fly together. */
enum { TABLE_STEPS = 8 };

struct table_entries {
	int32_t token[TABLE_STEPS], choice[TABLE_STEPS]; /* token -1: none */
	int32_t slot[TABLE_STEPS];
	float weight[TABLE_STEPS];
	uint32_t bad; /* bit i: the id of entry i is refused */
};

static __device__ __forceinline__ void load_entries(const struct chunks *c,
                                                    const struct id_form *f,
                                                    struct table_entries *e)
{
	const struct ferry_cuda_dispatch *a = c->a;
	int64_t id[TABLE_STEPS];

	e->bad = 0;
#pragma unroll
	for (int32_t i = 0; i < TABLE_STEPS; i++) {
		const bool there = e->token[i] >= 0;

		id[i] = there ? id_at(f, e->token[i], e->choice[i]) : -1;
		e->weight[i] =
			there ? weight_at(f, e->token[i], e->choice[i]) : 0;
	}
#pragma unroll
	for (int32_t i = 0; i < TABLE_STEPS; i++) {
		e->slot[i] = slot_of_id(a, id[i], e->token[i], e->choice[i]);
		e->weight[i] = e->slot[i] < 0 ? 0
		                              : __fmul_rn(e->weight[i],
		                                          a->ch.routed_scale);
		if (e->slot[i] < 0 && id[i] != -1 &&
		    a->ch.bad_id == FERRY_BAD_ID_ERROR)
			e->bad |= 1u << i;
	}
}

/* To one rank's window. */
static __device__ __forceinline__ void
store_entries(const struct chunks *c, const struct table_entries *e,
              int32_t rank)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const int32_t topk = a->in.topk;
	const bool weights = sends_weights(a);
	int32_t *slots = (int32_t *)(table_of(c, rank, a->ch.rank) + 1);
	float *behind = (float *)slots + (size_t)c->n_tokens * topk;

#pragma unroll
	for (int32_t i = 0; i < TABLE_STEPS; i++) {
		const size_t at = (size_t)e->token[i] * topk + e->choice[i];

		if (e->token[i] < 0)
			continue;
		slots[at] = e->slot[i];
		if (weights)
			behind[at] = e->weight[i];
	}
}

/* For combine, and their share of the content. */
static __device__ __forceinline__ uint64_t
latch_entries(const struct chunks *c, const struct table_entries *e)
{
	const struct ferry_cuda_dispatch *a = c->a;
	uint64_t content = 0;

#pragma unroll
	for (int32_t i = 0; i < TABLE_STEPS; i++) {
		const size_t at =
			(size_t)e->token[i] * a->ch.max_topk + e->choice[i];

		if (e->token[i] < 0)
			continue;
		a->op.own_slots[at] = e->slot[i];
		a->op.own_weights[at] = e->weight[i];
		if (a->ch.group_size > 1)
			content +=
				mix_u64(mix_u64(at + 1) ^
			                ((uint64_t)(uint32_t)e->slot[i] << 32 |
			                 __float_as_uint(e->weight[i])));
	}
	return content;
}

/*
 * Entries first, first + step, .. below n of the part that begins with token
 * `from`; returns their content, and in *bad the lowest that is refused.
 */
static __device__ inline uint64_t
send_entries(const struct chunks *c, const struct id_form *f, int32_t from,
             int32_t first, int32_t n, int32_t step, uint32_t *bad)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t topk = c->a->in.topk;
	struct table_entries e;

#pragma unroll
	for (int32_t i = 0; i < TABLE_STEPS; i++) {
		const int32_t at = first + i * step;

		e.token[i] = at < n ? from + at / topk : -1;
		e.choice[i] = at % topk;
	}
	load_entries(c, f, &e);
	for (int32_t i = 1; i <= ch->n_ranks; i++)
		store_entries(c, &e, (ch->rank + i) % ch->n_ranks);
	if (e.bad)
		*bad = min(*bad,
		           (uint32_t)(first + (__ffs((int)e.bad) - 1) * step));
	return latch_entries(c, &e);
}

static __device__ inline void send_head(const struct chunks *c, int32_t thread,
                                        int32_t n_threads)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const bool marked = c->n_asked != c->n_tokens;
	struct ferry_table h = {};

	h.epoch = c->epoch;
	h.placement_hash =
		a->in.id_kind == FERRY_ID_SLOT ? 0 : a->placement.hash;
	h.n_tokens = c->n_tokens;
	h.topk = a->in.topk;
	h.hidden = a->in.hidden;
	h.has_weights = sends_weights(a) && !marked;
	h.mark_token = -1;
	h.mark_choice = -1;
	h.mark_status = marked ? FERRY_RANGE : FERRY_OK;
	h.mark_limit = a->ch.max_tokens + 1;
	h.mark_value = c->n_asked;
	for (int32_t r = thread; r < a->ch.n_ranks; r += n_threads)
		*table_of(c, r, a->ch.rank) = h;
	if (thread == 0)
		*a->op.own_count = c->n_tokens;
}

/* Closes a part at every rank, after all threads of the team stored theirs. */
static __device__ inline void send_record(const struct chunks *c,
                                          const struct team *team, int32_t part,
                                          const struct table_found *found)
{
	const struct ferry_cuda_dispatch *a = c->a;
	struct table_part r = {};
	uint32_t bad = ~0u;

	for (int32_t w = 0; w < team->n_warps; w++) {
		r.content += found->content[w];
		bad = min(bad, found->bad[w]);
	}
	if (bad != ~0u) {
		const int32_t topk = a->in.topk;
		const struct id_form f = id_form_of(&a->in);

		r.mark_status = FERRY_RANGE;
		r.mark_token = part * a->ch.table_chunk + (int32_t)bad / topk;
		r.mark_choice = (int32_t)bad % topk;
		r.mark_limit = id_limit(a);
		r.mark_value = id_at(&f, r.mark_token, r.mark_choice);
	}
	for (int32_t i = team_thread(team); i < a->ch.n_ranks;
	     i += team_threads(team)) {
		/* Farthest first: the own window is quick. */
		const int32_t to = (a->ch.rank + 1 + i) % a->ch.n_ranks;
		struct table_part *at =
			table_record_at(c, to, a->ch.rank, part);
		const uint64_t *from = (const uint64_t *)&r;

		for (int32_t k = 0; k < 5; k++)
			((uint64_t *)at)[k] = from[k];
		store_release_sys(&at->epoch, c->epoch);
	}
}

static __device__ inline void send_part(const struct chunks *c,
                                        const struct team *team, int32_t part,
                                        struct table_found *found)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const int32_t first = part * a->ch.table_chunk;
	const int32_t n_tokens = min(a->ch.table_chunk, c->n_tokens - first);
	const int32_t n = max(n_tokens, 0) * a->in.topk;
	const bool weights = a->in.topk_weights || a->ch.routed_scale != 1;
	const struct id_form f = id_form_of(&a->in);
	/* Weights of 1 and none at all are not the same, as on the CPU. */
	uint64_t content = weights && team_thread(team) == 0 ? 1 : 0;
	uint32_t bad = ~0u;

	if (part == 0)
		send_head(c, team_thread(team), team_threads(team));
	for (int32_t i = team_thread(team); i < n;
	     i += team_threads(team) * TABLE_STEPS)
		content += send_entries(c, &f, first, i, n, team_threads(team),
		                        &bad);
	if (a->ch.group_size > 1)
		content = (uint64_t)sum_warp((int64_t)content);
	bad = __reduce_min_sync(~0u, bad);
	if (team->lane == 0) {
		found->content[team->warp] = content;
		found->bad[team->warp] = bad;
	}
	team_sync(team);
	send_record(c, team, part, found);
	team_sync(team);
}

/* Parts that the table of a batch of n tokens has: the head goes with one. */
static __device__ __forceinline__ int32_t
parts_of(const struct ferry_cuda_channel *ch, int32_t n_tokens)
{
	return max(plan_parts(ch, n_tokens), 1);
}

/* This block's share of the table; all of it stores, nothing waits. */
static __device__ inline void send_table(const struct chunks *c,
                                         const struct team *team,
                                         struct table_found *found)
{
	const int32_t n = parts_of(&c->a->ch, c->n_tokens);

	for (int32_t p = (int32_t)blockIdx.x; p < n; p += (int32_t)gridDim.x)
		send_part(c, team, p, found);
}

#endif
