/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs of dispatch as the library gets them: the test's own arrays, or
 * copies on the GPU. They are made at the call: until then a test may change
 * its batch.
 */
#include <string.h>

#include "drive_inner.h"

enum { SCRIBBLE = 0x5c, SCRIBBLED_COUNT = 0x7f };

static const void *lend(struct drive_op *op, enum drive_lent_id id,
                        const void *from, size_t bytes,
                        struct CUstream_st *stream)
{
	struct rank_memory *m = op->d->memory;
	struct mirror *mirror = &op->lent[id];
	size_t room = bytes;

	if (from == NULL)
		return NULL;
	if (op->lasting && op->n_tokens > 0) /* any number may come */
		room = bytes / (size_t)op->n_tokens *
		       (size_t)op->d->config.max_tokens;
	mirror_use(m, mirror, bytes, room);
	memcpy(mirror->host, from, bytes);
	mirror_push(m, mirror, stream);
	return mirror->device;
}

struct ferry_dispatch_in drive_in_lend(struct drive_op *op,
                                       struct CUstream_st *stream)
{
	const struct traffic_batch *b = &op->mine;
	struct ferry_dispatch_in in = b->in;

	if (!op->d->memory->is_device)
		return in;
	in.x = lend(op, DRIVE_X, in.x, b->x_bytes, stream);
	in.scales =
		lend(op, DRIVE_X_SCALES, in.scales, b->scales_bytes, stream);
	in.topk_ids = lend(op, DRIVE_IDS, in.topk_ids, b->ids_bytes, stream);
	in.topk_weights = lend(op, DRIVE_WEIGHTS, in.topk_weights,
	                       b->weights_bytes, stream);
	in.n_tokens_ptr = lend(op, DRIVE_COUNT, in.n_tokens_ptr,
	                       sizeof(*in.n_tokens_ptr), stream);
	return in;
}

void drive_in_scribble_latched(struct drive_op *op, struct CUstream_st *stream)
{
	struct rank_memory *m = op->d->memory;

	traffic_scribble_latched(&op->mine);
	mirror_fill(m, &op->lent[DRIVE_IDS], SCRIBBLE, stream);
	mirror_fill(m, &op->lent[DRIVE_WEIGHTS], SCRIBBLE, stream);
	mirror_fill(m, &op->lent[DRIVE_COUNT], SCRIBBLED_COUNT, stream);
}

void drive_in_scribble_rows(struct drive_op *op, struct CUstream_st *stream)
{
	struct rank_memory *m = op->d->memory;

	traffic_scribble_rows(&op->mine);
	mirror_fill(m, &op->lent[DRIVE_X], SCRIBBLE, stream);
	mirror_fill(m, &op->lent[DRIVE_X_SCALES], SCRIBBLE, stream);
}

void drive_in_free(struct drive_op *op)
{
	for (int id = 0; id < DRIVE_N_LENT; id++)
		mirror_drop(op->d->memory, &op->lent[id]);
}
