/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the tables of all ranks to places: waits for tables, has them counted
 * and placed (plan.cuh), refuses what they give cause to, and writes all
 * outputs but rows and scales.
 */
#ifndef FERRY_DISPATCH_CHUNKS_PLAN_CUH
#define FERRY_DISPATCH_CHUNKS_PLAN_CUH

#include "dispatch_chunks_check.cuh"
#include "dispatch_chunks_recv.cuh"
#include "net_dispatch.cuh"

/* What a team keeps in shared memory beside its rings. */
struct plan_shared {
	struct plan_sums sums;
	struct table_found found;
	uint32_t votes[CHUNKS_WARPS];
};

/* Do all threads of the team say yes? */
static __device__ inline bool team_all(const struct team *team, uint32_t *votes,
                                       bool vote)
{
	const bool mine = __all_sync(~0u, vote);
	bool all = true;

	if (team->lane == 0)
		votes[team->warp] = mine;
	team_sync(team);
	for (int32_t w = 0; w < team->n_warps; w++)
		all &= votes[w] != 0;
	team_sync(team);
	return all;
}

/* Rank whose table stands for a group: the own one for the own. */
static __device__ __forceinline__ int32_t speaker_of(const struct chunks *c,
                                                     int32_t group)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	return group == ch->group ? ch->rank : group * ch->group_size;
}

static __device__ inline bool await_part(const struct chunks *c, int32_t source,
                                         int32_t part)
{
	const uint64_t *flag =
		&table_record_at(c, c->a->ch.rank, source, part)->epoch;
	struct wait w = recv_wait(c);

	if (net_is_far(&c->a->ch, source))
		return net_await(&c->a->ch, &c->a->op, &w, FERRY_COUNT_TABLE,
		                 source, net_table_puts(&c->a->ch));
	while (load_acquire_sys(flag) != c->epoch)
		if (!wait_again(&w, source))
			return false;
	return true;
}

/* Can a table be walked through? */
static __device__ __forceinline__ bool
is_walkable(const struct ferry_cuda_channel *ch, const struct ferry_table *h)
{
	return h->n_tokens >= 0 && h->n_tokens <= ch->max_tokens &&
	       h->topk >= 1 && h->topk <= ch->max_topk &&
	       (!h->has_weights || ch->send_weights);
}

static __device__ inline bool is_odd_head(const struct chunks *c,
                                          const struct ferry_table *h)
{
	const uint64_t own = placement_hash_of(c);

	return !is_walkable(&c->a->ch, h) || h->mark_status ||
	       h->epoch != c->epoch || h->hidden != c->a->in.hidden ||
	       (own && h->placement_hash && h->placement_hash != own);
}

/*
 * A rank's part of its table, by one thread: is it here, and as it should be?
 * *odd: all of them need a closer look. False: the channel has ended.
 */
static __device__ inline bool await_table(const struct chunks *c, int32_t rank,
                                          int32_t part, bool *odd)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t speaker = speaker_of(c, rank / ch->group_size);
	const struct ferry_table *h = table_of(c, ch->rank, rank);
	const struct ferry_table *s = table_of(c, ch->rank, speaker);
	const struct table_part *mine =
		table_record_at(c, ch->rank, rank, part);
	const struct table_part *theirs =
		table_record_at(c, ch->rank, speaker, part);

	const bool alone = rank == speaker; /* nothing to compare with */

	if (!await_part(c, rank, 0) || (!alone && !await_part(c, speaker, 0)))
		return false;
	*odd = is_odd_head(c, h) || h->n_tokens != s->n_tokens ||
	       h->topk != s->topk;
	if (!is_walkable(ch, h) || part >= parts_of(ch, h->n_tokens))
		return true;
	if (part > 0 && !await_part(c, rank, part))
		return false;
	if (*odd)
		return true;
	if (!alone && part > 0 && !await_part(c, speaker, part))
		return false;
	*odd = mine->mark_status || mine->content != theirs->content;
	return true;
}

/* Counts one block when its table is here. False: the channel has ended. */
static __device__ inline bool count_block(const struct chunks *c,
                                          const struct plan *p,
                                          struct plan_shared *shared,
                                          int32_t block)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t group = block / ch->table_parts;
	const int32_t part = block - group * ch->table_parts;
	const int32_t first = part * ch->table_chunk;
	const int32_t thread = team_thread(&p->team);
	bool here = true, odd = false;

	for (int32_t i = thread; i < ch->group_size && here;
	     i += team_threads(&p->team))
		here = await_table(c, group * ch->group_size + i, part, &odd);
	if (!team_all(&p->team, shared->votes, here))
		return false;
	const struct ferry_table *t =
		table_of(c, ch->rank, speaker_of(c, group));
	const int32_t n_tokens = is_walkable(ch, t) ? t->n_tokens : 0;
	const int32_t n = max(min(ch->table_chunk, n_tokens - first), 0);

	if (part == 0 && thread == 0)
		c->a->op.n_tokens[group] = n_tokens;
	odd |= !plan_count(p, block,
	                   (const int32_t *)(t + 1) + (size_t)first * t->topk,
	                   n, n ? t->topk : 1);
	net_count_rows(c, p, group, first, n, n ? t->topk : 1);
	if (odd)
		add_relaxed_gpu(word_at(c, WORD_ODD), 1);
	return true;
}

/* One choice of a token, as it is placed. */
struct entry {
	int32_t group, token, choice;
	struct ferry_cuda_copy copy;
	float weight;
};

static __device__ inline void
write_entry(const struct chunks *c, const struct plan *p, const struct entry *e)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_dispatch_out *out = &c->a->out;
	const bool here = e->copy.slot >= 0;
	const int64_t view =
		ch->layout == FERRY_TOKEN
			? view_row_of(ch, c->half, e->group, e->token)
			: 0;
	const int64_t at = view * ch->max_topk + e->choice;

	if (out->token_slots)
		out->token_slots[at] = e->copy.slot;
	if (out->token_weights)
		out->token_weights[at] = here ? e->weight : 0;
	if (!here)
		return;
	const int64_t first = ch->layout == FERRY_EXPERT_PADDED
	                              ? e->copy.slot * ch->padded_rows
	                              : p->offset[e->copy.slot];
	const int64_t row = first + e->copy.index;

	if (out->row_expert_slot)
		out->row_expert_slot[row] = e->copy.slot;
	if (out->row_source)
		out->row_source[row] = carrier_of(ch, e->group, e->token);
	if (out->row_token)
		out->row_token[row] = e->token;
	if (out->row_weight)
		out->row_weight[row] = e->weight;
	if (out->index)
		out->index[row] = view;
}

/* A block of a table that is being placed. */
struct placing {
	const struct plan *p;
	const float *weights; /* [tokens][topk]; NULL: all 1 */
	int32_t group, first; /* first token */
	int32_t n, topk;      /* entries, max_topk to each token; of the call */
	uint32_t inverse;     /* of max_topk */
	bool told;            /* somebody wants more than copies */
};

static __device__ inline bool wants_entries(const struct ferry_cuda_dispatch *a)
{
	const struct ferry_dispatch_out *o = &a->out;

	return o->token_slots || o->token_weights || o->row_expert_slot ||
	       o->row_source || o->row_token || o->row_weight || o->index;
}

/* Entry i, with max_topk entries to a token. */
static __device__ __forceinline__ void
place_entry(const struct chunks *c, const struct placing *b, int32_t i)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_cuda_op *op = &c->a->op;
	const int32_t t = divide(i, b->inverse);
	const int32_t k = i - t * ch->max_topk;
	const int32_t token = b->first + t;
	const size_t at =
		((size_t)b->group * ch->max_tokens + b->first) * ch->max_topk +
		i;
	bool dropped = false;
	struct entry e = {b->group, token, k, {-1, 0}, 1};

	if (k < b->topk)
		e.copy = plan_place(b->p, t * b->topk + k, &dropped);
	op->copies[at] = e.copy;
	if (op->dropped && b->group == ch->group)
		op->dropped[(size_t)b->first * ch->max_topk + i] = dropped;
	if (!op->weights && !b->told)
		return;
	if (b->weights && k < b->topk)
		e.weight = b->weights[(size_t)token * b->topk + k];
	if (op->weights)
		op->weights[at] = e.weight;
	if (b->told)
		write_entry(c, b->p, &e);
}

static __device__ inline void place_block(const struct chunks *c,
                                          const struct plan *p, int32_t block)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t group = block / ch->table_parts;
	const int32_t n_tokens = c->a->op.n_tokens[group];
	const struct ferry_table *t =
		table_of(c, ch->rank, speaker_of(c, group));
	struct placing b;

	b.p = p;
	b.group = group;
	b.first = (block - group * ch->table_parts) * ch->table_chunk;
	const int32_t n = min(ch->table_chunk, n_tokens - b.first);

	b.n = n * ch->max_topk;
	b.topk = t->topk;
	b.inverse = inverse_of(ch->max_topk);
	b.told = wants_entries(c->a);
	b.weights = t->has_weights
	                    ? (const float *)(t + 1) + (size_t)n_tokens * b.topk
	                    : NULL;
	plan_recall(p, block, n * b.topk);
#pragma unroll 1
	for (int32_t i = team_thread(&p->team); i < b.n;
	     i += team_threads(&p->team))
		place_entry(c, &b, i);
	if (NET && group == ch->group) {
		team_sync(&p->team); /* it is known what is dropped */
		net_count_back(c, &p->team, b.first, n);
	}
}

/* Rows of each own slot, for whoever needs them in this launch. */
static __device__ __forceinline__ uint32_t *counts_at(const struct chunks *c)
{
	return (uint32_t *)((unsigned char *)c->a->op.scratch +
	                    2 * N_WORDS * WORD_BYTES);
}

/* After a failure nothing has arrived. n threads. */
static __device__ inline void clear_counts(const struct ferry_cuda_dispatch *a,
                                           int32_t thread, int32_t n)
{
	const struct ferry_dispatch_out *out = &a->out;

	fence_sc_gpu();
	for (int32_t s = thread; s <= a->ch.own_expert_slots; s += n) {
		if (out->counts && s < a->ch.own_expert_slots)
			out->counts[s] = 0;
		if (out->offsets)
			out->offsets[s] = 0;
	}
	if (thread == 0 && out->n_rows)
		*out->n_rows = 0;
	if (thread == 0 && out->n_dropped)
		*out->n_dropped = 0;
}

/* Totals, by the first block's team. False: a rank lacks room. */
static __device__ inline bool publish(const struct chunks *c,
                                      const struct plan *p)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_dispatch_out *out = &c->a->out;
	const bool padded = ch->layout == FERRY_EXPERT_PADDED;
	const int32_t thread = team_thread(&p->team);
	int64_t need = 0;
	const int32_t lacking = plan_lacking(p, &need);

	if (lacking < ch->n_ranks && ch->overflow == FERRY_OVERFLOW_ERROR) {
		struct ferry_cuda_record r = refusal(c, FERRY_OVERFLOW, lacking,
		                                     FERRY_CUDA_NO_ROOM, need);
		const int64_t room = padded ? ch->padded_rows : ch->recv_rows;

		r.limit = (int32_t)min(room + 1, (int64_t)INT32_MAX);
		if (thread == 0)
			fail(ch, &r);
		return false;
	}
	for (int32_t s = thread; s <= ch->own_expert_slots;
	     s += team_threads(&p->team)) {
		c->a->op.offsets[s] = p->offset[s];
		if (out->offsets)
			out->offsets[s] =
				padded ? s * ch->padded_rows : p->offset[s];
		if (s == ch->own_expert_slots)
			break;
		counts_at(c)[s] = p->keep[p->own + s];
		if (out->counts)
			out->counts[s] = (int32_t)p->keep[p->own + s];
	}
	if (thread == 0 && out->n_rows)
		*out->n_rows = p->sums->n_rows;
	if (thread == 0 && out->n_dropped)
		*out->n_dropped = p->sums->n_dropped;
	return true;
}

/* One thread waits for all of its team. */
static __device__ inline bool team_await(const struct chunks *c,
                                         const struct team *team,
                                         struct plan_shared *shared,
                                         enum chunks_word word, uint32_t n)
{
	bool here = true;

	if (team_thread(team) == 0)
		here = await_word(c, word, n);
	return team_all(team, shared->votes, here);
}

/* All that this team did is done. */
static __device__ inline void team_tell(const struct chunks *c,
                                        const struct team *team,
                                        enum chunks_word word)
{
	team_sync(team);
	if (team_thread(team) == 0)
		add_acq_rel_gpu(word_at(c, word), 1);
}

/* The blocks of this CTA. False: the channel has ended. */
static __device__ inline bool plan_own_blocks(const struct chunks *c,
                                              const struct plan *p,
                                              struct plan_shared *shared)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;

	for (int32_t b = p->begin; b < p->end; b++)
		if (!count_block(c, p, shared, b))
			return false;
	team_tell(c, &p->team, WORD_COUNTED);
	if (!team_await(c, &p->team, shared, WORD_COUNTED,
	                (uint32_t)p->n_owners))
		return false;
	if (load_relaxed_gpu(word_at(c, WORD_ODD))) {
		if (p->begin == 0 && team_thread(&p->team) == 0)
			refuse_tables(*c);
		return false;
	}
	plan_total(p);
	plan_keep(p);
	if (p->begin == 0 && !publish(c, p))
		return false;
	for (int32_t b = p->begin; b < p->end; b++) {
		const int32_t g = b / ch->table_parts;
		const int32_t part = b - g * ch->table_parts;

		if (part >= plan_parts(ch, c->a->op.n_tokens[g]))
			continue;
		place_block(c, p, b);
		if (b + 1 < p->end)
			plan_next(p, b);
	}
	team_tell(c, &p->team, WORD_PLACED);
	/* A failure that was not there yet clears the counts after this. */
	if (p->begin == 0) {
		fence_sc_gpu();
		if (is_broken(ch))
			clear_counts(c->a, team_thread(&p->team),
			             team_threads(&p->team));
	}
	return true;
}

/*
 * Everything but rows: when it returns true, on any block, all copies, counts
 * and offsets are there.
 */
static __device__ inline bool plan_all(const struct chunks *c,
                                       const struct plan *p,
                                       struct plan_shared *shared)
{
	if (p->begin < p->end && !plan_own_blocks(c, p, shared))
		return false;
	return team_await(c, &p->team, shared, WORD_PLACED,
	                  (uint32_t)p->n_owners);
}

/* Entries that no row has. */
static __device__ inline void fill_rows(const struct chunks *c, uint32_t thread,
                                        uint32_t n_threads)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_dispatch_out *out = &c->a->out;
	const bool padded = ch->layout == FERRY_EXPERT_PADDED;
	const int32_t n = ch->own_expert_slots;

	if (!out->row_expert_slot && !out->row_source && !out->row_token &&
	    !out->row_weight && !out->index)
		return;
		/* A slot to each warp; what is behind the last one to all. */
#pragma unroll 1
	for (int32_t s = min((int32_t)(thread / 32), n); s <= n;
	     s = s < n ? min(s + (int32_t)(n_threads / 32), n) : n + 1) {
		const int64_t first =
			padded ? s * ch->padded_rows : c->a->op.offsets[s];
		const int64_t next = s == n   ? ch->recv_rows
		                     : padded ? (s + 1) * ch->padded_rows
		                              : c->a->op.offsets[s + 1];
		const int64_t used = s == n ? 0 : counts_at(c)[s];
		const uint32_t from = s == n ? thread : thread % 32;
		const uint32_t step = s == n ? n_threads : 32;

#pragma unroll 1
		for (int64_t i = first + used + from; i < next; i += step) {
			if (out->row_expert_slot)
				out->row_expert_slot[i] = -1;
			if (out->row_source)
				out->row_source[i] = -1;
			if (out->row_token)
				out->row_token[i] = -1;
			if (out->row_weight)
				out->row_weight[i] = 0;
			if (out->index)
				out->index[i] = -1;
		}
	}
}

/* Rows of the view that are not of this batch. */
static __device__ inline void fill_view(const struct chunks *c, uint32_t thread,
                                        uint32_t n_threads)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_dispatch_out *out = &c->a->out;
	const uint32_t rows = 2 * (uint32_t)ch->n_ranks * (uint32_t)ch->cap;

	if (!out->token_slots && !out->token_weights)
		return;
	for (uint32_t i = thread; i < rows; i += n_threads) {
		const int32_t place = (int32_t)(i / (uint32_t)ch->cap);
		const int32_t row = (int32_t)(i % (uint32_t)ch->cap);
		const int32_t rank = place % ch->n_ranks;
		const int32_t n = c->a->op.n_tokens[rank / ch->group_size];

		if ((uint32_t)(place / ch->n_ranks) == c->half &&
		    row < carried_by(ch, rank, n))
			continue;
		for (int32_t k = 0; k < ch->max_topk; k++) {
			const int64_t at = (int64_t)i * ch->max_topk + k;

			if (out->token_slots)
				out->token_slots[at] = -1;
			if (out->token_weights)
				out->token_weights[at] = 0;
		}
	}
}

#endif
