/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels are given, made from a shape: the constants of a channel, a
 * placement, and the device memory of an operation slot. The first two are
 * pure; the last needs a current device.
 */
#ifndef FERRY_CUDA_CHANNEL_H
#define FERRY_CUDA_CHANNEL_H

#include "../proto/window.h"
#include "cuda_args.h"

/*
 * Fills in everything but net, local, host and timeout_ns, which are 0. windows
 * is [n_ranks], device addresses of the windows' data; NULL: not known yet. At
 * most FERRY_CUDA_MAX_RANKS ranks.
 */
void ferry_cuda_channel_fill(struct ferry_cuda_channel *channel,
                             const struct ferry_shape *shape,
                             const struct ferry_window *window,
                             unsigned char *const *windows);

/*
 * A placement as kernels read it, words of 32 bits from `words` on: experts'
 * first entries, slots, and under split QUOTA where shares start. How many
 * there may be, copy them, and point to where they lie, maybe on a device.
 */
size_t ferry_cuda_placement_words(int32_t n_experts, int32_t n_expert_slots);
void ferry_cuda_placement_copy(int32_t *words,
                               const struct ferry_placement *placement);
struct ferry_cuda_placement
ferry_cuda_placement_at(const int32_t *words,
                        const struct ferry_placement *placement);

/* Device memory of one operation slot; saturates. */
size_t ferry_cuda_op_bytes(const struct ferry_cuda_channel *channel,
                           size_t scratch_bytes);

struct CUstream_st;

/*
 * Allocates it on the current device, zeroed and ready; the slot's first
 * dispatch has the epoch first_epoch. stream: any, with little to do. A CUDA
 * error, 0: none.
 */
int ferry_cuda_op_create(struct ferry_cuda_op *op,
                         const struct ferry_cuda_channel *channel,
                         size_t scratch_bytes, uint64_t first_epoch,
                         struct CUstream_st *stream);
/* Behind what runs on the stream; no other kernel may be using it. */
void ferry_cuda_op_destroy(struct ferry_cuda_op *op,
                           struct CUstream_st *stream);

/* As it lies in memory from `base` on; returns the bytes. For the two above. */
size_t ferry_cuda_op_lay_out(struct ferry_cuda_op *op,
                             const struct ferry_cuda_channel *channel,
                             size_t scratch_bytes, unsigned char *base);

#endif
