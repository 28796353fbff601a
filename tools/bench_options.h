/* SPDX-License-Identifier: Apache-2.0 */
/* Options of ferry bench; the MPI baseline takes the same, from ferry bench. */
#ifndef FERRY_BENCH_OPTIONS_H
#define FERRY_BENCH_OPTIONS_H

#include "bench_case.h"
#include "opt.h"

enum bench_baseline {
	BENCH_BASELINE_NONE,
	BENCH_BASELINE_MPI,
	BENCH_BASELINE_MPI_TCP, /* the same with no other way than TCP */
	BENCH_BASELINE_NCCL,
	BENCH_BASELINE_NVSHMEM,
};

/* Presets of --device cuda. */
enum bench_figures {
	BENCH_FIGURES_NONE,
	BENCH_FIGURES_TARGETS, /* the shapes that have a target */
	BENCH_FIGURES_ALL,
};

struct bench_options {
	int64_t ranks;
	struct opt_list tokens;
	int64_t hidden, topk, experts;
	int dtype, combine, layout, routing; /* indices into their names */
	const char *fabric;
	int baseline;
	int bind;  /* enum bench_bind */
	int pages; /* enum bench_pages */
	int64_t iters, warmup, rounds, seed;
	int64_t copy_mib; /* of bench_copy_run */
	bool open;
	bool raw;
	const char *json; /* "-": stdout, instead of the table */
	/* --device cuda; 0 or false otherwise. */
	int device; /* enum ferry_device */
	int path;   /* enum ferry_path; COUNTS cannot be asked for */
	int figures;
	int64_t max_sms, split, chain, limit;
	bool graph, no_graph, sweep, presummed, threads, processes;
};

enum bench_bind { BENCH_BIND_CORE, BENCH_BIND_NONE };
enum bench_pages { BENCH_PAGES_SYSTEM, BENCH_PAGES_HUGE };

enum bench_dtype { BENCH_DTYPE_BF16, BENCH_DTYPE_FP8, BENCH_DTYPE_FP8_IN };

extern const struct opt_command bench_command;
extern const char *const bench_bind_names[];
extern const char *const bench_pages_names[];
extern const char *const bench_dtype_names[];
extern const char *const bench_combine_names[];
extern const char *const bench_layout_names[];
extern const char *const bench_routing_names[];

/* mpi or mpi-tcp. */
bool bench_options_mpi(const struct bench_options *o);

const char *bench_dtype_name(const struct bench_case *c);

/* The shape with the i-th number of tokens. */
struct bench_case bench_shape(const struct bench_options *o, int i);

/*
 * OPT_GO_ON, or EXIT_USAGE after a complaint about options that clash. Fills in
 * what one option says of others.
 */
int bench_options_check(struct bench_options *o);

#endif
