/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small dispatch + combine that knows its answer without an oracle: experts
 * that answer with what they got, whose weights are powers of two. For tests
 * of order, state and failure; the oracle's tests compare everything else.
 */
#ifndef SMOKE_PAIR_H
#define SMOKE_PAIR_H

#include <ferry/ferry.h>

#include "rank_memory.h"
#include "ranks.h"

enum {
	SMOKE_TOKENS = 12,
	SMOKE_HIDDEN = 40,
	SMOKE_TOPK = 3,
	SMOKE_EXPERTS = 7,
	SMOKE_BUFFERS = 11,
};

/* One slot's buffers. */
struct smoke_pair {
	struct ferry_moe *moe;
	int32_t slot;
	int32_t rank, n_ranks;
	int32_t n_tokens, turn; /* of the batch in flight */
	struct ferry_moe_need need;
	enum ferry_combine_layout from;
	struct rank_memory *memory;
	struct CUstream_st *stream;
	struct mirror buffers[SMOKE_BUFFERS];
	/* What the test reads and writes of them. */
	uint16_t *x, *rows, *out;
	int32_t *ids;
	float *weights;
	int32_t *counts, *row_source, *row_token, *row_slot;
	int64_t *offsets, *n_rows;
	struct ferry_dispatch_in in;
	struct ferry_dispatch_out dispatch_out;
	struct ferry_combine_in combine_in;
	struct ferry_combine_out combine_out;
};

/* The channel of the smoke tests on n_ranks ranks. */
struct ferry_moe_config smoke_config(int32_t n_ranks);

/* Allocates for a slot; freed when the body ends. */
struct smoke_pair *smoke_open(struct rank *rank, struct ferry_moe *moe,
                              const struct ferry_moe_config *config,
                              int32_t slot);

/* A fresh batch; `turn` makes it differ from others. */
void smoke_fill(struct smoke_pair *p, int32_t turn, int32_t n_tokens);
/* Both phases in one call, its arrays copied to the GPU and back. */
enum ferry_status smoke_dispatch(struct smoke_pair *p);
enum ferry_status smoke_combine(struct smoke_pair *p);
/* After dispatch_recv: every row is what its source sent. */
void smoke_check_rows(const struct smoke_pair *p);
/* After combine_recv: every token is the sum of its weights times itself. */
void smoke_check_out(const struct smoke_pair *p);
/* All four phases and both checks. */
void smoke_run(struct smoke_pair *p, int32_t turn, int32_t n_tokens);

#endif
