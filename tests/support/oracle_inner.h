/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the oracle share. */
#ifndef ORACLE_INNER_H
#define ORACLE_INNER_H

#include "oracle.h"

/* One choice of a token. */
struct oracle_choice {
	int32_t slot;   /* in the world, -1 masked */
	int32_t rank;   /* that serves it, -1 */
	int32_t expert; /* the id as given */
	float weight;
	bool dropped;
};

/* What arrives at one rank. */
struct oracle_rank {
	int32_t n_slots;
	int64_t n_rows;
	int64_t n_dropped;
	struct oracle_row *rows; /* [n_rows] in receive order */
	int32_t *counts;         /* [n_slots] */
	int64_t *offsets;        /* [n_slots + 1] of EXPERT_PACKED */
};

struct oracle {
	struct ferry_moe_config config; /* defaults filled in */
	struct ferry_moe_need need;
	const struct ferry_dispatch_in *in;
	uint32_t half;
	const int32_t *host; /* of the ranks; NULL: one */
	int32_t n_ranks, group_size, n_groups, hidden;
	int64_t cap;
	size_t row_bytes, scale_bytes;
	int32_t n_scales;
	int32_t n_slots;
	int32_t *first_slot;    /* [n_ranks + 1] */
	int32_t *first_replica; /* [n_experts + 1] into replicas */
	int32_t *replicas;
	const int64_t *quota;           /* [n_slots] the caller's; NULL: EVEN */
	int32_t *topk, *n_tokens;       /* [n_groups] */
	struct oracle_choice **choices; /* [n_groups][tokens * topk] */
	uint8_t **quantized;            /* [n_groups], NULL: raw */
	struct oracle_rank *ranks;      /* [n_ranks] */
	enum ferry_status status;
	int32_t root;
};

const struct ferry_dispatch_in *oracle_batch(const struct oracle *o,
                                             int32_t group);

/* A token's row and scales as they travel. */
void oracle_payload(const struct oracle *o, int32_t group, int32_t token,
                    const uint8_t **row, const uint8_t **scales);

static inline struct oracle_choice *oracle_choice(const struct oracle *o,
                                                  int32_t group, int32_t token,
                                                  int32_t choice)
{
	return &o->choices[group][(int64_t)token * o->topk[group] + choice];
}

/* The rank of a group that sends a token. */
static inline int32_t oracle_carrier(const struct oracle *o, int32_t group,
                                     int32_t token)
{
	return group * o->group_size + token % o->group_size;
}

#endif
