/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job of dispatch and combine as all-to-all by NCCL: grouped sends and
 * receives, one row for each (token, choice). Only the exchange is timed: no
 * packing, no order, no sum; counts are known beforehand. So it is faster than
 * any whole use of it.
 */
#ifndef FERRY_GPU_NCCL_H
#define FERRY_GPU_NCCL_H

#include "gpu_time.h"
#include "nccl_api.h"

/* One rank's communicator, from the first shape to the last. */
struct gpu_nccl {
	struct gpu_seat *seat;
	struct nccl_api api;
	struct ncclComm *comm;
};

/*
 * Collective over the crew; rank 0 writes *id, which all share. False after a
 * complaint.
 */
bool gpu_nccl_open(struct gpu_nccl *nccl, struct gpu_seat *seat,
                   struct nccl_id *id);
void gpu_nccl_close(struct gpu_nccl *nccl);

/*
 * dense: room for all tokens at every expert is exchanged, as a padded
 * all-to-all does. Otherwise exactly the rows that there are. Times, and
 * counts wrong bytes into wrong [2].
 */
bool gpu_nccl_run(struct gpu_nccl *nccl, const struct bench_case *c, bool dense,
                  const struct gpu_timing *timing, int64_t *wrong);

#endif
