/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that is built against an installed Ferry, as C11 and as C++17: a
 * world of one rank, one dispatch and combine, and the sum checked.
 */
#include <stdio.h>
#include <string.h>

#include <ferry/ferry.h>

enum { TOKENS = 3, HIDDEN = 8, TOPK = 2, EXPERTS = 4 };

static int failed(const char *call)
{
	printf("%s: %s\n", call, ferry_last_error());
	return 1;
}

static int exchange(struct ferry_moe *moe, int64_t rows)
{
	static float x[TOKENS][HIDDEN], y[64][HIDDEN], sum[TOKENS][HIDDEN];
	static const int32_t ids[TOKENS][TOPK] = {{0, 3}, {2, -1}, {1, 1}};
	static const float weights[TOKENS][TOPK] = {
		{0.5f, 0.25f}, {1, 1}, {2, 1}};
	static const float expected[TOKENS] = {0.75f, 2, 9};
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out result = FERRY_COMBINE_OUT_INIT;

	if (rows > 64)
		return failed("rows");
	for (int t = 0; t < TOKENS; t++)
		for (int i = 0; i < HIDDEN; i++)
			x[t][i] = (float)(t + 1);
	in.n_tokens = TOKENS;
	in.x = x;
	in.topk_ids = ids;
	in.topk_weights = &weights[0][0];
	out.rows = y;
	back.y = y; /* the experts do nothing */
	back.layout = FERRY_FROM_PACKED;
	result.out = sum;
	if (ferry_dispatch(moe, 0, &in, &out, NULL) != FERRY_OK)
		return failed("ferry_dispatch");
	if (ferry_combine(moe, 0, &back, &result, NULL) != FERRY_OK)
		return failed("ferry_combine");
	for (int t = 0; t < TOKENS; t++)
		for (int i = 0; i < HIDDEN; i++)
			if (sum[t][i] < expected[t] || sum[t][i] > expected[t])
				return failed("a sum is wrong");
	return 0;
}

int main(void)
{
	struct ferry_world_config world_config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	struct ferry_world *world;
	struct ferry_moe *moe;
	int status;

	if (ferry_version() != FERRY_VERSION)
		return failed("ferry_version");
	config.n_ranks = 1;
	config.max_tokens = TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.layout = FERRY_EXPERT_PACKED;
	config.dtype = FERRY_FP32;
	config.combine_dtype = FERRY_FP32;
	if (ferry_moe_query(&config, &need) != FERRY_OK)
		return failed("ferry_moe_query");
	if (ferry_world_open(&world_config, &world) != FERRY_OK)
		return failed("ferry_world_open");
	if (ferry_moe_open(world, &config, &moe) != FERRY_OK)
		return failed("ferry_moe_open");
	status = exchange(moe, need.recv_rows);
	ferry_moe_close(moe);
	ferry_world_close(world);
	if (status == 0)
		printf("%s\n", ferry_version_text());
	return status;
}
