/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales travel with their row and arrive as an output of their own, in the
 * form that the caller's GEMM wants: by rows, by columns, or packed into words.
 */
#include <string.h>

#include "cpu_engine.h"

/* Where a row's entry of column 0 lies: PADDED has a matrix for each slot. */
static char *column_start(const struct ferry_shape *shape,
                          const struct ferry_dispatch_out *out, int64_t row,
                          size_t element, size_t n_columns)
{
	char *matrix = out->scales;

	if (shape->layout == FERRY_EXPERT_PADDED) {
		matrix += (size_t)(row / shape->padded_rows) * n_columns *
		          out->scales_stride;
		row %= shape->padded_rows;
	}
	return matrix + (size_t)row * element;
}

static void spread_columns(const struct ferry_shape *shape,
                           const struct cpu_op *op,
                           const struct ferry_dispatch_out *out, int64_t row,
                           const char *scales)
{
	const size_t element = ferry_scale_entry_bytes(shape, out->scale_form);
	const size_t n_columns = (op->scale_bytes + element - 1) / element;
	char *to = column_start(shape, out, row, element, n_columns);

	for (size_t c = 0; c < n_columns; c++) {
		const size_t left = op->scale_bytes - c * element;
		char *entry = to + c * out->scales_stride;

		if (left >= element) {
			memcpy(entry, scales + c * element, element);
			continue;
		}
		/* The last word of packed scales: missing blocks are 0. */
		memset(entry, 0, element);
		memcpy(entry, scales + c * element, left);
	}
}

void ferry_cpu_scales_spread(const struct ferry_shape *shape,
                             const struct cpu_op *op,
                             const struct ferry_dispatch_out *out,
                             const int64_t *rows, int32_t n_rows,
                             const char *scales)
{
	for (int32_t i = 0; i < n_rows; i++) {
		if (out->scale_form != FERRY_SCALES_ROW_MAJOR) {
			spread_columns(shape, op, out, rows[i], scales);
			continue;
		}
		memcpy((char *)out->scales +
		               (size_t)rows[i] * out->scales_stride,
		       scales, op->scale_bytes);
	}
}
