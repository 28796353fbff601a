/* SPDX-License-Identifier: Apache-2.0 */
/* See raw_rows.h. */
#include "raw_rows.h"

#include <stdlib.h>

#include "alloc.h"
#include "core/bits.h"
#include "proto/table.h"

enum { SCALE_ALIGN = 16 };

static const int32_t *ids_of(const struct raw_rows *r, int32_t rank,
                             int32_t token)
{
	return r->ids + ((size_t)rank * (size_t)r->c->tokens + (size_t)token) *
	                        (size_t)r->c->topk;
}

static bool serves(const struct raw_rows *r, const int32_t *ids, int32_t rank)
{
	for (int32_t k = 0; k < r->c->topk; k++)
		if (ids[k] >= 0 && bench_owner(r->c, ids[k]) == rank)
			return true;
	return false;
}

/* Rank `rank` among those that serve a token, without the token's own. */
static int32_t ordinal(const struct raw_rows *r, const int32_t *ids,
                       int32_t rank, int32_t own)
{
	int32_t n = 0;

	for (int32_t s = 0; s < rank; s++)
		n += s != own && serves(r, ids, s);
	return n;
}

/* Rows that may come back for a token. */
static int32_t back_rows(const struct bench_case *c)
{
	return c->combine == FERRY_EXACT || c->topk < c->n_ranks
	               ? c->topk
	               : c->n_ranks - 1;
}

/* One token's rows of a rank's dispatch or, from there back, of combine. */
static int64_t list_token(const struct raw_rows *r, int phase, int32_t owner,
                          int32_t expert_rank, int32_t token, size_t *to)
{
	const struct bench_case *c = r->c;
	const int32_t *ids = ids_of(r, owner, token);
	const size_t row = r->row_bytes[phase];
	const size_t first = (size_t)token * (size_t)back_rows(c);
	int64_t n = 0;

	if (!serves(r, ids, expert_rank))
		return 0;
	if (phase == BENCH_DISPATCH) {
		to[n++] = (size_t)owner * r->room[BENCH_DISPATCH] +
		          r->table_bytes + (size_t)token * row;
		return n;
	}
	if (c->combine != FERRY_EXACT) {
		to[n++] =
			(first + (size_t)ordinal(r, ids, expert_rank, owner)) *
			row;
		return n;
	}
	for (int32_t k = 0; k < c->topk; k++)
		if (ids[k] >= 0 && bench_owner(c, ids[k]) == expert_rank)
			n++; /* see line_up */
	return n;
}

/* EXACT: what a rank sends back lies in a row, behind that of lower ranks. */
static void line_up(const struct raw_rows *r, int32_t expert_rank,
                    int32_t owner, size_t *to, int64_t n)
{
	const struct bench_case *c = r->c;
	const int32_t n_ids = bench_tokens(c, owner) * c->topk;
	const int32_t *ids = ids_of(r, owner, 0);
	size_t first = 0;

	for (int32_t i = 0; i < n_ids; i++) {
		const int32_t rank =
			ids[i] < 0 ? owner : bench_owner(c, ids[i]);

		first += rank < expert_rank && rank != owner;
	}
	for (int64_t i = 0; i < n; i++)
		to[i] = (first + (size_t)i) * r->row_bytes[BENCH_COMBINE];
}

int64_t raw_rows_list(const struct raw_rows *r, int phase, int32_t source,
                      int32_t destination, size_t *to)
{
	const bool there = phase == BENCH_DISPATCH;
	const int32_t owner = there ? source : destination;
	int64_t n = 0;

	for (int32_t t = 0; t < bench_tokens(r->c, owner); t++) {
		size_t some[64]; /* topk at most */
		const int64_t m = list_token(
			r, phase, owner, there ? destination : source, t, some);

		for (int64_t i = 0; to && i < m; i++)
			to[n + i] = some[i];
		n += m;
	}
	if (to && !there && r->c->combine == FERRY_EXACT)
		line_up(r, source, destination, to, n);
	return n;
}

static void make_routing(struct raw_rows *r)
{
	const struct bench_case *c = r->c;
	const size_t n = (size_t)c->tokens * (size_t)c->topk;
	float *weights = alloc_or_exit(n, sizeof(*weights));

	r->ids = alloc_or_exit((size_t)c->n_ranks * n, sizeof(*r->ids));
	for (int32_t a = 0; a < c->n_ranks; a++)
		bench_make_routing(c, a, BENCH_TIMED_STEP,
		                   r->ids + (size_t)a * n, weights);
	free(weights);
}

static void list_all(struct raw_rows *r)
{
	const int32_t n = r->c->n_ranks;

	for (int p = 0; p < RAW_PHASES; p++)
		for (int32_t i = 0; i < n * n; i++) {
			if (i / n != i % n)
				r->n[p][i] =
					raw_rows_list(r, p, i / n, i % n, NULL);
			if (r->n[p][i] > r->most)
				r->most = r->n[p][i];
		}
	for (int p = 0; p < RAW_PHASES; p++) {
		r->to[p] = alloc_or_exit((size_t)n * (size_t)r->most,
		                         sizeof(*r->to[p]));
		for (int32_t peer = 0; peer < n; peer++)
			if (peer != r->rank)
				raw_rows_list(r, p, r->rank, peer,
				              r->to[p] +
				                      (size_t)peer *
				                              (size_t)r->most);
	}
}

static void size_up(struct raw_rows *r)
{
	const struct bench_case *c = r->c;
	const size_t scales = (size_t)bench_scales(c) * sizeof(float);
	const size_t row = bench_row_bytes(c);
	const size_t tokens = (size_t)c->tokens;

	r->row_bytes[BENCH_DISPATCH] =
		scales ? round_up(row, SCALE_ALIGN) + scales : row;
	r->row_bytes[BENCH_COMBINE] = (size_t)c->hidden * 2;
	r->table_bytes = ferry_table_bytes(c->tokens, c->topk,
	                                   c->combine != FERRY_EXACT);
	r->room[BENCH_DISPATCH] = round_up(
		r->table_bytes + tokens * r->row_bytes[BENCH_DISPATCH], 4096);
	r->room[BENCH_COMBINE] =
		tokens * (size_t)back_rows(c) * r->row_bytes[BENCH_COMBINE];
}

void raw_rows_make(struct raw_rows *rows, const struct bench_case *c,
                   int32_t rank)
{
	const size_t n = (size_t)c->n_ranks;

	*rows = (struct raw_rows){.c = c, .rank = rank};
	for (int p = 0; p < RAW_PHASES; p++)
		rows->n[p] = alloc_or_exit(n * n, sizeof(*rows->n[p]));
	size_up(rows);
	make_routing(rows);
	list_all(rows);
}

void raw_rows_free(struct raw_rows *rows)
{
	free(rows->ids);
	for (int p = 0; p < RAW_PHASES; p++) {
		free(rows->n[p]);
		free(rows->to[p]);
	}
}
