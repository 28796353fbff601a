/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI baseline, form "mpi-dedup", the way back: EXACT sends one row per
 * (token, choice), REDUCED one weighted sum per (token, rank).
 */
#include <string.h>

#include "mpi_dedup.h"

static const void *y_row(const struct mpi_rank *r, int64_t row)
{
	return (const uint8_t *)r->y + (size_t)row * r->back_row;
}

/* The rows of y for this rank's own tokens, within r->local. */
static const int64_t *own_rows(const struct mpi_rank *r)
{
	const int64_t *own = r->local;

	for (int32_t q = 0; q < r->rank; q++) {
		const int32_t *ids = dedup_ids(r, q);

		for (int32_t i = 0; i < r->tokens * r->topk; i++)
			own += mpi_is_own(r, ids[i]);
	}
	return own;
}

/* Weights of the choices of a token that are served here; how many. */
static int own_weights(const struct mpi_rank *r, const int32_t *ids,
                       const float *weights, float *own)
{
	int n = 0;

	for (int32_t k = 0; k < r->topk; k++)
		if (mpi_is_own(r, ids[k]))
			own[n++] = weights[k];
	return n;
}

/* The part of a token's sum that is made here, rounded. */
static void sum_part(const struct mpi_rank *r, const int64_t *local,
                     const float *weights, int n, uint8_t *to)
{
	const void *rows[FERRY_SUM_MAX];

	for (int i = 0; i < n; i++)
		rows[i] = y_row(r, local[i]);
	r->kernels->sum(to, FERRY_BF16, rows, FERRY_BF16, weights, n, NULL,
	                (size_t)r->c->hidden);
}

/* Rows for one token of another rank; returns behind the last. */
static uint8_t *pack_token(const struct mpi_rank *r, const int64_t *local,
                           const float *weights, int n, uint8_t *to)
{
	if (r->c->combine == FERRY_REDUCED) {
		sum_part(r, local, weights, n, to);
		return to + r->back_row;
	}
	for (int i = 0; i < n; i++, to += r->back_row) {
		void *row = to;

		r->kernels->copy(&row, 1, y_row(r, local[i]), r->back_row,
		                 false);
	}
	return to;
}

static void pack(struct mpi_rank *r)
{
	const int64_t *local = r->local;
	uint8_t *to = r->send.rows;

	for (int32_t q = 0; q < r->n_ranks; q++) {
		const int32_t *ids = dedup_ids(r, q);
		const float *weights = dedup_weights(r, q);
		const uint8_t *const first = to;

		for (int32_t t = 0; t < r->tokens; t++) {
			float own[FERRY_SUM_MAX];
			const int n = own_weights(r, ids + t * r->topk,
			                          weights + t * r->topk, own);

			if (n && q != r->rank)
				to = pack_token(r, local, own, n, to);
			local += n;
		}
		r->send.n[q] = (int)((size_t)(to - first) / r->back_row);
	}
	mpi_lane_place(&r->send, r->n_ranks, r->back_row);
}

/* EXACT: the row of recv, or of y, that answers each own choice. */
static void place_choices(struct mpi_rank *r)
{
	const int64_t *own = own_rows(r);

	memset(r->recv.n, 0, (size_t)r->n_ranks * sizeof(*r->recv.n));
	for (int32_t i = 0; i < r->tokens * r->topk; i++) {
		const int32_t e = r->ids[i];

		if (e >= 0 && !mpi_is_own(r, e))
			r->recv.n[r->owner[e]]++;
	}
	mpi_lane_place(&r->recv, r->n_ranks, r->back_row);
	memcpy(r->next, r->recv.first, (size_t)r->n_ranks * sizeof(*r->next));
	for (int32_t i = 0; i < r->tokens * r->topk; i++) {
		const int32_t e = r->ids[i];

		if (e < 0)
			r->back[i] = -1;
		else if (mpi_is_own(r, e))
			r->back[i] = *own++;
		else
			r->back[i] = r->next[r->owner[e]]++;
	}
}

/* REDUCED: who got a token's row sends a part of its sum. */
static void place_parts(struct mpi_rank *r)
{
	dedup_count_sends(r);
	memcpy(r->recv.n, r->send.n, (size_t)r->n_ranks * sizeof(*r->recv.n));
	mpi_lane_place(&r->recv, r->n_ranks, r->back_row);
	memcpy(r->next, r->recv.first, (size_t)r->n_ranks * sizeof(*r->next));
}

/* All parts of one token in rank order, the own one through scratch. */
static int gather_parts(struct mpi_rank *r, const int32_t *ids,
                        const void **rows)
{
	int n = 0;

	memset(r->serves, 0, (size_t)r->n_ranks * sizeof(*r->serves));
	for (int32_t k = 0; k < r->topk; k++)
		if (ids[k] >= 0)
			r->serves[r->owner[ids[k]]] = true;
	for (int32_t q = 0; q < r->n_ranks; q++) {
		if (!r->serves[q])
			continue;
		rows[n++] = q == r->rank ? r->scratch
		                         : mpi_lane_row(&r->recv, r->next[q]++,
		                                        r->back_row);
	}
	return n;
}

static void sum_parts(struct mpi_rank *r)
{
	const int64_t *own = own_rows(r);
	const void *rows[FERRY_SUM_MAX];
	float weights[FERRY_SUM_MAX];

	for (int32_t t = 0; t < r->tokens; t++) {
		const int32_t *ids = r->ids + t * r->topk;
		const int n_own =
			own_weights(r, ids, r->weights + t * r->topk, weights);

		if (n_own)
			sum_part(r, own, weights, n_own, r->scratch);
		own += n_own;
		const int n = gather_parts(r, ids, rows);

		r->kernels->sum((uint8_t *)r->out + (size_t)t * r->back_row,
		                FERRY_BF16, rows, FERRY_BF16, NULL, n, NULL,
		                (size_t)r->c->hidden);
	}
}

void dedup_combine(struct mpi_rank *r)
{
	const bool exact = r->c->combine == FERRY_EXACT;

	if (exact)
		place_choices(r);
	else
		place_parts(r);
	pack(r);
	mpi_exchange(r);
	if (exact)
		mpi_sum_choices(r);
	else
		sum_parts(r);
}
