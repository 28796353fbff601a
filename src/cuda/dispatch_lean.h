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

/*
 * 0: every call takes the general kernel. It stays so until the tests of the
 * engine have passed on GPUs in a build with CMAKE_CUDA_FLAGS=-DLEAN_IS_USED=1;
 * dev/cuda-lean.md. `cuda_try` of dev/ takes this kernel in any build.
 */
#ifndef LEAN_IS_USED
#define LEAN_IS_USED 0
#endif
/*
 * 1: launched early where there is room, once that has been tried with events
 * between kernels, and in captures of the engine.
 */
#ifndef LEAN_IS_EARLY
#define LEAN_IS_EARLY 0
#endif

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
