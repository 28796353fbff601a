/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank gives a few bytes, and every rank gets those of all, again and
 * again: a segment of two halves, chosen by the parity of the round. What sums
 * over ranks, the exact split and the agreement on plans stand on.
 *
 * A rank that sends round n + 2 has received round n + 1, hence holds what
 * every other rank sent after it had received round n: nobody reads the half
 * that is overwritten. That needs what was received of a round to be read
 * before the next send.
 */
#ifndef FERRY_GATHER_H
#define FERRY_GATHER_H

#include <ferry/fabric.h>

struct ferry_gather;

/*
 * Collective, equal `bytes` (>= 1) on all ranks. `what` names the owner in
 * texts; it must stay. Errors: as ferry_segment_open.
 */
enum ferry_status ferry_gather_open(struct ferry_world *world, const char *what,
                                    size_t bytes, struct ferry_gather **gather);
void ferry_gather_close(struct ferry_gather *gather);

/*
 * Sends own[bytes] to all; read before it returns. Never waits for a peer.
 * Errors: STATE (the round before was not received), those of a segment.
 */
enum ferry_status ferry_gather_send(struct ferry_gather *gather,
                                    const void *own);

/*
 * Waits, bounded, for all ranks' bytes of the round that was sent: *all is
 * [n_ranks] entries, *stride bytes apart, valid until the next send. Errors:
 * STATE (nothing was sent), those of a segment.
 */
enum ferry_status ferry_gather_recv(struct ferry_gather *gather,
                                    const void **all, size_t *stride);

#endif
