/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of CUDA worlds, dealt out to the GPUs in turn. */
#ifndef P2P_RANKS_H
#define P2P_RANKS_H

#include <ferry/fabric.h>

#include "ranks.h"

extern int32_t p2p_n_gpus;

/* Ordinal of a rank's GPU. */
int32_t p2p_gpu(int32_t rank);

/*
 * Reads "threads" or "processes" and counts GPUs; 0, or what main has to
 * return, with the reason printed.
 */
int p2p_begin(int argc, char **argv);

/* How to run n ranks of that kind on worlds of the GPUs. */
struct ranks p2p_ranks(int32_t n_ranks);

#endif
