/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measured shape, and the pure functions that everybody who computes with
 * it needs: who owns an expert, how large a row is, what the inputs are.
 * Shared by the ranks of Ferry, by the MPI baseline and by the checks, so that
 * all of them do the same job.
 */
#ifndef FERRY_BENCH_CASE_H
#define FERRY_BENCH_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/moe_config.h>

enum bench_routing {
	BENCH_UNIFORM, /* topk different experts, all equally likely */
	BENCH_ZIPF,    /* expert e with weight 1/(e+1), different */
	BENCH_ONE,     /* every token takes experts 0..topk-1 */
	BENCH_MESSY,   /* for checks: masked choices and repeated experts */
	BENCH_SHIFT,   /* for checks: experts of rank (own + shift) mod n_ranks,
	                * which has topk of them */
};

struct bench_case {
	int32_t n_ranks;
	int32_t tokens; /* of every rank; checks may vary them below */
	int32_t hidden, topk, experts;
	bool fp8;    /* experts get e4m3 with fp32 scales of 128 elements */
	bool ready;  /* fp8: so do callers; otherwise bf16 is quantised */
	bool wild;   /* bf16 inputs are any bits: NaN, infinities, denormals */
	bool uneven; /* rank r has fewer tokens than rank 0, some have none */
	enum ferry_combine_mode combine;
	enum ferry_layout layout;
	enum bench_routing routing;
	int32_t shift; /* BENCH_SHIFT */
	uint64_t seed;
	enum ferry_device device;
	enum ferry_path path; /* CUDA; 0: auto */
	int32_t max_sms;      /* CUDA; 0: all */
	const int32_t *host; /* [n_ranks] equal for ranks of one host; NULL: all
	                       * are on one. For checks of combine per-host */
};

/* Step 0 is timed; step 1 has other data and is only checked. */
enum { BENCH_TIMED_STEP, BENCH_CHECKED_STEP };

/* Own experts of a rank: bench_first_expert(c, r) up to that of r + 1. */
int32_t bench_first_expert(const struct bench_case *c, int32_t rank);
int32_t bench_owner(const struct bench_case *c, int32_t expert);

/* Of a row as its expert gets it. */
size_t bench_row_bytes(const struct bench_case *c);
int32_t bench_scales(const struct bench_case *c);

/* Tokens of a rank. */
int32_t bench_tokens(const struct bench_case *c, int32_t rank);

/*
 * Inputs of a rank in a step: different steps have different data. Row t of x
 * into row[hidden]; all ids and weights into [tokens][topk].
 */
void bench_make_row(const struct bench_case *c, int32_t rank, uint64_t step,
                    int32_t token, uint16_t *row);
void bench_make_routing(const struct bench_case *c, int32_t rank, uint64_t step,
                        int32_t *ids, float *weights);

/* All inputs of a rank in a step: x is [tokens][hidden]. */
void bench_make_inputs(const struct bench_case *c, int32_t rank, uint64_t step,
                       uint16_t *x, int32_t *ids, float *weights);

/* e4m3 and a scale for each 128 elements, as docs/arithmetic.md says. */
void bench_quantize(const uint16_t *row, int32_t hidden, uint8_t *out,
                    float *scales);

/* A row as bf16, whatever it came as. */
void bench_decode(const struct bench_case *c, const void *row,
                  const float *scales, uint16_t *y);

/*
 * What expert e makes of a row: signs and mantissas flipped by a pattern of
 * its own, so that a row at the wrong expert gives a wrong sum.
 */
uint16_t bench_pattern(int32_t expert);
void bench_expert(const struct bench_case *c, int32_t expert, const void *row,
                  const float *scales, uint16_t *y);

#endif
