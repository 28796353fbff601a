/* SPDX-License-Identifier: Apache-2.0 */
/* Lines under stress: is any ever seen in part? See cuda/cuda_check.h. */
#ifndef FERRY_GPU_LINES_H
#define FERRY_GPU_LINES_H

#include "check.h"
#include "gpu_seat.h"

/*
 * Collective; about work->shapes_ms / 4, at least one run of millions. Ranks
 * that do not all have NVLink or one GPU: nothing is run. False after a
 * complaint.
 */
bool gpu_lines_check(struct gpu_seat *seat, const struct check_work *work,
                     struct check_tally *tally);

#endif
