/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that measure a link; see link_probe.cu. */
#ifndef FERRY_LINK_PROBE_H
#define FERRY_LINK_PROBE_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

/* All return a cudaError_t and launch on the current device. */

/* Stores bytes (a multiple of 16), times over. */
int ferry_probe_store(void *to, size_t bytes, int32_t times,
                      struct CUstream_st *stream);

/*
 * One end of a flag that goes there and back `rounds` times: `first` stores
 * into *peer and waits for *own, the other end the other way round. *ns, where
 * not NULL: time of all rounds but the first; 0 when the other end did not
 * come within a second.
 */
int ferry_probe_flag(uint64_t *own, uint64_t *peer, int32_t rounds, int first,
                     uint64_t *ns, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
