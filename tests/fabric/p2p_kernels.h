/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that tests of fabric p2p run; each has ended at return. */
#ifndef P2P_KERNELS_H
#define P2P_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * They run on the thread's current device and return a cudaError_t. Word i of
 * a pattern is p2p_word(key, i).
 */
static inline
#ifdef __CUDACC__
	__host__ __device__
#endif
		uint64_t
		p2p_word(uint64_t key, uint64_t i)
{
	uint64_t z = key * 0xff51afd7ed558ccdu + i * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 31);
}

/* Stores a pattern. */
int p2p_store(uint64_t *to, uint64_t n_words, uint64_t key);
/* Loads words until one differs from the pattern: its index; n_words: none. */
int p2p_compare(const uint64_t *from, uint64_t n_words, uint64_t key,
                uint64_t *differs);
/*
 * Stores patterns with keys 0, 1, ... over and over, for `us` microseconds;
 * raises *rounds (mapped host memory) after each, by one thread.
 */
int p2p_store_for(uint64_t *to, uint64_t n_words, int64_t us, uint64_t *rounds);

#ifdef __cplusplus
}
#endif
#endif
