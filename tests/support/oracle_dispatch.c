/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's dispatch_recv: writes what the library must write. */
#include <string.h>

#include "oracle_float.h"
#include "oracle_inner.h"

/* Row of the output that a kept row is in; TOKEN: its list entry. */
static int64_t row_at(const struct oracle *o, const struct oracle_row *row)
{
	return o->config.layout == FERRY_EXPERT_PADDED ? row->padded
	                                               : row->packed;
}

static void write_payload(const struct oracle *o, const struct oracle_row *row,
                          uint8_t *to)
{
	const enum ferry_dtype dtype = o->config.dtype;
	const uint8_t *from;
	const uint8_t *scales;

	oracle_payload(o, row->group, row->token, &from, &scales);
	if (o->config.weight_use != FERRY_WEIGHT_INPUT) {
		memcpy(to, from, o->row_bytes);
		return;
	}
	for (size_t i = 0; i < (size_t)o->hidden; i++)
		oracle_store(to, i, dtype,
		             oracle_load(from, i, dtype) * row->weight);
}

void oracle_row_bits(const struct oracle *o, const struct oracle_row *row,
                     uint8_t *payload, const uint8_t **scales)
{
	const uint8_t *unused;

	write_payload(o, row, payload);
	oracle_payload(o, row->group, row->token, &unused, scales);
}

static size_t up16(size_t bytes)
{
	return (bytes + 15) / 16 * 16;
}

static void write_row_major(const struct oracle *o,
                            const struct ferry_dispatch_out *out, int64_t at,
                            const uint8_t *scales)
{
	const size_t stride =
		out->scales_stride ? out->scales_stride : o->scale_bytes;

	memcpy((uint8_t *)out->scales + stride * (size_t)at, scales,
	       o->scale_bytes);
}

/*
 * Column forms. A matrix has `rows` rows and `columns` columns of `element`
 * bytes; a column takes bytes column*element.. of the row's scales, and what
 * the row has not is 0.
 */
static void write_columns(const struct oracle *o,
                          const struct ferry_dispatch_out *out, int64_t at,
                          const uint8_t *scales)
{
	const bool packed = out->scale_form == FERRY_SCALES_PACKED_UE8M0;
	const bool wide = packed || o->config.scale_type == FERRY_SCALE_FP32;
	const size_t element = wide ? 4 : 1;
	const size_t columns = (o->scale_bytes + element - 1) / element;
	const int64_t rows = o->config.layout == FERRY_EXPERT_PADDED
	                             ? o->need.recv_rows_slot
	                             : o->need.recv_rows;
	const size_t stride = out->scales_stride ? out->scales_stride
	                                         : up16((size_t)rows * element);
	uint8_t *matrix =
		(uint8_t *)out->scales + (size_t)(at / rows) * columns * stride;

	for (size_t column = 0; column < columns; column++)
		for (size_t byte = 0; byte < element; byte++) {
			const size_t i = column * element + byte;

			matrix[column * stride + (size_t)(at % rows) * element +
			       byte] = i < o->scale_bytes ? scales[i] : 0;
		}
}

static void write_row(const struct oracle *o,
                      const struct ferry_dispatch_out *out,
                      const struct oracle_row *row, int64_t at)
{
	const size_t stride = out->row_stride ? out->row_stride : o->row_bytes;
	const uint8_t *unused;
	const uint8_t *scales;

	if (out->rows != NULL)
		write_payload(o, row,
		              (uint8_t *)out->rows + stride * (size_t)at);
	if (out->scales == NULL)
		return;
	oracle_payload(o, row->group, row->token, &unused, &scales);
	if (out->scale_form == FERRY_SCALES_ROW_MAJOR)
		write_row_major(o, out, at, scales);
	else
		write_columns(o, out, at, scales);
}

/* Everything that has N entries, before the rows are known: padding. */
static void write_padding(const struct oracle *o,
                          const struct ferry_dispatch_out *out)
{
	for (int64_t i = 0; i < o->need.recv_rows; i++) {
		if (out->row_expert_slot != NULL)
			out->row_expert_slot[i] = -1;
		if (out->row_source != NULL)
			out->row_source[i] = -1;
		if (out->row_token != NULL)
			out->row_token[i] = -1;
		if (out->row_weight != NULL)
			out->row_weight[i] = 0;
		if (out->index != NULL)
			out->index[i] = -1;
	}
}

static void write_entry(const struct ferry_dispatch_out *out,
                        const struct oracle_row *row, int64_t at)
{
	if (out->row_expert_slot != NULL)
		out->row_expert_slot[at] = row->slot;
	if (out->row_source != NULL)
		out->row_source[at] = row->source;
	if (out->row_token != NULL)
		out->row_token[at] = row->token;
	if (out->row_weight != NULL)
		out->row_weight[at] = row->weight;
	if (out->index != NULL)
		out->index[at] = row->view;
}

static void write_counts(const struct oracle *o, const struct oracle_rank *r,
                         const struct ferry_dispatch_out *out)
{
	for (int32_t slot = 0; slot <= r->n_slots; slot++) {
		if (out->counts != NULL && slot < r->n_slots)
			out->counts[slot] = r->counts[slot];
		if (out->offsets == NULL)
			continue;
		if (o->config.layout == FERRY_EXPERT_PADDED)
			out->offsets[slot] = slot * o->need.recv_rows_slot;
		else
			out->offsets[slot] = r->offsets[slot];
	}
	if (out->n_rows != NULL)
		*out->n_rows = r->n_rows;
	if (out->n_dropped != NULL)
		*out->n_dropped = r->n_dropped;
}

static void write_token_tables(const struct oracle *o,
                               const struct oracle_rank *r,
                               const struct ferry_dispatch_out *out)
{
	const int32_t topk = o->config.topk;
	const int64_t n = 2 * o->n_ranks * o->cap * topk;

	for (int64_t i = 0; i < n; i++) {
		if (out->token_slots != NULL)
			out->token_slots[i] = -1;
		if (out->token_weights != NULL)
			out->token_weights[i] = 0;
	}
	for (int64_t i = 0; i < r->n_rows; i++) {
		const struct oracle_row *row = &r->rows[i];
		const int64_t at = row->view * topk + row->choice;

		if (out->token_slots != NULL)
			out->token_slots[at] = row->slot;
		if (out->token_weights != NULL)
			out->token_weights[at] = row->weight;
	}
}

void oracle_dispatch(const struct oracle *o, int32_t rank,
                     const struct ferry_dispatch_out *out)
{
	const struct oracle_rank *r = &o->ranks[rank];
	struct oracle_fp fp;

	oracle_fp_enter(&fp);
	write_padding(o, out);
	for (int64_t i = 0; i < r->n_rows; i++) {
		const int64_t at = row_at(o, &r->rows[i]);

		write_entry(out, &r->rows[i], at);
		write_row(o, out, &r->rows[i], at);
	}
	write_counts(o, r, out);
	if (out->token_slots != NULL || out->token_weights != NULL)
		write_token_tables(o, r, out);
	oracle_fp_leave(&fp);
}

int64_t oracle_view_differs(const struct oracle *o, int32_t rank,
                            const struct ferry_moe_view *view)
{
	const struct oracle_rank *r = &o->ranks[rank];

	for (int64_t i = 0; i < r->n_rows; i++) {
		const struct oracle_row *row = &r->rows[i];
		const size_t at = (size_t)row->view * view->row_stride;
		const uint8_t *payload;
		const uint8_t *scales;

		oracle_payload(o, row->group, row->token, &payload, &scales);
		if (memcmp((const uint8_t *)view->rows + at, payload,
		           o->row_bytes) != 0)
			return row->view;
		if (scales != NULL && memcmp((const uint8_t *)view->scales + at,
		                             scales, o->scale_bytes) != 0)
			return row->view;
	}
	return -1;
}
