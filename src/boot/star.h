/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boot "unix" and "tcp": a star around rank 0, whose process runs the hub in a
 * thread of its own. The connections stay open, so a death is noticed at once.
 *
 * The secret keeps strangers out; it does not hide or sign what members say
 * afterwards. Who can read or change packets of the job's network is trusted.
 */
#ifndef FERRY_STAR_H
#define FERRY_STAR_H

#include "address.h"
#include "message.h"

/* FERRY_SECRET, or else the bytes of FERRY_SECRET_FILE, or nothing. */
enum ferry_status ferry_secret_load(struct ferry_ctx *ctx,
                                    struct ferry_secret *secret);

/* Meets n_ranks (2..) ranks at the address, until the deadline. */
enum ferry_status ferry_boot_open_star(struct ferry_ctx *ctx,
                                       const struct ferry_address *address,
                                       int32_t rank, int32_t n_ranks,
                                       uint64_t deadline_ns,
                                       struct ferry_boot **boot);

#endif
