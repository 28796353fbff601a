/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/placement.h: which expert slots hold which expert.
 *
 * Expert slots are places for one expert's weights. They are numbered through
 * the world: rank 0's first, then rank 1's, and so on; rank r has
 * expert_slots[r] of them. A placement maps every logical expert to one or
 * more expert slots; more than one are replicas. A slot may be empty.
 */
#ifndef FERRY_PLACEMENT_H
#define FERRY_PLACEMENT_H

#include <ferry/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	/** Most logical experts, and most expert slots of all ranks. */
	FERRY_MAX_EXPERTS = 1 << 24,
};

/** How the tokens of an expert are divided among its replicas. */
enum ferry_split {
	/**
	 * The replica of a choice is number (rank + token + choice) mod
	 * n_replicas, in ascending slot order: token and choice are the
	 * indices in the sending rank's batch; of a group, rank is the one
	 * that sends the token. No traffic, no state.
	 */
	FERRY_SPLIT_EVEN = 0,
};

/** An immutable map from experts to expert slots. */
struct ferry_placement;

/** How to build a placement. */
struct ferry_placement_config {
	size_t size;
	int32_t n_experts; /* logical experts, 1..FERRY_MAX_EXPERTS */
	int32_t n_ranks;
	const int32_t *expert_slots; /* [n_ranks]; NULL: as even as possible */
	/*
	 * [sum of expert_slots]: the expert in each slot, -1 for an empty
	 * slot. NULL: expert e in slot e. Every expert must be somewhere, and
	 * nowhere twice on one rank.
	 */
	const int32_t *slot_expert;
	enum ferry_split split;
	uint64_t version; /* the caller's own number; not part of the hash */
};
#define FERRY_PLACEMENT_CONFIG_INIT                                            \
	{                                                                      \
		sizeof(struct ferry_placement_config), 0, 0, NULL, NULL,       \
			FERRY_SPLIT_EVEN, 0                                    \
	}

/**
 * Builds a placement; the arrays of config are copied. Local. Afterwards it is
 * only read, by any number of threads; *placement is written on success.
 * Where expert_slots is NULL, rank r gets n_experts / n_ranks slots and the
 * first n_experts mod n_ranks ranks one more.
 * Errors: INVAL or RANGE, naming the slot, the expert and the rank; NOMEM.
 */
FERRY_API enum ferry_status
ferry_placement_create(const struct ferry_placement_config *config,
                       struct ferry_placement **placement) FERRY_MUST_CHECK;

/** Destroys a placement; NULL is accepted. No operation may be using it. */
FERRY_API void ferry_placement_destroy(struct ferry_placement *placement);

/**
 * 64-bit hash of the content: experts, ranks, slots, map and split. Equal
 * content gives equal hashes on every machine. Ranks compare it. 0 for NULL.
 */
FERRY_API uint64_t
ferry_placement_hash(const struct ferry_placement *placement);

/** The version given at build; 0 for NULL. */
FERRY_API uint64_t
ferry_placement_version(const struct ferry_placement *placement);

/** Number of logical experts; 0 for NULL. */
FERRY_API int32_t
ferry_placement_n_experts(const struct ferry_placement *placement);

/** Number of expert slots of all ranks; 0 for NULL. */
FERRY_API int32_t
ferry_placement_n_slots(const struct ferry_placement *placement);

/**
 * Slots that hold an expert, ascending: *slots points to *n of them, and
 * belongs to the placement.
 * Errors: INVAL, RANGE (expert).
 */
FERRY_API enum ferry_status
ferry_placement_replicas(const struct ferry_placement *placement,
                         int32_t expert, const int32_t **slots,
                         int32_t *n) FERRY_MUST_CHECK;

/** Expert in a slot; -1 for an empty slot, one out of range, and NULL. */
FERRY_API int32_t
ferry_placement_expert(const struct ferry_placement *placement, int32_t slot);

/** Rank that owns a slot; -1 out of range, and for NULL. */
FERRY_API int32_t ferry_placement_rank(const struct ferry_placement *placement,
                                       int32_t slot);

/**
 * The slot that serves a choice: expert `expert`, chosen as number `choice`
 * by token `token` of rank `rank`, under the placement's split. -1 for an
 * unknown expert, and for NULL. Pure.
 */
FERRY_API int32_t
ferry_placement_resolve(const struct ferry_placement *placement, int32_t expert,
                        int32_t rank, int32_t token, int32_t choice);

#ifdef __cplusplus
}
#endif
#endif
