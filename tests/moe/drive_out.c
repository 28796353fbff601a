/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of dispatch: two of each, the library's and the oracle's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drive_inner.h"
#include "oracle_float.h"

static const struct {
	const char *name;
	size_t at; /* of the pointer in the struct */
} fields[DRIVE_N_BUFFERS] = {
#define FIELD(id, field)                                                       \
	[id] = {#field, offsetof(struct ferry_dispatch_out, field)}
	FIELD(DRIVE_ROWS, rows),
	FIELD(DRIVE_SCALES, scales),
	FIELD(DRIVE_COUNTS, counts),
	FIELD(DRIVE_OFFSETS, offsets),
	FIELD(DRIVE_ROW_EXPERT_SLOT, row_expert_slot),
	FIELD(DRIVE_ROW_SOURCE, row_source),
	FIELD(DRIVE_ROW_TOKEN, row_token),
	FIELD(DRIVE_ROW_WEIGHT, row_weight),
	FIELD(DRIVE_INDEX, index),
	FIELD(DRIVE_N_ROWS, n_rows),
	FIELD(DRIVE_N_DROPPED, n_dropped),
	FIELD(DRIVE_TOKEN_SLOTS, token_slots),
	FIELD(DRIVE_TOKEN_WEIGHTS, token_weights),
#undef FIELD
};

static enum ferry_dtype row_dtype(const struct drive_op *op)
{
	return op->d->config.dtype ? op->d->config.dtype : FERRY_BF16;
}

size_t drive_row_bytes(const struct drive_op *op)
{
	return (size_t)op->hidden * oracle_dtype_bytes(row_dtype(op));
}

size_t drive_scale_bytes(const struct drive_op *op)
{
	return traffic_scale_bytes(&op->d->config, op->hidden);
}

static bool sends_weights(const struct ferry_moe_config *config)
{
	return config->send_weights || config->combine == FERRY_REDUCED ||
	       config->weight_use == FERRY_WEIGHT_INPUT;
}

static bool is_there(const struct drive_op *op, enum drive_buffer_id id)
{
	const struct ferry_moe_config *config = &op->d->config;
	const bool token = config->layout == FERRY_TOKEN;

	switch (id) {
	case DRIVE_ROWS:
		return !token; /* and never left out */
	case DRIVE_SCALES:
		if (token || drive_scale_bytes(op) == 0)
			return false;
		break;
	case DRIVE_ROW_WEIGHT:
		if (!sends_weights(config))
			return false;
		break;
	case DRIVE_INDEX:
	case DRIVE_TOKEN_SLOTS:
		if (!token)
			return false;
		break;
	case DRIVE_TOKEN_WEIGHTS:
		if (!token || !sends_weights(config))
			return false;
		break;
	default:
		break;
	}
	return !(op->step.leave >> id & 1);
}

static int32_t own_slots(const struct drive *d)
{
	const int32_t *given = d->placement_config != NULL
	                               ? d->placement_config->expert_slots
	                               : d->config.expert_slots;

	if (given != NULL)
		return given[d->rank];
	return d->config.n_experts / d->config.n_ranks +
	       (d->rank < d->config.n_experts % d->config.n_ranks);
}

/* Columns and bytes from column to column of a matrix of scales. */
static size_t scale_columns(const struct drive_op *op, size_t *stride)
{
	const bool packed = op->step.scale_form == FERRY_SCALES_PACKED_UE8M0;
	const bool wide =
		packed || op->d->config.scale_type == FERRY_SCALE_FP32;
	const size_t element = wide ? 4 : 1;
	const int64_t rows = op->d->config.layout == FERRY_EXPERT_PADDED
	                             ? op->d->need.recv_rows_slot
	                             : op->d->need.recv_rows;

	*stride = ((size_t)rows * element + 15) / 16 * 16;
	if (op->step.slack)
		*stride += 16;
	return (drive_scale_bytes(op) + element - 1) / element;
}

static size_t scales_bytes(const struct drive_op *op)
{
	const size_t rows = (size_t)op->d->need.recv_rows;
	size_t stride;
	size_t columns;

	if (op->step.scale_form == FERRY_SCALES_ROW_MAJOR)
		return rows * (drive_scale_bytes(op) + op->step.slack);
	columns = scale_columns(op, &stride);
	if (op->d->config.layout == FERRY_EXPERT_PADDED)
		columns *= (size_t)own_slots(op->d);
	return columns * stride;
}

static size_t buffer_bytes(const struct drive_op *op, enum drive_buffer_id id)
{
	const struct drive *d = op->d;
	const size_t n = (size_t)d->need.recv_rows;
	const size_t g =
		d->config.group_size ? (size_t)d->config.group_size : 1;
	const size_t cap = ((size_t)d->config.max_tokens + g - 1) / g;

	switch (id) {
	case DRIVE_ROWS:
		return n * (drive_row_bytes(op) + op->step.slack);
	case DRIVE_SCALES:
		return scales_bytes(op);
	case DRIVE_COUNTS:
		return 4 * (size_t)own_slots(d);
	case DRIVE_OFFSETS:
		return 8 * ((size_t)own_slots(d) + 1);
	case DRIVE_INDEX:
		return 8 * n;
	case DRIVE_N_ROWS:
	case DRIVE_N_DROPPED:
		return 8;
	case DRIVE_TOKEN_SLOTS:
	case DRIVE_TOKEN_WEIGHTS:
		return 4 * 2 * (size_t)d->config.n_ranks * cap *
		       (size_t)d->config.topk;
	default:
		return 4 * n;
	}
}

/* Rows up to the last in use and two behind it. */
static size_t used_rows_bytes(const struct drive_op *op, size_t all)
{
	const bool padded = op->d->config.layout == FERRY_EXPERT_PADDED;
	const struct oracle_row *rows;
	const int64_t n = oracle_rows(op->oracle, op->d->rank, &rows);
	int64_t end = 2;
	size_t bytes;

	if (n > 0)
		end += 1 + (padded ? rows[n - 1].padded : rows[n - 1].packed);
	bytes = (size_t)end * (drive_row_bytes(op) + op->step.slack);
	return bytes < all ? bytes : all;
}

static void point(struct ferry_dispatch_out *out, enum drive_buffer_id id,
                  uint8_t *at)
{
	memcpy((uint8_t *)out + fields[id].at, &at, sizeof(at));
}

static void make_buffer(struct drive_op *op, enum drive_buffer_id id,
                        struct CUstream_st *stream)
{
	struct drive_buffer *b = &op->buffers[id];
	struct rank_memory *m = op->d->memory;
	const size_t all = buffer_bytes(op, id) + DRIVE_GUARD;

	b->bytes = all;
	if (id == DRIVE_ROWS && op->step.light && !op->lasting)
		b->bytes = used_rows_bytes(op, all);
	if (b->got.device == NULL)
		b->got = mirror_make(m, all, b->bytes);
	free(b->want);
	b->want = drive_allocate(b->bytes);
	mirror_fill(m, &b->got, DRIVE_POISON, stream);
	memset(b->want, DRIVE_POISON, b->bytes);
	point(&op->got, id, b->got.host);
	point(&op->given, id, b->got.device);
	point(&op->want, id, b->want);
}

void drive_out_make(struct drive_op *op, struct CUstream_st *stream)
{
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	size_t stride = drive_scale_bytes(op) + op->step.slack;

	out.scale_form = op->step.scale_form;
	if (op->step.slack) {
		if (op->step.scale_form != FERRY_SCALES_ROW_MAJOR)
			scale_columns(op, &stride);
		out.row_stride = drive_row_bytes(op) + op->step.slack;
		out.scales_stride = stride;
	}
	op->got = out;
	op->given = out;
	op->want = out;
	for (int id = 0; id < DRIVE_N_BUFFERS; id++)
		if (is_there(op, (enum drive_buffer_id)id))
			make_buffer(op, (enum drive_buffer_id)id, stream);
}

void drive_out_pull(struct drive_op *op, struct CUstream_st *stream)
{
	for (int id = 0; id < DRIVE_N_BUFFERS; id++)
		mirror_pull(op->d->memory, &op->buffers[id].got, stream);
}

bool drive_out_counted(const struct drive_op *op)
{
	static const enum drive_buffer_id ids[] = {DRIVE_COUNTS, DRIVE_N_ROWS};

	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
		const struct drive_buffer *b = &op->buffers[ids[i]];

		for (size_t at = 0;
		     b->got.host != NULL && at + DRIVE_GUARD < b->bytes; at++)
			if (b->got.host[at] != 0)
				return true;
	}
	return false;
}

/* NaN weights may change their payload on the way. */
static void level_nans(uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i + 4 <= n; i += 4) {
		float value;

		memcpy(&value, bytes + i, 4);
		if (isnan(value))
			memset(bytes + i, 0x7f, 4);
	}
}

static void compare_buffer(const struct drive_op *op, enum drive_buffer_id id)
{
	const struct drive_buffer *b = &op->buffers[id];

	if (id == DRIVE_ROW_WEIGHT || id == DRIVE_TOKEN_WEIGHTS) {
		level_nans(b->got.host, b->bytes);
		level_nans(b->want, b->bytes);
	}
	if (memcmp(b->got.host, b->want, b->bytes) == 0)
		return;
	for (size_t i = 0; i < b->bytes; i++)
		if (b->got.host[i] != b->want[i])
			RANKS_FAIL("dispatch, seed %llu: byte %zu of %zu of "
			           "out.%s is 0x%02x, expected 0x%02x",
			           (unsigned long long)op->step.spec.seed, i,
			           b->bytes, fields[id].name, b->got.host[i],
			           b->want[i]);
}

/* Rows and scales on the host; the view then points there. */
static uint8_t *copy_view(const struct drive_op *op,
                          struct ferry_moe_view *view)
{
	const size_t bytes = (size_t)view->n_rows * view->row_stride;
	const uint8_t *rows = view->rows;
	uint8_t *copy = drive_allocate(bytes);

	rank_memory_read(op->d->memory, copy, rows, bytes);
	if (view->scales != NULL)
		view->scales = copy + ((const uint8_t *)view->scales - rows);
	view->rows = copy;
	return copy;
}

static void compare_view(const struct drive_op *op)
{
	struct ferry_moe_view view = FERRY_MOE_VIEW_INIT;
	uint8_t *copy = NULL;
	int64_t row;

	RANKS_OK(ferry_moe_get_view(op->d->moe, op->slot, &view));
	RANKS_EQ(view.row_stride, op->d->need.view_row_stride);
	RANKS_EQ(view.n_rows, 2 * op->d->config.n_ranks * view.cap);
	if (op->d->memory->is_device)
		copy = copy_view(op, &view);
	row = oracle_view_differs(op->oracle, op->d->rank, &view);
	free(copy);
	if (row >= 0)
		RANKS_FAIL("dispatch, seed %llu: row %lld of the view differs",
		           (unsigned long long)op->step.spec.seed,
		           (long long)row);
}

void drive_check_recv(struct drive_op *op)
{
	static const enum drive_buffer_id first[] = {
		DRIVE_N_DROPPED, DRIVE_N_ROWS, DRIVE_COUNTS, DRIVE_OFFSETS};

	oracle_dispatch(op->oracle, op->d->rank, &op->want);
	for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++)
		if (op->buffers[first[i]].got.host != NULL)
			compare_buffer(op, first[i]);
	for (int id = 0; id < DRIVE_N_BUFFERS; id++)
		if (op->buffers[id].got.host != NULL)
			compare_buffer(op, (enum drive_buffer_id)id);
	if (op->d->config.layout == FERRY_TOKEN)
		compare_view(op);
}

static void check_zero(const struct drive_op *op, enum drive_buffer_id id)
{
	const struct drive_buffer *b = &op->buffers[id];

	for (size_t i = 0; b->got.host != NULL && i + DRIVE_GUARD < b->bytes;
	     i++)
		if (b->got.host[i] != 0)
			RANKS_FAIL("after a failure byte %zu of out.%s is "
			           "0x%02x, expected 0",
			           i, fields[id].name, b->got.host[i]);
}

void drive_check_empty(const struct drive_op *op)
{
	check_zero(op, DRIVE_COUNTS);
	check_zero(op, DRIVE_OFFSETS);
	check_zero(op, DRIVE_N_ROWS);
}

void drive_out_free(struct drive_op *op)
{
	for (int id = 0; id < DRIVE_N_BUFFERS; id++) {
		mirror_drop(op->d->memory, &op->buffers[id].got);
		free(op->buffers[id].want);
	}
}
