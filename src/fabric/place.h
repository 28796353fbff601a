/* SPDX-License-Identifier: Apache-2.0 */
/* Where this rank lives, and what follows from where all ranks live. */
#ifndef FERRY_PLACE_H
#define FERRY_PLACE_H

#include <string.h>

#include "world.h"

void ferry_place_read(struct ferry_place *place);

/*
 * Makes the place one of the host that the options say: a host never spans two
 * machines, but one machine may be several.
 */
void ferry_place_set_host(const struct ferry_ctx *ctx, int32_t rank,
                          struct ferry_place *place);

/* Hosts, and machines, among n places. */
int32_t ferry_place_hosts(const struct ferry_place *places, int32_t n);
int32_t ferry_place_machines(const struct ferry_place *places, int32_t n);

/* Ranks on the host of rank `rank`. */
int32_t ferry_place_host_ranks(const struct ferry_place *places, int32_t n,
                               int32_t rank);

/* Ranks on the machine of rank `rank`. */
int32_t ferry_place_machine_ranks(const struct ferry_place *places, int32_t n,
                                  int32_t rank);

/* Ranks on the GPU of rank `rank`; 0: it has none. */
int32_t ferry_place_gpu_ranks(const struct ferry_place *places, int32_t n,
                              int32_t rank);

/*
 * CPUs that the ranks on the machine of rank `rank` may use together, at least
 * 1: equal sets count once, for launchers bind each rank to a set of its own.
 */
int32_t ferry_place_machine_cores(const struct ferry_place *places, int32_t n,
                                  int32_t rank);

/*
 * Which of n >= 1 NICs, by PCI address ("": not known), this rank takes:
 * see nearby.h.
 */
int32_t ferry_place_nic(const struct ferry_world *world, const char *const *pci,
                        int32_t n);

/* Why ranks on several hosts are not on one, for a fabric's refusal. */
void ferry_place_say_hosts(const struct ferry_world *world, char *reason,
                           size_t bytes);

static inline bool ferry_place_same_host(const struct ferry_place *a,
                                         const struct ferry_place *b)
{
	return a->host_id == b->host_id;
}

static inline bool ferry_place_same_machine(const struct ferry_place *a,
                                            const struct ferry_place *b)
{
	return a->machine_id == b->machine_id;
}

static inline bool ferry_place_same_process(const struct ferry_place *a,
                                            const struct ferry_place *b)
{
	return ferry_place_same_machine(a, b) && a->process_id == b->process_id;
}

static inline bool ferry_place_same_gpu(const struct ferry_place *a,
                                        const struct ferry_place *b)
{
	return ferry_place_same_machine(a, b) &&
	       !memcmp(a->gpu, b->gpu, sizeof(a->gpu));
}

#endif
