/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of tokens for tests, made from a seed: every rank can make the
 * batches of all ranks and give them to the oracle.
 */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include <ferry/moe.h>

/* Where tokens want to go. */
enum traffic_routing {
	TRAFFIC_UNIFORM,
	TRAFFIC_ONE_EXPERT, /* all to the same one, then its neighbours */
	TRAFFIC_ONE_RANK,
	TRAFFIC_ZIPF,   /* low numbers far more often */
	TRAFFIC_REMOTE, /* never the own rank, where there is another */
	TRAFFIC_LOCAL,
	TRAFFIC_N_ROUTINGS,
};

struct traffic_spec {
	uint64_t seed;
	uint64_t favourite; /* picks the expert or rank that all want */
	int32_t n_tokens;
	int32_t hidden, topk; /* 0: the channel's maxima */
	enum traffic_routing routing;
	int32_t mask_percent; /* choices that are -1 */
	int32_t bad_percent;  /* choices out of range */
	bool duplicates;      /* a token may choose an expert twice */
	bool no_weights;
	bool special; /* NaN, infinities, denormals ... among the values */
	enum ferry_id_type id_type;
	enum ferry_id_kind id_kind;
	size_t slack; /* bytes behind each row of x and scales, in units of
	               * 4 or 8 behind those of ids and weights */
	bool count_by_pointer;
};

/* One rank's input and the memory that it points to. */
struct traffic_batch {
	struct ferry_dispatch_in in;
	uint8_t *x, *scales, *ids;
	float *weights;
	int32_t n_tokens; /* what in.n_tokens_ptr points to */
	size_t x_bytes, scales_bytes, ids_bytes, weights_bytes;
};

/*
 * config has n_ranks set; placement NULL: expert e in slot e. Batches of equal
 * specs are equal but for the routings that look at the rank; `rank` is the
 * first rank of a group.
 */
void traffic_make(struct traffic_batch *batch,
                  const struct ferry_moe_config *config,
                  const struct ferry_placement_config *placement, int32_t rank,
                  const struct traffic_spec *spec);
void traffic_copy(struct traffic_batch *to, const struct traffic_batch *from);
/* Overwrites what may be overwritten after send, and after recv. */
void traffic_scribble_latched(struct traffic_batch *batch);
void traffic_scribble_rows(struct traffic_batch *batch);
void traffic_free(struct traffic_batch *batch);

/* SplitMix64: the next number of the sequence that *state is in. */
uint64_t traffic_random(uint64_t *state);
/* The seed of one group's batch, of that of all. */
uint64_t traffic_group_seed(uint64_t seed, int32_t group);
/* A number in low..high. */
int64_t traffic_between(uint64_t *state, int64_t low, int64_t high);
/* True in `percent` of a hundred cases. */
bool traffic_chance(uint64_t *state, int percent);

/* Bytes of a row's scales, and blocks, at a hidden size. */
size_t traffic_scale_bytes(const struct ferry_moe_config *config,
                           int32_t hidden);

#endif
