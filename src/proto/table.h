/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routing table that each rank pushes to every rank: a header, then
 * expert slots [n_tokens][topk], then weights [n_tokens][topk] when the
 * channel sends them. Dense in the topk of the call.
 */
#ifndef FERRY_TABLE_H
#define FERRY_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum {
	FERRY_NO_SLOT = -1, /* masked, or skipped as out of range */
};

/* What can be malformed about a table that arrived. */
enum ferry_table_field {
	FERRY_TABLE_EPOCH,
	FERRY_TABLE_N_TOKENS,
	FERRY_TABLE_TOPK,
	FERRY_TABLE_HAS_WEIGHTS,
	FERRY_TABLE_SLOT, /* an expert slot */
	FERRY_TABLE_N_FIELDS,
};

/* 128 bytes; same on every engine. */
struct ferry_table {
	uint64_t epoch; /* full 64 bits: a wrong half is noticed */
	uint64_t placement_hash;
	int32_t n_tokens;
	int32_t topk;
	int32_t hidden;
	int32_t has_weights; /* 0: every weight is 1 */
	/* A refusal found while sending: status 0 when all is well. */
	int32_t mark_status;
	int32_t mark_token;
	int32_t mark_choice;
	int32_t mark_limit; /* exclusive upper bound that was allowed */
	int64_t mark_value;
	uint64_t content_hash; /* of slots and weights; compared in a group */
	uint64_t reserved[7];
	int32_t mark_is_slot; /* what is out of range is an expert slot */
	int32_t reserved_end;
};

static inline int32_t *ferry_table_slots(struct ferry_table *table)
{
	return (int32_t *)(table + 1);
}

static inline const int32_t *
ferry_table_slots_const(const struct ferry_table *table)
{
	return (const int32_t *)(table + 1);
}

/* [n_tokens][topk], or NULL where every weight is 1. */
static inline const float *ferry_table_weights(const struct ferry_table *table)
{
	if (!table->has_weights)
		return NULL;
	return (const float *)(ferry_table_slots_const(table) +
	                       (size_t)table->n_tokens * (size_t)table->topk);
}

/* The same of one token, [topk]. */
static inline const int32_t *
ferry_table_token_slots(const struct ferry_table *table, int32_t token)
{
	return ferry_table_slots_const(table) +
	       (size_t)token * (size_t)table->topk;
}

static inline const float *
ferry_table_token_weights(const struct ferry_table *table, int32_t token)
{
	const float *weights = ferry_table_weights(table);

	if (!weights)
		return NULL;
	return weights + (size_t)token * (size_t)table->topk;
}

/* Bytes of a table with these contents. */
static inline size_t ferry_table_bytes(int64_t n_tokens, int64_t topk,
                                       int has_weights)
{
	return sizeof(struct ferry_table) +
	       (size_t)n_tokens * (size_t)topk *
	               (has_weights ? sizeof(int32_t) + sizeof(float)
	                            : sizeof(int32_t));
}

#endif
