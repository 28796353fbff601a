/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a channel that opens: which layout of the window suits how the
 * ranks reach each other, the same on all of them.
 */
#ifndef FERRY_MOE_WINDOW_H
#define FERRY_MOE_WINDOW_H

#include "../proto/channel.h"

/*
 * Collective. m->shape is settled on success, m->segment open. What a step has
 * opened is there also when a later one fails.
 */
enum ferry_status ferry_moe_open_window(struct ferry_moe *m,
                                        uint64_t deadline_ns);

/*
 * Collective, behind it: m->mirror, by which rows travel to ranks that stores
 * do not reach, where there are any: memory of the host, or of the GPU where
 * kernels put by themselves.
 */
enum ferry_status ferry_moe_open_mirror(struct ferry_moe *m);

#endif
