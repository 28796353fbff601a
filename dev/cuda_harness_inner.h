/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the harness share. */
#ifndef CUDA_HARNESS_INNER_H
#define CUDA_HARNESS_INNER_H

#include <cuda_runtime_api.h>

#include "cuda_harness.h"

/* Ends the program with the error. */
void harness_cuda(int error, const char *what, int line);
#define CU(call) harness_cuda((int)(call), #call, __LINE__)
#define OK(call)                                                               \
	do {                                                                   \
		if ((call) != FERRY_OK) {                                      \
			printf("line %d: %s\n", __LINE__, ferry_last_error()); \
			exit(1);                                               \
		}                                                              \
	} while (0)

/* Makes the GPU of a rank current. */
void harness_on(const struct harness *h, int32_t rank);
void harness_drop(struct harness *h, int32_t rank, struct harness_array *a);
void harness_free_want(struct ferry_dispatch_out *want);
/* Of the batch of a slot; in: room for all ranks, as long as it lives. */
struct oracle *harness_oracle(struct harness *h, int32_t slot,
                              struct ferry_dispatch_in *in);

#endif
