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
	/**
	 * As EVEN, but replica i gets a share of the choices in proportion to
	 * its quota (of the placement's config): where ((rank + token + choice)
	 * * 0x9e3779b9 mod 2^32) / 2 lies among the running sums of the quotas,
	 * scaled to 2^31 and rounded down. No traffic, no state; few tokens in
	 * a row keep the shares as well as many.
	 */
	FERRY_SPLIT_QUOTA = 1,
	/**
	 * Integer quotas computed after the true router by ferry_split, which
	 * turns ids into expert slots: dispatch then takes those
	 * (FERRY_ID_SLOT), and refuses logical ids under such a placement.
	 */
	FERRY_SPLIT_EXACT = 2,
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
	/*
	 * [n_slots] QUOTA: weights of the slots, >= 0; an expert's replicas
	 * are served in proportion, and alike where all of them are 0. What
	 * stands at an empty slot does not count. NULL otherwise.
	 */
	const int64_t *quota;
};
#define FERRY_PLACEMENT_CONFIG_INIT                                            \
	{                                                                      \
		sizeof(struct ferry_placement_config), 0, 0, NULL, NULL,       \
			FERRY_SPLIT_EVEN, 0, NULL                              \
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
 * 64-bit hash of the content: experts, ranks, slots, map, split and quotas.
 * Equal content gives equal hashes on every machine. Ranks compare it. 0 for
 * NULL.
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

/** Number of ranks; 0 for NULL. */
FERRY_API int32_t
ferry_placement_n_ranks(const struct ferry_placement *placement);

/** How tokens are divided among replicas; EVEN for NULL. */
FERRY_API enum ferry_split
ferry_placement_split(const struct ferry_placement *placement);

/**
 * First slot of a rank 0..n_ranks; that of n_ranks is n_slots, so that rank r
 * has those from first_slot(r) up to first_slot(r + 1). -1 out of range, and
 * for NULL.
 */
FERRY_API int32_t ferry_placement_first_slot(
	const struct ferry_placement *placement, int32_t rank);

/** Quota of a slot under split QUOTA; else 0, also where it is empty. */
FERRY_API int64_t ferry_placement_quota(const struct ferry_placement *placement,
                                        int32_t slot);

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
 * unknown expert, under EXACT, and for NULL. Pure.
 */
FERRY_API int32_t
ferry_placement_resolve(const struct ferry_placement *placement, int32_t expert,
                        int32_t rank, int32_t token, int32_t choice);

/**
 * Operations in flight that name the placement (also beside slot ids): from
 * their dispatch_send until their combine_send has returned, or the next
 * dispatch_send of the slot or the close of the channel begins. While it is not
 * 0 an expert's old weights may still be read. On GPUs it counts calls, whose
 * kernels may come later, and not replays of graphs. Any thread. 0 for NULL.
 */
FERRY_API int32_t
ferry_placement_in_use(const struct ferry_placement *placement);

/**
 * The permutation that moves least: reorders target[n_slots] (an expert per
 * slot, -1: empty) among ranks with equally many slots and within ranks so
 * that as many experts as possible stay where they are in `from`, first on
 * their rank, then in their slot; the optimum, by the assignment problem.
 * Between equals as many ranks as possible stay as in target; what is then
 * still open is fixed. The time rises with the cube of the ranks.
 * aligned[n_slots] may be target. *n_moved, where not NULL, is the number of
 * experts that ranks must fetch.
 * Errors: INVAL, RANGE, NOMEM.
 */
FERRY_API enum ferry_status
ferry_placement_align(const struct ferry_placement *from, const int32_t *target,
                      int32_t *aligned, int32_t *n_moved) FERRY_MUST_CHECK;

/**
 * As ferry_placement_align, but ranks of one of n_nodes hosts (n_ranks /
 * n_nodes each, in rank order) stay together, as ferry_eplb's hierarchical
 * placements want it: hosts whose ranks have the same numbers of slots may
 * change places as a whole, and ranks within them.
 */
FERRY_API enum ferry_status ferry_placement_align_nodes(
	const struct ferry_placement *from, const int32_t *target,
	int32_t n_nodes, int32_t *aligned, int32_t *n_moved) FERRY_MUST_CHECK;

/**
 * Writes a placement as text (docs/balance.md): one line a rank, for people
 * and for version control. buffer[bytes] is always terminated; returns the
 * length of the whole text without the 0, as snprintf does.
 */
FERRY_API size_t ferry_placement_write(const struct ferry_placement *placement,
                                       char *buffer, size_t bytes);

/**
 * Reads a placement from text; the last line, too, ends with a newline, so that
 * a text that was cut off is refused. Errors: INVAL (naming line and column),
 * and those of ferry_placement_create.
 */
FERRY_API enum ferry_status
ferry_placement_read(const char *text, size_t bytes,
                     struct ferry_placement **placement) FERRY_MUST_CHECK;

/**
 * Writes a placement in binary (little endian, versioned, with its hash) into
 * buffer[bytes]; returns the size that it needs, and writes nothing where that
 * is more than bytes. 0 for NULL.
 */
FERRY_API size_t ferry_placement_pack(const struct ferry_placement *placement,
                                      void *buffer, size_t bytes);

/** Reads what ferry_placement_pack wrote. Errors: INVAL, NOMEM. */
FERRY_API enum ferry_status
ferry_placement_unpack(const void *buffer, size_t bytes,
                       struct ferry_placement **placement) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
