/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way of dispatch on lines, for calls that want nothing unusual:
 * what ferry_cuda_dispatch_lines launches where it fits. Same tables, lines,
 * epochs and failures; ranks and calls of one channel may differ in the way
 * they take.
 */
#ifndef FERRY_DISPATCH_LEAN_H
#define FERRY_DISPATCH_LEAN_H

#include <stdbool.h>

#include "cuda_args.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

bool ferry_dispatch_lean_fits(const struct ferry_cuda_dispatch *d,
                              int32_t ctas);
/* Sets attributes; on the current device. A CUDA error. */
int ferry_dispatch_lean_load(void);
int ferry_dispatch_lean_launch(const struct ferry_cuda_dispatch *d,
                               int32_t ctas, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
