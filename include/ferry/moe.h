/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/moe.h: dispatch and combine.
 *
 * A channel (struct ferry_moe) carries tokens to the ranks that hold their
 * experts and brings the expert outputs back as a weighted sum. It serves all
 * layers of a model. n_slots operations can be in flight; each slot goes
 * through dispatch_send, dispatch_recv, combine_send, combine_recv, and again;
 * the two combine calls may be left out, by all ranks or by none. Sends never
 * wait for a peer. Every dispatch needs all ranks: an idle rank calls with 0
 * tokens.
 *
 * What the calls of an operation have in common: `slot` is 0..n_slots-1 (RANGE
 * otherwise), `stream` is NULL in a CPU world (INVAL). A call that is refused
 * with INVAL, RANGE or STATE because of its own arguments has done nothing. Any
 * other failure ends the channel on all ranks, which agree on its status and
 * root rank; every later call answers BROKEN, and only close is legal.
 *
 * In a CUDA world (docs/guide.md, "On GPUs"):
 *
 * - Arrays are in memory that the rank's GPU reaches, device or pinned host
 *   memory; the host looks at none of it. `stream` is a stream of that GPU;
 *   NULL is its legacy default stream. A call puts one kernel on the stream and
 *   returns; all of it can be captured in graphs. What is said below to be
 *   read, waited for or done when a call returns is so when its kernel is over.
 * - The phases of a slot may come on different streams: the library orders
 *   them. A stream must not be destroyed before the next phase of each slot
 *   that it was last used for has been called, or the channel closed.
 * - A failure that kernels find (all but INVAL, STATE and RANGE of a call's
 *   arguments) is told by the calls that follow and by ferry_moe_poll, which
 *   know of it as soon as the kernel is over. Counts, offsets, n_rows and
 *   n_dropped are then 0, and later kernels of the channel do nothing.
 * - An error of CUDA ends the channel, with CUDA or NOMEM.
 *
 * One thread at a time may use a channel. Arithmetic: docs/arithmetic.md.
 */
#ifndef FERRY_MOE_H
#define FERRY_MOE_H

#include <ferry/moe_config.h>
#include <ferry/placement.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* a CUDA stream: cudaStream_t is a pointer to it */

/** A dispatch/combine channel of a world. */
struct ferry_moe;

/**
 * Opens a channel. Collective; returns when all ranks have opened, at most
 * after open_timeout_ms. The configurations are compared, and a difference
 * names field, ranks and values. config is copied; *moe is written on success.
 * The world stays open until the channel is closed.
 *
 * CUDA: everything is allocated and every kernel loaded when it returns; it
 * starts one thread, which watches for failures, and disturbs no capture.
 * Errors: as ferry_moe_query; NOMEM, SYS, TIMEOUT, PEER, MISMATCH, ABORTED,
 * CUDA.
 */
FERRY_API enum ferry_status
ferry_moe_open(struct ferry_world *world, const struct ferry_moe_config *config,
               struct ferry_moe **moe) FERRY_MUST_CHECK;

/**
 * Closes a channel: local, never hangs, also half-way through an operation
 * and after a peer died. NULL is accepted.
 *
 * CUDA: kernels that wait for peers are stopped, and those that the channel's
 * calls have launched are waited for; graphs that hold such calls must not run
 * any more. What a stream does not get to within timeout_ms is given up, and
 * the channel's memory then stays with the process.
 */
FERRY_API void ferry_moe_close(struct ferry_moe *moe);

/** Input of a dispatch. Strides are in bytes; 0 means contiguous. */
struct ferry_dispatch_in {
	size_t size;
	int32_t n_tokens; /* 0..max_tokens */
	/* If set, read instead, at send: by a kernel, so that one graph serves
	 * all sizes. Out of range it is sent as a mark. */
	const int32_t *n_tokens_ptr;
	int32_t hidden; /* elements; 0: the channel's maximum */
	int32_t topk;   /* 0: the channel's maximum */
	const void *x;  /* [n_tokens][hidden], in_dtype */
	size_t x_stride;
	const void *scales; /* [n_tokens][n_scales]; not when quantising */
	size_t scales_stride;
	const void *topk_ids; /* [n_tokens][topk]; -1: no expert */
	size_t ids_stride;
	enum ferry_id_type id_type;
	enum ferry_id_kind id_kind;
	const float *topk_weights; /* [n_tokens][topk]; NULL: all 1 */
	size_t weights_stride;
	/*
	 * NULL: expert e in expert slot e. Slot ids go by themselves, it must
	 * only fit the channel, and counts as in use; logical ids need split
	 * EVEN or QUOTA. Kept until dispatch_recv is over; on a GPU until the
	 * call returns. There, new content is first copied, in some tens of us.
	 * A channel knows the newest ones, 512 or in 4 MiB, and for ever those
	 * that captures have named: NOMEM when full.
	 */
	const struct ferry_placement *placement;
};
#define FERRY_DISPATCH_IN_INIT                                                 \
	{                                                                      \
		sizeof(struct ferry_dispatch_in), 0, NULL, 0, 0, NULL, 0,      \
			NULL, 0, NULL, 0, FERRY_ID_INT32, FERRY_ID_LOGICAL,    \
			NULL, 0, NULL                                          \
	}

/**
 * Output of a dispatch. Any pointer may be NULL: not wanted; rows only where no
 * row arrives (on a GPU, which cannot be asked: where the rank has no expert
 * slots), and for TOKEN, whose rows and scales are in the view and must be
 * NULL here. Order of rows is always (own expert slot, source rank or
 * group, token, choice). S is the number of own expert slots, N need.recv_rows.
 */
struct ferry_dispatch_out {
	size_t size;
	void *rows;           /* expert-major layouts: [N][hidden], dtype */
	size_t row_stride;    /* bytes; 0: contiguous */
	void *scales;         /* [N] rows of scales; PADDED in column forms: one
	                       * matrix per slot, one behind the other */
	size_t scales_stride; /* 0: contiguous, columns rounded up to 16 */
	enum ferry_scale_form scale_form;
	int32_t *counts;          /* [S] rows of each slot */
	int64_t *offsets;         /* [S+1] first row of each slot; [S]: end */
	int32_t *row_expert_slot; /* [N] own slot of each row, -1: padding */
	int32_t *row_source;      /* [N] rank that sent it, -1: padding; token
	                           * t of a group: t mod group_size in it */
	int32_t *row_token;       /* [N] its index in that rank's batch, -1 */
	float *row_weight;        /* [N] its weight, padding 0; needs
	                           * send_weights */
	int64_t *index;           /* TOKEN: [N] row of the view of each entry,
	                           * -1: padding */
	int64_t *n_rows;          /* [1] rows (TOKEN: entries) in use, padding
	                           * not counted */
	int64_t *n_dropped;       /* [1] rows left out for want of capacity */
	/* TOKEN: of each row of the view (rows that did not arrive: -1, 0);
	 * topk is the channel's, whatever that of the call. */
	int32_t *token_slots; /* [2*ranks*cap][topk] own slots, -1: not here */
	float *token_weights; /* [2*ranks*cap][topk]; needs send_weights */
};
#define FERRY_DISPATCH_OUT_INIT                                                \
	{                                                                      \
		sizeof(struct ferry_dispatch_out), NULL, 0, NULL, 0,           \
			FERRY_SCALES_ROW_MAJOR, NULL, NULL, NULL, NULL, NULL,  \
			NULL, NULL, NULL, NULL, NULL, NULL                     \
	}

/**
 * Sends a batch. Reads ids, weights and the count before it returns; x and
 * scales must stay until the matching dispatch_recv has returned. Never waits
 * for a peer. Collective in the sense that every rank must come for each
 * dispatch of a slot, in any order between slots.
 * Errors: INVAL, RANGE, UNSUPPORTED (nothing was sent), STATE, BROKEN, TIMEOUT,
 * PEER, ABORTED, FABRIC, or what a faster rank has found in the tables while
 * this one still sent. A bad id under BAD_ID_ERROR, and a bad n_tokens_ptr, is
 * sent as a mark, and all ranks get RANGE from dispatch_recv, which breaks the
 * channel. Ranks that resolve ids with other placements get MISMATCH there.
 */
FERRY_API enum ferry_status
ferry_dispatch_send(struct ferry_moe *moe, int32_t slot,
                    const struct ferry_dispatch_in *in,
                    struct CUstream_st *stream) FERRY_MUST_CHECK;

/**
 * Receives a batch: waits for the tables and rows of all ranks and fills out.
 * Waits at most timeout_ms; a failure breaks the channel, and counts, offsets,
 * n_rows and n_dropped are then 0. After INVAL the slot is as it was before.
 * Errors: INVAL, STATE, RANGE, OVERFLOW, TIMEOUT, PEER, MISMATCH, PROTO,
 * ABORTED, FABRIC, BROKEN.
 */
FERRY_API enum ferry_status
ferry_dispatch_recv(struct ferry_moe *moe, int32_t slot,
                    const struct ferry_dispatch_out *out,
                    struct CUstream_st *stream) FERRY_MUST_CHECK;

/**
 * ferry_dispatch_send and ferry_dispatch_recv in one call, with the errors of
 * both; arguments of both are checked first. INVAL because rows is NULL and
 * rows arrive comes after the send: dispatch_recv is then next.
 */
FERRY_API enum ferry_status
ferry_dispatch(struct ferry_moe *moe, int32_t slot,
               const struct ferry_dispatch_in *in,
               const struct ferry_dispatch_out *out,
               struct CUstream_st *stream) FERRY_MUST_CHECK;

/** Where combine finds the expert outputs. */
enum ferry_combine_layout {
	/** Rows as in EXPERT_PADDED. */
	FERRY_FROM_PADDED = 0,
	/** Rows as in EXPERT_PACKED, with the channel's alignment. */
	FERRY_FROM_PACKED = 1,
	/**
	 * One row per token row, already weighted and summed by the caller:
	 * row i belongs to row i of the view. Channels with layout TOKEN and
	 * combine REDUCED or PER_HOST only.
	 */
	FERRY_FROM_PRESUMMED = 2,
};

/** Input of a combine. */
struct ferry_combine_in {
	size_t size;
	const void *y;   /* [rows][hidden], combine_dtype; NULL: no rows, on
	                  * a GPU no expert slots */
	size_t y_stride; /* bytes; 0: contiguous */
	enum ferry_combine_layout layout;
};
#define FERRY_COMBINE_IN_INIT                                                  \
	{                                                                      \
		sizeof(struct ferry_combine_in), NULL, 0, FERRY_FROM_PADDED    \
	}

/** Output of a combine. */
struct ferry_combine_out {
	size_t size;
	void *out;         /* [n_tokens][hidden], out_dtype */
	size_t out_stride; /* bytes; 0: contiguous */
	const void
		*residual; /* added last; NULL: none; out_dtype; may be out */
	size_t residual_stride;
};
#define FERRY_COMBINE_OUT_INIT                                                 \
	{                                                                      \
		sizeof(struct ferry_combine_out), NULL, 0, NULL, 0             \
	}

/**
 * Sends the expert outputs back. Ids and weights come from the slot. y must
 * stay until the matching combine_recv has returned. Never waits for a peer.
 * Errors: INVAL, RANGE, STATE, BROKEN, TIMEOUT, PEER, ABORTED, FABRIC.
 */
FERRY_API enum ferry_status
ferry_combine_send(struct ferry_moe *moe, int32_t slot,
                   const struct ferry_combine_in *in,
                   struct CUstream_st *stream) FERRY_MUST_CHECK;

/**
 * Receives the sums of the tokens that this rank dispatched (of its group's
 * tokens, all of them). A token without experts gets 0, or the residual. Waits
 * at most timeout_ms.
 * Errors: INVAL, RANGE, STATE, TIMEOUT, PEER, ABORTED, FABRIC, BROKEN.
 */
FERRY_API enum ferry_status
ferry_combine_recv(struct ferry_moe *moe, int32_t slot,
                   const struct ferry_combine_out *out,
                   struct CUstream_st *stream) FERRY_MUST_CHECK;

/**
 * ferry_combine_send and ferry_combine_recv in one call, with the errors of
 * both; arguments of both are checked first.
 */
FERRY_API enum ferry_status
ferry_combine(struct ferry_moe *moe, int32_t slot,
              const struct ferry_combine_in *in,
              const struct ferry_combine_out *out,
              struct CUstream_st *stream) FERRY_MUST_CHECK;

/** The rows of a TOKEN channel, in the window. */
struct ferry_moe_view {
	size_t size;
	const void *rows;   /* one base over both halves */
	int64_t n_rows;     /* 2 * n_ranks * cap */
	size_t row_stride;  /* bytes */
	const void *scales; /* scales of row 0, NULL: none; row_stride too */
	int64_t cap;        /* ceil(max_tokens / group_size) */
};
#define FERRY_MOE_VIEW_INIT                                                    \
	{                                                                      \
		sizeof(struct ferry_moe_view), NULL, 0, 0, NULL, 0             \
	}

/**
 * The view of a slot of a TOKEN channel. The addresses stay for the life of
 * the channel; a row is valid from dispatch_recv to the next dispatch_send of
 * the slot. Row of token t of source group s in half h:
 * (h * n_ranks + s * group_size + t mod group_size) * cap + t / group_size.
 * Errors: INVAL, RANGE (slot), UNSUPPORTED (another layout).
 */
FERRY_API enum ferry_status
ferry_moe_get_view(const struct ferry_moe *moe, int32_t slot,
                   struct ferry_moe_view *view) FERRY_MUST_CHECK;

/**
 * First failure of the channel, otherwise as ferry_world_poll. On a GPU, where
 * something has failed, it waits until the ranks have agreed, at most 200 ms.
 */
FERRY_API enum ferry_status ferry_moe_poll(const struct ferry_moe *moe,
                                           struct ferry_error *error);

#ifdef __cplusplus
}
#endif
#endif
