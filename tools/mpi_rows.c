/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI baseline, form "mpi": one row per (token, choice), in the order of the
 * receiver's experts, so that whole runs of rows are unpacked by one copy.
 */
#include <mpi.h>
#include <string.h>

#include "mpi_rank.h"

/* Rows that rank q sends to own expert s, in counts_in. */
static int32_t came(const struct mpi_rank *r, int32_t q, int32_t s)
{
	return r->counts_in[q * r->most_experts + s];
}

static void exchange_counts(struct mpi_rank *r)
{
	const int most = r->most_experts;
	const size_t n = (size_t)r->n_ranks * (size_t)most;

	memset(r->counts_out, 0, n * sizeof(*r->counts_out));
	for (int32_t i = 0; i < r->tokens * r->topk; i++) {
		const int32_t e = r->ids[i];
		const int32_t q = e < 0 ? -1 : r->owner[e];

		if (q >= 0)
			r->counts_out[q * most + e -
			              bench_first_expert(r->c, q)]++;
	}
	MPI_Alltoall(r->counts_out, most, MPI_INT, r->counts_in, most, MPI_INT,
	             MPI_COMM_WORLD);
}

/* Lanes and experts from the counts; next[e]: where its next row goes. */
static void place(struct mpi_rank *r)
{
	memset(r->counts, 0, (size_t)r->n_experts * sizeof(*r->counts));
	for (int32_t q = 0; q < r->n_ranks; q++) {
		r->send.n[q] = 0;
		r->recv.n[q] = 0;
		for (int32_t s = 0; s < r->most_experts; s++) {
			const int32_t n = came(r, q, s);

			if (s < r->n_experts)
				r->counts[s] += n;
			if (q == r->rank)
				continue;
			r->send.n[q] += r->counts_out[q * r->most_experts + s];
			r->recv.n[q] += n;
		}
	}
	mpi_lane_place(&r->send, r->n_ranks, r->wire_row);
	mpi_lane_place(&r->recv, r->n_ranks, r->wire_row);
	mpi_place_experts(r);
}

/* First output row of what rank q sends to own expert s. */
static int64_t first_row(const struct mpi_rank *r, int32_t q, int32_t s)
{
	int64_t row = r->offsets[s];

	for (int32_t p = 0; p < q; p++)
		row += came(r, p, s);
	return row;
}

static void place_next(struct mpi_rank *r)
{
	for (int32_t q = 0; q < r->n_ranks; q++) {
		const int32_t first = bench_first_expert(r->c, q);
		const int32_t n = bench_first_expert(r->c, q + 1) - first;
		int64_t row = r->send.first[q];

		for (int32_t s = 0; s < n; s++) {
			r->next[first + s] =
				q == r->rank ? first_row(r, q, s) : row;
			row += r->counts_out[q * r->most_experts + s];
		}
	}
}

/* Each token is read once: into send, and to the own experts' rows. */
static void pack(struct mpi_rank *r)
{
	void *to[FERRY_SUM_MAX];
	int64_t own[FERRY_SUM_MAX];

	for (int32_t t = 0; t < r->tokens; t++) {
		int n_remote = 0, n_own = 0;

		for (int32_t k = 0; k < r->topk; k++) {
			const int32_t i = t * r->topk + k;
			const int32_t e = r->ids[i];

			r->back[i] = e < 0 ? -1 : r->next[e]++;
			if (e < 0)
				continue;
			if (mpi_is_own(r, e))
				own[n_own++] = r->back[i];
			else
				to[n_remote++] = mpi_lane_row(
					&r->send, r->back[i], r->wire_row);
		}
		const uint8_t *wire = mpi_wire_row(r, t);

		if (n_remote)
			r->kernels->copy(to, n_remote, wire, r->wire_row,
			                 false);
		mpi_deliver(r, wire, own, n_own);
	}
}

/* n rows of recv to consecutive output rows. */
static void unpack_run(struct mpi_rank *r, const uint8_t *from, int64_t row,
                       int32_t n)
{
	void *to = r->rows + (size_t)row * r->row_bytes;

	if (!r->scale_bytes) {
		r->kernels->copy(&to, 1, from, (size_t)n * r->row_bytes, true);
		return;
	}
	for (; n > 0; n--, row++, from += r->wire_row)
		mpi_deliver(r, from, &row, 1);
}

static void unpack(struct mpi_rank *r)
{
	for (int32_t q = 0; q < r->n_ranks; q++) {
		const uint8_t *from = r->recv.rows + r->recv.at[q];

		for (int32_t s = 0; q != r->rank && s < r->n_experts; s++) {
			const int32_t n = came(r, q, s);

			if (n)
				unpack_run(r, from, first_row(r, q, s), n);
			from += (size_t)n * r->wire_row;
		}
	}
}

static void dispatch(struct mpi_rank *r)
{
	exchange_counts(r);
	place(r);
	place_next(r);
	pack(r);
	mpi_exchange(r);
	unpack(r);
}

/* What came goes back the same way: the lanes change roles. */
static void turn_lanes(struct mpi_rank *r)
{
	for (int32_t q = 0; q < r->n_ranks; q++) {
		const int n = r->send.n[q];

		r->send.n[q] = r->recv.n[q];
		r->recv.n[q] = n;
	}
	mpi_lane_place(&r->send, r->n_ranks, r->back_row);
	mpi_lane_place(&r->recv, r->n_ranks, r->back_row);
}

static void pack_back(struct mpi_rank *r)
{
	for (int32_t q = 0; q < r->n_ranks; q++) {
		uint8_t *to = r->send.rows + r->send.at[q];

		for (int32_t s = 0; q != r->rank && s < r->n_experts; s++) {
			const size_t bytes =
				(size_t)came(r, q, s) * r->back_row;
			const uint8_t *from =
				(const uint8_t *)r->y +
				(size_t)first_row(r, q, s) * r->back_row;

			if (bytes)
				r->kernels->copy((void *[]){to}, 1, from, bytes,
				                 false);
			to += bytes;
		}
	}
}

static void combine(struct mpi_rank *r)
{
	turn_lanes(r);
	pack_back(r);
	mpi_exchange(r);
	mpi_sum_choices(r);
}

const struct mpi_form mpi_rows = {"mpi", dispatch, combine};
