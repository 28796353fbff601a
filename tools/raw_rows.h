/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows of a shape one rank puts to whom, and where they go: to where a
 * channel's window has them, row [source][token] of dispatch and back[token][j]
 * of combine. Numbers only; bench_raw.c puts them.
 */
#ifndef FERRY_RAW_ROWS_H
#define FERRY_RAW_ROWS_H

#include "bench_result.h"

enum { RAW_PHASES = BENCH_PAIR }; /* dispatch, combine */

struct raw_rows {
	const struct bench_case *c;
	int32_t rank;
	size_t table_bytes, row_bytes[RAW_PHASES];
	size_t room
		[RAW_PHASES]; /* of one source's rows; of all that come back */
	int32_t *ids;         /* [n_ranks][tokens][topk] */
	int64_t *n[RAW_PHASES]; /* [source][destination] rows */
	int64_t most;           /* of all n */
	size_t *to[RAW_PHASES]; /* [n_ranks][most] where own rows go */
};

void raw_rows_make(struct raw_rows *rows, const struct bench_case *c,
                   int32_t rank);
void raw_rows_free(struct raw_rows *rows);

/* Rows of a step from one rank to another. */
static inline int64_t raw_rows_n(const struct raw_rows *rows, int phase,
                                 int32_t source, int32_t destination)
{
	return rows->n[phase][source * rows->c->n_ranks + destination];
}

/*
 * Where those go, in their order, into to[raw_rows_n()], which may be NULL. How
 * many.
 */
int64_t raw_rows_list(const struct raw_rows *rows, int phase, int32_t source,
                      int32_t destination, size_t *to);

#endif
