/* SPDX-License-Identifier: Apache-2.0 */
/* Argument checks of the four phases; see moe_check.h. */
#include "moe_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/dtype.h"
#include "../core/sized.h"

/* Where a check is: it words its refusals with that. */
struct place {
	const struct ferry_moe *moe;
	const char *call;
};

/* Pointers are the device's: none is looked at here. */
static bool is_cuda(const struct ferry_moe *moe)
{
	return moe->shape.device == FERRY_DEVICE_CUDA;
}

static struct ferry_ctx *ctx_of(const struct place *at)
{
	return &at->moe->world->ctx;
}

static enum ferry_status in_range(const struct place *at, const char *field,
                                  int64_t value, int64_t low, int64_t high)
{
	if (value >= low && value <= high)
		return FERRY_OK;
	return ferry_fail(ctx_of(at), FERRY_RANGE,
	                  "%s: %s is %" PRId64 ", allowed are %" PRId64
	                  "..%" PRId64,
	                  at->call, field, value, low, high);
}

/* An enumerator 0..last. */
static enum ferry_status is_choice(const struct place *at, const char *field,
                                   int value, int last)
{
	if (value >= 0 && value <= last)
		return FERRY_OK;
	return ferry_fail(ctx_of(at), FERRY_INVAL,
	                  "%s: %s is %d, allowed are 0..%d", at->call, field,
	                  value, last);
}

/* Makes 0 contiguous. */
static enum ferry_status take_stride(const struct place *at, const char *field,
                                     size_t *stride, size_t row_bytes)
{
	if (*stride == 0)
		*stride = row_bytes;
	if (*stride >= row_bytes)
		return FERRY_OK;
	return ferry_fail(ctx_of(at), FERRY_INVAL,
	                  "%s: %s is %zu, a row has %zu bytes: allowed are 0 "
	                  "and from there up",
	                  at->call, field, *stride, row_bytes);
}

static enum ferry_status refuse(const struct place *at, const char *field,
                                const char *why)
{
	return ferry_fail(ctx_of(at), FERRY_INVAL, "%s: %s %s", at->call, field,
	                  why);
}

enum ferry_status ferry_check_slot(const struct ferry_moe *moe,
                                   const char *call, int32_t slot,
                                   const struct CUstream_st *stream)
{
	if (!moe)
		return ferry_fail(NULL, FERRY_INVAL, "%s: moe is NULL", call);
	const struct place at = {moe, call};

	if (stream && !is_cuda(moe))
		return refuse(&at, "stream",
		              "is not NULL: the CPU engine has no streams");
	return in_range(&at, "slot", slot, 0, moe->shape.n_slots - 1);
}

static enum ferry_status take_sizes(const struct place *at,
                                    struct ferry_dispatch_in *in)
{
	const struct ferry_shape *shape = &at->moe->shape;

	if (in->n_tokens_ptr && is_cuda(at->moe))
		in->n_tokens = -1; /* only the device knows */
	else if (in->n_tokens_ptr) /* a bad one becomes a mark, as there */
		in->n_tokens = *in->n_tokens_ptr;
	else
		FERRY_TRY(in_range(at, "n_tokens", in->n_tokens, 0,
		                   shape->max_tokens));
	if (in->hidden == 0)
		in->hidden = shape->hidden;
	if (in->topk == 0)
		in->topk = shape->topk;
	FERRY_TRY(in_range(at, "hidden", in->hidden, 1, shape->hidden));
	return in_range(at, "topk", in->topk, 1, shape->topk);
}

/* Is it certain that this batch is empty, or bad on a CPU? */
static bool has_no_rows(const struct place *at,
                        const struct ferry_dispatch_in *in)
{
	return is_cuda(at->moe) ? in->n_tokens == 0 : in->n_tokens <= 0;
}

static enum ferry_status check_rows_in(const struct place *at,
                                       struct ferry_dispatch_in *in)
{
	const struct ferry_shape *shape = &at->moe->shape;
	const size_t row_bytes =
		(size_t)in->hidden * ferry_dtype_bytes(shape->in_dtype);

	if (!in->x && !has_no_rows(at, in))
		return refuse(at, "x", "is NULL");
	FERRY_TRY(take_stride(at, "x_stride", &in->x_stride, row_bytes));
	if (shape->quantize || shape->scale_type == FERRY_SCALE_NONE) {
		if (in->scales)
			return refuse(at, "scales",
			              shape->quantize
			                      ? "is not NULL: the channel "
			                        "makes them, it quantises"
			                      : "is not NULL: the channel "
			                        "has scale_type NONE");
		return FERRY_OK;
	}
	if (!in->scales && !has_no_rows(at, in))
		return refuse(at, "scales", "is NULL: the channel has scales");
	return take_stride(at, "scales_stride", &in->scales_stride,
	                   ferry_shape_scale_bytes(shape, in->hidden));
}

static enum ferry_status check_routing(const struct place *at,
                                       struct ferry_dispatch_in *in)
{
	FERRY_TRY(is_choice(at, "id_type", (int)in->id_type, FERRY_ID_INT64));
	FERRY_TRY(is_choice(at, "id_kind", (int)in->id_kind, FERRY_ID_SLOT));
	const size_t id_bytes = in->id_type == FERRY_ID_INT64 ? sizeof(int64_t)
	                                                      : sizeof(int32_t);

	if (!in->topk_ids && !has_no_rows(at, in))
		return refuse(at, "topk_ids", "is NULL");
	FERRY_TRY(take_stride(at, "ids_stride", &in->ids_stride,
	                      (size_t)in->topk * id_bytes));
	return take_stride(at, "weights_stride", &in->weights_stride,
	                   (size_t)in->topk * sizeof(float));
}

/* Has the placement this channel's slots, rank by rank? */
static enum ferry_status check_slots(const struct place *at,
                                     const struct ferry_placement *p)
{
	const struct ferry_shape *shape = &at->moe->shape;

	for (int32_t r = 0; r < shape->n_ranks; r++) {
		const int32_t first = shape->first_slot[r];
		const int32_t end = shape->first_slot[r + 1];

		if (first == end || (ferry_placement_rank(p, first) == r &&
		                     ferry_placement_rank(p, end - 1) == r))
			continue;
		return ferry_fail(
			ctx_of(at), FERRY_INVAL,
			"%s: placement has other expert slots on rank %d: the "
			"channel has %d..%d there",
			at->call, r, first, end - 1);
	}
	return FERRY_OK;
}

/* EXACT has no rule for ids. */
static enum ferry_status check_split(const struct place *at,
                                     const struct ferry_placement *p)
{
	if (ferry_placement_split(p) != FERRY_SPLIT_EXACT)
		return FERRY_OK;
	return ferry_fail(
		ctx_of(at), FERRY_INVAL,
		"%s: placement has split 2 (exact), under which topk_ids must "
		"be expert slots, as ferry_split makes them (id_kind 1), not "
		"logical experts (id_kind 0)",
		at->call);
}

static enum ferry_status check_placement(const struct place *at,
                                         const struct ferry_dispatch_in *in)
{
	const struct ferry_shape *shape = &at->moe->shape;
	const struct ferry_placement *p = in->placement;

	const bool logical = in->id_kind == FERRY_ID_LOGICAL;

	if (logical && !p && !at->moe->identity && !has_no_rows(at, in))
		return ferry_fail(
			ctx_of(at), FERRY_INVAL,
			"%s: placement is NULL, but %d experts do not "
			"fit into %d expert slots",
			at->call, shape->n_experts, shape->n_expert_slots);
	if (!p)
		return FERRY_OK;
	if (ferry_placement_n_experts(p) != shape->n_experts)
		return ferry_fail(
			ctx_of(at), FERRY_INVAL,
			"%s: placement has %d experts, the channel %d",
			at->call, ferry_placement_n_experts(p),
			shape->n_experts);
	if (ferry_placement_n_slots(p) != shape->n_expert_slots)
		return ferry_fail(ctx_of(at), FERRY_INVAL,
		                  "%s: placement has %d expert slots, the "
		                  "channel %d",
		                  at->call, ferry_placement_n_slots(p),
		                  shape->n_expert_slots);
	if (logical)
		FERRY_TRY(check_split(at, p));
	return check_slots(at, p);
}

/* Takes over the struct `field`, of any age; one of today needs no words. */
static enum ferry_status take_struct(const char *call, const char *field,
                                     void *own, size_t bytes, const void *from)
{
	size_t given = 0;
	char name[64];

	if (from)
		memcpy(&given, from, sizeof(given));
	if (given == bytes) {
		memcpy(own, from, bytes);
		return FERRY_OK;
	}
	snprintf(name, sizeof(name), "%s: %s", call, field);
	return ferry_sized_copy(own, bytes, from, name);
}

enum ferry_status ferry_check_dispatch_in(const struct ferry_moe *moe,
                                          const char *call,
                                          const struct ferry_dispatch_in *in,
                                          struct ferry_dispatch_in *own)
{
	const struct place at = {moe, call};

	FERRY_TRY(take_struct(call, "in", own, sizeof(*own), in));
	FERRY_TRY(take_sizes(&at, own));
	FERRY_TRY(check_rows_in(&at, own));
	FERRY_TRY(check_routing(&at, own));
	return check_placement(&at, own);
}

enum ferry_status ferry_take_dispatch_out(const char *call,
                                          const struct ferry_dispatch_out *out,
                                          struct ferry_dispatch_out *own)
{
	return take_struct(call, "out", own, sizeof(*own), out);
}

/* Columns: of entries of 1 or 4 bytes, as many as a matrix has rows. */
static enum ferry_status check_columns(const struct place *at,
                                       struct ferry_dispatch_out *out)
{
	const struct ferry_shape *shape = &at->moe->shape;
	const int64_t rows = shape->layout == FERRY_EXPERT_PADDED
	                             ? shape->padded_rows
	                             : shape->recv_rows;
	const size_t bytes =
		(size_t)rows * ferry_scale_entry_bytes(shape, out->scale_form);

	if (out->scale_form == FERRY_SCALES_PACKED_UE8M0 &&
	    shape->scale_type != FERRY_SCALE_UE8M0)
		return refuse(at, "scale_form",
		              "is PACKED_UE8M0, but the channel's scale_type "
		              "is not UE8M0");
	if (out->scales_stride == 0)
		out->scales_stride = round_up(bytes, 16);
	if (out->scales_stride % 16)
		return ferry_fail(ctx_of(at), FERRY_INVAL,
		                  "%s: scales_stride is %zu, allowed are the "
		                  "multiples of 16 for columns",
		                  at->call, out->scales_stride);
	return take_stride(at, "scales_stride", &out->scales_stride, bytes);
}

static enum ferry_status check_scales_out(const struct place *at,
                                          int32_t hidden,
                                          struct ferry_dispatch_out *out)
{
	const struct ferry_shape *shape = &at->moe->shape;

	FERRY_TRY(is_choice(at, "scale_form", (int)out->scale_form,
	                    FERRY_SCALES_PACKED_UE8M0));
	if (!out->scales)
		return FERRY_OK;
	if (shape->scale_type == FERRY_SCALE_NONE)
		return refuse(at, "scales",
		              "is not NULL: the channel has scale_type NONE");
	if (out->scale_form != FERRY_SCALES_ROW_MAJOR)
		return check_columns(at, out);
	return take_stride(at, "scales_stride", &out->scales_stride,
	                   ferry_shape_scale_bytes(shape, hidden));
}

/* What only a TOKEN channel has, and what it has not. */
static enum ferry_status check_layout_out(const struct place *at,
                                          const struct ferry_dispatch_out *out)
{
	if (at->moe->shape.layout == FERRY_TOKEN) {
		if (out->rows)
			return refuse(at, "rows",
			              "is not NULL: TOKEN rows are in the "
			              "view (ferry_moe_get_view)");
		if (out->scales)
			return refuse(at, "scales",
			              "is not NULL: TOKEN scales are in the "
			              "view (ferry_moe_get_view)");
		return FERRY_OK;
	}
	if (out->index)
		return refuse(at, "index", "is not NULL: TOKEN channels only");
	if (out->token_slots)
		return refuse(at, "token_slots",
		              "is not NULL: TOKEN channels only");
	if (out->token_weights)
		return refuse(at, "token_weights",
		              "is not NULL: TOKEN channels only");
	return FERRY_OK;
}

/*
 * An array of rows that the host cannot see the number of. A CPU finds out
 * whether there are any, and refuses NULL then.
 */
static enum ferry_status check_unseen(const struct place *at, const char *field,
                                      const void *array)
{
	const struct ferry_shape *shape = &at->moe->shape;

	if (array || !is_cuda(at->moe) || shape->own_expert_slots == 0)
		return FERRY_OK;
	return refuse(
		at, field,
		"is NULL: allowed on a GPU where the rank has no expert slots");
}

enum ferry_status ferry_check_dispatch_out(const struct ferry_moe *moe,
                                           const char *call, int32_t hidden,
                                           struct ferry_dispatch_out *own)
{
	const struct place at = {moe, call};
	const struct ferry_shape *shape = &moe->shape;

	FERRY_TRY(check_layout_out(&at, own));
	if (shape->layout != FERRY_TOKEN)
		FERRY_TRY(check_unseen(&at, "rows", own->rows));
	FERRY_TRY(
		take_stride(&at, "row_stride", &own->row_stride,
	                    (size_t)hidden * ferry_dtype_bytes(shape->dtype)));
	FERRY_TRY(check_scales_out(&at, hidden, own));
	if (shape->send_weights)
		return FERRY_OK;
	if (own->row_weight)
		return refuse(&at, "row_weight",
		              "is not NULL: the channel has send_weights off");
	if (own->token_weights)
		return refuse(&at, "token_weights",
		              "is not NULL: the channel has send_weights off");
	return FERRY_OK;
}

enum ferry_status ferry_check_combine_in(const struct ferry_moe *moe,
                                         const char *call, int32_t hidden,
                                         const struct ferry_combine_in *in,
                                         struct ferry_combine_in *own)
{
	const struct place at = {moe, call};
	const struct ferry_shape *shape = &moe->shape;

	FERRY_TRY(take_struct(call, "in", own, sizeof(*own), in));
	FERRY_TRY(is_choice(&at, "layout", (int)own->layout,
	                    FERRY_FROM_PRESUMMED));
	if (own->layout == FERRY_FROM_PRESUMMED &&
	    shape->combine == FERRY_EXACT)
		return refuse(&at, "layout",
		              "is FROM_PRESUMMED, which needs a channel with "
		              "combine REDUCED or PER_HOST");
	if (own->layout == FERRY_FROM_PRESUMMED && shape->layout != FERRY_TOKEN)
		return refuse(&at, "layout",
		              "is FROM_PRESUMMED, which needs a channel with "
		              "layout TOKEN");
	FERRY_TRY(check_unseen(&at, "y", own->y));
	return take_stride(&at, "y_stride", &own->y_stride,
	                   (size_t)hidden *
	                           ferry_dtype_bytes(shape->combine_dtype));
}

enum ferry_status ferry_check_combine_out(const struct ferry_moe *moe,
                                          const char *call,
                                          const struct ferry_slot *slot,
                                          const struct ferry_combine_out *out,
                                          struct ferry_combine_out *own)
{
	const struct place at = {moe, call};
	const size_t row_bytes =
		(size_t)slot->hidden * ferry_dtype_bytes(moe->shape.out_dtype);

	FERRY_TRY(take_struct(call, "out", own, sizeof(*own), out));
	if (!own->out && slot->n_tokens != 0)
		return refuse(&at, "out", "is NULL");
	FERRY_TRY(take_stride(&at, "out_stride", &own->out_stride, row_bytes));
	return take_stride(&at, "residual_stride", &own->residual_stride,
	                   row_bytes);
}
