/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/split.h: the exact split of replicas, after the true router.
 *
 * A splitter carries every rank's counts of experts to all ranks; all compute
 * the integer quotas of ferry_split_quotas from the same sums, and each turns
 * its own expert ids into expert slots for ferry_dispatch_send (id_kind
 * FERRY_ID_SLOT). The fullest rank then gets as few tokens as the copies at
 * hand allow, whatever the copies were planned from.
 *
 * n_slots splits can be in flight; each slot goes through send, recv, and
 * again. Every split needs all ranks: an idle rank calls with 0 tokens.
 *
 * A call that is refused with INVAL, RANGE or STATE because of its own
 * arguments has done nothing. Any other failure ends the splitter on all
 * ranks, which agree on its status and root rank (ferry_world_poll); every
 * later call answers BROKEN, and only close is legal. One thread at a time may
 * use a splitter. CPU worlds.
 */
#ifndef FERRY_SPLIT_H
#define FERRY_SPLIT_H

#include <ferry/moe_config.h>
#include <ferry/placement.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Maxima of a splitter, equal on all ranks. Zero means default. */
struct ferry_splitter_config {
	size_t size;
	int32_t max_tokens;       /* per rank and call, 1.. */
	int32_t topk;             /* choices of a token, 1..64 */
	int32_t max_experts;      /* logical experts of a placement, 1..2^24 */
	int32_t max_expert_slots; /* of all ranks; 0: max_experts */
	int32_t n_slots;          /* splits in flight, 1..256; 0: 1 */
	int32_t group_size; /* ranks with the same tokens, divides the number of
	                     * ranks; 0: 1 */
	enum ferry_bad_id bad_id;
};
#define FERRY_SPLITTER_CONFIG_INIT                                             \
	{                                                                      \
		sizeof(struct ferry_splitter_config), 0, 0, 0, 0, 0, 0,        \
			FERRY_BAD_ID_ERROR                                     \
	}

/** A splitter of a world. */
struct ferry_splitter;

/**
 * Opens a splitter. Collective; returns when all ranks have opened, at most
 * after open_timeout_ms. The configurations are compared. config is copied;
 * *splitter is written on success. The world stays open until the splitter is
 * closed.
 * Errors: INVAL, RANGE, UNSUPPORTED (a world of GPUs), NOMEM, SYS, TIMEOUT,
 * PEER, MISMATCH, ABORTED.
 */
FERRY_API enum ferry_status
ferry_splitter_open(struct ferry_world *world,
                    const struct ferry_splitter_config *config,
                    struct ferry_splitter **splitter) FERRY_MUST_CHECK;

/** Closes a splitter: local, never hangs. NULL is accepted. */
FERRY_API void ferry_splitter_close(struct ferry_splitter *splitter);

/** A batch to split. */
struct ferry_split_in {
	size_t size;
	int32_t n_tokens; /* 0..max_tokens */
	int32_t topk;     /* 0: the splitter's */
	/* [n_tokens][topk] logical experts, -1: none; aligned as id_type */
	const void *ids;
	size_t ids_stride; /* bytes from token to token; 0: contiguous */
	enum ferry_id_type id_type;
	/*
	 * Of any split; its content must be the same on all ranks. Must stay
	 * until the matching recv has returned.
	 */
	const struct ferry_placement *placement;
	const int32_t *speed; /* [n_ranks] as in ferry_split_quotas, the same
	                       * on all ranks; NULL: all equal; must stay */
};
#define FERRY_SPLIT_IN_INIT                                                    \
	{                                                                      \
		sizeof(struct ferry_split_in), 0, 0, NULL, 0, FERRY_ID_INT32,  \
			NULL, NULL                                             \
	}

/** What comes out. Any pointer but slots may be NULL: not wanted. */
struct ferry_split_out {
	size_t size;
	int32_t *slots;      /* [n_tokens][topk] expert slots, -1 stays -1 */
	size_t slots_stride; /* bytes from token to token; 0: contiguous */
	int64_t *rank_loads; /* [n_ranks] choices that each rank gets of all */
	int64_t *max_load;   /* [1] of the fullest, by speed: the optimum */
};
#define FERRY_SPLIT_OUT_INIT                                                   \
	{                                                                      \
		sizeof(struct ferry_split_out), NULL, 0, NULL, NULL            \
	}

/**
 * Counts a batch and sends the counts. Reads ids before it returns. Never
 * waits for a peer.
 * Errors: INVAL, RANGE (nothing was sent), STATE, BROKEN, TIMEOUT, PEER,
 * ABORTED, FABRIC. A bad id under BAD_ID_ERROR is sent as a mark, and all
 * ranks get RANGE from recv, naming rank, token, choice and id, which breaks
 * the splitter. Other placements or speeds than other ranks': MISMATCH there.
 */
FERRY_API enum ferry_status
ferry_split_send(struct ferry_splitter *splitter, int32_t slot,
                 const struct ferry_split_in *in) FERRY_MUST_CHECK;

/**
 * Waits, at most timeout_ms, for the counts of all ranks, and fills out. Of
 * the choices of an expert with replicas, each replica serves exactly its
 * quota; a rank that has a replica itself is served there first, as far as
 * the quota reaches, and what is left of the ranks in ascending order goes to
 * what is left of the quotas in slot order (docs/balance.md). Equal inputs
 * give equal slots on every machine. After INVAL the slot is as it was before.
 * Errors: INVAL, RANGE, STATE, MISMATCH, PROTO, TIMEOUT, PEER, ABORTED,
 * FABRIC, BROKEN.
 */
FERRY_API enum ferry_status
ferry_split_recv(struct ferry_splitter *splitter, int32_t slot,
                 const struct ferry_split_out *out) FERRY_MUST_CHECK;

/**
 * ferry_split_send and ferry_split_recv in one call, with the errors of both;
 * arguments of both are checked first.
 */
FERRY_API enum ferry_status
ferry_split(struct ferry_splitter *splitter, int32_t slot,
            const struct ferry_split_in *in,
            const struct ferry_split_out *out) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
