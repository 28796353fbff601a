/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job done with MPI, as well as a competent person writes it: buffers
 * allocated once, no derived datatypes, rows for own experts never travel, the
 * same copy and sum kernels as Ferry's. Two forms of it:
 *
 *   rows   one row per (token, choice), in expert order: an Alltoall of
 *          counts, one pack, an Alltoallv, one unpack; sums at the source.
 *   dedup  one row per (token, rank): an Allgather of ids and weights, from
 *          which everybody computes the rest; the receiver copies a row to
 *          each of its experts. Combine REDUCED sends one sum per (token,
 *          rank), EXACT one row per (token, choice).
 */
#ifndef FERRY_MPI_RANK_H
#define FERRY_MPI_RANK_H

#include <stddef.h>

#include "bench_verify.h"
#include "cpu/kernels.h"

/* Rows to every rank, rank by rank, in one buffer. */
struct mpi_lane {
	uint8_t *rows;
	int *n;         /* [n_ranks] rows */
	int *bytes;     /* [n_ranks] for MPI */
	int *at;        /* [n_ranks] for MPI */
	int64_t *first; /* [n_ranks + 1] number of the first row */
};

struct mpi_rank {
	const struct bench_case *c;
	const struct ferry_kernels *kernels;
	int32_t rank, n_ranks, tokens, topk;
	int32_t first_expert, n_experts; /* own */
	int32_t most_experts;            /* of any rank */
	int32_t *owner;                  /* [experts] */
	size_t row_bytes, scale_at, scale_bytes;
	size_t wire_row; /* payload and scales on their way */
	size_t back_row; /* expert output */

	uint16_t *x, *y, *out; /* [tokens][hidden], [rows][hidden], as x */
	int32_t *ids;          /* [tokens][topk] */
	float *weights;
	uint8_t *rows; /* [rows][row_bytes]: what experts get */
	uint8_t *scales;
	int64_t padded_rows;
	int32_t *counts;  /* [own experts] */
	int64_t *offsets; /* [own experts + 1] first row of each */

	struct mpi_lane send, recv;
	uint8_t *scratch; /* one row, largest kind */
	/*
	 * For each own choice the row that comes back for it: number in recv,
	 * or of y when its expert is here; -1: masked.
	 */
	int64_t *back; /* [tokens][topk] */

	int32_t *counts_out, *counts_in; /* rows: [n_ranks][most experts] */
	int64_t *next;   /* scratch: one for each expert or rank */
	bool *serves;    /* scratch: [n_ranks] */
	uint8_t *tables; /* dedup: [n_ranks] ids and weights of all tokens */
	int64_t *local;  /* dedup: row of every choice served here, by source */
};

struct mpi_form {
	const char *name;
	void (*dispatch)(struct mpi_rank *rank);
	void (*combine)(struct mpi_rank *rank);
};

extern const struct mpi_form mpi_rows, mpi_dedup;

void mpi_rank_make(struct mpi_rank *rank, const struct bench_case *c,
                   int32_t number);
void mpi_rank_free(struct mpi_rank *rank);

/* Is the expert of this choice served here? */
static inline bool mpi_is_own(const struct mpi_rank *r, int32_t expert)
{
	return expert >= r->first_expert &&
	       expert < r->first_expert + r->n_experts;
}

/* Offsets of the own experts from their counts. */
void mpi_place_experts(struct mpi_rank *rank);

/* The row of a token as it travels: x itself, or quantised in scratch. */
const uint8_t *mpi_wire_row(struct mpi_rank *rank, int32_t token);

/* A travelled row to n output rows. */
void mpi_deliver(struct mpi_rank *rank, const uint8_t *wire,
                 const int64_t *rows, int n);

/* first, bytes and at from n, for rows of this size. */
void mpi_lane_place(struct mpi_lane *lane, int32_t n_ranks, size_t row_bytes);

/* Alltoallv of both lanes. */
void mpi_exchange(struct mpi_rank *rank);

static inline uint8_t *mpi_lane_row(const struct mpi_lane *lane, int64_t row,
                                    size_t row_bytes)
{
	return lane->rows + (size_t)row * row_bytes;
}

/* Bytes that send takes to other ranks. */
uint64_t mpi_sent_bytes(const struct mpi_rank *rank);

/* The weighted sum of every own token's rows, by back. */
void mpi_sum_choices(struct mpi_rank *rank);

/* Facts for the report. */
void mpi_version(char text[64]);
void mpi_single_copy(char text[32]);
/* Bytes read + written in a second, all ranks, by large exchanges. */
double mpi_exchange_rate(void);

#endif
