/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/experts.h: the weights of a model's experts, and their moves between
 * ranks while the model runs.
 *
 * An expert is n_tensors tensors, weights and scales, which always move
 * together. A plan (plan.h) is carried out in two steps: ferry_experts_start
 * pushes every moving expert into staging memory of the rank that gets it,
 * while attention runs, and ferry_experts_commit switches the layer to the new
 * placement when all ranks have staged. In between, and when anything fails,
 * the old placement and the old weights are in force and whole.
 *
 * In worlds of GPUs (fabric p2p: one host) weights are memory of the GPU, and
 * copies are those of the copy engine. start waits for nothing; what it copies
 * comes after all that its stream has then. commit says of its stream that all
 * kernels that read weights of older versions come before what it has then, or
 * are over: only when that is over, memory is used again. So the streams of
 * commits are one, or each waits for the one before.
 *
 * A commit makes a new version of the layer's placement. What is dispatched
 * with the old one still finds the old weights: memory of a version is used
 * again only when no operation uses it any more, on any rank. How this works,
 * with its proof: docs/balance.md.
 *
 * start, poll, commit and abandon of one object are called by one thread at a
 * time, and in the same order on all ranks; no other call needs that. So a
 * second thread may start a plan while the first computes. Everything may run
 * beside dispatch and combine. Refusals with INVAL, RANGE, STATE or NOMEM have
 * done nothing. Any other failure ends the object on all ranks (guide, section
 * 10): later calls that meet peers answer BROKEN, while placements and weights
 * stay readable until ferry_experts_close.
 */
#ifndef FERRY_EXPERTS_H
#define FERRY_EXPERTS_H

#include <ferry/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* a CUDA stream: cudaStream_t is a pointer to it */

enum {
	/** Most plans that are started and not committed, of as many layers. */
	FERRY_EXPERTS_PLANS = 4,
};

/** The registered experts of a model, on this rank. */
struct ferry_experts;

/** Who owns the weights, and what a commit does. */
enum ferry_experts_mode {
	/**
	 * The library owns a pool of buffers, one for every own expert slot of
	 * every layer, and the staging buffers. A commit exchanges pointers:
	 * the staged buffer becomes the slot's, the old one staging, once it
	 * is not in use. Addresses change with each version.
	 */
	FERRY_EXPERTS_REMAP = 0,
	/**
	 * The caller owns the weights, whose addresses stay. A commit copies
	 * from staging in place, and only while no operation uses the version
	 * before.
	 */
	FERRY_EXPERTS_COPY = 1,
};

/**
 * What to register. Equal on all ranks but for `tensors`. Arrays are copied;
 * the placements stay the caller's, must live as long as the object, and may be
 * the same for several layers.
 */
struct ferry_experts_config {
	size_t size;
	int32_t n_layers; /* 1.. */
	/* [n_layers] where the experts are now; versions, slots per rank and
	 * numbers of experts may differ from layer to layer. */
	const struct ferry_placement *const *placements;
	int32_t n_tensors;          /* of an expert, 1.. */
	const size_t *tensor_bytes; /* [n_tensors] 1..; alike in all layers */
	/*
	 * Staging buffers of each rank, shared by all layers; 0: 4. A plan
	 * needs one for each expert that comes to a rank. What it used is free
	 * again after the end of the next plan: twice what a plan brings to a
	 * rank keeps every plan going.
	 */
	int32_t n_staging;
	enum ferry_experts_mode mode;
	/*
	 * COPY: addresses of the own tensors, tensors[i * n_tensors + t] of
	 * own expert slot i, where i counts the own slots of all layers, layer
	 * by layer; slots that are empty now included. NULL for REMAP.
	 */
	void *const *tensors;
};
#define FERRY_EXPERTS_CONFIG_INIT                                              \
	{                                                                      \
		sizeof(struct ferry_experts_config), 0, NULL, 0, NULL, 0,      \
			FERRY_EXPERTS_REMAP, NULL                              \
	}

/**
 * Registers the experts of a model. Collective; returns when all ranks have
 * opened, at most after open_timeout_ms. The configurations are compared, and
 * a difference names field, ranks and values. *experts is written on success.
 * REMAP: the caller then writes its weights to where ferry_experts_tensor says.
 * A rank's memory is that of the rank with most slots: tensors begin at
 * multiples of 256 bytes.
 * Errors: INVAL, RANGE, UNSUPPORTED (GPUs without p2p), NOMEM, SYS, TIMEOUT,
 * PEER, MISMATCH, ABORTED.
 */
FERRY_API enum ferry_status
ferry_experts_open(struct ferry_world *world,
                   const struct ferry_experts_config *config,
                   struct ferry_experts **experts) FERRY_MUST_CHECK;

/**
 * Closes: local, never hangs (kernels and copies of the caller's that use
 * weights of REMAP are over), also with plans that are not committed and after
 * a failure. Placements that the library made, and the pool of REMAP, are gone
 * then. NULL is accepted.
 */
FERRY_API void ferry_experts_close(struct ferry_experts *experts);

/**
 * The newest committed placement of a layer; NULL out of range, and for NULL.
 * It lives until a later version has been committed and nothing uses it
 * (ferry_placement_in_use, ferry_experts_acquire); the first one is the
 * caller's. Any thread.
 */
FERRY_API const struct ferry_placement *
ferry_experts_placement(const struct ferry_experts *experts, int32_t layer);

/**
 * As ferry_experts_placement, and counts a use of it: until
 * ferry_experts_release the placement lives and its weights stay. An operation
 * of a channel counts by itself, from its dispatch_send to its combine_send:
 * needed by who dispatches otherwise, or while another thread commits. COPY: it
 * waits while another thread is in the commit that overwrites the layer.
 */
FERRY_API const struct ferry_placement *
ferry_experts_acquire(struct ferry_experts *experts, int32_t layer);

/**
 * Gives a use back. NULL, and what was not acquired, is ignored. Any thread.
 */
FERRY_API void ferry_experts_release(struct ferry_experts *experts,
                                     int32_t layer,
                                     const struct ferry_placement *placement);

/**
 * Address of tensor `tensor` of this rank's own expert slot `own_slot` (0 is
 * its first) in a layer: under the newest version (placement NULL), or under
 * an older one that is still kept: while it is in use on any rank, and until
 * all have said at the end of a plan that it is not. The address stays as long
 * as the version does. NULL out of range, and for a placement that is not kept.
 * Any thread.
 */
FERRY_API void *ferry_experts_tensor(const struct ferry_experts *experts,
                                     int32_t layer,
                                     const struct ferry_placement *placement,
                                     int32_t own_slot, int32_t tensor);

/**
 * Starts a plan for the newest placement of a layer: pushes the own experts
 * that it moves into their new ranks' staging and tells all ranks when they
 * are out. Takes as long as copying them; never waits for a call of a peer.
 * Every rank calls it, with an equal plan; one without moves is a plan, too.
 * The weights of the layer may be read meanwhile and must not be written until
 * commit or abandon. `loads` as in ferry_plan_apply: for split QUOTA, NULL
 * otherwise. stream is NULL in a CPU world, and in one of GPUs the one behind
 * whose work the weights are copied; it is not being captured.
 *
 * Where too few staging buffers are free at the moment, the plan is held back:
 * on all ranks alike nothing moves, as with a plan without moves, commit
 * returns the old placement, and its report says so.
 * Errors: INVAL, RANGE (the plan does not fit the placement, or brings a rank
 * more experts than it has staging buffers), STATE (the layer has a plan
 * already, or the FERRY_EXPERTS_PLANS-th plan before it has not ended), NOMEM;
 * BROKEN, TIMEOUT, PEER, MISMATCH, ABORTED, FABRIC.
 */
FERRY_API enum ferry_status
ferry_experts_start(struct ferry_experts *experts, int32_t layer,
                    const struct ferry_plan *plan, const int64_t *loads,
                    struct CUstream_st *stream) FERRY_MUST_CHECK;

/**
 * As ferry_experts_start, but towards a placement of the caller's: for what no
 * plan does, as giving up replicas (which moves nothing), re-placing a layer by
 * ferry_eplb, or changing the split. It has as many experts, and slots of each
 * rank, as the layer; its content is copied, and its version does not count. An
 * expert that a slot does not have comes from the same rank where that has it,
 * otherwise from replica number (slot mod n).
 * Errors: as ferry_experts_start; INVAL also where the shape differs. RANGE
 * where it brings a rank more experts than it has staging buffers: go there in
 * several steps.
 */
FERRY_API enum ferry_status
ferry_experts_start_placement(struct ferry_experts *experts, int32_t layer,
                              const struct ferry_placement *placement,
                              struct CUstream_st *stream) FERRY_MUST_CHECK;

/**
 * Has every rank staged the plan of a layer? Then ferry_experts_commit waits
 * only until all ranks call it. Ranks may see it at different times: what all
 * must decide alike must not hang on it. Does not block.
 * Errors: INVAL, RANGE, STATE (no plan was started), BROKEN, and those that
 * end the object.
 */
FERRY_API enum ferry_status ferry_experts_poll(struct ferry_experts *experts,
                                               int32_t layer,
                                               bool *staged) FERRY_MUST_CHECK;

/** What a commit took. */
struct ferry_experts_report {
	size_t size;
	uint64_t exposed_ns; /* time in the call: waiting, and all else */
	uint64_t wait_ns;    /* of it: waiting for ranks to stage */
	uint64_t copy_ns;    /* of it: copying in place (COPY) */
	uint64_t meet_ns;    /* of it: until all ranks had called commit, which
	                      * their next dispatch would have waited for */
	uint64_t bytes_in;   /* that the plan has brought to this rank */
	uint64_t bytes_out;  /* that it has taken from it */
	int32_t n_in;        /* experts */
	int32_t n_out;
	bool held_back; /* nothing moved: too few free staging buffers */
};
#define FERRY_EXPERTS_REPORT_INIT                                              \
	{                                                                      \
		sizeof(struct ferry_experts_report), 0, 0, 0, 0, 0, 0, 0, 0,   \
			false                                                  \
	}

/**
 * Waits until all ranks have staged the plan of a layer and come to commit it,
 * each at most timeout_ms, compares what they have started, and switches.
 * *placement, where not NULL, is then the new placement (its version one more),
 * which belongs to the library; of a plan that changes nothing, the old one.
 * *report may be NULL.
 *
 * COPY: an operation of this rank that uses the version before is STATE, and
 * nothing has changed: call again after its combine_send, which never waits.
 * REMAP never asks for that. stream is NULL in a CPU world; on GPUs it is what
 * the start of this page says, and COPY copies in its order.
 *
 * When a rank dies before it has come, no rank commits, and the old placement
 * stays in force. Of one that dies while it says that it has come, some may
 * have heard it: they are one version ahead of the others, and still have the
 * old one.
 * Errors: INVAL, RANGE, STATE (no plan was started, or see above); MISMATCH
 * (plans, loads, or the calls before differ, or a rank abandons; names the
 * ranks), TIMEOUT, PEER, ABORTED, FABRIC, CUDA, BROKEN.
 */
FERRY_API enum ferry_status
ferry_experts_commit(struct ferry_experts *experts, int32_t layer,
                     struct CUstream_st *stream,
                     const struct ferry_placement **placement,
                     struct ferry_experts_report *report) FERRY_MUST_CHECK;

/**
 * Drops the plan of a layer instead of committing it: on all ranks or none.
 * Waits as ferry_experts_commit does, with its errors.
 */
FERRY_API enum ferry_status
ferry_experts_abandon(struct ferry_experts *experts,
                      int32_t layer) FERRY_MUST_CHECK;

/** Counters of this rank since open. */
struct ferry_experts_stats {
	size_t size;
	uint64_t n_started;
	uint64_t n_committed;
	uint64_t n_abandoned;
	uint64_t n_held_back; /* of those started */
	uint64_t bytes_in;    /* of committed plans */
	uint64_t bytes_out;
	uint64_t exposed_ns;    /* sums of the reports */
	uint64_t push_ns;       /* time in ferry_experts_start */
	int32_t n_in_flight;    /* plans started and not finished */
	int32_t staging_in_use; /* buffers of this rank that are not free */
	int32_t staging_most;   /* the most so far */
	int32_t versions_kept;  /* old placements that are not gone yet */
	uint64_t segment_bytes; /* memory of this rank for it all */
};
#define FERRY_EXPERTS_STATS_INIT                                               \
	{                                                                      \
		sizeof(struct ferry_experts_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, \
			0, 0, 0, 0                                             \
	}

/** Reads the counters. Any thread. Errors: INVAL. */
FERRY_API enum ferry_status
ferry_experts_get_stats(const struct ferry_experts *experts,
                        struct ferry_experts_stats *stats) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
