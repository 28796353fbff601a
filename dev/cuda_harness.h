/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks of a channel in one process and one thread, for work on a single
 * kernel: no world, no engine. Windows are cudaMalloc memory of the GPUs that
 * are there (rank r on GPU r mod n), inputs come from tests/support/traffic.h,
 * results are compared with the oracle, and chains of operations are timed in
 * graphs. Every call ends the program with a message where something fails.
 *
 *	struct harness *h = harness_open(&config, NULL, &kernels, 0);
 *	harness_batch(h, slot, specs);
 *	harness_dispatch(h, slot, FERRY_CUDA_SEND | FERRY_CUDA_RECV);
 *	n_wrong = harness_check_dispatch(h, slot);
 */
#ifndef CUDA_HARNESS_H
#define CUDA_HARNESS_H

#include "cuda/cuda_kernels.h"
#include "oracle.h"
#include "proto/window.h"
#include "traffic.h"

enum { HARNESS_RANKS = 16, HARNESS_SLOTS = 4 };

/* What is tried; a table may be NULL where its phases are not launched. */
struct harness_kernels {
	const struct ferry_cuda_dispatch_ops *dispatch;
	const struct ferry_cuda_combine_ops *combine;
	enum ferry_path path;
	int32_t ctas; /* 0: all that fit, shared by the ranks of a GPU */
	bool early;   /* launches may overlap, where a GPU has one rank */
	bool in_turn; /* one GPU and one stream: rank after rank has it all */
};

/* An array in device memory, poisoned, and where the host compares it. */
struct harness_array {
	unsigned char *device;
	size_t bytes;
};

enum { HARNESS_OUTPUTS = 13 };

/* One rank's part of an operation. */
struct harness_op {
	struct traffic_batch batch;     /* host */
	struct ferry_dispatch_in in;    /* device pointers, strides filled in */
	struct harness_array input[5];  /* x, scales, ids, weights, count */
	struct ferry_dispatch_out out;  /* device pointers */
	struct ferry_dispatch_out want; /* host, for the oracle */
	struct harness_array output[HARNESS_OUTPUTS];
	struct harness_array y, sum;
	struct ferry_combine_in combine_in;
	struct ferry_combine_out combine_out;
};

/* How outputs are wanted; 0: all of them, contiguous. */
struct harness_form {
	uint32_t leave; /* bits of outputs (order of ferry_dispatch_out) */
	size_t slack;   /* bytes behind each row */
	enum ferry_scale_form scale_form;
	enum ferry_combine_layout from;
	bool residual;
	enum oracle_values values;
	int32_t miscount; /* rank + 1 whose count in memory is too large */
};

struct harness {
	struct harness_kernels kernels;
	struct ferry_moe_config config;
	struct ferry_moe_need need;
	const struct ferry_placement_config *placement;
	int32_t n_ranks, n_gpus;
	struct ferry_shape shape[HARNESS_RANKS];
	struct ferry_window window;
	struct ferry_cuda_channel channel[HARNESS_RANKS];
	struct ferry_cuda_op op[HARNESS_RANKS][HARNESS_SLOTS];
	struct ferry_cuda_placement device_placement[HARNESS_RANKS];
	struct ferry_cuda_host *host[HARNESS_RANKS]; /* host address */
	struct CUstream_st *stream[HARNESS_RANKS];
	uint64_t epoch[HARNESS_SLOTS]; /* of the newest dispatch */
	struct harness_op ops[HARNESS_RANKS][HARNESS_SLOTS];
	struct harness_form form;
	int32_t ctas;
	void *freed[4096]; /* device memory and host memory, to be freed */
	int32_t freed_gpu[4096], n_freed;
};

int32_t harness_n_gpus(void);

/* The refusal of the kernels, or NULL when they serve the configuration. */
const char *harness_refusal(const struct ferry_moe_config *config,
                            const struct harness_kernels *kernels);
struct harness *harness_open(const struct ferry_moe_config *config,
                             const struct ferry_placement_config *placement,
                             const struct harness_kernels *kernels,
                             uint64_t first_epoch);
void harness_close(struct harness *h);

/* New inputs; specs[n_ranks], equal within a group. Poisons the outputs. */
void harness_batch(struct harness *h, int32_t slot,
                   const struct traffic_spec *specs);
void harness_poison(struct harness *h, int32_t slot);

/* Enqueue on every rank's stream. */
void harness_dispatch(struct harness *h, int32_t slot, int32_t parts);
void harness_combine(struct harness *h, int32_t slot, int32_t parts);
/* The experts answer as the oracle says, between dispatch and combine. */
void harness_answer(struct harness *h, int32_t slot);
void harness_sync(struct harness *h);

/*
 * Wait, then compare with the oracle: the number of ranks that are wrong, each
 * with a line. A status that the oracle expects is compared, too.
 */
int harness_check_dispatch(struct harness *h, int32_t slot);
int harness_check_combine(struct harness *h, int32_t slot);

/*
 * Records body(h, arg, rank) `n` times as one graph for each rank, replays
 * all of them, and returns the p50 over `replays` of the mean time of one
 * body, the largest of any rank, in us; *p99 likewise (may be NULL).
 */
double harness_time(struct harness *h,
                    void (*body)(struct harness *h, void *arg, int32_t rank),
                    void *arg, int32_t n, int32_t replays, double *p99);
/* Bodies: one rank's launch. arg: a struct harness_launch. */
struct harness_launch {
	int32_t slot, parts;
};
/*
 * What one phase takes by itself, recv when all has arrived: of ranks in turn,
 * n times all sends and all recvs, with 20 us of other work in front of each
 * rank's timed phase, and that between two events; p50 of the mean of n in us,
 * the slowest rank, less two events with nothing in between.
 */
double
harness_time_alone(struct harness *h,
                   void (*body)(struct harness *h, void *arg, int32_t rank),
                   struct harness_launch timed, int32_t n, int32_t replays);
void harness_dispatch_rank(struct harness *h, void *arg, int32_t rank);
void harness_combine_rank(struct harness *h, void *arg, int32_t rank);
/* Occupies the stream for so long: other work between send and recv. */
void harness_spin(struct harness *h, int32_t rank, uint32_t ns);

/* cuda_spin.cu */
#ifdef __cplusplus
extern "C"
#endif
	int
	harness_launch_spin(uint32_t ns, int32_t ctas,
                            struct CUstream_st *stream);

#endif
