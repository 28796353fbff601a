/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a channel takes of a GPU, and by which path its rows travel. Pure, but
 * for the kernels' own word on what they can do.
 */
#ifndef FERRY_CUDA_PLAN_H
#define FERRY_CUDA_PLAN_H

#include "../core/ctx.h"
#include "cuda_channel.h"
#include "cuda_kernels.h"

/* Where channels have no device to ask: an H100 or H200. */
enum { FERRY_CUDA_TYPICAL_SMS = 132 };

/* What there is. */
struct ferry_cuda_room {
	int32_t n_sms;
	int32_t n_ranks;     /* that share the GPU */
	int32_t n_slots;     /* of the channel */
	int32_t max_sms;     /* 0: no bound */
	int32_t ctas_per_sm; /* least of the channel's kernels */
};

/*
 * Most blocks of one launch. Every slot of every rank on the GPU may have a
 * kernel that waits for peers, and all of their blocks must be resident at
 * once: otherwise one may wait for another that cannot start. Blocks are
 * spread over the GPU as they come, so only this is certain: while fewer than
 * n_sms * ctas_per_sm blocks are resident, of kernels of which each SM holds
 * ctas_per_sm at least, some SM has room for one more. 0: they do not fit.
 */
int32_t ferry_cuda_plan_ctas(const struct ferry_cuda_room *room);

/*
 * Chooses a path for AUTO (an option first, ctx may be NULL; then thresholds),
 * and refuses what the kernels cannot do. Errors: UNSUPPORTED, RANGE.
 */
enum ferry_status ferry_cuda_settle(struct ferry_ctx *ctx,
                                    struct ferry_shape *shape);

/* The kernels of a path. */
const struct ferry_cuda_dispatch_ops *
ferry_cuda_dispatch_of(enum ferry_path path);
const struct ferry_cuda_combine_ops *
ferry_cuda_combine_of(enum ferry_path path);

enum ferry_status ferry_cuda_query(const struct ferry_shape *shape,
                                   struct ferry_moe_need *need);

#endif
