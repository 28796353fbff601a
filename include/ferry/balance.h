/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/balance.h: what ranks must know alike before they plan (plan.h): the
 * loads of all ranks together, what the links between them cost, how long the
 * attention stages last under which experts move, and how fast each rank is.
 * Formulas and their sources: docs/balance.md.
 */
#ifndef FERRY_BALANCE_H
#define FERRY_BALANCE_H

#include <ferry/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Sums of expert loads over the ranks of a world, round after round. */
struct ferry_totals;

/**
 * Opens sums of up to max_experts (1..FERRY_MAX_EXPERTS) loads. Collective;
 * blocks until all ranks have opened, at most open_timeout_ms. One round is
 * under way at a time: who has two micro-batches in flight opens two. Counts
 * and sums are memory of the host, in worlds of GPUs, too; those of fabric
 * nvshmem have none: open one of CPUs beside it.
 * Errors: as ferry_segment_open; RANGE, MISMATCH (max_experts), which all ranks
 * get; UNSUPPORTED.
 */
FERRY_API enum ferry_status
ferry_totals_open(struct ferry_world *world, int32_t max_experts,
                  struct ferry_totals **totals) FERRY_MUST_CHECK;

/** Closes sums: local, never hangs. NULL is accepted. */
FERRY_API void ferry_totals_close(struct ferry_totals *totals);

/** What one rank brings to a round. */
struct ferry_totals_in {
	size_t size;
	int32_t n_experts; /* 1..max_experts, equal on all ranks */
	/* [n_experts] >= 0: the rank's own tokens only, as
	 * ferry_predict_counts counts them. NULL: an idle rank, all 0. */
	const int32_t *counts;
	/* In which experts may move under this rank's attention; INT64_MAX
	 * where the rank sets no limit, as an idle one. */
	int64_t window_ns;
	/* Compared: what the loads are of, and what they are planned for: the
	 * layer's number, a placement's hash, the last plan's hash. */
	uint64_t tag;
};
#define FERRY_TOTALS_IN_INIT                                                   \
	{                                                                      \
		sizeof(struct ferry_totals_in), 0, NULL, INT64_MAX, 0          \
	}

/** What all ranks get of a round, equal to the bit. NULL: not wanted. */
struct ferry_totals_out {
	size_t size;
	int64_t *loads;          /* [n_experts] sums over ranks */
	int64_t *window_ns;      /* [1] the least of all ranks */
	int64_t *rank_window_ns; /* [n_ranks] of each */
};
#define FERRY_TOTALS_OUT_INIT                                                  \
	{                                                                      \
		sizeof(struct ferry_totals_out), NULL, NULL, NULL              \
	}

/**
 * Sends this rank's counts, read before it returns. Never waits for a peer.
 * Errors: INVAL, RANGE (naming the count; nothing was sent), STATE (the round
 * before was not received), those of a segment.
 */
FERRY_API enum ferry_status
ferry_totals_send(struct ferry_totals *totals,
                  const struct ferry_totals_in *in) FERRY_MUST_CHECK;

/**
 * Receives the sums: waits for all ranks, at most timeout_ms. One thread that
 * drives several ranks issues all sends first. With MISMATCH, which all ranks
 * get and which names two of them with both values, out is not touched, and
 * the round is over all the same.
 * Errors: INVAL, STATE (nothing was sent), MISMATCH, those of a segment.
 */
FERRY_API enum ferry_status
ferry_totals_recv(struct ferry_totals *totals,
                  const struct ferry_totals_out *out) FERRY_MUST_CHECK;

/** How to measure links. Zero means default; equal on all ranks. */
struct ferry_cost_config {
	size_t size;
	/* Of the largest transfer, 4096..2^30; 0: 16 MiB. As large as an
	 * expert is: smaller ones may fit in caches. */
	int64_t max_bytes;
	int32_t rounds; /* of which the fastest counts, 1..1000; 0: 10 */
};
#define FERRY_COST_CONFIG_INIT                                                 \
	{                                                                      \
		sizeof(struct ferry_cost_config), 0, 0                         \
	}

/**
 * Measures what a put costs from every rank to every other, by puts of several
 * sizes through a segment of its own: alpha_ns[n_ranks * n_ranks] and
 * ps_per_byte[n_ranks * n_ranks], as in struct ferry_cost, row a the links from
 * rank a, diagonal 0. All ranks get the same numbers. Collective, for set-up:
 * n_ranks - 1 steps (n_ranks, if that is odd) of some ms each, in which pairs
 * of ranks work at the same time. config may be NULL.
 *
 * In a CUDA world the puts are those of the copy engines.
 * Errors: INVAL, RANGE, MISMATCH (config; all ranks get them), NOMEM, those of
 * a segment and of ferry_world_barrier. The arrays are written on success.
 */
FERRY_API enum ferry_status
ferry_cost_measure(struct ferry_world *world,
                   const struct ferry_cost_config *config, int64_t *alpha_ns,
                   int64_t *ps_per_byte) FERRY_MUST_CHECK;

/** Measured times of attention stages, by type of attention and shape. */
struct ferry_windows;

/** Whose attention is alike, and what is kept free. Zero means default. */
struct ferry_windows_config {
	size_t size;
	int32_t n_layers; /* 1..65536 */
	/* [n_layers] layers of equal type take equally long (full, sliding
	 * window, linear ...); NULL: all are alike. */
	const int32_t *layer_type;
	int32_t max_shapes; /* of each type; 0: 256 */
	/* Of the attention's time, not to be used: FreeBalance's delta. */
	int64_t margin_ns;  /* >= 0 */
	int32_t margin_ppm; /* and millionths of it, 0..1000000 */
};
#define FERRY_WINDOWS_CONFIG_INIT                                              \
	{                                                                      \
		sizeof(struct ferry_windows_config), 0, NULL, 0, 0, 0          \
	}

/** Makes an empty profile. Local. Errors: INVAL, RANGE, NOMEM. */
FERRY_API enum ferry_status
ferry_windows_create(const struct ferry_windows_config *config,
                     struct ferry_windows **windows) FERRY_MUST_CHECK;

/** Destroys a profile; NULL is accepted. */
FERRY_API void ferry_windows_destroy(struct ferry_windows *windows);

/**
 * The first layer with the type of this one: FreeBalance's r(l), the one to
 * measure for all of them. -1 for no layer, and for NULL.
 */
FERRY_API int32_t ferry_windows_layer(const struct ferry_windows *windows,
                                      int32_t layer);

/**
 * Notes that the attention of a layer, and of all of its type, took ns with
 * n_tokens tokens (>= 1) in sequences of seq_len (>= 1). Of one shape the
 * shortest time counts. One thread at a time.
 * Errors: INVAL, RANGE (max_shapes too), NOMEM.
 */
FERRY_API enum ferry_status ferry_windows_add(struct ferry_windows *windows,
                                              int32_t layer, int32_t n_tokens,
                                              int32_t seq_len,
                                              int64_t ns) FERRY_MUST_CHECK;

/**
 * The window of a layer for a shape (each >= 0), margin subtracted, never
 * below 0. Between measured shapes it is interpolated in both directions;
 * towards 0 tokens or a length of 0 it falls to 0; beyond the largest it stays;
 * a shape that is missing in the grid counts as the longest measured one that
 * is smaller. So it is not overrated where attention takes longer for more
 * tokens and for longer sequences, by an increase that does not grow. In
 * integers.
 * Errors: INVAL, RANGE.
 */
FERRY_API enum ferry_status
ferry_windows_get(const struct ferry_windows *windows, int32_t layer,
                  int32_t n_tokens, int32_t seq_len,
                  int64_t *window_ns) FERRY_MUST_CHECK;

/** What a rank's experts have done and how long it took. */
struct ferry_work {
	int64_t tokens; /* rows through its experts; 0: nothing measured */
	int64_t ns;
};

/**
 * Speeds for ferry_plan_in: speed[n_ranks], in thousandths of the median of the
 * ranks that have measured something, 1..1000000, rounded. Who has not, and
 * who is within tolerance_ppm millionths of it, is FERRY_SPEED_NORMAL, so that
 * noise moves no expert. Pure, in integers.
 * Errors: INVAL, RANGE (naming the rank).
 */
FERRY_API enum ferry_status ferry_speeds(const struct ferry_work *work,
                                         int32_t n_ranks, int32_t tolerance_ppm,
                                         int32_t *speed) FERRY_MUST_CHECK;

/**
 * ferry_speeds of all ranks' work: speed[n_ranks] is equal everywhere.
 * Collective, for now and then: through the boot connection, as
 * ferry_world_allgather. Errors: as both; MISMATCH (tolerance_ppm).
 */
FERRY_API enum ferry_status
ferry_speeds_gather(struct ferry_world *world, const struct ferry_work *own,
                    int32_t tolerance_ppm, int32_t *speed) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
