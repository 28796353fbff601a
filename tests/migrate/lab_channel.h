/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel for the experts of a lab, with room for two batches in flight:
 * FP32 rows, combined EXACT, so that sums are the same bits wherever experts
 * are. Under split EXACT ids become slots first.
 */
#ifndef LAB_CHANNEL_H
#define LAB_CHANNEL_H

#include <ferry/ferry.h>

#include "experts_lab.h"

/* A batch of one rank on its way. */
struct lab_flow {
	int32_t slot;
	const struct ferry_placement *placement; /* it is dispatched with */
	int32_t *slots;                          /* [n_tokens][topk] */
	float *rows;
	int32_t *row_slot;
	int64_t n_rows;
};

struct lab_channel {
	struct ferry_moe *moe;
	struct ferry_splitter *splitter; /* NULL: ids stay ids */
	int32_t n_tokens;
	struct lab_flow flows[2];
};

/* Closes where nothing was opened, too. */
void lab_channel_open(struct lab_channel *channel, const struct lab *lab,
                      int32_t n_tokens, int32_t hidden, int32_t topk);
void lab_channel_close(struct lab_channel *channel);

/* n_tokens of each, under the flow's placement. */
void lab_dispatch(struct lab_channel *channel, struct lab_flow *flow,
                  const int32_t *ids, const float *weights, const float *x);
/* The flow's rows, as experts have left them; and the sums. */
void lab_combine_send(struct lab_channel *channel, struct lab_flow *flow);
void lab_combine_recv(struct lab_channel *channel, struct lab_flow *flow,
                      float *sum);

/* In [-1, 1). */
float lab_float(uint64_t *rng);

#endif
