/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of splitters share: settings, batches, what to expect. */
#ifndef SPLIT_LAB_H
#define SPLIT_LAB_H

#include <ferry/split.h>

#include "balance/random_map.h"
#include "ranks.h"

enum {
	LAB_RANKS = 8,
	LAB_SLOTS = LAB_RANKS * RANDOM_MAP_SLOTS,
	LAB_TOKENS = 48,
	LAB_TOPK = 4,
};

/* How ranks meet. */
struct lab_setting {
	const char *name;
	const char *fabric;
	enum ranks_kind kind;
	const char *options;
};

enum { LAB_N_SETTINGS = 7 };
extern const struct lab_setting lab_settings[LAB_N_SETTINGS];

/* One setting, with faults besides ("" for none). */
void lab_run(const struct lab_setting *setting, struct ranks how,
             const char *fault, ranks_body *body);

/* A batch that every rank can make for every rank. */
struct lab_batch {
	int32_t n_tokens;
	int32_t ids[LAB_TOKENS][LAB_TOPK];
};

/* Batch of a source in a round: few experts are asked for most. */
void lab_fill(struct lab_batch *batch, uint64_t seed, int32_t source,
              int32_t round, int32_t n_experts);

/* Adds a batch to loads[n_experts]. */
void lab_count(const struct lab_batch *batch, int64_t *loads);

/* Opens; closed when the body ends. Ends the body where it cannot. */
struct ferry_splitter *lab_open(struct rank *rank, int32_t n_slots,
                                int32_t group_size);

/* Input of a batch. */
struct ferry_split_in lab_in(const struct lab_batch *batch,
                             const struct ferry_placement *placement);

#endif
