/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two ranks reach with puts and signals alone: both do the same at the
 * same time, each in its direction. ferry model --measure and ferry check
 * --hosts stand on it. Which pieces a channel's rows are cut into is in
 * bench_raw.c.
 */
#ifndef FERRY_RAW_LINK_H
#define FERRY_RAW_LINK_H

#include <stdint.h>

#include "fabric/pairs.h"

/* Of one rank towards one peer; zero where nothing was measured. */
struct raw_link {
	double flag_p50_us, flag_p99_us; /* signal to wait, one way */
	double bytes_per_s; /* out, while as much comes in; best of passes */
	double gap_us;      /* a signal, of many at once */
	int64_t wrong;      /* bytes that came and were not what was put */
};

/* A segment in which all pairs of a world can meet, and what was seen. */
struct raw_ground {
	struct ferry_world *world;
	struct ferry_pairs pairs;
	uint8_t *base;
	size_t piece_bytes; /* of a put */
};

/* Collective. Close also after a failure. */
enum ferry_status raw_ground_open(struct ferry_world *world,
                                  struct raw_ground *ground) FERRY_MUST_CHECK;
void raw_ground_close(struct raw_ground *ground);

/*
 * Called by both ranks, each with the other as peer. What was measured before a
 * failure stays in *link.
 */
enum ferry_status raw_link_measure(struct raw_ground *ground, int32_t peer,
                                   struct raw_link *link) FERRY_MUST_CHECK;

#endif
