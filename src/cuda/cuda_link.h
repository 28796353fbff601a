/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies between two GPUs of this machine, for `ferry info`. In every build:
 * without CUDA nothing is known.
 */
#ifndef FERRY_CUDA_LINK_H
#define FERRY_CUDA_LINK_H

#include <stdint.h>

#include "../core/ctx.h"

enum ferry_cuda_link_kind {
	FERRY_LINK_NONE, /* no peer access */
	FERRY_LINK_PCIE,
	FERRY_LINK_NVLINK,
};

struct ferry_cuda_link {
	enum ferry_cuda_link_kind kind;
	int32_t n_links; /* of NVLink; 0: not known */
	double gb_per_s; /* of stores of a kernel; 0: not measured */
	double flag_ns;  /* a flag there and back; 0: not measured */
};

/* What kernels of GPU `from` use towards GPU `to`. Makes no context. */
void ferry_cuda_link_get(int32_t from, int32_t to,
                         struct ferry_cuda_link *link);

/*
 * Measures bandwidth and latency of a link that is not NONE: some
 * milliseconds, and the time that contexts take. Errors: CUDA, NOMEM,
 * UNSUPPORTED.
 */
enum ferry_status ferry_cuda_link_measure(int32_t from, int32_t to,
                                          struct ferry_cuda_link *link);

#endif
