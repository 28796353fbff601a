/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of boot that ferry_boot_open chooses from; team is in team.h. */
#ifndef FERRY_BOOT_KINDS_H
#define FERRY_BOOT_KINDS_H

#include "boot.h"

/* INVAL unless 1..FERRY_BOOT_MAX_BYTES. */
enum ferry_status ferry_boot_check_bytes(const struct ferry_boot *boot,
                                         size_t bytes);

enum ferry_status ferry_boot_open_self(struct ferry_ctx *ctx,
                                       struct ferry_boot **boot);

/* The caller's own way to meet; waits for the caller's barrier. */
enum ferry_status ferry_boot_open_callbacks(
	struct ferry_ctx *ctx, const struct ferry_boot_callbacks *callbacks,
	int32_t rank, int32_t n_ranks, struct ferry_boot **boot);

#endif
