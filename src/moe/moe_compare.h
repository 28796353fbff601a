/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of all ranks' configurations when a channel opens. */
#ifndef FERRY_MOE_COMPARE_H
#define FERRY_MOE_COMPARE_H

#include "../proto/channel.h"

/*
 * Collective. `mine`: how the own preparation went; m->shape is filled when
 * that is FERRY_OK. MISMATCH names the field, the ranks and their values. All
 * ranks take over the first epoch of rank 0.
 */
enum ferry_status ferry_moe_compare(struct ferry_moe *m, enum ferry_status mine,
                                    uint64_t deadline_ns);

#endif
