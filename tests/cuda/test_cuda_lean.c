/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which dispatch kernel a launch on lines takes, asked without a GPU. Ranks and
 * phases may differ in that, so whatever the lean kernel takes must lie in
 * windows as the general one expects it; and it must do all of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/dtype.h"
#include "cuda/cuda_channel.h"
#include "cuda/dispatch_lean.h"
#include "proto/window.h"

enum {
	BOTH = FERRY_CUDA_SEND | FERRY_CUDA_RECV,
	CTAS = 132,
};

/* Somewhere, aligned; nobody looks there. */
static void *const some = (void *)(uintptr_t)(1 << 20);

static struct ferry_moe_config bf16(enum ferry_layout layout, int32_t hidden)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.n_ranks = 2;
	c.max_tokens = 16;
	c.hidden = hidden;
	c.topk = 8;
	c.n_experts = 64;
	c.layout = layout;
	c.dtype = FERRY_BF16;
	c.device = FERRY_DEVICE_CUDA;
	c.path = FERRY_PATH_LINES;
	return c;
}

static struct ferry_moe_config fp8(enum ferry_layout layout, int32_t hidden)
{
	struct ferry_moe_config c = bf16(layout, hidden);

	c.dtype = FERRY_FP8_E4M3;
	c.scale_type = FERRY_SCALE_FP32;
	c.scale_block = 128;
	return c;
}

/* What an engine asks for: rows, scales and counts. */
static struct ferry_cuda_dispatch call(const struct ferry_shape *s,
                                       const struct ferry_cuda_channel *ch,
                                       int32_t hidden, int32_t parts)
{
	struct ferry_cuda_dispatch d = {.ch = *ch, .parts = parts};
	const size_t scales = ferry_shape_scale_bytes(s, hidden);

	d.row_bytes = (size_t)hidden * ferry_dtype_bytes(s->dtype);
	d.scale_row_bytes = scales;
	d.in = (struct ferry_dispatch_in){
		.x = some,
		.x_stride = d.row_bytes,
		.scales = scales ? some : NULL,
		.scales_stride = scales,
		.topk_ids = some,
		.ids_stride = 32,
		.id_type = FERRY_ID_INT32,
		.topk = 8,
		.hidden = hidden,
		.n_tokens = 1,
	};
	if (!(parts & FERRY_CUDA_RECV))
		return d;
	d.out.counts = some;
	if (s->layout == FERRY_TOKEN)
		return d;
	d.out.rows = some;
	d.out.row_stride = d.row_bytes;
	d.out.scales = scales ? some : NULL;
	d.out.scales_stride = scales;
	return d;
}

/* A call of so many elements to a row. */
static bool fits(const struct ferry_moe_config *config, int32_t hidden,
                 int32_t parts)
{
	struct ferry_cuda_channel ch;
	struct ferry_window window;
	struct ferry_shape shape;

	if (ferry_shape_init(&shape, config, config->n_ranks, 0) ||
	    ferry_window_init(&window, &shape, false))
		fail_msg("%s", ferry_last_error());
	ferry_cuda_channel_fill(&ch, &shape, &window, NULL);
	const struct ferry_cuda_dispatch d = call(&shape, &ch, hidden, parts);
	const bool yes = ferry_dispatch_lean_fits(&d, CTAS);

	ferry_shape_destroy(&shape);
	return yes;
}

static void test_usual_calls(void **state)
{
	(void)state;
	for (int layout = 0; layout < 3; layout++)
		for (int32_t parts = 1; parts <= BOTH; parts++) {
			struct ferry_moe_config c =
				bf16((enum ferry_layout)layout, 7168);

			assert_true(fits(&c, 7168, parts));
			assert_true(fits(&c, 1024, parts));
			c = fp8((enum ferry_layout)layout, 7168);
			assert_true(fits(&c, 7168, parts));
			c.group_size = 2;
			assert_false(fits(&c, 7168, parts));
		}
}

/* A guess of two ranks, fused, has 15360 bytes of a row; others follow. */
static void test_long_rows(void **state)
{
	(void)state;
	for (int layout = 0; layout < 3; layout++)
		for (int32_t parts = 1; parts <= BOTH; parts++) {
			struct ferry_moe_config c =
				bf16((enum ferry_layout)layout, 16384);

			assert_true(fits(&c, 7688, parts));
			assert_true(fits(&c, 16384, parts));
			c.n_ranks = 3;
			assert_true(fits(&c, 8192, parts));
		}
}

/* Scales of a view lie where the longest rows have them, also of shorter. */
static void test_scales_of_a_view(void **state)
{
	struct ferry_moe_config c = fp8(FERRY_TOKEN, 2048);

	(void)state;
	for (int32_t parts = 1; parts <= BOTH; parts++) {
		assert_true(fits(&c, 2048, parts));
		assert_false(fits(&c, 1024, parts));
	}
	c = bf16(FERRY_TOKEN, 2048);
	assert_true(fits(&c, 1024, FERRY_CUDA_SEND));
	c = fp8(FERRY_EXPERT_PACKED, 2048);
	assert_true(fits(&c, 1024, FERRY_CUDA_SEND) ==
	            fits(&c, 1024, FERRY_CUDA_RECV));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usual_calls),
		cmocka_unit_test(test_long_rows),
		cmocka_unit_test(test_scales_of_a_view),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
