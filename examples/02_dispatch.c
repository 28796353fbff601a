/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 02: dispatch, experts, combine. Expert e multiplies by e + 1, so that the
 * sum is known. Ranks have different numbers of tokens.
 *
 *     cc 02_dispatch.c $(pkg-config --cflags --libs ferry) -o 02_dispatch
 *     ferry run -n 3 -- ./02_dispatch
 *
 * prints, in any order,
 *
 *     rank 0: 5 tokens, 14 rows for 4 experts, sums are right
 *     rank 1: 6 tokens, 7 rows for 4 experts, sums are right
 *     rank 2: 7 tokens, 12 rows for 4 experts, sums are right
 */
#include "example.h"

enum { MAX_TOKENS = 16, HIDDEN = 32, TOPK = 2, EXPERTS = 12 };

struct batch {
	int32_t n_tokens;
	float x[MAX_TOKENS][HIDDEN];
	int32_t ids[MAX_TOKENS][TOPK];
	float weights[MAX_TOKENS][TOPK];
	float sum[MAX_TOKENS][HIDDEN];
};

static void fill(struct batch *batch, int32_t rank)
{
	batch->n_tokens = 5 + rank;
	for (int t = 0; t < batch->n_tokens; t++) {
		for (int i = 0; i < HIDDEN; i++)
			batch->x[t][i] = (float)(rank + t + i);
		for (int k = 0; k < TOPK; k++) {
			batch->ids[t][k] = (3 * t + 5 * k) % EXPERTS;
			batch->weights[t][k] = 0.5f;
		}
		batch->ids[0][1] = -1; /* one choice of token 0 is masked */
	}
}

/* Own experts are expert_slots of this rank: first, first + 1, ... */
static void run_experts(float (*rows)[HIDDEN], const int64_t *offsets,
                        const int32_t *counts, int32_t first, int32_t n)
{
	for (int32_t s = 0; s < n; s++)
		for (int64_t r = offsets[s]; r < offsets[s] + counts[s]; r++)
			for (int i = 0; i < HIDDEN; i++)
				rows[r][i] *= (float)(first + s + 1);
}

static void check_sums(const struct batch *batch)
{
	for (int t = 0; t < batch->n_tokens; t++) {
		float factor = 0;

		for (int k = 0; k < TOPK; k++)
			if (batch->ids[t][k] >= 0)
				factor += 0.5f * (float)(batch->ids[t][k] + 1);
		for (int i = 0; i < HIDDEN; i++) {
			const float wrong =
				batch->sum[t][i] - factor * batch->x[t][i];

			check(wrong > -1e-3f && wrong < 1e-3f, "sum");
		}
	}
}

static void exchange(struct ferry_moe *moe, struct batch *batch,
                     float (*rows)[HIDDEN], int32_t rank, int32_t n_ranks)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;
	const int32_t n = EXPERTS / n_ranks; /* own experts */
	int32_t counts[EXPERTS];
	int64_t offsets[EXPERTS + 1];

	in.n_tokens = batch->n_tokens;
	in.x = batch->x;
	in.topk_ids = batch->ids;
	in.topk_weights = &batch->weights[0][0];
	out.rows = rows;
	out.counts = counts;
	out.offsets = offsets;
	must(ferry_dispatch(moe, 0, &in, &out, NULL));
	run_experts(rows, offsets, counts, rank * n, n);

	back.y = rows;
	back.layout = FERRY_FROM_PACKED;
	sum.out = batch->sum;
	must(ferry_combine(moe, 0, &back, &sum, NULL));
	printf("rank %d: %d tokens, %lld rows for %d experts", rank,
	       batch->n_tokens, (long long)offsets[n], n);
}

int main(void)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct batch *batch = allocate(1, sizeof(*batch));
	struct ferry_world *world;
	struct ferry_moe *moe;

	must(ferry_world_open(NULL, &world));
	const int32_t rank = ferry_world_rank(world);
	const int32_t n_ranks = ferry_world_size(world);

	check(EXPERTS % n_ranks == 0,
	      "12 experts need 1, 2, 3, 4, 6 or 12 ranks");
	config.n_ranks = n_ranks;
	config.max_tokens = MAX_TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.dtype = FERRY_FP32;
	config.combine_dtype = FERRY_FP32;
	config.layout = FERRY_EXPERT_PACKED;
	must(ferry_moe_query(&config, &need));
	must(ferry_moe_open(world, &config, &moe));

	void *rows = allocate((size_t)need.recv_rows, need.row_bytes);
	fill(batch, rank);
	exchange(moe, batch, rows, rank, n_ranks);
	check_sums(batch);
	puts(", sums are right");

	free(rows);
	free(batch);
	ferry_moe_close(moe);
	ferry_world_close(world);
	return 0;
}
