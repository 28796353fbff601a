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
	uint8_t *got, *want; /* NULL: not asked for */
	size_t bytes;        /* that are compared */
};

struct drive_op {
	struct drive *d;
	struct drive_op *next; /* of d->ops */
	int32_t slot;
	struct drive_step step;
	int32_t hidden, n_tokens;
	struct traffic_batch batches[RANKS_MAX]; /* as the oracle sees them */
	struct traffic_batch mine;               /* as the library does */
	struct ferry_dispatch_in in[RANKS_MAX];
	struct oracle *oracle;
	struct drive_buffer buffers[DRIVE_N_BUFFERS];
	struct ferry_dispatch_out got, want;
	uint8_t *y;
	size_t y_stride, y_bytes;
	uint8_t *sum, *sum_wanted, *residual;
	size_t sum_row, sum_stride, sum_bytes;
};

void *drive_allocate(size_t bytes);

/* drive_out.c */
void drive_out_make(struct drive_op *op);
void drive_out_free(struct drive_op *op);
size_t drive_row_bytes(const struct drive_op *op);
size_t drive_scale_bytes(const struct drive_op *op);

#endif
