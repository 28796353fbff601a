/* SPDX-License-Identifier: Apache-2.0 */
/* See drive_lasting.h. */
#include "drive_lasting.h"

#include "drive_inner.h"

struct drive_op *drive_begin_lasting(struct drive *d, int32_t slot,
                                     const struct drive_step *step)
{
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);
	struct drive_step full = *step;
	struct drive_op *op;

	full.spec.count_by_pointer = true;
	full.vary = false;
	for (int32_t r = 0; r < d->config.n_ranks; r++)
		full.n_tokens[r] = d->config.max_tokens;
	op = drive_begin(d, slot, &full);
	op->lasting = true;
	drive_refill(op, stream);
	rank_memory_sync(d->memory, stream);
	return op;
}

void drive_renew(struct drive_op *op, const struct drive_step *step,
                 uint64_t n_dispatches)
{
	const uint64_t first = op->d->moe->first_epoch;

	drive_forget_batch(op);
	op->step.spec.seed = step->spec.seed;
	op->step.spec.routing = step->spec.routing;
	op->step.spec.special = step->spec.special;
	for (int32_t r = 0; r < op->d->config.n_ranks; r++)
		op->step.n_tokens[r] = step->n_tokens[r];
	drive_make_batch(op, (uint32_t)(first + n_dispatches) & 1);
}

void drive_refill(struct drive_op *op, struct CUstream_st *stream)
{
	op->lent_in = drive_in_lend(op, stream);
	drive_out_make(op, stream);
	drive_answers_make(op, stream);
	drive_sums_make(op, stream);
}

enum ferry_status drive_issue(struct drive_op *op, enum drive_call call,
                              struct CUstream_st *stream)
{
	struct ferry_moe *moe = op->d->moe;
	const struct ferry_combine_in y = drive_combine_in(op);
	const struct ferry_combine_out sum = drive_combine_out(op);

	switch (call) {
	case DRIVE_DISPATCH_SEND:
		return ferry_dispatch_send(moe, op->slot, &op->lent_in, stream);
	case DRIVE_DISPATCH_RECV:
		return ferry_dispatch_recv(moe, op->slot, &op->given, stream);
	case DRIVE_COMBINE_SEND:
		return ferry_combine_send(moe, op->slot, &y, stream);
	case DRIVE_COMBINE_RECV:
		return ferry_combine_recv(moe, op->slot, &sum, stream);
	case DRIVE_DISPATCH:
		return ferry_dispatch(moe, op->slot, &op->lent_in, &op->given,
		                      stream);
	default:
		return ferry_combine(moe, op->slot, &y, &sum, stream);
	}
}

void drive_finish(struct drive_op *op, bool combined,
                  struct CUstream_st *stream)
{
	drive_out_pull(op, stream);
	mirror_pull(op->d->memory, &op->sum, stream);
	rank_memory_sync(op->d->memory, stream);
	RANKS_OK(ferry_moe_poll(op->d->moe, NULL));
	drive_check_recv(op);
	if (combined)
		drive_check_combine_recv(op);
}

void drive_finish_empty(struct drive_op *op, struct CUstream_st *stream)
{
	drive_out_pull(op, stream);
	rank_memory_sync(op->d->memory, stream);
	drive_check_empty(op);
}
