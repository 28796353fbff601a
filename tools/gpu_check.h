/* SPDX-License-Identifier: Apache-2.0 */
/* The self-test of GPUs on the ranks of a crew. Needs no CUDA header. */
#ifndef FERRY_GPU_CHECK_H
#define FERRY_GPU_CHECK_H

#include "check.h"

/*
 * Body of a crew with cuda; arg is a struct check_work: primitives of the
 * fabric, lines that one GPU writes and another polls, and shapes drawn at
 * random.
 */
int gpu_check_body(const struct crew_member *me, void *arg);

#endif
