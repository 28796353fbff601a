/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that tell who sent them to whom, for checks of all-to-alls. */
#ifndef FERRY_GPU_MARKS_H
#define FERRY_GPU_MARKS_H

#include <stdint.h>

#include "gpu_seat.h"

/* The byte that `from` sends to `to`. */
static inline int gpu_mark(int32_t from, int32_t to)
{
	return (from * 31 + to * 7 + 1) & 0xff;
}

/*
 * `bytes` from rank r at `at` of the device: adds those that are not its mark
 * to *wrong. False after a complaint.
 */
bool gpu_compare(const struct gpu_seat *s, const char *at, size_t bytes,
                 int32_t r, int64_t *wrong);

#endif
