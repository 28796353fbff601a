/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry prefill: a language model on ranks that hold its experts, balanced.
 * What the command asks of the ranks (prefill_rank.c and around it), and what
 * it does with their result.
 */
#ifndef FERRY_PREFILL_H
#define FERRY_PREFILL_H

#include "../lm/lm_layer.h"
#include "prefill_result.h"

/* Where experts are when a run begins. */
enum prefill_start {
	/* Rank 0 has the first ones, and so on; the first n_experts mod n_ranks
	 * ranks have one more. */
	PREFILL_START_EVEN,
	PREFILL_START_HOT, /* the fullest of the first step on rank 0, ... */
};

/* What is the same on all ranks and in all runs. */
struct prefill_job {
	const char *name; /* before messages: "ferry prefill" */
	const struct lm_model *model;
	const struct prefill_shape *shape;
	const int32_t *tokens;         /* [shape->n_tokens], step by step */
	const int64_t *first_token;    /* [n_sequences] in tokens, rising */
	const int32_t *first_sequence; /* [n_steps + 1] */
	const char *fabric;            /* NULL: shm; local of threads */
	bool threads;                  /* ranks are threads, not processes */
	int64_t budget_ns; /* window of a layer; -1: measured; INT64_MAX: none */
	int32_t max_swaps; /* as in ferry_balancer_config */
	int32_t max_copies;
	enum ferry_split split;
	int64_t threshold_ppm;
	int32_t recheck_steps;
	int32_t eplb_every;
	int32_t gamma_milli;
	bool calibrate;     /* as in ferry_balancer_config */
	int64_t margin_ppm; /* the same */
	int32_t timeout_ms; /* 0: the world's default */
	enum prefill_start start;
	/* HOT: [n_layers][n_experts] loads of the first step, where a run has
	 * them; NULL: found out by lm_forward. */
	const int64_t *start_loads;
	bool progress; /* one line on stderr, while it runs */
};

/*
 * Runs all steps under run->policy on shape->n_ranks ranks, and fills the run,
 * whose arrays lie in shared memory (prefill_run_open). Sequence s of a step is
 * rank s mod n_ranks's. Returns an exit status, after a complaint on stderr.
 */
int prefill_run_ranks(const struct prefill_job *job, struct prefill_run *run);

/* The same sequences by lm_forward, in this process: only sequences[], loads
 * and topk_ids are filled. Of a sequence both leave the text alone. */
bool prefill_run_alone(const struct prefill_job *job, struct prefill_run *run,
                       struct fault *fault);

/* Bytes of the copies of all experts that runs but those of OFF make, on all
 * ranks; and whether the machine has them left. */
int64_t prefill_pool_bytes(const struct prefill_shape *shape);
bool prefill_memory_check(const struct prefill_job *job, struct fault *fault);

/* Arrays of a run in shared memory, zeroed; exits without memory. */
void prefill_run_open(const struct prefill_shape *shape, bool record,
                      struct prefill_run *run);
void prefill_run_close(const struct prefill_shape *shape,
                       struct prefill_run *run);

/* Sets bits_equal and n_differ of a run from the hashes of another. */
void prefill_compare(const struct prefill_shape *shape,
                     const struct prefill_run *truth, struct prefill_run *run);

/* 64-bit hash of floats, and of what was hashed before; starts with 0. */
uint64_t prefill_hash(uint64_t hash, const float *values, int64_t n);

/* Everything of the command, for JSON and report. */
struct prefill_report {
	const struct prefill_job *job;
	const struct prefill_run *runs;
	int32_t n_runs;
	bool checked;    /* against a run without ranks */
	bool bits_equal; /* all of them */
	int argc;
	char **argv;
};

/* On stdout: what runs, before the first run; a table of a run's layers; and
 * totals of all runs, texts, and a last line. */
void prefill_print_header(const struct prefill_report *report);
void prefill_print_run(const struct prefill_report *report,
                       const struct prefill_run *run);
void prefill_print_totals(const struct prefill_report *report);

/* JSON to a file, "-" for stdout; false after a complaint. */
bool prefill_write_json(const struct prefill_report *report, const char *path);

/* One self-contained HTML file; false after a complaint. */
bool prefill_write_html(const struct prefill_report *report, const char *path);

/* Routing of a run as safetensors for ferry replay; false after a complaint. */
bool prefill_write_record(const struct prefill_report *report,
                          const struct prefill_run *run, const char *path);

/* Timeline of a run as Chrome/Perfetto JSON; false after a complaint. */
bool prefill_write_trace(const struct prefill_report *report,
                         const struct prefill_run *run, const char *path);

#endif
