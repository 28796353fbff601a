/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time from router logits to the sums of all ranks: ferry_predict_topk for the
 * rules of several models, ferry_predict_counts, and, where ranks were started
 * by ferry run -n N, a round of totals. Least and median of runs.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/ferry.h>

#include "core/bits.h"
#include "core/clock.h"
#include "core/number.h"

enum { TOKENS = 4096, RUNS = 101, ROUNDS = 5001, MOST = 512 };

static const struct {
	const char *name;
	int32_t n_experts, topk;
	enum ferry_score score;
	bool bias;
	int32_t n_groups, topk_groups;
	enum ferry_group_score group_score;
	bool renormalise, weights;
	enum ferry_dtype dtype;
} rules[] = {
	{"ids only, fp32", 128, 8, FERRY_SCORE_SOFTMAX, false, 1, 1,
         FERRY_GROUP_MAX, false, false, FERRY_FP32},
	{"ids only, bf16", 128, 8, FERRY_SCORE_SOFTMAX, false, 1, 1,
         FERRY_GROUP_MAX, false, false, FERRY_BF16},
	{"Qwen3-30B, bf16", 128, 8, FERRY_SCORE_SOFTMAX, false, 1, 1,
         FERRY_GROUP_MAX, true, true, FERRY_BF16},
	{"gpt-oss-20b, bf16", 32, 4, FERRY_SCORE_SOFTMAX, false, 1, 1,
         FERRY_GROUP_MAX, true, true, FERRY_BF16},
	{"softmax over all, fp32", 128, 8, FERRY_SCORE_SOFTMAX, false, 1, 1,
         FERRY_GROUP_MAX, false, true, FERRY_FP32},
	{"DeepSeek-V2, fp32", 160, 6, FERRY_SCORE_SOFTMAX, false, 8, 3,
         FERRY_GROUP_MAX, false, true, FERRY_FP32},
	{"DeepSeek-V3, fp32", 256, 8, FERRY_SCORE_SIGMOID, true, 8, 4,
         FERRY_GROUP_TOP2, true, true, FERRY_FP32},
};

static void check(enum ferry_status status)
{
	if (status == FERRY_OK)
		return;
	fprintf(stderr, "%s\n", ferry_last_error());
	exit(1);
}

static int by_time(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void report(const char *what, uint64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), by_time);
	const uint64_t median = ns[n / 2];

	printf("%-30s least %9.2f us, median %9.2f us\n", what,
	       (double)ns[0] / 1e3, (double)median / 1e3);
}

/* About normal, as logits are. */
static float draw(uint64_t *rng)
{
	double sum = -3;

	for (int i = 0; i < 6; i++)
		sum += (double)(rng_next(rng) >> 11) * 0x1p-53;
	return (float)(sum * 3);
}

static void measure_rule(size_t i, int32_t *ids)
{
	static unsigned char logits[TOKENS * MOST * sizeof(float)];
	static float weights[TOKENS * 8];
	static uint64_t ns[RUNS];
	float bias[MOST];
	struct ferry_router router = FERRY_ROUTER_INIT;
	struct ferry_logits in = FERRY_LOGITS_INIT;
	uint64_t rng = 1;

	router.n_experts = rules[i].n_experts;
	router.topk = rules[i].topk;
	router.score = rules[i].score;
	router.bias = rules[i].bias ? bias : NULL;
	router.n_groups = rules[i].n_groups;
	router.topk_groups = rules[i].topk_groups;
	router.group_score = rules[i].group_score;
	router.renormalise = rules[i].renormalise;
	for (int32_t e = 0; e < router.n_experts; e++)
		bias[e] = draw(&rng) / 20;
	for (int32_t k = 0; k < TOKENS * router.n_experts; k++) {
		const float x = draw(&rng);

		if (rules[i].dtype == FERRY_FP32)
			((float *)(void *)logits)[k] = x;
		else
			((uint16_t *)(void *)logits)[k] = bf16_from_f32(x);
	}
	in.logits = logits;
	in.n_tokens = TOKENS;
	in.dtype = rules[i].dtype;
	for (int k = 0; k < RUNS; k++) {
		const uint64_t begin = ferry_now_ns();

		check(ferry_predict_topk(&router, &in, ids,
		                         rules[i].weights ? weights : NULL));
		ns[k] = ferry_now_ns() - begin;
	}
	report(rules[i].name, ns, RUNS);
}

static void measure_counts(const int32_t *ids)
{
	static uint64_t ns[RUNS];
	struct ferry_ids in = FERRY_IDS_INIT;

	in.ids = ids;
	in.n_tokens = TOKENS;
	in.topk = 8;
	for (int k = 0; k < RUNS; k++) {
		int32_t counts[MOST] = {0};
		const uint64_t begin = ferry_now_ns();

		check(ferry_predict_counts(&in, MOST, counts));
		ns[k] = ferry_now_ns() - begin;
	}
	report("counts", ns, RUNS);
}

static void measure_totals(struct ferry_world *world, int32_t n_experts)
{
	static uint64_t ns[ROUNDS];
	int32_t counts[MOST] = {0};
	int64_t loads[MOST];
	char what[64];
	struct ferry_totals *totals;
	struct ferry_totals_in in = FERRY_TOTALS_IN_INIT;
	struct ferry_totals_out out = FERRY_TOTALS_OUT_INIT;

	check(ferry_totals_open(world, n_experts, &totals));
	in.n_experts = n_experts;
	in.counts = counts;
	out.loads = loads;
	for (int k = 0; k < ROUNDS; k++) {
		const uint64_t begin = ferry_now_ns();

		check(ferry_totals_send(totals, &in));
		check(ferry_totals_recv(totals, &out));
		ns[k] = ferry_now_ns() - begin;
	}
	snprintf(what, sizeof(what), "totals, %d experts, %d ranks, %s",
	         n_experts, ferry_world_size(world), ferry_world_fabric(world));
	if (ferry_world_rank(world) == 0)
		report(what, ns, ROUNDS);
	check(ferry_world_barrier(world));
	ferry_totals_close(totals);
}

int main(void)
{
	static int32_t ids[TOKENS * 8];
	struct ferry_world *world;

	check(ferry_world_open(NULL, &world));
	if (ferry_world_size(world) == 1) {
		printf("%d tokens\n", TOKENS);
		for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
			measure_rule(i, ids);
		measure_counts(ids);
	}
	measure_totals(world, 128);
	measure_totals(world, MOST);
	ferry_world_close(world);
	return 0;
}
