/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives one rank of a channel through operations and compares every byte that
 * comes out with the oracle. Used inside a body of ranks.h: a difference ends
 * the body with a message.
 *
 *	struct drive *d = drive_open(rank, &config, NULL);
 *	drive_run(d, 0, &(struct drive_step){ .spec = {...}, ... });
 *
 * All buffers are filled with a pattern before a call, so that bytes that must
 * not be touched are compared too. What the caller may overwrite after a call
 * is overwritten.
 *
 * In a CUDA world the arrays lie on the rank's GPU, the calls take its streams
 * in turn, and filling and overwriting happens on them, behind the call. A
 * recv is waited for, and then the channel is asked what has come of it.
 */
#ifndef DRIVE_H
#define DRIVE_H

#include <ferry/moe.h>

#include "oracle.h"
#include "rank_memory.h"
#include "ranks.h"
#include "traffic.h"

struct open_list;

/* This rank's end of a channel. */
struct drive {
	struct ferry_moe *moe;
	struct ferry_moe_config config; /* n_ranks set */
	struct ferry_moe_need need;
	const struct ferry_placement_config *placement_config;
	struct ferry_placement *placement; /* NULL: expert e in slot e */
	int32_t rank;
	int32_t group;           /* first rank of the own group */
	int32_t host[RANKS_MAX]; /* of each rank: first rank on the same one */
	uint32_t mxcsr;          /* during calls, 0: as it is; x86 only */
	struct rank_memory *memory;
	bool fused;        /* every step is */
	bool told;         /* a call has told of the failure */
	char failure[512]; /* message of the last drive_try_* that failed */
	struct open_list *list; /* of this rank's open channels */
	struct drive *next;
	struct drive_op *ops; /* begun and not ended */
};

/*
 * Opens a channel; it is closed when the body ends, if not by drive_close.
 * placement must outlive it.
 */
struct drive *drive_open(struct rank *rank,
                         const struct ferry_moe_config *config,
                         const struct ferry_placement_config *placement);
void drive_close(struct drive *d);

enum drive_residual { DRIVE_NO_RESIDUAL, DRIVE_RESIDUAL, DRIVE_IN_PLACE };

/*
 * One operation. `spec`, `n_tokens` and `vary` are equal on all ranks, the
 * rest is this rank's own affair.
 */
struct drive_step {
	struct traffic_spec spec;    /* n_tokens in it is not looked at */
	int32_t n_tokens[RANKS_MAX]; /* of each rank */
	bool vary; /* groups differ in id type, strides, count by pointer */
	/* Instead of spec: makes the batch of a rank. */
	void (*make)(const struct drive_step *step, int32_t rank,
	             struct traffic_batch *batch);
	void *make_arg;

	bool fused;     /* one call for send and recv */
	uint32_t leave; /* bits of outputs that are not wanted */
	size_t slack;   /* bytes behind each row of the outputs */
	enum ferry_scale_form scale_form;
	enum ferry_combine_layout from;
	enum drive_residual residual;
	enum oracle_values values;
	bool light; /* of the rows only those in use are compared */
};

/* An operation in flight. */
struct drive_op;

struct drive_op *drive_begin(struct drive *d, int32_t slot,
                             const struct drive_step *step);
void drive_dispatch_send(struct drive_op *op);
void drive_dispatch_recv(struct drive_op *op);
void drive_combine_send(struct drive_op *op);
void drive_combine_recv(struct drive_op *op);
void drive_dispatch_fused(struct drive_op *op);
void drive_combine_fused(struct drive_op *op);
/* Legal at any time after begin; drive_close ends what is left. */
void drive_end(struct drive_op *op);

/* All of it; drive_dispatch leaves combine out. */
void drive_run(struct drive *d, int32_t slot, const struct drive_step *step);
void drive_dispatch(struct drive *d, int32_t slot,
                    const struct drive_step *step);

/*
 * The calls alone, for those that are to fail; nothing is compared. On a GPU a
 * recv answers what ferry_moe_poll says when it is over, and the first call
 * that finds the channel broken says by what, as it would in a CPU world.
 */
enum ferry_status drive_try_send(struct drive_op *op);
enum ferry_status drive_try_recv(struct drive_op *op);
enum ferry_status drive_try_combine_send(struct drive_op *op);
enum ferry_status drive_try_combine_recv(struct drive_op *op);
/* After one of the two recvs was good: what the checking calls compare. */
void drive_check_recv(struct drive_op *op);
void drive_check_combine_recv(struct drive_op *op);
/* After a failed drive_try_recv: counts, offsets and n_rows are 0. */
void drive_check_empty(const struct drive_op *op);

/* What the library was given and has filled. */
const struct ferry_dispatch_out *drive_out(const struct drive_op *op);
const void *drive_sum(const struct drive_op *op, size_t *bytes);
struct traffic_batch *drive_batch(struct drive_op *op);
const struct oracle *drive_oracle(const struct drive_op *op);

#endif
