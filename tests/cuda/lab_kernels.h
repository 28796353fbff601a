/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of the tests' own: to keep a stream busy, to hold it until the host
 * says go, to see that a context is alive. All are bounded.
 */
#ifndef LAB_KERNELS_H
#define LAB_KERNELS_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

/* All of these give a cudaError_t. Loads every kernel: none is lazy. */
int lab_load(void);
/* Nothing for so long. */
int lab_sleep(uint64_t ns, struct CUstream_st *stream);
/* Waits until *word (pinned) is not 0, at most limit_ns. */
int lab_hold(const uint32_t *word, uint64_t limit_ns,
             struct CUstream_st *stream);
/* Adds `addend` to each of n numbers. */
int lab_add(uint32_t *numbers, uint32_t n, uint32_t addend,
            struct CUstream_st *stream);

struct lab_copies {
	int32_t n;
	struct {
		uint8_t *to;
		const uint8_t *from;
		size_t bytes;
	} of[24];
};
/*
 * Copies after so long, and lets the next kernel start before, if that was
 * launched so (programmatic stream serialization).
 */
int lab_copy_late(const struct lab_copies *copies, uint64_t ns,
                  struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
