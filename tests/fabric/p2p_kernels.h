/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that tests of fabric p2p run, on the thread's current device. All
 * return a cudaError_t.
 */
#ifndef P2P_KERNELS_H
#define P2P_KERNELS_H

#include <stdint.h>

#ifdef __CUDACC__
#define P2P_EVERYWHERE __host__ __device__
#else
#define P2P_EVERYWHERE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Word i of the pattern of a key. */
P2P_EVERYWHERE static inline uint64_t p2p_word(uint64_t key, uint64_t i)
{
	uint64_t z = key * 0xff51afd7ed558ccdu + i * 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 31);
}

/* Stores a pattern. */
int p2p_store(uint64_t *to, uint64_t n_words, uint64_t key);
/* Loads words and tells the first that differs; n_words: none. */
int p2p_compare(const uint64_t *from, uint64_t n_words, uint64_t key,
                uint64_t *differs);
/*
 * Begins to store patterns with keys 0, 1, ... over and over, for `us`
 * microseconds, the last one at the end with key ~0. *rounds (mapped host
 * memory) counts. The others have ended at return, this one after p2p_sync.
 */
int p2p_store_for(uint64_t *to, uint64_t n_words, int64_t us, uint64_t *rounds);
int p2p_sync(void);

#ifdef __cplusplus
}
#endif
#endif
