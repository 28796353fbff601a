/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks of the lean dispatch kernel, for whoever looks for time: in builds
 * with -DLEAN_TRACE of it and of dispatch_lines.cu, which then gives them room
 * in the scratch of an operation; dev/cuda_try.c prints them.
 */
#ifndef FERRY_DISPATCH_LEAN_TRACE_CUH
#define FERRY_DISPATCH_LEAN_TRACE_CUH

#include <stddef.h>
#include <stdint.h>

enum { LEAN_MARKS = 32 };

#ifdef LEAN_TRACE

static inline size_t lean_trace_bytes(int32_t ctas)
{
	return (size_t)ctas * LEAN_MARKS * sizeof(int64_t) + 16;
}

/* Scratch may begin at any byte. */
static __device__ __forceinline__ long long *lean_marks(const void *scratch)
{
	return (long long *)(((uintptr_t)scratch + 15) & ~(uintptr_t)15) +
	       blockIdx.x * LEAN_MARKS;
}

#define LEAN_MARK_OF(l, i, t)                                                  \
	do {                                                                   \
		if ((l)->thread == (t))                                        \
			lean_marks((l)->d->op.scratch)[i] = clock64();         \
	} while (0)

#else

static inline size_t lean_trace_bytes(int32_t ctas)
{
	(void)ctas;
	return 0;
}

#define LEAN_MARK_OF(l, i, t)

#endif

#define LEAN_MARK(l, i) LEAN_MARK_OF(l, i, 0)

#endif
