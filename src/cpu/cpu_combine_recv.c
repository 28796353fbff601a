/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine_recv on the CPU.
 *
 * Does
 *	Writes the weighted sum of each own token's expert outputs, in an order
 *	that does not depend on arrival: EXACT by choice, REDUCED by rank,
 *	PER_HOST by rank of the own host and by other host.
 * Buffers
 *	back[token][j], own window: written by the experts' ranks, read here.
 *	PER_HOST: sums of other hosts in the window of the token's carrier.
 *	y of this rank: what its own experts computed for its own tokens.
 *	Own table and latched weights: which rows will come, and their weights.
 * Steps
 *	1. from the own table: how many rows each rank sends
 *	2. each token, ascending: counter BACK[r] of each of its ranks, acquire,
 *	   partner combine_send 1; then one sum
 *	3. flush: the sources of the own puts have been read
 * Flags
 *	Own targets are moved on only after all has come.
 * Threads
 *	The caller's.
 * Waits
 *	Bounded by timeout_ms; a failure breaks the channel on all ranks.
 * Cost
 *	Each row is read once; the output is written once.
 */
#include <string.h>

#include "cpu_combine.h"

struct recv {
	struct ferry_moe *moe;
	struct cpu_op *op;
	const struct ferry_combine_out *out;
	struct cpu_flow flow;
	const int32_t *slots;             /* own table's */
	const struct ferry_arrival *next; /* own arrivals, by token */
	const struct ferry_arrival *end;
	uint64_t n_rows; /* that were summed */
};

/* What goes into one sum. */
struct terms {
	int32_t n;
	const void *rows[FERRY_SUM_MAX];
	float weights[FERRY_SUM_MAX];
};

static const int32_t *slots_of(const struct recv *r, int32_t token)
{
	return r->slots + (size_t)token * (size_t)r->op->topk;
}

/* Does a choice come back: not masked, and its rank had room? */
static bool comes_back(const struct recv *r, int32_t token, int32_t choice)
{
	const size_t topk = (size_t)r->op->topk;

	if (slots_of(r, token)[choice] < 0)
		return false;
	return !r->op->dropped ||
	       !r->op->dropped[(size_t)token * topk + (size_t)choice];
}

static int32_t rank_of(const struct recv *r, int32_t token, int32_t choice)
{
	return r->moe->shape.slot_rank[slots_of(r, token)[choice]];
}

/* Has a rank kept any choice of a token? */
static bool rank_answers(const struct recv *r, int32_t token, int32_t rank)
{
	for (int32_t k = 0; k < r->op->topk; k++)
		if (comes_back(r, token, k) && rank_of(r, token, k) == rank)
			return true;
	return false;
}

static void count_exact(const struct recv *r, int32_t token)
{
	for (int32_t k = 0; k < r->op->topk; k++)
		if (comes_back(r, token, k))
			r->moe->engine->sources[rank_of(r, token, k)].total++;
}

/* Has any rank of a host? */
static bool host_answers(const struct recv *r, int32_t token, int32_t host)
{
	const int32_t *of = r->moe->shape.hosts.of;

	for (int32_t k = 0; k < r->op->topk; k++)
		if (comes_back(r, token, k) && of[rank_of(r, token, k)] == host)
			return true;
	return false;
}

/* Is there something of a term? */
static bool answers(const struct recv *r, int32_t token,
                    const struct cpu_terms *terms, int32_t i)
{
	return terms->rank[i] < 0 ? host_answers(r, token, terms->host[i])
	                          : rank_answers(r, token, terms->rank[i]);
}

/* Rank of the own group that a token's sums of other hosts land with. */
static int32_t carrier_of(const struct recv *r, int32_t token)
{
	const struct ferry_shape *shape = &r->moe->shape;

	return ferry_shape_carrier(shape, ferry_shape_group(shape, shape->rank),
	                           token);
}

/* Where a term comes from. */
static int32_t source_of(const struct recv *r, int32_t token,
                         const struct cpu_terms *terms, int32_t i)
{
	if (terms->rank[i] >= 0)
		return terms->rank[i];
	return cpu_flow_sums(&r->flow, terms->host[i], carrier_of(r, token));
}

static void count_reduced(const struct recv *r, int32_t token)
{
	struct cpu_terms terms;

	ferry_cpu_terms_of(&r->moe->shape, slots_of(r, token), r->op->topk,
	                   r->moe->shape.rank, &terms);
	for (int32_t i = 0; i < terms.n; i++)
		if (answers(r, token, &terms, i))
			r->moe->engine->sources[source_of(r, token, &terms, i)]
				.total++;
}

/* PER_HOST: every rank of another host that serves a token sends one word. */
static void count_words(const struct recv *r, int32_t token)
{
	const struct ferry_hosts *hosts = &r->moe->shape.hosts;
	const int32_t *slots = slots_of(r, token);

	for (int32_t k = 0; k < r->op->topk; k++)
		if (slots[k] >= 0 &&
		    ferry_hosts_far(hosts, rank_of(r, token, k)))
			r->moe->engine->sources[rank_of(r, token, k)].total = 1;
}

static void count_sources(const struct recv *r)
{
	const bool exact = r->moe->shape.combine == FERRY_EXACT;
	const bool adds = ferry_shape_adds(&r->moe->shape);

	for (int32_t t = 0; t < r->op->n_tokens; t++)
		exact ? count_exact(r, t) : count_reduced(r, t);
	for (int32_t t = 0; adds && t < r->op->n_tokens; t++)
		count_words(r, t);
	r->moe->engine->sources[r->moe->shape.rank].total = 0;
}

/* The row of a choice that another rank has served. */
static const char *choice_row(const struct recv *r, int32_t token,
                              int32_t choice)
{
	return r->moe->engine->window +
	       cpu_back_place(r->moe, r->op->slot, rank_of(r, token, choice),
	                      token, choice);
}

/* In the window of a rank. */
static const char *back_row(const struct recv *r, int32_t owner, int32_t token,
                            int32_t j)
{
	return r->moe->engine->peers[owner].base +
	       ferry_window_back(&r->moe->window, &r->moe->shape, r->op->slot,
	                         token, j);
}

/* The arrival of an own token at this rank itself, or NULL. */
static const struct ferry_arrival *own_arrival(struct recv *r, int32_t token)
{
	if (r->next == r->end || r->next->token != token)
		return NULL;
	return r->next++;
}

static float weight_of(const struct recv *r, int32_t token, int32_t choice)
{
	const size_t topk = (size_t)r->op->topk;

	if (!r->op->weights || r->moe->shape.weight_use == FERRY_WEIGHT_INPUT)
		return 1;
	return r->op->weights[(size_t)token * topk + (size_t)choice];
}

/* Each rank sends its rows in the order in which they are asked for here. */
static enum ferry_status take_next(struct recv *r, int32_t number)
{
	struct cpu_source *source = &r->moe->engine->sources[number];

	return cpu_flow_take(&r->flow, number, source->taken++);
}

/* Rows of all choices, in choice order. */
static enum ferry_status gather_exact(struct recv *r, int32_t token,
                                      struct terms *terms)
{
	const struct ferry_arrival *own = own_arrival(r, token);
	const struct ferry_copy *copy =
		own ? r->op->route.copies + own->first_copy : NULL;

	terms->n = 0;
	for (int32_t k = 0; k < r->op->topk; k++) {
		if (!comes_back(r, token, k))
			continue;
		const int32_t rank = rank_of(r, token, k);

		terms->weights[terms->n] = weight_of(r, token, k);
		if (rank == r->moe->shape.rank) {
			terms->rows[terms->n++] =
				cpu_expert_row(r->moe, r->op, copy++);
			continue;
		}
		FERRY_TRY(take_next(r, rank));
		terms->rows[terms->n++] = choice_row(r, token, k);
	}
	return FERRY_OK;
}

/* Parts of ranks, this rank's own among them, and sums of hosts. */
static enum ferry_status gather_reduced(struct recv *r, int32_t token,
                                        struct terms *terms)
{
	const int32_t self = r->moe->shape.rank;
	const struct ferry_arrival *own = own_arrival(r, token);
	struct cpu_terms all;

	ferry_cpu_terms_of(&r->moe->shape, slots_of(r, token), r->op->topk,
	                   self, &all);
	terms->n = 0;
	for (int32_t i = 0; i < all.n; i++) {
		if (!answers(r, token, &all, i))
			continue;
		terms->weights[terms->n] = 1;
		if (all.rank[i] == self) {
			terms->rows[terms->n++] = ferry_cpu_part_row(
				r->moe, r->op, own, r->moe->engine->part);
			continue;
		}
		const int32_t owner =
			all.rank[i] < 0 ? carrier_of(r, token) : self;

		FERRY_TRY(take_next(r, source_of(r, token, &all, i)));
		terms->rows[terms->n++] = back_row(
			r, owner, token, cpu_term_place(&all, i, owner));
	}
	return FERRY_OK;
}

static enum ferry_status sum_token(struct recv *r, int32_t token)
{
	const struct ferry_shape *shape = &r->moe->shape;
	const struct ferry_combine_out *out = r->out;
	const size_t t = (size_t)token;
	const char *residual = out->residual;
	struct terms terms;

	if (residual)
		residual += t * out->residual_stride;
	FERRY_TRY(shape->combine == FERRY_EXACT
	                  ? gather_exact(r, token, &terms)
	                  : gather_reduced(r, token, &terms));
	r->moe->engine->kernels->sum((char *)out->out + t * out->out_stride,
	                             shape->out_dtype, terms.rows,
	                             shape->combine_dtype, terms.weights,
	                             terms.n, residual, (size_t)r->op->hidden);
	return FERRY_OK;
}

static enum ferry_status sum_tokens(struct recv *r)
{
	for (int32_t t = 0; t < r->op->n_tokens; t++)
		FERRY_TRY(sum_token(r, t));
	return FERRY_OK;
}

static void count(const struct recv *r)
{
	struct ferry_moe_stats *stats = &r->moe->stats;

	stats->n_combines++;
	for (int32_t t = 0; t < r->op->n_tokens; t++)
		for (int32_t k = 0; k < r->op->topk; k++)
			if (comes_back(r, t, k))
				stats->logical_bytes_combine +=
					r->op->back_bytes;
}

/* Where rows of the others begin. */
static void begin_rows(const struct recv *r)
{
	const struct ferry_shape *shape = &r->moe->shape;
	int64_t *back = r->moe->engine->back;
	int64_t next = 0;

	memset(back, 0, (size_t)shape->n_ranks * sizeof(*back));
	for (int32_t t = 0; t < r->op->n_tokens; t++)
		for (int32_t k = 0; k < r->op->topk; k++)
			if (slots_of(r, t)[k] >= 0)
				back[rank_of(r, t, k)]++;
	back[shape->rank] = 0;
	for (int32_t rank = 0; rank < shape->n_ranks; rank++) {
		const int64_t n = back[rank];

		back[rank] = next;
		next += n;
	}
}

static void begin(struct recv *r)
{
	const struct ferry_shape *shape = &r->moe->shape;
	const struct ferry_route *route = &r->op->route;
	const int32_t group = ferry_shape_group(shape, shape->rank);

	r->slots = ferry_table_slots_const(cpu_own_table(r->moe, r->op));
	r->next = route->arrivals + route->group_first[group];
	r->end = route->arrivals + route->group_first[group + 1];
	ferry_cpu_flow_begin(&r->flow, r->moe, r->op, FERRY_PHASE_COMBINE_RECV);
	count_sources(r);
	if (cpu_back_in_a_row(r->moe))
		begin_rows(r);
}

enum ferry_status ferry_cpu_combine_recv(struct ferry_moe *moe, int32_t slot,
                                         const struct ferry_combine_out *out,
                                         struct CUstream_st *stream)
{
	struct recv r = {.moe = moe, .op = &moe->engine->ops[slot], .out = out};

	(void)stream;
	begin(&r);
	FERRY_TRY(sum_tokens(&r));
	FERRY_TRY(ferry_cpu_flow_finish_recv(&r.flow));
	FERRY_TRY(ferry_segment_flush(moe->segment));
	count(&r);
	return FERRY_OK;
}
