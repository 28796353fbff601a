/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI baseline, form "mpi-dedup": one row per (token, rank). Everybody has
 * everybody's ids, so no counts travel; the receiver copies each row to all
 * its experts, and can sum them again for combine REDUCED.
 */
#include <mpi.h>
#include <string.h>

#include "mpi_dedup.h"

static size_t table_bytes(const struct mpi_rank *r)
{
	return (size_t)r->tokens * (size_t)r->topk *
	       (sizeof(int32_t) + sizeof(float));
}

const int32_t *dedup_ids(const struct mpi_rank *r, int32_t q)
{
	return (const void *)(r->tables + (size_t)q * table_bytes(r));
}

const float *dedup_weights(const struct mpi_rank *r, int32_t q)
{
	return (const void *)(dedup_ids(r, q) + r->tokens * r->topk);
}

/* The own table is built behind the others. */
static void exchange_tables(struct mpi_rank *r)
{
	const size_t bytes = table_bytes(r);
	uint8_t *const own = r->tables + (size_t)r->n_ranks * bytes;

	memcpy(own, r->ids, bytes / 2);
	memcpy(own + bytes / 2, r->weights, bytes / 2);
	MPI_Allgather(own, (int)bytes, MPI_BYTE, r->tables, (int)bytes,
	              MPI_BYTE, MPI_COMM_WORLD);
}

/* Rows of each own expert, and rows that each rank sends here. */
static void count_arrivals(struct mpi_rank *r)
{
	memset(r->counts, 0, (size_t)r->n_experts * sizeof(*r->counts));
	for (int32_t q = 0; q < r->n_ranks; q++) {
		const int32_t *ids = dedup_ids(r, q);

		r->recv.n[q] = 0;
		for (int32_t t = 0; t < r->tokens; t++) {
			bool here = false;

			for (int32_t k = 0; k < r->topk; k++, ids++)
				if (mpi_is_own(r, *ids)) {
					r->counts[*ids - r->first_expert]++;
					here = true;
				}
			r->recv.n[q] += here && q != r->rank;
		}
	}
	mpi_lane_place(&r->recv, r->n_ranks, r->wire_row);
	mpi_place_experts(r);
	memcpy(r->next, r->offsets, (size_t)r->n_experts * sizeof(*r->next));
}

/* Ranks other than this one that serve a token, each once. */
static int remote_ranks(const struct mpi_rank *r, const int32_t *ids,
                        int32_t *ranks)
{
	int n = 0;

	for (int32_t k = 0; k < r->topk; k++) {
		if (ids[k] < 0 || mpi_is_own(r, ids[k]))
			continue;
		int i = 0;

		while (i < n && ranks[i] != r->owner[ids[k]])
			i++;
		if (i == n)
			ranks[n++] = r->owner[ids[k]];
	}
	return n;
}

void dedup_count_sends(struct mpi_rank *r)
{
	int32_t ranks[FERRY_SUM_MAX];

	memset(r->send.n, 0, (size_t)r->n_ranks * sizeof(*r->send.n));
	for (int32_t t = 0; t < r->tokens; t++) {
		const int n = remote_ranks(r, r->ids + t * r->topk, ranks);

		for (int i = 0; i < n; i++)
			r->send.n[ranks[i]]++;
	}
}

static void pack(struct mpi_rank *r)
{
	int32_t ranks[FERRY_SUM_MAX];
	void *to[FERRY_SUM_MAX];

	memset(r->send.n, 0, (size_t)r->n_ranks * sizeof(*r->send.n));
	for (int32_t t = 0; t < r->tokens; t++) {
		const int n = remote_ranks(r, r->ids + t * r->topk, ranks);

		for (int i = 0; i < n; i++)
			to[i] = mpi_lane_row(&r->send,
			                     r->send.first[ranks[i]] +
			                             r->send.n[ranks[i]]++,
			                     r->wire_row);
		if (n)
			r->kernels->copy(to, n, mpi_wire_row(r, t), r->wire_row,
			                 false);
	}
}

/* Every row that came, and the own tokens', to all their experts. */
static void unpack(struct mpi_rank *r)
{
	int64_t *local = r->local;

	for (int32_t q = 0; q < r->n_ranks; q++) {
		const int32_t *ids = dedup_ids(r, q);
		const uint8_t *from = r->recv.rows + r->recv.at[q];

		for (int32_t t = 0; t < r->tokens; t++) {
			int n = 0;

			for (int32_t k = 0; k < r->topk; k++, ids++)
				if (mpi_is_own(r, *ids))
					local[n++] = r->next[*ids -
					                     r->first_expert]++;
			if (!n)
				continue;
			if (q == r->rank) {
				mpi_deliver(r, mpi_wire_row(r, t), local, n);
			} else {
				mpi_deliver(r, from, local, n);
				from += r->wire_row;
			}
			local += n;
		}
	}
}

static void dispatch(struct mpi_rank *r)
{
	exchange_tables(r);
	count_arrivals(r);
	dedup_count_sends(r);
	mpi_lane_place(&r->send, r->n_ranks, r->wire_row);
	pack(r);
	mpi_exchange(r);
	unpack(r);
}

const struct mpi_form mpi_dedup = {"mpi-dedup", dispatch, dedup_combine};
