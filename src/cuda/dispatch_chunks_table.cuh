/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The own table: ids are resolved, latched for combine, and stored to every
 * rank part by part, each closed by a record with the epoch.
 */
#ifndef FERRY_DISPATCH_CHUNKS_TABLE_CUH
#define FERRY_DISPATCH_CHUNKS_TABLE_CUH

#include "dispatch_chunks.cuh"
#include "net_port.cuh"
#include "rows.cuh"

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

static __device__ __noinline__ int32_t
slot_of_expert(const struct ferry_cuda_dispatch *a, int32_t expert,
               int32_t token, int32_t choice)
{
	return resolve_expert(&a->ch, &a->placement, expert, token, choice);
}

/* Expert slot of an own choice, -1 where it has none. */
static __device__ __forceinline__ int32_t
slot_of_id(const struct ferry_cuda_dispatch *a, int64_t id, int32_t token,
           int32_t choice)
{
	if (id < 0 || id >= id_limit(a))
		return -1;
	if (a->in.id_kind == FERRY_ID_SLOT || !a->placement.first)
		return (int32_t)id;
	return slot_of_expert(a, (int32_t)id, token, choice);
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
	const struct ferry_cuda_channel *ch = &c->a->ch;

	if (net_is_far(ch, owner))
		return (struct ferry_table *)net_out_table(ch, c->a->slot,
		                                           c->half);
	return (struct ferry_table *)net_from(
		ch, source, table_at(ch, owner, c->a->slot, c->half, source));
}

static __device__ __forceinline__ struct table_part *
table_record_at(const struct chunks *c, int32_t owner, int32_t source,
                int32_t part)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	if (net_is_far(ch, owner))
		return (struct table_part *)net_out_part(ch, c->a->slot,
		                                         c->half, part);
	return (struct table_part *)net_from(
		ch, source,
		table_part_at(ch, owner, c->a->slot, c->half, source, part));
}

/* Must this rank's copy be stored? All far ranks have one in `out`. */
static __device__ __forceinline__ bool
is_stored_to(const struct ferry_cuda_channel *ch, int32_t rank)
{
	return !net_is_far(ch, rank) || rank == ch->net.first_far;
}

/* What far ranks get of a table that is all in `out`. By one thread. */
static __device__ inline void net_send_table(const struct chunks *c,
                                             int32_t n_parts)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const bool weights = sends_weights(c->a) && c->n_asked == c->n_tokens;
	const uint32_t words =
		(uint32_t)(c->n_tokens * c->a->in.topk) * (weights ? 2 : 1);
	const uint64_t table = net_offset(
		table_at(ch, ch->rank, c->a->slot, c->half, ch->rank));
	const uint64_t part = net_offset(
		table_part_at(ch, ch->rank, c->a->slot, c->half, ch->rank, 0));
	struct wait w =
		wait_begin(ch, FERRY_PHASE_DISPATCH_SEND, c->a->slot, c->epoch);
	struct net_put p;

	p.counter = net_signal(ch, c->a->slot, c->epoch, FERRY_COUNT_TABLE,
	                       ch->rank);
	for (int32_t i = 1; i < ch->n_ranks; i++) {
		p.peer = (ch->rank + i) % ch->n_ranks;
		if (!net_is_far(ch, p.peer))
			continue;
		p.to = table - net_offset(ch->window[ch->rank]);
		p.from = net_out_table(ch, c->a->slot, c->half) - ch->net.out;
		p.bytes = (uint32_t)sizeof(struct ferry_table) + words * 4;
		p.n_signals = net_pieces(ch, ch->table_stride);
		if (!net_put(ch, &w, &p))
			return;
		p.to = part - net_offset(ch->window[ch->rank]);
		p.from = net_out_part(ch, c->a->slot, c->half, 0) - ch->net.out;
		p.bytes = (uint32_t)n_parts * FERRY_TABLE_PART_BYTES;
		p.n_signals = net_table_puts(ch) - p.n_signals;
		if (!net_put(ch, &w, &p))
			return;
	}
}

/* What a team has of a part; shared memory. */
struct table_found {
	uint64_t content[CHUNKS_WARPS];
	uint32_t bad[CHUNKS_WARPS]; /* lowest entry with a bad id */
};

/* One part of the table, as a team prepares it. */
struct table_making {
	struct id_form form;
	int32_t part, first; /* its first token */
	int32_t n;           /* entries */
	uint32_t inverse;    /* of topk */
	int32_t *slots;      /* shared: [PLAN_ENTRIES] */
	float *weights;      /* shared: likewise */
	struct table_found *found;
};

/* An id of more than 32 bits is as good as any that is out of range. */
static __device__ __forceinline__ int32_t narrow_id(int64_t id)
{
	return id == (int32_t)id ? (int32_t)id : INT32_MIN;
}

/*
 * Ids and weights of a part as they are, into shared memory. The loads of a
 * thread fly together where ids are words and rows follow each other. Code
 * that runs once is short on purpose, here and in plan.cuh: a multiprocessor
 * waits for instructions longer than for data.
 */
static __device__ inline void
load_part(const struct team *team, const struct table_making *m, int32_t topk)
{
	const struct id_form *f = &m->form;
	const int32_t step = team_threads(team), thread = team_thread(team);
	const bool dense = f->aligned && f->id_bytes == 4 &&
	                   f->ids_stride == (size_t)topk * 4 &&
	                   (!f->weights || f->weights_stride == f->ids_stride);
	const size_t at = (size_t)m->first * topk;
	const int32_t *ids = (const int32_t *)f->ids + at;
	const float *weights = (const float *)f->weights + at;

#pragma unroll 1
	for (int32_t from = thread; dense && from < m->n; from += step * 8) {
		int32_t v[8];
		float w[8];

#pragma unroll
		for (int32_t j = 0; j < 8; j++) {
			const int32_t i = from + j * step;

			v[j] = i < m->n ? ids[i] : 0;
			w[j] = i < m->n && f->weights ? weights[i] : 1;
		}
#pragma unroll
		for (int32_t j = 0; j < 8; j++)
			if (from + j * step < m->n) {
				m->slots[from + j * step] = v[j];
				m->weights[from + j * step] = w[j];
			}
	}
#pragma unroll 1
	for (int32_t i = thread; i < m->n && !dense; i += step) {
		const int32_t t = divide(i, m->inverse);
		const int32_t k = i - t * topk;

		m->slots[i] = narrow_id(id_at(f, m->first + t, k));
		m->weights[i] = weight_at(f, m->first + t, k);
	}
}

/* Resolves one entry. Returns its share of the content. */
static __device__ __forceinline__ uint64_t
make_entry(const struct chunks *c, const struct table_making *m, int32_t i,
           uint32_t *bad)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const int32_t t = divide(i, m->inverse);
	const int32_t id = m->slots[i];
	const int32_t slot =
		slot_of_id(a, id, m->first + t, i - t * a->in.topk);
	const float weight = m->weights[i];
	const float w = slot < 0 ? 0 : __fmul_rn(weight, a->ch.routed_scale);

	if (slot < 0 && id != -1 && a->ch.bad_id == FERRY_BAD_ID_ERROR)
		*bad = min(*bad, (uint32_t)i);
	m->slots[i] = slot;
	m->weights[i] = w;
	if (a->ch.group_size == 1)
		return 0;
	return mix_u64(mix_u64((uint64_t)m->part << 32 | (uint32_t)(i + 1)) ^
	               ((uint64_t)(uint32_t)slot << 32 | __float_as_uint(w)));
}

static __device__ inline void make_part(const struct chunks *c,
                                        const struct team *team,
                                        const struct table_making *m)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const bool weights = a->in.topk_weights || a->ch.routed_scale != 1;
	/* Weights of 1 and none at all are not the same, as on the CPU. */
	uint64_t content = weights && team_thread(team) == 0 ? 1 : 0;
	uint32_t bad = ~0u;

	load_part(team, m, a->in.topk);
	/* A thread makes the entries that it loaded. */
#pragma unroll 1
	for (int32_t i = team_thread(team); i < m->n; i += team_threads(team))
		content += make_entry(c, m, i, &bad);
	if (a->ch.group_size > 1)
		content = (uint64_t)sum_warp((int64_t)content);
	bad = __reduce_min_sync(~0u, bad);
	if (team->lane == 0) {
		m->found->content[team->warp] = content;
		m->found->bad[team->warp] = bad;
	}
	team_sync(team);
}

/* n words from shared memory to any window. */
static __device__ inline void store_words(void *to, const void *from, int32_t n,
                                          const struct team *team)
{
	const int32_t thread = team_thread(team), step = team_threads(team);
	const int32_t wide = is_aligned(to, 16) ? n / 4 : 0;

#pragma unroll 1
	for (int32_t i = thread; i < wide; i += step)
		store_16((uint4 *)to + i, ((const uint4 *)from)[i]);
#pragma unroll 1
	for (int32_t i = wide * 4 + thread; i < n; i += step)
		((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

/* The part to every rank, the own one last. */
static __device__ inline void store_part(const struct chunks *c,
                                         const struct team *team,
                                         const struct table_making *m)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const int32_t topk = a->in.topk, n_ranks = a->ch.n_ranks;
	const size_t at = (size_t)m->first * topk;

#pragma unroll 1
	for (int32_t i = 1; i <= n_ranks; i++) {
		const int32_t to = (a->ch.rank + i) % n_ranks;
		int32_t *slots = (int32_t *)(table_of(c, to, a->ch.rank) + 1);

		if (!is_stored_to(&a->ch, to))
			continue;
		store_words(slots + at, m->slots, m->n, team);
		if (sends_weights(a))
			store_words(slots + (size_t)c->n_tokens * topk + at,
			            m->weights, m->n, team);
	}
}

/* For combine. */
static __device__ inline void latch_part(const struct chunks *c,
                                         const struct team *team,
                                         const struct table_making *m)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const int32_t topk = a->in.topk;

#pragma unroll 1
	for (int32_t i = team_thread(team); i < m->n; i += team_threads(team)) {
		const int32_t t = divide(i, m->inverse);
		const size_t at = (size_t)(m->first + t) * a->ch.max_topk +
		                  (i - t * topk);

		a->op.own_slots[at] = m->slots[i];
		a->op.own_weights[at] = m->weights[i];
	}
}

/* What others must agree with. 0: nothing, as of an empty batch by default. */
static __device__ __forceinline__ uint64_t
placement_hash_of(const struct chunks *c)
{
	const struct ferry_cuda_placement *p = &c->a->placement;
	const bool named = p->first || c->n_tokens > 0;

	return c->a->in.id_kind == FERRY_ID_SLOT || !named ? 0 : p->hash;
}

static __device__ inline void send_head(const struct chunks *c, int32_t thread,
                                        int32_t n_threads)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const bool marked = c->n_asked != c->n_tokens;
	struct ferry_table h = {};

	h.epoch = c->epoch;
	h.placement_hash = placement_hash_of(c);
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
		if (is_stored_to(&a->ch, r))
			*table_of(c, r, a->ch.rank) = h;
	if (thread == 0)
		*a->op.own_count = c->n_tokens;
}

/* Closes a part at every rank, after all threads of the team stored theirs. */
static __device__ inline void send_record(const struct chunks *c,
                                          const struct team *team,
                                          const struct table_making *m)
{
	const struct ferry_cuda_dispatch *a = c->a;
	struct table_part r = {};
	uint32_t bad = ~0u;

	for (int32_t w = 0; w < team->n_warps; w++) {
		r.content += m->found->content[w];
		bad = min(bad, m->found->bad[w]);
	}
	if (bad != ~0u) {
		const int32_t t = divide((int32_t)bad, m->inverse);

		r.mark_status = FERRY_RANGE;
		r.mark_token = m->first + t;
		r.mark_choice = (int32_t)bad - t * a->in.topk;
		r.mark_limit = id_limit(a);
		r.mark_value = id_at(&m->form, r.mark_token, r.mark_choice);
	}
	for (int32_t i = team_thread(team); i < a->ch.n_ranks;
	     i += team_threads(team)) {
		/* Farthest first: the own window is quick. */
		const int32_t to = (a->ch.rank + 1 + i) % a->ch.n_ranks;
		struct table_part *at =
			table_record_at(c, to, a->ch.rank, m->part);

		if (!is_stored_to(&a->ch, to))
			continue;
		at->mark_status = r.mark_status;
		at->mark_token = r.mark_token;
		at->mark_choice = r.mark_choice;
		at->mark_limit = r.mark_limit;
		at->mark_value = r.mark_value;
		at->content = r.content;
		store_release_sys(&at->epoch, c->epoch);
	}
}

/* Parts that the table of a batch of n tokens has: the head goes with one. */
static __device__ __forceinline__ int32_t
parts_of(const struct ferry_cuda_channel *ch, int32_t n_tokens)
{
	return max(plan_parts(ch, n_tokens), 1);
}

/* One more part has been stored; with the last one, the table can be put. */
static __device__ inline void tell_tabled(const struct chunks *c,
                                          int32_t n_parts)
{
	uint32_t *word = word_at(c, WORD_TABLED);

	if (!NET)
		add_relaxed_gpu(word, 1);
	else if (add_acq_rel_gpu(word, 1) == (uint32_t)n_parts - 1)
		net_send_table(c, n_parts);
}

/*
 * This block's share of the table; all of it stores, nothing waits. `shared`
 * has room for twice PLAN_ENTRIES words.
 */
static __device__ inline void send_table(const struct chunks *c,
                                         const struct team *team,
                                         unsigned char *shared,
                                         struct table_found *found)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t n_parts = parts_of(ch, c->n_tokens);
	struct table_making m;

	if ((int32_t)blockIdx.x >= n_parts)
		return;
	m.form = id_form_of(&c->a->in);
	m.inverse = inverse_of(c->a->in.topk);
	m.slots = (int32_t *)shared;
	m.weights = (float *)(m.slots + PLAN_ENTRIES);
	m.found = found;
	for (m.part = (int32_t)blockIdx.x; m.part < n_parts;
	     m.part += c->n_teams) {
		m.first = m.part * ch->table_chunk;
		m.n = max(min(ch->table_chunk, c->n_tokens - m.first), 0) *
		      c->a->in.topk;
		if (m.part == 0)
			send_head(c, team_thread(team), team_threads(team));
		make_part(c, team, &m);
		store_part(c, team, &m);
		team_sync(team);
		send_record(c, team, &m);
		if (NET)
			team_sync(team);
		if (team_thread(team) == 0)
			tell_tabled(c, n_parts);
		latch_part(c, team, &m);
		/* Then bulk copies may come here. */
		fence_proxy_async_shared();
		team_sync(team);
	}
}

#endif
