/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry bench --device cuda: its rows, what each rank leaves behind, and the
 * report. Needs no CUDA header; in a build without CUDA only gpu_bench_main is
 * there, and refuses.
 */
#ifndef FERRY_GPU_BENCH_H
#define FERRY_GPU_BENCH_H

#include "bench_report.h"
#include "gpu_bytes.h"

enum gpu_impl { GPU_FERRY, GPU_NCCL, GPU_NCCL_DENSE, GPU_NVSHMEM_DENSE };

/* A shape, by Ferry or by the baseline: three lines of the table. */
struct gpu_row {
	struct bench_case shape;
	enum gpu_impl impl;
	int32_t chain;    /* operations of a replay */
	int32_t iters;    /* replays, at most those of the bench */
	int32_t split_us; /* > 0: exposed time of recv behind so much work */
	double target_us[BENCH_N_PHASES]; /* 0: none */
	struct gpu_bytes bytes;
	struct bench_bytes logical;
	/* Measured. */
	bool failed, left_out;          /* left out: after the limit */
	struct bench_result *rounds;    /* [n_rounds] */
	double host_us[BENCH_N_PHASES]; /* of a call; of the last round */
	char path[16];
	int32_t n_sms;
};

/* GPUs and yardsticks. */
struct gpu_facts {
	int32_t n_devices; /* 0: reason says why */
	char reason[160];  /* or versions of driver and runtime */
	char name[128];
	double copy_bytes_per_s;  /* read + written, slowest GPU */
	double store_bytes_per_s; /* to another GPU, all at once; 0: one GPU */
	char link[64];            /* why that is 0 */
};

/* What a rank says of a row. Shared memory. */
struct gpu_tally {
	bool begun, good;
	int64_t wrong[BENCH_N_PHASES];
	double host_us[BENCH_N_PHASES];
	char path[16];
	int32_t n_sms;
};

struct gpu_bench {
	struct bench_run *run;
	bool graph;
	int32_t iters, warmup, n_rounds;
	int n_rows;
	struct gpu_row *rows;
	struct gpu_facts facts;
	char nccl[32]; /* version; empty: no baseline */
	char nvshmem[32];
	/* Shared with the ranks. */
	struct gpu_tally *tallies; /* [n_rows][n_ranks] */
	uint64_t *ns; /* [n_rows][n_ranks][BENCH_N_PHASES][iters] */
	struct gpu_shared *shared;
};

/* The whole command; an exit status. */
int gpu_bench_main(struct bench_run *run, struct crew *crew);

/* gpu_rows.c: rows of the options or of --figures, targets, floors. */
void gpu_rows_make(struct gpu_bench *bench);
void gpu_rows_free(struct gpu_bench *bench);
/* An exchange of room for every token at every expert. */
bool gpu_row_is_dense(const struct gpu_row *row);
bool gpu_row_has_target(const struct gpu_row *row);

/* gpu_bench_rank.c: what all ranks have in common. Shared memory. */
struct gpu_shared *gpu_shared_make(void);
void gpu_shared_free(struct gpu_shared *shared);
int gpu_bench_body(const struct crew_member *me, void *bench);
const char *gpu_shared_fabric(const struct gpu_shared *shared);
const char *gpu_shared_nccl(const struct gpu_shared *shared);
const char *gpu_shared_nvshmem(const struct gpu_shared *shared);

/* gpu_seat.c: before anything of this process uses CUDA. */
void gpu_prepare(void);

/* gpu_yard.c: in a process of its own, so that ranks may be forked later. */
bool gpu_facts_read(const struct crew *crew, bool yardsticks,
                    struct gpu_facts *facts);

/* gpu_report.c: table and JSON. Returns the number of wrong values. */
int64_t gpu_print(const struct gpu_bench *bench);
cJSON *gpu_json(const struct gpu_bench *bench);

extern const char *const gpu_impl_names[];

#endif
