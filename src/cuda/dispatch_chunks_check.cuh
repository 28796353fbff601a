/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The closer look at tables of which one is odd: in the order of
 * ferry_cpu_tables_check, so that every rank refuses the same thing and names
 * the same rank. By one thread; all tables are here.
 */
#ifndef FERRY_DISPATCH_CHUNKS_CHECK_CUH
#define FERRY_DISPATCH_CHUNKS_CHECK_CUH

#include "dispatch_chunks_table.cuh"
#include "table_form.cuh"

static __device__ inline struct ferry_cuda_record
refusal(const struct chunks *c, int32_t status, int32_t rank, int32_t detail,
        int64_t value)
{
	const struct wait w = recv_wait(c);
	struct ferry_cuda_record r = record_of(status, rank, &w, detail);

	r.value = value;
	return r;
}

/* True, and the record, when the table of a rank is malformed. */
static __device__ inline bool is_malformed(const struct chunks *c, int32_t rank,
                                           struct ferry_cuda_record *r)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_table *h = table_of(c, ch->rank, rank);
	const int32_t *slots = (const int32_t *)(h + 1);

	*r = refusal(c, FERRY_PROTO, rank, FERRY_CUDA_BAD_TABLE, 0);
	r->choice = wrong_field(ch, h, c->epoch, &r->value);
	if (r->choice >= 0)
		return true;
	for (size_t i = 0; i < (size_t)h->n_tokens * h->topk; i++) {
		if (slots[i] >= -1 && slots[i] < ch->n_expert_slots)
			continue;
		r->choice = FERRY_TABLE_SLOT;
		r->value = slots[i];
		return true;
	}
	return false;
}

/* What the sender itself found wrong with its batch. */
static __device__ inline bool is_marked(const struct chunks *c, int32_t rank,
                                        struct ferry_cuda_record *r)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const struct ferry_table *h = table_of(c, ch->rank, rank);

	if (h->mark_status) {
		*r = refusal(c, h->mark_status, rank, FERRY_CUDA_BAD_COUNT,
		             h->mark_value);
		r->limit = h->mark_limit;
		return true;
	}
	for (int32_t i = 0; i < parts_of(ch, h->n_tokens); i++) {
		const struct table_part *p =
			table_record_at(c, ch->rank, rank, i);

		if (!p->mark_status)
			continue;
		*r = refusal(c, p->mark_status, rank, FERRY_CUDA_BAD_ID,
		             p->mark_value);
		r->token = p->mark_token;
		r->choice = p->mark_choice;
		r->limit = p->mark_limit;
		return true;
	}
	return false;
}

/* A difference to what rank `with` has. */
static __device__ inline bool blame_other(struct ferry_cuda_record *r,
                                          int32_t detail, int32_t with,
                                          int64_t value, int64_t other)
{
	r->detail = detail;
	r->limit = with;
	r->value = value;
	r->other = other;
	return true;
}

/*
 * One hidden size; one placement of those that resolve ids, `with` being the
 * first of them, -1 so far; equal mates.
 */
static __device__ inline bool is_unequal(const struct chunks *c, int32_t rank,
                                         int32_t *with,
                                         struct ferry_cuda_record *r)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = rank - rank % ch->group_size;
	const struct ferry_table *t = table_of(c, ch->rank, rank);
	const struct ferry_table *m = table_of(c, ch->rank, first);
	const int32_t hidden = table_of(c, ch->rank, 0)->hidden;

	*r = refusal(c, FERRY_MISMATCH, rank, FERRY_CUDA_BAD_HIDDEN, 0);
	if (t->hidden != hidden)
		return blame_other(r, FERRY_CUDA_BAD_HIDDEN, 0, t->hidden,
		                   hidden);
	if (t->placement_hash && *with < 0)
		*with = rank;
	const uint64_t hash =
		*with < 0 ? 0 : table_of(c, ch->rank, *with)->placement_hash;

	if (t->placement_hash && t->placement_hash != hash)
		return blame_other(r, FERRY_CUDA_BAD_PLACEMENT, *with,
		                   (int64_t)t->placement_hash, (int64_t)hash);
	if (t->n_tokens != m->n_tokens)
		return blame_other(r, FERRY_CUDA_BAD_MATE_COUNT, first,
		                   t->n_tokens, m->n_tokens);
	if (t->topk != m->topk)
		return blame_other(r, FERRY_CUDA_BAD_MATE_TOPK, first, t->topk,
		                   m->topk);
	for (int32_t i = 0; i < parts_of(ch, t->n_tokens); i++)
		if (table_record_at(c, ch->rank, rank, i)->content !=
		    table_record_at(c, ch->rank, first, i)->content)
			return blame_other(r, FERRY_CUDA_BAD_MATE, first, first,
			                   0);
	return false;
}

/*
 * Fails with the first reason there is. Without one this look and the quick one
 * disagree: a fault of the engine, and an end all the same, since nobody here
 * places rows any more.
 */
static __device__ __noinline__ void refuse_tables(const struct chunks c)
{
	const struct ferry_cuda_channel *ch = &c.a->ch;
	struct ferry_cuda_record r;
	int32_t with = -1;
	bool bad = false;

	for (int32_t i = 0; i < ch->n_ranks && !bad; i++)
		bad = is_malformed(&c, i, &r);
	for (int32_t i = 0; i < ch->n_ranks && !bad; i++)
		bad = is_marked(&c, i, &r);
	for (int32_t i = 0; i < ch->n_ranks && !bad; i++)
		bad = is_unequal(&c, i, &with, &r);
	if (!bad)
		r = refusal(&c, FERRY_INTERNAL, ch->rank, FERRY_CUDA_ODD_TABLES,
		            0);
	fail(ch, &r);
}

#endif
