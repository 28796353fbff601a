/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for a channel after any failure, on every rank. */
#ifndef BROKEN_H
#define BROKEN_H

#include "drive.h"

/*
 * A call on d has just answered `status`: its message, the record of channel
 * and world, and every later call must fit. `part` is in the message.
 */
void broken_check(struct rank *rank, struct drive *d, enum ferry_status status,
                  int32_t root, const char *part);

/* Closes d, opens another channel of the same world and uses it. */
void broken_reopen(struct rank *rank, struct drive *d);

/*
 * All ranks that came here agree: the same status and root. `meeting` as for
 * ranks_meet; board is rank->shared, of BROKEN_SHARED bytes.
 */
enum { BROKEN_SHARED = 4096 };
void broken_same_root(struct rank *rank, const struct drive *d, int meeting,
                      int n_survivors);

#endif
