/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of one process, and what only such ranks can do. */
#ifndef FERRY_TEAM_H
#define FERRY_TEAM_H

#include "boot.h"

enum ferry_status ferry_boot_open_team(struct ferry_ctx *ctx,
                                       struct ferry_team *team, int32_t rank,
                                       struct ferry_boot **boot);

/* A rank that is to look dead to its peers (fault injection, threads). */
void ferry_boot_die(struct ferry_boot *boot);

/* True when the boot's ranks are all threads of this process. */
bool ferry_boot_is_team(const struct ferry_boot *boot);

#endif
