/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry bench prints: header lines, table, last line; and its JSON. */
#ifndef FERRY_BENCH_REPORT_H
#define FERRY_BENCH_REPORT_H

#include <cjson/cJSON.h>

#include "bench_copy.h"
#include "bench_options.h"
#include "bench_result.h"

enum { BENCH_MAX_IMPLS = 6 };

/* What is taken from Ferry's time before raw writes are compared with it. */
enum bench_less {
	BENCH_LESS_NOTHING,
	BENCH_LESS_FLOOR, /* of memory */
	BENCH_LESS_WORK,  /* own work, measured */
};

/* What the MPI baseline says of itself. */
struct bench_mpi_facts {
	char version[64];     /* empty: no baseline ran */
	char single_copy[32]; /* "cma", "none" */
	double bytes_per_s;   /* a large exchange, read + written, all ranks */
};

/* One shape, all implementations, all rounds. */
struct bench_cell {
	struct bench_case shape;
	struct bench_bytes bytes;
	int n_impls;
	int work; /* of impls: over shm Ferry, then raw; 0: not measured */
	const char *impls[BENCH_MAX_IMPLS]; /* "ferry" first, "raw" second */
	struct bench_result *rounds[BENCH_MAX_IMPLS]; /* [n_rounds] */
};

struct bench_run {
	const struct bench_options *options;
	int argc;
	char **argv;
	char fabric[32];
	size_t window_bytes, least_window_bytes; /* of the last shape */
	struct bench_copy copy;                  /* medians of copies */
	struct bench_copy *copies;               /* [rounds * tokens.n] */
	int n_copies;
	struct bench_mpi_facts mpi;
	int n_cells;
	struct bench_cell cells[OPT_LIST_MAX];
};

/* Header, rows, comparison, last line. Returns the number of wrong values. */
int64_t bench_print(const struct bench_run *run);

/*
 * Time of the raw writes over that of Ferry; or over what is left of it, for
 * raw writes neither copy nor add: without the memory floor, which is the least
 * that copies take, or without the own work, which is what Ferry takes over
 * shm, less the same writes over shm. Without work in the cell that is 0.
 */
double bench_raw_share(const struct bench_run *run,
                       const struct bench_cell *cell, int phase,
                       enum bench_less less);
/* That of own work, 0: not measured. */
double bench_work_us(const struct bench_run *run, const struct bench_cell *cell,
                     int phase);

/* The document {schema, meta, rows}. */
cJSON *bench_json(const struct bench_run *run);

/* Header and meta of any bench document, without figures. */
void bench_print_header(const struct bench_run *run);
cJSON *bench_json_document(const struct bench_run *run);
cJSON *bench_json_row(const struct bench_run *run, const struct bench_case *c,
                      const char *phase, const char *impl);

#endif
