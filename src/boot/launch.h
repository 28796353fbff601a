/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says about this process: its rank, how many there are,
 * and where rank 0 is to be met. Variables of ferry run, torchrun, Open MPI,
 * MPICH and others with PMI, and SLURM.
 */
#ifndef FERRY_LAUNCH_H
#define FERRY_LAUNCH_H

#include "address.h"

struct ferry_launch {
	const char *name; /* "torchrun"; NULL: nobody has launched us */
	int32_t rank;
	int32_t n_ranks;
	char address[FERRY_ADDRESS_BYTES + 16]; /* "" for one rank */
};

/* INVAL: values that cannot be, or no way to find rank 0. */
enum ferry_status ferry_launch_read(struct ferry_ctx *ctx,
                                    struct ferry_launch *launch);

/*
 * First host of a SLURM node list: "gpu[07-12,15],cpu1" is "gpu07". False for
 * text that is none, or that does not fit.
 */
bool ferry_nodelist_first(const char *list, char *host, size_t bytes);

#endif
