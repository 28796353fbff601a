/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that is late with what it writes, yet lets the next one in its
 * stream start: what test_cuda_early puts in front of combine.
 */
#ifndef LATE_H
#define LATE_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

struct late_copy {
	uint8_t *to;
	const uint8_t *from;
	size_t bytes;
};

/*
 * Enqueues a kernel that waits for `ns`, then copies a, then b. What follows in
 * the stream may start at its beginning, if launched so that it may. A
 * cudaError_t.
 */
#ifdef __cplusplus
extern "C"
#endif
	int
	late_launch(const struct late_copy *a, const struct late_copy *b,
                    uint64_t ns, struct CUstream_st *stream);

#endif
