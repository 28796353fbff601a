/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels by name. One that is to replace a kernel of the library gets a name
 * here beside it, until it has, or has lost.
 */
#ifndef CUDA_RUNGS_H
#define CUDA_RUNGS_H

#include <stdbool.h>

#include "cuda_harness.h"

/* lines, chunks. False: no such name. */
bool rungs_find(const char *name, struct harness_kernels *kernels);

#endif
