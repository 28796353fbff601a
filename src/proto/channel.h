/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a channel, shared by the argument checks (src/moe) and the
 * engines (src/cpu, src/cuda), and the table of an engine.
 */
#ifndef FERRY_CHANNEL_H
#define FERRY_CHANNEL_H

#include <ferry/moe.h>
#include <ferry/trace.h>

#include "../fabric/segment.h"
#include "layout.h"
#include "slot_state.h"
#include "window.h"

/* What the host knows of a slot. */
struct ferry_slot {
	enum ferry_slot_state state;
	uint64_t n_dispatches; /* sent so far, this one included */
	int32_t hidden;        /* of the operation in flight */
	int32_t topk;
	int32_t n_tokens; /* -1: only the device knows */
	/* Count of the placement in flight; NULL: none, or left again. */
	struct ferry_usage *usage;
};

struct ferry_engine;
struct ferry_usage;

/*
 * An engine runs the four phases. Arguments are checked, the state is legal
 * and the segment is not broken when a slot is called; strides are filled in.
 */
struct ferry_engine_ops {
	const char *name; /* "cpu", "cuda" */
	/*
	 * Chooses what the configuration leaves open, the path, and refuses
	 * what the engine cannot do. ctx may be NULL. No device needed.
	 */
	enum ferry_status (*settle)(struct ferry_ctx *ctx,
	                            struct ferry_shape *shape);
	/* Heap bytes per rank and the path of a settled shape. */
	enum ferry_status (*query)(const struct ferry_shape *shape,
	                           struct ferry_moe_need *need);
	/* Local; the segment is open. */
	enum ferry_status (*open)(struct ferry_moe *moe,
	                          struct ferry_engine **engine);
	/*
	 * Never hangs. False: something of it is still running on a device, so
	 * that its memory and the segment must stay.
	 */
	bool (*close)(struct ferry_engine *engine);
	enum ferry_status (*dispatch_send)(struct ferry_moe *moe, int32_t slot,
	                                   const struct ferry_dispatch_in *in,
	                                   struct CUstream_st *stream);
	enum ferry_status (*dispatch_recv)(struct ferry_moe *moe, int32_t slot,
	                                   const struct ferry_dispatch_out *out,
	                                   struct CUstream_st *stream);
	enum ferry_status (*combine_send)(struct ferry_moe *moe, int32_t slot,
	                                  const struct ferry_combine_in *in,
	                                  struct CUstream_st *stream);
	enum ferry_status (*combine_recv)(struct ferry_moe *moe, int32_t slot,
	                                  const struct ferry_combine_out *out,
	                                  struct CUstream_st *stream);
	/* The fused calls: both phases, as one launch where that pays. */
	enum ferry_status (*dispatch)(struct ferry_moe *moe, int32_t slot,
	                              const struct ferry_dispatch_in *in,
	                              const struct ferry_dispatch_out *out,
	                              struct CUstream_st *stream);
	enum ferry_status (*combine)(struct ferry_moe *moe, int32_t slot,
	                             const struct ferry_combine_in *in,
	                             const struct ferry_combine_out *out,
	                             struct CUstream_st *stream);
	/* What follows a failed dispatch must find nothing to do. */
	void (*clear)(struct ferry_moe *moe,
	              const struct ferry_dispatch_out *out,
	              struct CUstream_st *stream);
};

struct ferry_moe {
	struct ferry_world *world;
	struct ferry_segment *segment;
	/* Host memory that a network reaches, where ranks with GPUs are on
	 * several hosts (net_layout.h); NULL: stores reach all. */
	struct ferry_segment *mirror;
	bool has_far; /* some rank's GPU does not store to some other's */
	struct ferry_shape shape;
	struct ferry_window window;
	bool staged;              /* some peer is reached by put only */
	bool path_asked;          /* by the configuration, not AUTO */
	uint64_t first_epoch;     /* random, agreed at open */
	struct ferry_slot *slots; /* [n_slots] */
	const struct ferry_engine_ops *ops;
	struct ferry_engine *engine;
	struct ferry_placement *identity; /* expert e in slot e; NULL when
	                                   * there are fewer slots */
	struct ferry_moe_stats stats;
	uint64_t *wait_ns;   /* [n_ranks] waited for each peer */
	uint64_t *slot_rows; /* [own_expert_slots] rows received by each */
};

extern const struct ferry_engine_ops ferry_engine_cpu;
extern const struct ferry_engine_ops ferry_engine_cuda;

static inline const struct ferry_engine_ops *
ferry_engine_of(enum ferry_device device)
{
	return device == FERRY_DEVICE_CUDA ? &ferry_engine_cuda
	                                   : &ferry_engine_cpu;
}

#endif
