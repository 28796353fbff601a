/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backing of memory before its use, so that what cannot be had is an error at
 * open and never a signal later, and no page fault meets an operation.
 */
#ifndef FERRY_BACKING_H
#define FERRY_BACKING_H

#include "../core/ctx.h"

/*
 * Refuses more than the machine has left, which would end in the OOM killer.
 * `who` begins the message.
 */
enum ferry_status ferry_backing_check(struct ferry_ctx *ctx, const char *who,
                                      size_t bytes);

/*
 * Backs and maps every page of a mapping, with huge pages where the system
 * has them for it. 0 or an errno; EINVAL: this kernel cannot.
 */
int ferry_backing_populate(void *base, size_t bytes);

#endif
