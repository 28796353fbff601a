/* SPDX-License-Identifier: Apache-2.0 */
/* A random channel and random operations on it, from a seed. */
#ifndef RANDOM_CASE_H
#define RANDOM_CASE_H

#include "drive.h"

enum { RANDOM_CASE_SLOTS = 3, RANDOM_CASE_HOSTS = 4 };

struct random_case {
	uint64_t seed;
	struct ferry_moe_config config;
	bool deep;   /* large */
	bool placed; /* `placement` is used */
	struct ferry_placement_config placement;
	int32_t expert_slots[RANKS_MAX];
	int32_t slot_expert[512];
	int64_t quota[512]; /* of a placement with split QUOTA */
	int32_t n_steps;
	int32_t n_hosts; /* that the ranks are on, 1..RANDOM_CASE_HOSTS */
	bool in_turn;    /* rank r on host r mod n_hosts */
};

void random_case_make(struct random_case *c, uint64_t seed, int32_t n_ranks);

/*
 * Step number `i` as `rank` does it. It may be one that must fail. `combine`:
 * whether the ranks combine. Equal on all ranks where it must be.
 */
void random_case_step(const struct random_case *c, int32_t i, int32_t rank,
                      struct drive_step *step, bool *combine);

/* The option that puts a rank on its host. */
const char *random_case_host(const struct random_case *c, int32_t rank);

/* One line that tells what is tried. */
void random_case_print(const struct random_case *c);

#endif
