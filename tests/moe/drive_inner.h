/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of drive share. */
#ifndef DRIVE_INNER_H
#define DRIVE_INNER_H

#include "drive.h"
#include "proto/channel.h"

enum {
	DRIVE_POISON = 0xa5,
	DRIVE_GUARD = 64, /* bytes behind each output that stay as they are */
};

/* Outputs of dispatch; bits of drive_step.leave. */
enum drive_buffer_id {
	DRIVE_ROWS,
	DRIVE_SCALES,
	DRIVE_COUNTS,
	DRIVE_OFFSETS,
	DRIVE_ROW_EXPERT_SLOT,
	DRIVE_ROW_SOURCE,
	DRIVE_ROW_TOKEN,
	DRIVE_ROW_WEIGHT,
	DRIVE_INDEX,
	DRIVE_N_ROWS,
	DRIVE_N_DROPPED,
	DRIVE_TOKEN_SLOTS,
	DRIVE_TOKEN_WEIGHTS,
	DRIVE_N_BUFFERS,
};

struct drive_buffer {
	struct mirror got;
	uint8_t *want; /* NULL: not asked for */
	size_t bytes;  /* that are compared */
};

/* Inputs of dispatch on the GPU. */
enum drive_lent_id {
	DRIVE_X,
	DRIVE_X_SCALES,
	DRIVE_IDS,
	DRIVE_WEIGHTS,
	DRIVE_COUNT,
	DRIVE_N_LENT,
};

struct drive_op {
	struct drive *d;
	struct drive_op *next; /* of d->ops */
	bool lasting; /* its buffers hold any batch, at the same addresses */
	int32_t slot;
	struct drive_step step;
	int32_t hidden, n_tokens;
	struct traffic_batch batches[RANKS_MAX]; /* as the oracle sees them */
	struct traffic_batch mine;               /* as the library does */
	struct ferry_dispatch_in in[RANKS_MAX];
	struct oracle *oracle;
	struct drive_buffer buffers[DRIVE_N_BUFFERS];
	struct mirror lent[DRIVE_N_LENT];
	struct ferry_dispatch_in lent_in;    /* of a lasting one */
	struct ferry_dispatch_out got, want; /* got: as the host sees it */
	struct ferry_dispatch_out given;     /* as the library does */
	struct mirror y;
	size_t y_stride;
	struct mirror sum, residual;
	uint8_t *sum_wanted;
	size_t sum_row, sum_stride, sum_bytes;
};

void *drive_allocate(size_t bytes);
/* Batches of all ranks and the oracle, from op->step; and away with them. */
void drive_make_batch(struct drive_op *op, uint32_t half);
void drive_forget_batch(struct drive_op *op);
enum ferry_status drive_settle(struct drive *d, enum ferry_status status);
/* Puts the caller's odd floating point mode around a call. */
uint32_t drive_mode_enter(const struct drive *d);
void drive_mode_leave(const struct drive *d, uint32_t old);

/* drive_in.c */
/* The input as the library gets it: on the GPU, pushed on the stream. */
struct ferry_dispatch_in drive_in_lend(struct drive_op *op,
                                       struct CUstream_st *stream);
/* What may be overwritten after send, and after recv, is. */
void drive_in_scribble_latched(struct drive_op *op, struct CUstream_st *stream);
void drive_in_scribble_rows(struct drive_op *op, struct CUstream_st *stream);
void drive_in_free(struct drive_op *op);

/* drive_out.c */
void drive_out_make(struct drive_op *op, struct CUstream_st *stream);
/* To the host; the stream must then be waited for. */
void drive_out_pull(struct drive_op *op, struct CUstream_st *stream);
/* Has a recv that was said to have failed left counts? Then it had not. */
bool drive_out_counted(const struct drive_op *op);
void drive_out_free(struct drive_op *op);
size_t drive_row_bytes(const struct drive_op *op);
size_t drive_scale_bytes(const struct drive_op *op);

/* drive_combine.c */
void drive_answers_make(struct drive_op *op, struct CUstream_st *stream);
void drive_sums_make(struct drive_op *op, struct CUstream_st *stream);
struct ferry_combine_in drive_combine_in(const struct drive_op *op);
struct ferry_combine_out drive_combine_out(const struct drive_op *op);
void drive_combine_free(struct drive_op *op);

#endif
