/* SPDX-License-Identifier: Apache-2.0 */
/* Combine: what the experts answer, the calls, and the sums. */
#include <stdlib.h>
#include <string.h>

#include "drive_inner.h"
#include "oracle_float.h"

/* Row of y that a received row's answer is in. */
static int64_t answer_at(const struct drive_op *op,
                         const struct oracle_row *row)
{
	switch (op->step.from) {
	case FERRY_FROM_PADDED:
		return row->padded;
	case FERRY_FROM_PACKED:
		return row->packed;
	default:
		return row->view;
	}
}

static int64_t n_answers(const struct drive_op *op,
                         const struct oracle_row *rows, int64_t n)
{
	int64_t last = 0;

	for (int64_t i = 0; i < n; i++)
		if (answer_at(op, &rows[i]) >= last)
			last = answer_at(op, &rows[i]) + 1;
	return last;
}

/* Rows of y that any batch may need. */
static size_t most_answers(const struct drive_op *op)
{
	const struct drive *d = op->d;
	const int32_t max = d->config.max_tokens;

	switch (op->step.from) {
	case FERRY_FROM_PADDED:
		return (size_t)d->need.recv_rows_slot *
		       (size_t)d->need.max_expert_slots;
	case FERRY_FROM_PACKED:
		return (size_t)d->need.recv_rows;
	default:
		return 2 * (size_t)d->config.n_ranks * (size_t)max;
	}
}

void drive_answers_make(struct drive_op *op, struct CUstream_st *stream)
{
	const struct drive *d = op->d;
	const enum ferry_dtype dtype =
		d->config.combine_dtype ? d->config.combine_dtype : FERRY_BF16;
	const size_t bytes = (size_t)op->hidden * oracle_dtype_bytes(dtype);
	const size_t stride = bytes + op->step.slack;
	const bool presummed = op->step.from == FERRY_FROM_PRESUMMED;
	const struct oracle_row *rows;
	const int64_t n = oracle_rows(op->oracle, d->rank, &rows);
	const size_t n_rows = (size_t)n_answers(op, rows, n);
	uint8_t *payload = drive_allocate(drive_row_bytes(op));

	mirror_use(d->memory, &op->y, stride * n_rows,
	           op->lasting ? stride * most_answers(op) : 0);
	op->y_stride = stride;
	for (int64_t i = 0; i < n; i++) {
		const size_t at = (size_t)answer_at(op, &rows[i]);
		const int32_t expert =
			presummed ? ORACLE_PRESUMMED(d->rank) : rows[i].expert;
		const uint8_t *scales;

		oracle_row_bits(op->oracle, &rows[i], payload, &scales);
		oracle_expert(op->y.host + stride * at, dtype,
		              (size_t)op->hidden, payload, drive_row_bytes(op),
		              scales, drive_scale_bytes(op), expert,
		              op->step.values);
	}
	free(payload);
	mirror_push(d->memory, &op->y, stream);
}

struct ferry_combine_in drive_combine_in(const struct drive_op *op)
{
	struct ferry_combine_in in = FERRY_COMBINE_IN_INIT;

	in.y = op->y.device;
	in.y_stride = op->step.slack ? op->y_stride : 0;
	in.layout = op->step.from;
	return in;
}

static enum ferry_dtype sum_dtype(const struct drive_op *op)
{
	const struct ferry_moe_config *config = &op->d->config;
	const enum ferry_dtype combine =
		config->combine_dtype ? config->combine_dtype : FERRY_BF16;

	return config->out_dtype ? config->out_dtype : combine;
}

static void make_residual(struct drive_op *op, size_t room,
                          struct CUstream_st *stream)
{
	struct rank_memory *m = op->d->memory;
	const uint64_t seed = op->step.spec.seed;

	mirror_use(m, &op->residual, op->sum_bytes, room);
	memset(op->residual.host, DRIVE_POISON, op->sum_bytes);
	for (int32_t t = 0; t < op->n_tokens; t++)
		oracle_expert(op->residual.host + op->sum_stride * (size_t)t,
		              sum_dtype(op), (size_t)op->hidden, &seed,
		              sizeof(seed), NULL, 0, t, op->step.values);
	mirror_push(m, &op->residual, stream);
	if (op->step.residual != DRIVE_IN_PLACE)
		return;
	memcpy(op->sum.host, op->residual.host, op->sum_bytes);
	mirror_push(m, &op->sum, stream);
}

void drive_sums_make(struct drive_op *op, struct CUstream_st *stream)
{
	const size_t row =
		(size_t)op->hidden * oracle_dtype_bytes(sum_dtype(op));
	const size_t stride = row + op->step.slack;
	const size_t most =
		stride * (size_t)op->d->config.max_tokens + DRIVE_GUARD;
	const size_t room = op->lasting ? most : 0;

	op->sum_row = row;
	op->sum_stride = stride;
	op->sum_bytes = stride * (size_t)op->n_tokens + DRIVE_GUARD;
	/* A lasting one may have been filled further by an earlier batch. */
	if (op->lasting)
		op->sum_bytes = most;
	mirror_use(op->d->memory, &op->sum, op->sum_bytes, room);
	mirror_fill(op->d->memory, &op->sum, DRIVE_POISON, stream);
	free(op->sum_wanted);
	op->sum_wanted = drive_allocate(op->sum_bytes);
	memset(op->sum_wanted, DRIVE_POISON, op->sum_bytes);
	if (op->step.residual != DRIVE_NO_RESIDUAL)
		make_residual(op, room, stream);
}

struct ferry_combine_out drive_combine_out(const struct drive_op *op)
{
	struct ferry_combine_out out = FERRY_COMBINE_OUT_INIT;
	const size_t stride = op->step.slack ? op->sum_stride : 0;

	out.out = op->sum.device;
	out.out_stride = stride;
	out.residual = op->step.residual == DRIVE_IN_PLACE
	                       ? op->sum.device
	                       : op->residual.device;
	out.residual_stride = out.residual ? stride : 0;
	return out;
}

void drive_check_combine_recv(struct drive_op *op)
{
	struct ferry_combine_out want = drive_combine_out(op);
	const struct oracle_combine_how how = {
		.presummed = op->step.from == FERRY_FROM_PRESUMMED,
		.values = op->step.values,
	};

	want.out = op->sum_wanted;
	want.residual = op->residual.host;
	oracle_combine(op->oracle, op->d->rank, &how, &want);
	for (size_t i = 0; i < op->sum_bytes; i++)
		if (op->sum.host[i] != op->sum_wanted[i])
			RANKS_FAIL("combine, seed %llu: byte %zu of token %zu "
			           "of %d is 0x%02x, expected 0x%02x",
			           (unsigned long long)op->step.spec.seed,
			           i % op->sum_stride, i / op->sum_stride,
			           op->n_tokens, op->sum.host[i],
			           op->sum_wanted[i]);
}

enum ferry_status drive_try_combine_send(struct drive_op *op)
{
	struct CUstream_st *stream = rank_memory_next_stream(op->d->memory);

	drive_answers_make(op, stream);
	const struct ferry_combine_in in = drive_combine_in(op);
	const uint32_t mode = drive_mode_enter(op->d);
	const enum ferry_status status =
		ferry_combine_send(op->d->moe, op->slot, &in, stream);

	drive_mode_leave(op->d, mode);
	return status == FERRY_OK ? status : drive_settle(op->d, status);
}

void drive_combine_send(struct drive_op *op)
{
	RANKS_OK(drive_try_combine_send(op));
}

/* After recv, fused or not. */
static enum ferry_status received(struct drive_op *op, enum ferry_status status,
                                  struct CUstream_st *stream)
{
	struct rank_memory *m = op->d->memory;

	if (op->y.device != NULL) /* it may be overwritten now */
		mirror_fill(m, &op->y, DRIVE_POISON, stream);
	rank_memory_sync(m, stream); /* as after dispatch */
	mirror_pull(m, &op->sum, stream);
	rank_memory_sync(m, stream);
	return drive_settle(op->d, status);
}

enum ferry_status drive_try_combine_recv(struct drive_op *op)
{
	struct CUstream_st *stream = rank_memory_next_stream(op->d->memory);

	drive_sums_make(op, stream);
	const struct ferry_combine_out out = drive_combine_out(op);
	const uint32_t mode = drive_mode_enter(op->d);
	const enum ferry_status status =
		ferry_combine_recv(op->d->moe, op->slot, &out, stream);

	drive_mode_leave(op->d, mode);
	return received(op, status, stream);
}

void drive_combine_recv(struct drive_op *op)
{
	RANKS_OK(drive_try_combine_recv(op));
	drive_check_combine_recv(op);
}

void drive_combine_fused(struct drive_op *op)
{
	struct CUstream_st *stream = rank_memory_next_stream(op->d->memory);
	enum ferry_status status;

	drive_answers_make(op, stream);
	drive_sums_make(op, stream);
	const struct ferry_combine_in in = drive_combine_in(op);
	const struct ferry_combine_out out = drive_combine_out(op);

	status = ferry_combine(op->d->moe, op->slot, &in, &out, stream);
	RANKS_OK(received(op, status, stream));
	drive_check_combine_recv(op);
}

void drive_combine_free(struct drive_op *op)
{
	mirror_drop(op->d->memory, &op->y);
	mirror_drop(op->d->memory, &op->sum);
	mirror_drop(op->d->memory, &op->residual);
	free(op->sum_wanted);
}

const void *drive_sum(const struct drive_op *op, size_t *bytes)
{
	*bytes = op->sum_bytes;
	return op->sum.host;
}
