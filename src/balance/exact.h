/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact split, without the ranks' meeting: from ids to counts, and from
 * the quotas of replicas to the expert slot of every choice.
 *
 * An id becomes a code at once: the slot of an expert that has one replica, -1
 * for no expert, and -2 - i for the i-th expert that has a choice (in the order
 * of struct ferry_sharing). The places of these last are listed, so that what
 * remains to be done when the quotas are known is short, and free of branches
 * that nobody can foresee (which cost seven times the rest: 226 us for 32768
 * choices, half of them with a choice of replica; EPYC VM, 2026-11).
 *
 * A source is what brings a batch: a rank, or a group of ranks that bring the
 * same one. The rule by which an expert's replicas serve the sources:
 *
 * 1. A source is served at home first: by replicas on its own ranks, in slot
 *    order, each up to its quota.
 * 2. What is left of the sources, in ascending order, goes to what is left of
 *    the quotas, in slot order.
 * 3. Within a source the choices of an expert are taken in the order of tokens,
 *    then of choices: those at home first, then slot by slot.
 *
 * As many tokens stay at home as the quotas allow, since every replica is at
 * home in one source.
 */
#ifndef FERRY_EXACT_H
#define FERRY_EXACT_H

#include <ferry/moe_config.h>

#include "sharing.h"

/* A batch of ids, and what they may be. */
struct ferry_exact_ids {
	int32_t n_tokens;
	int32_t topk;
	const void *ids;
	size_t stride; /* bytes from token to token */
	enum ferry_id_type type;
	int32_t n_experts;
	bool skip_bad; /* an id out of range is as good as -1 */
};

struct ferry_exact_bad {
	int32_t token;
	int32_t choice;
	int64_t value;
};

/*
 * What the choices of one source get of each expert: a list of slots and how
 * many choices each still takes, behind one another. The lists of an expert
 * begin where its replicas do in struct ferry_sharing.
 */
struct ferry_exact_runs {
	int32_t *slot; /* [n_replicas] */
	int32_t *left; /* [n_replicas] >= 1 */
	int32_t *at;   /* [n_experts] run that serves the next choice */
};

/* The code of every expert. */
void ferry_exact_code_of(const struct ferry_placement *placement,
                         int32_t *code_of);

/* Codes of a batch. */
struct ferry_exact_codes {
	int32_t *code;  /* [n_tokens * topk] */
	int32_t *where; /* [n_tokens * topk] places of what has a choice */
	int32_t n;      /* of where */
};

/*
 * Encodes a batch; adds to counts[n_experts]. False, and *bad, where an id is
 * out of range; counts and codes are then of no use.
 */
bool ferry_exact_encode(const struct ferry_exact_ids *in,
                        const int32_t *code_of, struct ferry_exact_codes *codes,
                        int32_t *counts, struct ferry_exact_bad *bad);

/*
 * What a source tells the others of its counts[n_experts]: adds to fixed
 * [n_ranks], the tokens of each rank that have no choice, and writes
 * choice[], those of each expert that has one. Returns how many these are.
 */
int32_t ferry_exact_tally(const struct ferry_placement *placement,
                          const int32_t *counts, int32_t *fixed,
                          int32_t *choice);

/*
 * Runs of source `own` for one expert that has a choice, by the rule above.
 * count[n_sources] is what each source brings; their sum is the expert's load.
 * Turns the expert's shares into what rule 2 has to give, hence once only.
 */
void ferry_exact_serve(struct ferry_sharing *sharing,
                       const struct ferry_placement *placement, int32_t expert,
                       const int32_t *count, int32_t group_size, int32_t own,
                       struct ferry_exact_runs *runs);

/* Turns codes into slots; uses up runs. */
void ferry_exact_resolve(struct ferry_exact_codes *codes,
                         struct ferry_exact_runs *runs);

#endif
