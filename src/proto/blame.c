/* SPDX-License-Identifier: Apache-2.0 */
/* See blame.h. */
#include "blame.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 5, 6))) static void
put(struct ferry_blame *blame, enum ferry_status status, int32_t rank,
    int64_t value, const char *fmt, ...)
{
	va_list args;

	blame->verdict = (struct ferry_verdict){
		.status = status,
		.root = rank,
		.slot = -1,
		.token = -1,
		.choice = -1,
		.value = value,
	};
	va_start(args, fmt);
	vsnprintf(blame->text, sizeof(blame->text), fmt, args);
	va_end(args);
}

void ferry_blame_mark(struct ferry_blame *blame,
                      const struct ferry_shape *shape, int32_t rank,
                      const struct ferry_table *mark)
{
	const enum ferry_status status = (enum ferry_status)mark->mark_status;

	if (mark->mark_token < 0)
		put(blame, status, rank, mark->mark_value,
		    "dispatch: n_tokens is %" PRId64
		    ", allowed are 0..%d (rank %d)",
		    mark->mark_value, mark->mark_limit - 1, rank);
	else
		put(blame, status, rank, mark->mark_value,
		    "dispatch: topk_ids[%d][%d] is %" PRId64
		    ", %s are 0..%d (rank %d)",
		    mark->mark_token, mark->mark_choice, mark->mark_value,
		    mark->mark_is_slot || mark->mark_limit != shape->n_experts
		            ? "expert slots"
		            : "experts",
		    mark->mark_limit - 1, rank);
	blame->verdict.token = mark->mark_token;
	blame->verdict.choice = mark->mark_choice;
}

void ferry_blame_form(struct ferry_blame *blame, int32_t rank,
                      enum ferry_table_field field, int64_t value)
{
	static const char *const names[FERRY_TABLE_N_FIELDS] = {
		[FERRY_TABLE_EPOCH] = "its epoch",
		[FERRY_TABLE_N_TOKENS] = "n_tokens",
		[FERRY_TABLE_TOPK] = "topk",
		[FERRY_TABLE_HAS_WEIGHTS] = "has_weights",
		[FERRY_TABLE_SLOT] = "an expert slot",
	};
	const bool known = (unsigned)field < FERRY_TABLE_N_FIELDS;

	put(blame, FERRY_PROTO, rank, value,
	    "dispatch: the table of rank %d is malformed: %s is %" PRId64, rank,
	    known ? names[field] : "a field", value);
}

void ferry_blame_unequal(struct ferry_blame *blame, const char *field,
                         const int32_t rank[2], const int64_t value[2])
{
	put(blame, FERRY_MISMATCH, rank[0], value[0],
	    "dispatch: %s is %" PRId64 " on rank %d, %" PRId64 " on rank %d",
	    field, value[0], rank[0], value[1], rank[1]);
}

void ferry_blame_placement(struct ferry_blame *blame, const int32_t rank[2],
                           const uint64_t hash[2])
{
	put(blame, FERRY_MISMATCH, rank[0], (int64_t)hash[0],
	    "dispatch: placement has hash %016" PRIx64
	    " on rank %d, %016" PRIx64 " on rank %d",
	    hash[0], rank[0], hash[1], rank[1]);
}

void ferry_blame_mate(struct ferry_blame *blame, const int32_t rank[2])
{
	put(blame, FERRY_MISMATCH, rank[0], rank[1],
	    "dispatch: ids or weights of rank %d differ from those of rank "
	    "%d, which is in its group",
	    rank[0], rank[1]);
}

void ferry_blame_room(struct ferry_blame *blame,
                      const struct ferry_shape *shape, int32_t rank,
                      int64_t n_rows)
{
	const bool padded = shape->layout == FERRY_EXPERT_PADDED;

	put(blame, FERRY_OVERFLOW, rank, n_rows,
	    "dispatch: %" PRId64
	    " rows arrive%s on rank %d, max_recv_rows is %" PRId64,
	    n_rows, padded ? " for one expert slot" : "", rank,
	    padded ? shape->padded_rows : shape->recv_rows);
}
