/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the configuration of a channel and derives its numbers. Every
 * refusal names the field, its value and what is allowed. Numbers of rows are
 * 64 bits wide, sizes saturate (sizes.h): nothing wraps before it is refused.
 */
#include "window.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/ctx.h"
#include "../core/dtype.h"
#include "../core/number.h"
#include "../core/sized.h"
#include "../core/slot_map.h"
#include "sizes.h"
#include "table.h"

enum { MAX_SLOTS = 256 };

/* All counters of a channel and the verdicts have numbers of 32 bits. */
_Static_assert(
	(uint64_t)MAX_SLOTS *FERRY_EPOCH_KEYS *FERRY_N_COUNTS *FERRY_MAX_RANKS +
			FERRY_MAX_RANKS + 1 <
		UINT32_MAX,
	"counter numbers fit 32 bits");
_Static_assert(sizeof(size_t) == 8, "sizes are 64 bits wide");

static const char *const dtype_names[] = {
	[FERRY_BF16] = "BF16",         [FERRY_FP16] = "FP16",
	[FERRY_FP32] = "FP32",         [FERRY_FP8_E4M3] = "FP8_E4M3",
	[FERRY_FP8_E5M2] = "FP8_E5M2", [FERRY_BYTES] = "BYTES",
};

static enum ferry_status in_range(const char *field, int64_t value, int64_t low,
                                  int64_t high)
{
	if (value >= low && value <= high)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_RANGE,
	                  "moe_config: %s is %lld, allowed are %lld..%lld",
	                  field, (long long)value, (long long)low,
	                  (long long)high);
}

/* One of the first n enumerators of a field. */
static enum ferry_status is_choice(const char *field, int value,
                                   const char *const *names, int n)
{
	char allowed[96] = "";
	size_t used = 0;

	if (value >= 0 && value < n)
		return FERRY_OK;
	for (int i = 0; i < n && used < sizeof(allowed); i++)
		used += (size_t)snprintf(allowed + used, sizeof(allowed) - used,
		                         "%s%d (%s)", i ? ", " : "", i,
		                         names[i]);
	return ferry_fail(NULL, FERRY_INVAL,
	                  "moe_config: %s is %d, allowed are %s", field, value,
	                  allowed);
}

#define CHOICE(config, field, ...)                                             \
	is_choice(#field, (int)(config)->field,                                \
	          (const char *const[]){__VA_ARGS__},                          \
	          (int)(sizeof((const char *const[]){__VA_ARGS__}) /           \
	                sizeof(char *)))

static enum ferry_status take_counts(struct ferry_shape *s,
                                     const struct ferry_moe_config *c)
{
	FERRY_TRY(in_range("n_ranks", s->n_ranks, 1, FERRY_MAX_RANKS));
	FERRY_TRY(in_range("rank", s->rank, 0, s->n_ranks - 1));
	FERRY_TRY(in_range("max_tokens", c->max_tokens, 1, INT32_MAX));
	FERRY_TRY(in_range("hidden", c->hidden, 1, INT32_MAX));
	FERRY_TRY(in_range("topk", c->topk, 1, FERRY_MAX_TOPK));
	FERRY_TRY(in_range("n_slots", c->n_slots, 0, MAX_SLOTS));
	FERRY_TRY(in_range("group_size", c->group_size, 0, s->n_ranks));
	s->max_tokens = c->max_tokens;
	s->hidden = c->hidden;
	s->topk = c->topk;
	s->n_experts = c->n_experts;
	s->n_slots = c->n_slots ? c->n_slots : 1;
	s->group_size = c->group_size ? c->group_size : 1;
	if (s->n_ranks % s->group_size)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_config: group_size is %d, allowed are "
		                  "the divisors of n_ranks, %d",
		                  s->group_size, s->n_ranks);
	s->n_groups = s->n_ranks / s->group_size;
	s->cap = (int32_t)div_up(s->max_tokens, s->group_size);
	return FERRY_OK;
}

static enum ferry_status take_path(struct ferry_shape *s,
                                   const struct ferry_moe_config *c)
{
	const bool cpu = c->device == FERRY_DEVICE_CPU;

	FERRY_TRY(CHOICE(c, device, "CPU", "CUDA"));
	FERRY_TRY(CHOICE(c, path, "AUTO", "COUNTS", "LINES", "CHUNKS"));
	FERRY_TRY(in_range("max_sms", c->max_sms, 0, INT32_MAX));
	s->device = c->device;
	s->max_sms = c->max_sms;
	s->path = c->path;
	if (cpu && s->path == FERRY_PATH_AUTO)
		s->path = FERRY_PATH_COUNTS;
	if (cpu == (s->path == FERRY_PATH_COUNTS))
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "moe_config: path is %s, allowed "
	                  "are AUTO and, %s",
	                  cpu ? "LINES or CHUNKS" : "COUNTS",
	                  cpu ? "on a CPU, COUNTS"
	                      : "on a GPU, LINES and CHUNKS");
}

static enum ferry_status take_slots(struct ferry_shape *s,
                                    const struct ferry_moe_config *c)
{
	struct ferry_slot_map map;

	FERRY_TRY(ferry_slot_map_init(&map, "moe_config", c->expert_slots,
	                              c->n_experts, s->n_ranks));
	s->first_slot = map.first_slot;
	s->slot_rank = map.slot_rank;
	s->n_expert_slots = map.n_slots;
	s->max_expert_slots = map.max_slots;
	s->own_expert_slots =
		map.first_slot[s->rank + 1] - map.first_slot[s->rank];
	return FERRY_OK;
}

static enum ferry_status is_dtype(const char *field, enum ferry_dtype dtype)
{
	if ((int)dtype >= FERRY_BF16 && dtype <= FERRY_BYTES)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "moe_config: %s is %d, allowed are 1 (BF16), 2 "
	                  "(FP16), 3 (FP32), 4 (FP8_E4M3), 5 (FP8_E5M2), 6 "
	                  "(BYTES), 0 is the default",
	                  field, (int)dtype);
}

static enum ferry_status is_sum_dtype(const char *field, enum ferry_dtype dtype)
{
	if ((int)dtype >= FERRY_BF16 && dtype <= FERRY_FP32)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "moe_config: %s is %d, allowed are 1 (BF16), 2 "
	                  "(FP16), 3 (FP32), 0 is the default",
	                  field, (int)dtype);
}

static enum ferry_status take_dtypes(struct ferry_shape *s,
                                     const struct ferry_moe_config *c)
{
	s->dtype = c->dtype ? c->dtype : FERRY_BF16;
	s->in_dtype = c->in_dtype ? c->in_dtype : s->dtype;
	s->combine_dtype = c->combine_dtype ? c->combine_dtype : FERRY_BF16;
	s->out_dtype = c->out_dtype ? c->out_dtype : s->combine_dtype;
	FERRY_TRY(is_dtype("dtype", s->dtype));
	FERRY_TRY(is_dtype("in_dtype", s->in_dtype));
	FERRY_TRY(is_sum_dtype("combine_dtype", s->combine_dtype));
	FERRY_TRY(is_sum_dtype("out_dtype", s->out_dtype));
	s->quantize = s->in_dtype != s->dtype;
	if (s->quantize &&
	    (s->in_dtype != FERRY_BF16 || s->dtype != FERRY_FP8_E4M3))
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_config: in_dtype is %s with dtype %s, "
		                  "allowed are the same type, or BF16 with "
		                  "FP8_E4M3",
		                  dtype_names[s->in_dtype],
		                  dtype_names[s->dtype]);
	return FERRY_OK;
}

/* Fields that another scale_type leaves unused are a mistake, not ignored. */
static enum ferry_status check_scales(const struct ferry_shape *s,
                                      const struct ferry_moe_config *c)
{
	const bool blocks = c->scale_type == FERRY_SCALE_FP32 ||
	                    c->scale_type == FERRY_SCALE_UE8M0;
	const bool opaque = c->scale_type == FERRY_SCALE_BYTES;

	FERRY_TRY(CHOICE(c, scale_type, "NONE", "FP32", "UE8M0", "BYTES"));
	if (s->quantize && !blocks)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_config: scale_type is %d, quantising "
		                  "allows 1 (FP32), 2 (UE8M0)",
		                  (int)c->scale_type);
	if (s->quantize && c->scale_block &&
	    c->scale_block != FERRY_QUANT_BLOCK)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_config: scale_block is %d, quantising "
		                  "allows %d",
		                  c->scale_block, FERRY_QUANT_BLOCK);
	FERRY_TRY(in_range("scale_block without scales per block",
	                   blocks ? 0 : c->scale_block, 0, 0));
	FERRY_TRY(in_range("scale_block", c->scale_block, 0, INT32_MAX));
	if (opaque)
		return in_range("scale_bytes", c->scale_bytes, 1, INT32_MAX);
	return in_range("scale_bytes without scale_type BYTES", c->scale_bytes,
	                0, 0);
}

static enum ferry_status take_scales(struct ferry_shape *s,
                                     const struct ferry_moe_config *c)
{
	FERRY_TRY(check_scales(s, c));
	s->scale_type = c->scale_type;
	switch (s->scale_type) {
	case FERRY_SCALE_NONE:
		return FERRY_OK;
	case FERRY_SCALE_BYTES:
		s->n_scales = 1;
		s->scale_row_bytes = (size_t)c->scale_bytes;
		return FERRY_OK;
	case FERRY_SCALE_FP32:
	case FERRY_SCALE_UE8M0:
		break;
	}
	s->scale_block = c->scale_block ? c->scale_block : FERRY_QUANT_BLOCK;
	s->n_scales = (int32_t)div_up(s->hidden, s->scale_block);
	s->scale_row_bytes = ferry_shape_scale_bytes(s, s->hidden);
	return FERRY_OK;
}

/* Rows of all slots when none is left out; slots begin aligned. */
static int64_t worst_rows(const struct ferry_shape *s, int64_t n_copies,
                          int64_t alignment)
{
	const int64_t slots = min_i64(s->max_expert_slots, n_copies);
	const int64_t rows = n_copies + slots * (alignment - 1);

	return rows / alignment * alignment;
}

/* Rows of one slot are counted in 32 bits at the receiver. */
static enum ferry_status check_slot_rows(const struct ferry_shape *s,
                                         int64_t n_rows)
{
	if (n_rows <= INT32_MAX)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_RANGE,
	                  "moe_config: max_tokens is %d: an expert slot may "
	                  "get %lld rows, allowed are %d; max_recv_rows bounds "
	                  "them",
	                  s->max_tokens, (long long)n_rows, INT32_MAX);
}

static enum ferry_status take_capacity(struct ferry_shape *s, int64_t max_rows)
{
	const int64_t n_rows = (int64_t)s->n_groups * s->max_tokens;
	const int64_t n_copies = n_rows * s->topk;

	s->padded_rows = n_rows;
	if (s->layout == FERRY_EXPERT_PADDED) {
		if (max_rows)
			s->padded_rows = min_i64(max_rows, n_copies);
		s->bounded = s->padded_rows < n_copies;
		/* First, or the product would not fit in 64 bits. */
		FERRY_TRY(check_slot_rows(s, s->padded_rows));
		s->recv_rows = s->padded_rows * s->max_expert_slots;
	} else {
		const int64_t worst = worst_rows(s, n_copies, s->alignment);

		s->recv_rows = worst;
		if (max_rows && max_rows < worst)
			s->recv_rows = max_rows / s->alignment * s->alignment;
		s->bounded = s->recv_rows < worst;
		FERRY_TRY(check_slot_rows(s, min_i64(n_copies, s->recv_rows)));
	}
	if (s->recv_rows)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_RANGE,
	                  "moe_config: max_recv_rows is %lld, allowed are 0 "
	                  "(the default) and from the alignment, %d, up",
	                  (long long)max_rows, s->alignment);
}

static enum ferry_status take_receive(struct ferry_shape *s,
                                      const struct ferry_moe_config *c)
{
	const int32_t alignment = c->alignment ? c->alignment : 1;

	FERRY_TRY(CHOICE(c, layout, "EXPERT_PADDED", "EXPERT_PACKED", "TOKEN"));
	FERRY_TRY(CHOICE(c, overflow, "ERROR", "DROP"));
	FERRY_TRY(CHOICE(c, bad_id, "ERROR", "SKIP"));
	if (alignment < 0 || (alignment & (alignment - 1)))
		return ferry_fail(
			NULL, FERRY_INVAL,
			"moe_config: alignment is %d, allowed are the "
			"powers of two",
			alignment);
	FERRY_TRY(in_range("max_recv_rows", c->max_recv_rows, 0, INT64_MAX));
	s->layout = c->layout;
	s->overflow = c->overflow;
	s->bad_id = c->bad_id;
	s->alignment = alignment;
	s->row_sources = s->layout == FERRY_TOKEN ? s->n_ranks
	                                          : s->n_ranks - s->group_size;
	return take_capacity(s, c->max_recv_rows);
}

/* What WEIGHT_INPUT multiplies must be numbers of the receiver's own copy. */
static enum ferry_status check_weight_input(const struct ferry_shape *s)
{
	if (s->dtype > FERRY_FP32)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_config: weight_use is 1 (INPUT) with "
		                  "dtype %s, allowed are BF16, FP16, FP32",
		                  dtype_names[s->dtype]);
	if (s->layout == FERRY_TOKEN)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_config: weight_use is 1 (INPUT) with "
		                  "layout TOKEN, allowed are EXPERT_PADDED, "
		                  "EXPERT_PACKED");
	return FERRY_OK;
}

static enum ferry_status take_combine(struct ferry_shape *s,
                                      const struct ferry_moe_config *c)
{
	FERRY_TRY(CHOICE(c, combine, "EXACT", "REDUCED", "PER_HOST"));
	FERRY_TRY(CHOICE(c, weight_use, "OUTPUT", "INPUT"));
	if (c->combine == FERRY_PER_HOST && c->device == FERRY_DEVICE_CUDA)
		return ferry_fail(
			NULL, FERRY_UNSUPPORTED,
			"moe_config: combine is 2 (PER_HOST), which "
			"CUDA worlds have not: allowed are 0 (EXACT), "
			"1 (REDUCED)");
	if (!isfinite(c->routed_scale))
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_config: routed_scale is %g, allowed are "
		                  "finite numbers, 0 stands for 1",
		                  (double)c->routed_scale);
	s->combine = c->combine;
	s->weight_use = c->weight_use;
	s->routed_scale = c->routed_scale != 0 ? c->routed_scale : 1;
	s->send_weights = c->send_weights || s->combine != FERRY_EXACT ||
	                  s->weight_use == FERRY_WEIGHT_INPUT;
	if (s->weight_use == FERRY_WEIGHT_INPUT)
		FERRY_TRY(check_weight_input(s));
	return FERRY_OK;
}

/* Most rows that come back for a token. */
static int32_t back_rows(const struct ferry_shape *s)
{
	int32_t n = s->n_ranks - 1;

	if (s->combine == FERRY_EXACT)
		return s->topk;
	if (ferry_shape_adds(s)) /* of the own host, and of each other one */
		n = s->hosts.most_ranks - 1 + s->hosts.n - 1;
	return (int32_t)min_i64(max_i64(n, 1), s->topk);
}

static void size_rows(struct ferry_shape *s)
{
	const size_t back_bytes =
		(size_t)s->hidden * ferry_dtype_bytes(s->combine_dtype);

	s->row_bytes = (size_t)s->hidden * ferry_dtype_bytes(s->dtype);
	s->scale_offset = round_up(s->row_bytes, FERRY_SCALE_ALIGN);
	s->row_stride =
		round_up(s->scale_offset + s->scale_row_bytes, FERRY_ROW_ALIGN);
	s->back_stride = round_up(back_bytes, FERRY_ROW_ALIGN);
	s->back_rows = back_rows(s);
	s->table_bytes = round_up(
		ferry_table_bytes(s->max_tokens, s->topk, s->send_weights),
		FERRY_ROW_ALIGN);
}

static enum ferry_status fill(struct ferry_shape *s,
                              const struct ferry_moe_config *c)
{
	FERRY_TRY(take_counts(s, c));
	FERRY_TRY(take_path(s, c));
	FERRY_TRY(take_slots(s, c));
	FERRY_TRY(take_dtypes(s, c));
	FERRY_TRY(take_scales(s, c));
	FERRY_TRY(take_receive(s, c));
	FERRY_TRY(take_combine(s, c));
	size_rows(s);
	return FERRY_OK;
}

enum ferry_status ferry_shape_init(struct ferry_shape *shape,
                                   const struct ferry_moe_config *config,
                                   int32_t n_ranks, int32_t rank)
{
	struct ferry_moe_config own;
	struct ferry_shape s = {.n_ranks = n_ranks, .rank = rank};

	FERRY_TRY(ferry_sized_copy(&own, sizeof(own), config, "moe_config"));
	const enum ferry_status status = fill(&s, &own);

	if (status) {
		ferry_shape_destroy(&s);
		return status;
	}
	*shape = s;
	return FERRY_OK;
}

void ferry_shape_use_hosts(struct ferry_shape *shape,
                           const struct ferry_hosts *hosts)
{
	shape->hosts = *hosts;
	shape->back_rows = back_rows(shape);
	shape->part_groups = 0;
	shape->part_blocks = 0;
	if (!ferry_shape_adds(shape))
		return;
	shape->part_groups = (shape->n_ranks - shape->hosts.fewest_ranks) /
	                     shape->group_size;
	shape->part_blocks =
		(int32_t)div_up(shape->max_tokens, FERRY_PART_BLOCK);
}

void ferry_shape_destroy(struct ferry_shape *shape)
{
	struct ferry_slot_map map = {
		.first_slot = shape->first_slot,
		.slot_rank = shape->slot_rank,
	};

	ferry_slot_map_destroy(&map);
	ferry_hosts_destroy(&shape->hosts);
	memset(shape, 0, sizeof(*shape));
}
