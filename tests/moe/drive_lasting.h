/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations whose buffers last: for graphs, which have addresses baked in,
 * and for long runs, which compare now and then only. The parts of drive_run,
 * one by one:
 *
 *	op = drive_begin_lasting(d, slot, &step);
 *	drive_issue(op, DRIVE_DISPATCH, stream);      captured, perhaps
 *	for (...) {
 *		drive_renew(op, &step, n_dispatches_so_far);
 *		drive_refill(op, stream);
 *		cudaGraphLaunch(...);
 *		drive_finish(op, true, stream);
 *	}
 */
#ifndef DRIVE_LASTING_H
#define DRIVE_LASTING_H

#include "drive.h"

enum drive_call {
	DRIVE_DISPATCH_SEND,
	DRIVE_DISPATCH_RECV,
	DRIVE_COMBINE_SEND,
	DRIVE_COMBINE_RECV,
	DRIVE_DISPATCH,
	DRIVE_COMBINE,
};

/*
 * The batch is as large as the channel allows; every later one goes into the
 * same buffers. Its number of tokens is read from memory at send.
 */
struct drive_op *drive_begin_lasting(struct drive *d, int32_t slot,
                                     const struct drive_step *step);

/*
 * Another batch, of the same form: only seed, routing, special values and the
 * numbers of tokens may differ. n_dispatches: of the slot, run before it.
 */
void drive_renew(struct drive_op *op, const struct drive_step *step,
                 uint64_t n_dispatches);
/* Writes inputs and answers, and fills all outputs. */
void drive_refill(struct drive_op *op, struct CUstream_st *stream);
/* The call alone, nothing before or after it. */
enum ferry_status drive_issue(struct drive_op *op, enum drive_call call,
                              struct CUstream_st *stream);
/* Waits for the stream, fetches all outputs and compares them. */
void drive_finish(struct drive_op *op, bool combined,
                  struct CUstream_st *stream);
/* Instead: the channel has failed, and the dispatch gave nothing. */
void drive_finish_empty(struct drive_op *op, struct CUstream_st *stream);

#endif
