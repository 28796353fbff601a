/* SPDX-License-Identifier: Apache-2.0 */
/* The thread in the process of rank 0 that serves the sockets of the hub. */
#ifndef FERRY_HUB_LOOP_H
#define FERRY_HUB_LOOP_H

#include "address.h"
#include "message.h"

struct ferry_hub_loop;

/* What the hub is for; secret lives as long as the loop. */
struct ferry_hub_job {
	struct ferry_ctx *ctx;
	const struct ferry_address *address;
	const struct ferry_secret *secret;
	int32_t n_ranks;
	uint32_t patience_ms; /* of rank 0 */
	uint64_t deadline_ns;
};

/*
 * Listens and starts. *fd is the connection of rank 0, introduced already;
 * when it is closed the hub tells the others and ends.
 */
enum ferry_status ferry_hub_start(const struct ferry_hub_job *job,
                                  struct ferry_hub_loop **loop, int *fd);

/* After *fd is closed: waits for the end, at most half a second. */
void ferry_hub_stop(struct ferry_hub_loop *loop);

#endif
