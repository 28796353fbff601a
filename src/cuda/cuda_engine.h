/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host files of the CUDA engine share: the state of a channel and of
 * a slot. Opening is in cuda_engine.c, the phases in cuda_launch.c, the order
 * of streams in cuda_order.c, placements on the device in cuda_placement.c,
 * failures in cuda_watch.c and cuda_report.c.
 */
#ifndef FERRY_CUDA_ENGINE_H
#define FERRY_CUDA_ENGINE_H

#include <pthread.h>

#include "../fabric/cuda_call.h"
#include "../proto/blame.h"
#include "../proto/channel.h"
#include "cuda_kernels.h"
#include "cuda_memory.h"
#include "cuda_net.h"
#include "cuda_order.h"
#include "cuda_placement.h"

/* An operation slot: its kernels' arguments, made once and only patched. */
struct cuda_slot {
	struct ferry_cuda_op op; /* owns the memory */
	struct ferry_cuda_dispatch dispatch;
	struct ferry_cuda_combine combine;
	struct cuda_order order;
};

struct ferry_engine {
	struct ferry_moe *moe;
	const struct ferry_cuda_dispatch_ops *dispatch;
	const struct ferry_cuda_combine_ops *combine;
	int32_t dispatch_ctas, combine_ctas; /* most blocks of a launch */
	struct cuda_slot *slots;             /* [n_slots] */
	struct ferry_cuda_host *host;        /* in `pinned` */
	struct ferry_cuda_local *local;      /* on the device */
	struct cuda_placements placements;
	struct ferry_gpu_memory *pinned;
	struct cuda_net net; /* of a channel over several hosts */
	cudaStream_t stream; /* for memory and copies */
	/* cuda_watch.c */
	pthread_t watcher;
	bool watched;
	uint32_t closing;
};

/* cuda_engine.c */

/* Failures of calls of CUDA end the channel: on all ranks, with this text. */
enum ferry_status ferry_cuda_break(struct ferry_engine *e,
                                   enum ferry_phase phase, int32_t slot,
                                   int error, const char *what);

/* cuda_launch.c */

enum ferry_status ferry_cuda_dispatch_send(struct ferry_moe *moe, int32_t slot,
                                           const struct ferry_dispatch_in *in,
                                           struct CUstream_st *stream);
enum ferry_status ferry_cuda_dispatch_recv(struct ferry_moe *moe, int32_t slot,
                                           const struct ferry_dispatch_out *out,
                                           struct CUstream_st *stream);
enum ferry_status ferry_cuda_combine_send(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_combine_in *in,
                                          struct CUstream_st *stream);
enum ferry_status ferry_cuda_combine_recv(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_combine_out *out,
                                          struct CUstream_st *stream);
enum ferry_status ferry_cuda_dispatch_both(struct ferry_moe *moe, int32_t slot,
                                           const struct ferry_dispatch_in *in,
                                           const struct ferry_dispatch_out *out,
                                           struct CUstream_st *stream);
enum ferry_status ferry_cuda_combine_both(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_combine_in *in,
                                          const struct ferry_combine_out *out,
                                          struct CUstream_st *stream);
/* Counts and offsets of a dispatch that failed become 0, on the stream. */
void ferry_cuda_clear(struct ferry_moe *moe,
                      const struct ferry_dispatch_out *out,
                      struct CUstream_st *stream);
/* What is constant in the arguments of a slot. */
void ferry_cuda_args_prepare(struct ferry_engine *e, int32_t slot,
                             const struct ferry_cuda_channel *channel,
                             size_t dispatch_scratch);

/* cuda_watch.c */

enum ferry_status ferry_cuda_watch_start(struct ferry_engine *e);
void ferry_cuda_watch_stop(struct ferry_engine *e);

/* cuda_report.c */

/* What this rank's device has found, in words. */
void ferry_cuda_report(const struct ferry_moe *moe,
                       const struct ferry_cuda_record *record,
                       struct ferry_blame *blame);

#endif
