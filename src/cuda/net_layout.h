/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror: host memory of a rank of a CUDA world over several hosts, in
 * which the network reads and writes. First `in`, the window as far ranks
 * write it, then `out`, what is on its way to them. Pure.
 */
#ifndef FERRY_NET_LAYOUT_H
#define FERRY_NET_LAYOUT_H

#include "cuda_channel.h"

/* Bytes of `in` with what is rounded up, and so the offset of `out`. */
size_t ferry_net_out_offset(const struct ferry_window *window);

/*
 * Where things lie in `out`, into channel->net; the rest of the channel is
 * filled. Returns the bytes of all slots; saturates.
 */
size_t ferry_net_out_fill(struct ferry_cuda_channel *channel);

/* Of a whole mirror; saturates. */
size_t ferry_net_mirror_bytes(const struct ferry_shape *shape,
                              const struct ferry_window *window);

/*
 * Instead of a mirror where the network writes the window itself, and counters
 * are memory of the GPU: `out`, and behind it the counters; saturates.
 */
size_t ferry_net_heap_bytes(const struct ferry_shape *shape,
                            const struct ferry_window *window,
                            uint32_t n_signals);

#endif
