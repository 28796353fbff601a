/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes on which published libraries hung, refused or went wrong: numbers of
 * tokens, top-k, experts, row sizes, ids, routings. No shape is special here;
 * each of them is tried all the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"

enum { MOST_OF_GPU = 24 }; /* ranks, see many_ranks */

#define N_OF(array) (sizeof(array) / sizeof(*(array)))

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 9;
	c.hidden = 64;
	c.topk = 2;
	c.n_experts = 8;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

static enum ferry_combine_layout from(const struct ferry_moe_config *c)
{
	return c->layout == FERRY_EXPERT_PADDED ? FERRY_FROM_PADDED
	                                        : FERRY_FROM_PACKED;
}

/* Opens, runs steps of these numbers of tokens, closes. */
static void try_shape(struct rank *rank, const struct ferry_moe_config *config,
                      const int32_t *n_tokens, int n_steps)
{
	struct drive *d = drive_open(rank, config, NULL);
	const int32_t g = config->group_size ? config->group_size : 1;

	for (int i = 0; i < n_steps; i++) {
		struct drive_step step = {.from = from(config), .light = true};

		step.spec.seed = run_args.seed + (uint64_t)i;
		for (int32_t r = 0; r < rank->n_ranks; r++)
			step.n_tokens[r] =
				n_tokens[(r - r % g + i) % rank->n_ranks];
		drive_run(d, 0, &step);
	}
	drive_close(d);
}

static void tokens_body(struct rank *rank)
{
	static const int32_t pairs[][2] = {{0, 0}, {0, 64},    {1, 1},
	                                   {0, 1}, {128, 7},   {128, 128},
	                                   {1, 0}, {127, 128}, {0, 0}};
	struct ferry_moe_config config = small();

	config.max_tokens = 128;
	config.topk = 8;
	config.n_experts = 64;
	for (int layout = 0; layout < 3; layout++) {
		config.layout = (enum ferry_layout)layout;
		for (size_t i = 0; i < N_OF(pairs); i++)
			try_shape(rank, &config, pairs[i], 2);
	}
}

static void any_number_of_tokens(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, tokens_body);
}

/* sglang#27194: the maximum was small, and was reached exactly. */
static void small_maximum_body(struct rank *rank)
{
	static const int32_t full[2] = {32, 32};
	static const int32_t one[2] = {1, 1};
	struct ferry_moe_config config = small();

	config.max_tokens = 32;
	config.topk = 8;
	config.n_experts = 64;
	try_shape(rank, &config, full, 3);
	config.max_tokens = 1;
	try_shape(rank, &config, one, 3);
}

static void a_small_maximum_is_reached(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, small_maximum_body);
}

/* One more than the maximum sends nothing and harms nothing. */
static void too_many_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_step step = {.from = FERRY_FROM_PACKED};
	struct drive_op *op = drive_begin(d, 0, &step);

	drive_batch(op)->in.n_tokens = 10;
	RANKS_STATUS(drive_try_send(op), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "n_tokens is 10");
	RANKS_TEXT(ferry_last_error(), "0..9");
	drive_end(op);
	step.n_tokens[0] = 9;
	drive_run(d, 0, &step);
}

static void too_many_tokens_are_refused(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, too_many_body);
}

static void topk_body(struct rank *rank)
{
	static const int32_t topks[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
	                                11, 12, 16, 22, 31, 32, 33, 48, 63, 64};
	static const int32_t n_tokens[2] = {9, 5};
	struct ferry_moe_config config = small();

	config.n_experts = 70;
	for (size_t i = 0; i < N_OF(topks); i++) {
		config.topk = topks[i];
		config.combine = (enum ferry_combine_mode)(i % 2);
		try_shape(rank, &config, n_tokens, 2);
	}
}

static void any_topk(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, topk_body);
}

static void experts_body(struct rank *rank)
{
	const int32_t *experts = rank->arg;
	static const int32_t n_tokens[5] = {4, 0, 3, 9, 1};
	struct ferry_moe_config config = small();

	for (; *experts > 0; experts++) {
		config.n_experts = *experts;
		config.hidden = 16;
		config.topk = *experts < 6 ? *experts : 6;
		config.layout = FERRY_EXPERT_PACKED;
		try_shape(rank, &config, n_tokens, 1);
		config.layout = FERRY_TOKEN;
		try_shape(rank, &config, n_tokens, 1);
		config.layout = FERRY_EXPERT_PADDED;
		try_shape(rank, &config, n_tokens, 1);
	}
}

static void any_number_of_experts(void **state)
{
	static int32_t over_two[] = {2,   7,   8,   60,  64,  128,  160,
	                             256, 288, 512, 513, 896, 1024, 0};
	static int32_t over_five[] = {5, 7, 384, 0};
	struct ranks how = run_args_ranks(2);

	(void)state;
	how.arg = over_two;
	ranks_run(&how, experts_body);
	how.n_ranks = 5;
	how.arg = over_five;
	ranks_run(&how, experts_body);
}

/* Forms of a row: elements and scales as models have them. */
static const struct row_form {
	const char *name;
	enum ferry_dtype in_dtype, dtype;
	enum ferry_scale_type scale_type;
	int32_t scale_block, scale_bytes;
} row_forms[] = {
	{"bf16", FERRY_BF16, FERRY_BF16, FERRY_SCALE_NONE, 0, 0},
	{"fp32", FERRY_FP32, FERRY_FP32, FERRY_SCALE_NONE, 0, 0},
	{"fp8, scale per 128", FERRY_FP8_E4M3, FERRY_FP8_E4M3, FERRY_SCALE_FP32,
         128, 0},
	{"fp8, scale per token", FERRY_FP8_E4M3, FERRY_FP8_E4M3,
         FERRY_SCALE_BYTES, 0, 4},
	{"MX, UE8M0 per 32", FERRY_FP8_E5M2, FERRY_FP8_E5M2, FERRY_SCALE_UE8M0,
         32, 0},
	{"quantised", FERRY_BF16, FERRY_FP8_E4M3, FERRY_SCALE_FP32, 0, 0},
	{"quantised to UE8M0", FERRY_BF16, FERRY_FP8_E4M3, FERRY_SCALE_UE8M0, 0,
         0},
};

static void hidden_body(struct rank *rank)
{
	static const int32_t sizes[] = {16,   100,  896,  1408, 1536, 2048,
	                                2688, 2880, 3072, 3584, 5120, 5760,
	                                6144, 7168, 8192, 16384};
	static const int32_t n_tokens[2] = {3, 1};
	struct ferry_moe_config config = small();

	config.max_tokens = 3;
	for (size_t i = 0; i < N_OF(sizes) * N_OF(row_forms); i++) {
		const struct row_form *form = &row_forms[i % N_OF(row_forms)];

		config.hidden = sizes[i / N_OF(row_forms)];
		config.in_dtype = form->in_dtype;
		config.dtype = form->dtype;
		config.scale_type = form->scale_type;
		config.scale_block = form->scale_block;
		config.scale_bytes = form->scale_bytes;
		config.layout = (enum ferry_layout)(i % 3);
		try_shape(rank, &config, n_tokens, 1);
	}
}

static void any_hidden_size(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, hidden_body);
}

/* Opaque rows of NVFP4: half a byte an element and a scale per 16. */
static void bytes_body(struct rank *rank)
{
	static const int32_t n_tokens[2] = {3, 2};
	struct ferry_moe_config config = small();

	config.dtype = FERRY_BYTES;
	for (int32_t bytes = 1; bytes <= 33; bytes++) {
		config.hidden = bytes;
		config.scale_type =
			bytes % 2 ? FERRY_SCALE_BYTES : FERRY_SCALE_NONE;
		config.scale_bytes = bytes % 2 ? (bytes + 7) / 8 : 0;
		config.layout = (enum ferry_layout)(bytes % 3);
		try_shape(rank, &config, n_tokens, 1);
	}
}

static void any_number_of_bytes(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, bytes_body);
}

/*
 * Outputs that nobody wants, of forms that the bulk engine could store: NULL
 * and a stride of 0 are multiples of 16, too.
 */
static void unwanted_body(struct rank *rank)
{
	struct ferry_moe_config config = small();

	config.dtype = FERRY_FP8_E4M3;
	config.scale_type = FERRY_SCALE_FP32;
	config.scale_block = 16;
	for (int i = 0; i < 4; i++) {
		config.layout =
			i % 2 ? FERRY_EXPERT_PADDED : FERRY_EXPERT_PACKED;
		struct drive *d = drive_open(rank, &config, NULL);
		struct drive_step step = {.from = from(&config)};

		step.fused = i / 2;
		step.leave = ~0u;
		step.spec.seed = run_args.seed + (uint64_t)i;
		step.n_tokens[0] = 9;
		step.n_tokens[1] = 5;
		drive_run(d, 0, &step);
		drive_close(d);
	}
}

static void outputs_that_nobody_wants(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, unwanted_body);
}

/* mori#109, DeepEP#427, uccl#940: some ranks or experts get nothing. */
static void routing_body(struct rank *rank)
{
	struct ferry_moe_config config = small();

	config.max_tokens = 40;
	config.topk = 4;
	config.n_experts = 24;
	for (int routing = 0; routing < TRAFFIC_N_ROUTINGS; routing++)
		for (int mode = 0; mode < 2; mode++) {
			struct drive *d;
			struct drive_step step = {.from = FERRY_FROM_PACKED};

			config.combine = (enum ferry_combine_mode)mode;
			config.layout =
				mode ? FERRY_TOKEN : FERRY_EXPERT_PACKED;
			d = drive_open(rank, &config, NULL);
			step.spec.routing = (enum traffic_routing)routing;
			for (int32_t r = 0; r < rank->n_ranks; r++)
				step.n_tokens[r] = 40 - 13 * (r % 3);
			for (uint64_t i = 0; i < 3; i++) {
				step.spec.seed = run_args.seed + i;
				step.spec.duplicates = i == 2;
				drive_run(d, 0, &step);
			}
			drive_close(d);
		}
}

static void any_routing(void **state)
{
	const struct ranks how = run_args_ranks(4);

	(void)state;
	ranks_run(&how, routing_body);
}

/* DeepEP#427: a large batch of which every token wants the same experts. */
static void shared_body(struct rank *rank)
{
	struct ferry_moe_config config = small();
	struct drive_step step = {.from = FERRY_FROM_PACKED, .light = true};

	config.max_tokens = 2304;
	config.hidden = 32;
	config.topk = 8;
	config.n_experts = 256;
	step.spec.routing = TRAFFIC_ONE_EXPERT;
	step.spec.seed = run_args.seed;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = 2304;
	drive_run(drive_open(rank, &config, NULL), 0, &step);
}

static void all_tokens_want_the_same(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, shared_body);
}

/* Every kind of id, with masks, duplicates, strides and skipped bad ones. */
static void ids_body(struct rank *rank)
{
	struct ferry_moe_config config = small();

	config.bad_id = FERRY_BAD_ID_SKIP;
	config.topk = 5;
	struct drive *d = drive_open(rank, &config, NULL);

	for (unsigned bits = 0; bits < 64; bits++) {
		struct drive_step step = {.from = FERRY_FROM_PACKED};

		step.spec.seed = run_args.seed + bits;
		step.spec.id_type = bits & 1 ? FERRY_ID_INT64 : FERRY_ID_INT32;
		step.spec.id_kind = bits & 2 ? FERRY_ID_SLOT : FERRY_ID_LOGICAL;
		step.spec.slack = bits & 4 ? 3 : 0;
		step.spec.duplicates = bits & 8;
		step.spec.bad_percent = bits & 16 ? 30 : 0;
		step.spec.mask_percent = bits & 32 ? 40 : 0;
		if (bits == 32 || bits == 63)
			step.spec.mask_percent = 100;
		step.n_tokens[0] = 9;
		step.n_tokens[1] = 4;
		drive_run(d, 0, &step);
	}
}

static void any_ids(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, ids_body);
}

/* DeepEP#93, #313: smaller shapes on one channel, in any order. */
static void changing_body(struct rank *rank)
{
	static const int32_t hiddens[] = {7168, 2048, 7168, 16, 3584};
	static const int32_t topks[] = {8, 1, 2, 8, 3};
	static const int32_t tokens[] = {8, 1, 4, 2, 0};
	struct ferry_moe_config config = small();

	config.max_tokens = 8;
	config.hidden = 7168;
	config.topk = 8;
	config.n_experts = 64;
	config.n_slots = 2;
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t i = 0; i < 40; i++) {
		uint64_t rng = run_args.seed + i;
		struct drive_step step = {.from = FERRY_FROM_PACKED,
		                          .light = true};

		step.spec.seed = traffic_random(&rng);
		step.spec.hidden = hiddens[traffic_random(&rng) % 5];
		step.spec.topk = topks[traffic_random(&rng) % 5];
		step.n_tokens[0] = tokens[traffic_random(&rng) % 5];
		step.n_tokens[1] = tokens[traffic_random(&rng) % 5];
		drive_run(d, (int32_t)(i % 2), &step);
	}
}

static void shapes_change_from_call_to_call(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, changing_body);
}

/* Shapes of a real model, and batches that travel in many chunks. */
static void model_body(struct rank *rank)
{
	static const int32_t all[4] = {128, 7, 0, 90};
	static const int32_t few[4] = {23, 7, 0, 11};
	const int32_t *n_tokens = RUN_SLOW ? few : all;
	struct ferry_moe_config config = small();

	config.max_tokens = n_tokens[0];
	config.hidden = 7168;
	config.topk = 8;
	config.n_experts = 64;
	for (int i = 0; i < 6; i++) {
		config.layout = (enum ferry_layout)(1 + i % 2);
		config.combine = (enum ferry_combine_mode)(i / 2 % 2);
		config.group_size = i < 4 ? 1 : 2;
		if (i == 3) {
			config.in_dtype = FERRY_BF16;
			config.dtype = FERRY_FP8_E4M3;
			config.scale_type = FERRY_SCALE_FP32;
		}
		try_shape(rank, &config, n_tokens, 2);
	}
}

static void shapes_of_a_model(void **state)
{
	const struct ranks how = run_args_ranks(4);

	(void)state;
	ranks_run(&how, model_body);
}

/* More ranks than cores, and more than any table was made for. */
static void many_ranks_body(struct rank *rank)
{
	struct ferry_moe_config config = small();
	int32_t n_tokens[RANKS_MAX];

	for (int32_t r = 0; r < rank->n_ranks; r++)
		n_tokens[r] = r % 4;
	config.n_experts = 70;
	config.topk = 5;
	for (int mode = 0; mode < 2; mode++) {
		config.combine = (enum ferry_combine_mode)mode;
		config.group_size = mode ? 4 : 1;
		try_shape(rank, &config, n_tokens, 3);
	}
}

/*
 * A stream with something behind a kernel that waits keeps one of the 32 queues
 * that CUDA has for a GPU, and one rank may have to wait for all others.
 */
static void many_ranks(void **state)
{
	struct ranks how = run_args_ranks(16);
	const int n_streams = run_args.streams;

	(void)state;
	if (run_on_gpus())
		run_args.streams = 1;
	ranks_run(&how, many_ranks_body);
	how.n_ranks = run_args.hosts ? 20 : 32; /* each connects to most */
	if (run_on_gpus() && how.n_ranks > MOST_OF_GPU * run_args.n_gpus) {
		how.n_ranks = MOST_OF_GPU * run_args.n_gpus;
		printf("# %d ranks instead of 32: they share a GPU\n",
		       how.n_ranks);
	}
	ranks_run(&how, many_ranks_body);
	run_args.streams = n_streams;
}

/* NULL for everything that has no bytes. */
static void null_body(struct rank *rank)
{
	struct ferry_moe_config config = small();

	config.layout = FERRY_TOKEN;
	struct drive *d = drive_open(rank, &config, NULL);
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in y = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;
	struct CUstream_st *s = rank_memory_stream(d->memory, 0);
	struct mirror n_rows = mirror_make(d->memory, 8, 8);

	if (run_on_gpus()) /* the host does not know that no rows come */
		y.y = n_rows.device;
	y.layout = FERRY_FROM_PACKED;
	out.n_rows = (void *)n_rows.device;
	for (int i = 0; i < 3; i++) {
		mirror_fill(d->memory, &n_rows, 0xff, s);
		RANKS_OK(ferry_dispatch_send(d->moe, 0, &in, s));
		RANKS_OK(ferry_dispatch_recv(d->moe, 0, &out, s));
		mirror_pull(d->memory, &n_rows, s);
		rank_memory_sync(d->memory, s);
		RANKS_EQ(*(int64_t *)(void *)n_rows.host, 0);
		RANKS_OK(ferry_combine_send(d->moe, 0, &y, s));
		RANKS_OK(ferry_combine_recv(d->moe, 0, &sum, s));
	}
	rank_memory_sync(d->memory, s);
	RANKS_OK(ferry_moe_poll(d->moe, NULL));
	mirror_drop(d->memory, &n_rows);
}

static void nothing_needs_no_pointers(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, null_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_tokens),
		cmocka_unit_test(a_small_maximum_is_reached),
		cmocka_unit_test(too_many_tokens_are_refused),
		cmocka_unit_test(any_topk),
		cmocka_unit_test(any_number_of_experts),
		cmocka_unit_test(any_hidden_size),
		cmocka_unit_test(any_number_of_bytes),
		cmocka_unit_test(outputs_that_nobody_wants),
		cmocka_unit_test(any_routing),
		cmocka_unit_test(all_tokens_want_the_same),
		cmocka_unit_test(any_ids),
		cmocka_unit_test(shapes_change_from_call_to_call),
		cmocka_unit_test(shapes_of_a_model),
		cmocka_unit_test(many_ranks),
		cmocka_unit_test(nothing_needs_no_pointers),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
