/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job of dispatch and combine as NVSHMEM's dense all-to-all: every rank
 * sends room for all of its tokens to every expert. Only the exchange is timed,
 * as with NCCL.
 */
#ifndef FERRY_GPU_NVSHMEM_H
#define FERRY_GPU_NVSHMEM_H

#include "fabric/nvshmem_module.h"
#include "gpu_time.h"

/* What the ranks share: rank 0 writes it. */
struct gpu_nvshmem_id {
	uint8_t bytes[FERRY_NVSHMEM_ID_BYTES];
	char version[32];
};

/* One rank's PE, from the first shape to the last. */
struct gpu_nvshmem {
	struct gpu_seat *seat;
	const struct ferry_nvshmem_ops *ops;
	struct ferry_nvshmem *pe; /* NULL: none */
	bool own;                 /* not that of the world */
};

/*
 * Collective over the crew. NVSHMEM is the world's where that is on fabric
 * nvshmem, else it is opened beside it. False after a complaint.
 */
bool gpu_nvshmem_open(struct gpu_nvshmem *nvshmem, struct gpu_seat *seat,
                      struct gpu_nvshmem_id *id);
/* Collective, before the seat is closed. */
void gpu_nvshmem_close(struct gpu_nvshmem *nvshmem);

/* Times, and counts wrong bytes into wrong [2]. Collective. */
bool gpu_nvshmem_run(struct gpu_nvshmem *nvshmem, const struct bench_case *c,
                     const struct gpu_timing *timing, int64_t *wrong);

#endif
