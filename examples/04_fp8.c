/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 04: bf16 activations that are quantised to fp8 on their way, with a scale
 * for each block of 128, and the TOKEN layout: every row once, in the window,
 * and per expert a list of rows.
 *
 *     cc 04_fp8.c $(pkg-config --cflags --libs ferry) -lm -o 04_fp8
 *     ferry run -n 2 -- ./04_fp8
 *
 * prints, in any order,
 *
 *     rank 0: 12 list entries over 8 rows, worst error 0.040
 *     rank 1: 12 list entries over 8 rows, worst error 0.040
 */
#include <math.h>
#include <string.h>

#include "example.h"

enum { TOKENS = 4, HIDDEN = 256, TOPK = 3, EXPERTS = 6, BLOCK = 128 };

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(bits >> 16); /* values here are exact in bf16 */
}

static float from_e4m3(uint8_t bits)
{
	const int exponent = bits >> 3 & 15;
	const float part = (float)(bits & 7) / 8;
	const float value =
		exponent ? ldexpf(1 + part, exponent - 7) : ldexpf(part, -6);

	return bits & 0x80 ? -value : value;
}

/* Element i of the row of a token, known to all. */
static float sent(int32_t source, int32_t token, int32_t i)
{
	return (float)((source + 1) * (token + 1) * (1 + i % 11));
}

/* Worst error of a row of the view, in units of its value. */
static float row_error(const struct ferry_moe_view *view, int64_t row)
{
	const uint8_t *q =
		(const uint8_t *)view->rows + (size_t)row * view->row_stride;
	const char *scales =
		(const char *)view->scales + (size_t)row * view->row_stride;
	/* Rows of a half by source, then token, without groups. */
	const int32_t n = (int32_t)(row % (view->n_rows / 2));
	float worst = 0;

	for (int i = 0; i < HIDDEN; i++) {
		const float wanted = sent(n / TOKENS, n % TOKENS, i);
		float scale;

		memcpy(&scale, scales + sizeof(scale) * (size_t)(i / BLOCK),
		       sizeof(scale));
		worst = fmaxf(worst,
		              fabsf(from_e4m3(q[i]) * scale - wanted) / wanted);
	}
	return worst;
}

static struct ferry_moe *open_channel(struct ferry_world *world,
                                      struct ferry_moe_need *need)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe *moe;

	config.n_ranks = ferry_world_size(world);
	config.max_tokens = TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.in_dtype = FERRY_BF16;
	config.dtype = FERRY_FP8_E4M3;
	config.scale_type = FERRY_SCALE_FP32;
	config.layout = FERRY_TOKEN;
	must(ferry_moe_query(&config, need));
	must(ferry_moe_open(world, &config, &moe));
	return moe;
}

static void dispatch(struct ferry_moe *moe, int32_t rank, int64_t *index,
                     int64_t *n_entries)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	uint16_t x[TOKENS][HIDDEN];
	int32_t ids[TOKENS][TOPK];

	for (int t = 0; t < TOKENS; t++) {
		for (int i = 0; i < HIDDEN; i++)
			x[t][i] = to_bf16(sent(rank, t, i));
		for (int k = 0; k < TOPK; k++)
			ids[t][k] = (t + 2 * k) % EXPERTS;
	}
	in.n_tokens = TOKENS;
	in.x = x;
	in.topk_ids = ids;
	out.index = index;
	out.n_rows = n_entries;
	must(ferry_dispatch(moe, 0, &in, &out, NULL));
}

int main(void)
{
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct ferry_moe_view view = FERRY_MOE_VIEW_INIT;
	struct ferry_world *world;
	float worst = 0;
	int64_t n_entries, n_rows = 0;

	must(ferry_world_open(NULL, &world));
	struct ferry_moe *moe = open_channel(world, &need);
	int64_t *index = allocate((size_t)need.recv_rows, sizeof(*index));

	must(ferry_moe_get_view(moe, 0, &view));
	char *seen = allocate((size_t)view.n_rows, 1);
	dispatch(moe, ferry_world_rank(world), index, &n_entries);
	for (int64_t i = 0; i < n_entries; i++) {
		n_rows += !seen[index[i]];
		seen[index[i]] = 1;
		worst = fmaxf(worst, row_error(&view, index[i]));
	}
	printf("rank %d: %lld list entries over %lld rows, worst error %.3f\n",
	       ferry_world_rank(world), (long long)n_entries, (long long)n_rows,
	       (double)worst);
	check(worst <= 1.0f / 16, "e4m3 keeps four bits");
	free(seen);
	free(index);
	ferry_moe_close(moe);
	ferry_world_close(world);
	return 0;
}
