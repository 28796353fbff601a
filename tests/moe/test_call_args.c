/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input of every argument of the calls of a channel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bad_input.h"
#include "drive.h"

struct arrays {
	uint16_t x[4][8];
	int32_t ids[4][2];
	uint8_t rows[2048];
	uint8_t scales[2048];
	int64_t counts[64];
	float weights[64];
};

/* A channel of one rank, and arguments that are good. */
struct bench {
	struct drive *d;
	struct CUstream_st *stream;
	struct ferry_dispatch_in in;
	struct ferry_dispatch_out out;
	struct ferry_combine_in y;
	struct ferry_combine_out sum;
	struct held *held;
	struct arrays *at; /* where the library finds them */
};

/* The arrays of a bench; they last as long as its body. */
struct held {
	struct rank_memory *memory;
	struct mirror mirror;
};

static void release(void *held)
{
	struct held *h = held;

	rank_memory_sync(h->memory, NULL);
	mirror_drop(h->memory, &h->mirror);
	free(h);
}

static struct held *hold(struct rank_memory *memory)
{
	struct held *h = calloc(1, sizeof(*h));

	RANKS_CHECK(h);
	h->memory = memory;
	h->mirror = mirror_make(memory, sizeof(struct arrays),
	                        sizeof(struct arrays));
	memset(h->mirror.host, 0, sizeof(struct arrays));
	ranks_defer(release, h);
	return h;
}

static struct ferry_moe_config bench_config(enum ferry_layout layout,
                                            enum ferry_scale_type scales)
{
	struct ferry_moe_config c = good_config();

	c.n_ranks = 1;
	c.n_slots = 2;
	c.layout = layout;
	c.scale_type = scales;
	if (scales == FERRY_SCALE_FP32)
		c.scale_block = 4;
	return c;
}

static void bench_open(struct bench *b, struct rank *rank,
                       const struct ferry_moe_config *config)
{
	struct arrays *arrays;

	memset(b, 0, sizeof(*b));
	b->d = drive_open(rank, config, NULL);
	b->stream = rank_memory_stream(b->d->memory, 0);
	b->held = hold(b->d->memory);
	b->at = (void *)b->held->mirror.device;
	arrays = (void *)b->held->mirror.host;
	b->in = (struct ferry_dispatch_in)FERRY_DISPATCH_IN_INIT;
	b->out = (struct ferry_dispatch_out)FERRY_DISPATCH_OUT_INIT;
	b->y = (struct ferry_combine_in)FERRY_COMBINE_IN_INIT;
	b->sum = (struct ferry_combine_out)FERRY_COMBINE_OUT_INIT;
	b->in.n_tokens = 4;
	b->in.x = b->at->x;
	b->in.topk_ids = b->at->ids;
	for (int32_t t = 0; t < 4; t++) {
		arrays->ids[t][0] = t;
		arrays->ids[t][1] = 5;
	}
	mirror_push(b->d->memory, &b->held->mirror, b->stream);
	if (config->scale_type != FERRY_SCALE_NONE)
		b->in.scales = b->at->scales;
	if (config->layout != FERRY_TOKEN)
		b->out.rows = b->at->rows;
	b->y.y = b->at->rows;
	b->y.layout = config->layout == FERRY_EXPERT_PADDED ? FERRY_FROM_PADDED
	                                                    : FERRY_FROM_PACKED;
	b->sum.out = b->at->rows;
}

/* What was called at last, and found good, has ended well. */
static void bench_end(const struct bench *b)
{
	rank_memory_sync(b->d->memory, NULL);
	RANKS_OK(ferry_moe_poll(b->d->moe, NULL));
}

/* One bad assignment to the good input `in` of a dispatch. */
#define IN(assignment, want, ...)                                              \
	do {                                                                   \
		struct ferry_dispatch_in in = b.in;                            \
                                                                               \
		assignment;                                                    \
		CHECK_FAILS(ferry_dispatch_send(b.d->moe, 0, &in, b.stream),   \
		            want, "dispatch_send", __VA_ARGS__);               \
		CHECK_FAILS(                                                   \
			ferry_dispatch(b.d->moe, 0, &in, &b.out, b.stream),    \
			want, "dispatch", __VA_ARGS__);                        \
	} while (0)

static void dispatch_inputs(struct rank *rank)
{
	const struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PADDED, FERRY_SCALE_FP32);
	struct bench b;

	bench_open(&b, rank, &config);
	IN(in.size = 0, FERRY_INVAL, "in", "size is 0");
	IN(in.n_tokens = -1, FERRY_RANGE, "n_tokens is -1", "0..4");
	IN(in.n_tokens = 5, FERRY_RANGE, "n_tokens is 5", "0..4");
	IN(in.hidden = 9, FERRY_RANGE, "hidden is 9", "1..8");
	IN(in.hidden = -1, FERRY_RANGE, "hidden is -1", "1..8");
	IN(in.topk = 3, FERRY_RANGE, "topk is 3", "1..2");
	IN(in.topk = -2, FERRY_RANGE, "topk is -2", "1..2");
	IN(in.x = NULL, FERRY_INVAL, "x is NULL");
	IN(in.x_stride = 15, FERRY_INVAL, "x_stride is 15", "16 bytes");
	IN(in.scales = NULL, FERRY_INVAL, "scales is NULL");
	IN(in.scales_stride = 7, FERRY_INVAL, "scales_stride is 7", "8 bytes");
	IN(in.topk_ids = NULL, FERRY_INVAL, "topk_ids is NULL");
	IN(in.ids_stride = 4, FERRY_INVAL, "ids_stride is 4", "8 bytes");
	IN((in.ids_stride = 8, in.id_type = FERRY_ID_INT64), FERRY_INVAL,
	   "ids_stride is 8", "16 bytes");
	IN(in.id_type = (enum ferry_id_type)2, FERRY_INVAL, "id_type is 2",
	   "0..1");
	IN(in.id_kind = (enum ferry_id_kind) - 1, FERRY_INVAL, "id_kind is -1",
	   "0..1");
	IN((in.topk_weights = b.at->weights, in.weights_stride = 1),
	   FERRY_INVAL, "weights_stride is 1", "8 bytes");
	CHECK_FAILS(ferry_dispatch_send(NULL, 0, &b.in, b.stream), FERRY_INVAL,
	            "moe is NULL");
	CHECK_FAILS(ferry_dispatch_send(b.d->moe, 0, NULL, b.stream),
	            FERRY_INVAL, "in", "NULL");
	CHECK_FAILS(ferry_dispatch_send(b.d->moe, 2, &b.in, b.stream),
	            FERRY_RANGE, "slot is 2", "0..1");
	CHECK_FAILS(ferry_dispatch_send(b.d->moe, -1, &b.in, b.stream),
	            FERRY_RANGE, "slot is -1", "0..1");
	if (!run_on_gpus())
		CHECK_FAILS(ferry_dispatch_send(b.d->moe, 0, &b.in,
		                                (struct CUstream_st *)&b),
		            FERRY_INVAL, "stream", "NULL");
	/* None of it has done anything. */
	RANKS_OK(ferry_dispatch(b.d->moe, 0, &b.in, &b.out, b.stream));
	bench_end(&b);
}

/* Scales where the channel has none, or makes them itself. */
static void unwanted_scales(struct rank *rank)
{
	struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PADDED, FERRY_SCALE_NONE);
	struct bench b;

	bench_open(&b, rank, &config);
	IN(in.scales = b.at->scales, FERRY_INVAL, "scales is not NULL", "NONE");
	config.in_dtype = FERRY_BF16;
	config.dtype = FERRY_FP8_E4M3;
	config.scale_type = FERRY_SCALE_FP32;
	bench_open(&b, rank, &config);
	IN(in.scales = b.at->scales, FERRY_INVAL, "scales is not NULL",
	   "quantises");
}

static void wrong_placements(struct rank *rank)
{
	static const int32_t seven[1] = {7};
	struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PADDED, FERRY_SCALE_NONE);
	struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *other;
	struct bench b;

	bench_open(&b, rank, &config);
	p.n_ranks = 1;
	p.n_experts = 5;
	RANKS_OK(ferry_placement_create(&p, &other));
	IN(in.placement = other, FERRY_INVAL, "placement", "5 experts", "6");
	ferry_placement_destroy(other);
	p.n_experts = 6;
	p.expert_slots = seven;
	RANKS_OK(ferry_placement_create(&p, &other));
	IN(in.placement = other, FERRY_INVAL, "placement", "7 expert slots",
	   "6");
	IN((in.id_kind = FERRY_ID_SLOT, in.placement = other), FERRY_INVAL,
	   "placement", "7 expert slots");
	ferry_placement_destroy(other);
	p.expert_slots = NULL;
	p.split = FERRY_SPLIT_EXACT;
	RANKS_OK(ferry_placement_create(&p, &other));
	IN(in.placement = other, FERRY_INVAL, "split 2 (exact)",
	   "topk_ids must be expert slots");
	ferry_placement_destroy(other);
	/* Fewer slots than experts: nothing stands for "expert e in slot e". */
	config.n_experts = 8;
	config.expert_slots = seven;
	bench_open(&b, rank, &config);
	IN(in.placement = NULL, FERRY_INVAL, "placement is NULL", "8 experts",
	   "7 expert slots");
}

/* One bad assignment to the good output `out` of a dispatch. */
#define OUT(assignment, want, ...)                                             \
	do {                                                                   \
		struct ferry_dispatch_out out = b.out;                         \
                                                                               \
		assignment;                                                    \
		CHECK_FAILS(ferry_dispatch_recv(b.d->moe, 0, &out, b.stream),  \
		            want, "dispatch", __VA_ARGS__);                    \
		CHECK_FAILS(                                                   \
			ferry_dispatch(b.d->moe, 1, &b.in, &out, b.stream),    \
			want, "dispatch", __VA_ARGS__);                        \
	} while (0)

static void dispatch_outputs(struct rank *rank)
{
	const struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PADDED, FERRY_SCALE_FP32);
	struct bench b;

	bench_open(&b, rank, &config);
	RANKS_OK(ferry_dispatch_send(b.d->moe, 0, &b.in, b.stream));
	OUT(out.size = 4, FERRY_INVAL, "out", "size is 4");
	OUT(out.row_stride = 15, FERRY_INVAL, "row_stride is 15", "16 bytes");
	OUT((out.scales = b.at->scales, out.scales_stride = 4), FERRY_INVAL,
	    "scales_stride is 4", "8 bytes");
	OUT((out.scales = b.at->scales, out.scale_form = FERRY_SCALES_COL_MAJOR,
	     out.scales_stride = 24),
	    FERRY_INVAL, "scales_stride is 24", "16");
	OUT((out.scales = b.at->scales, out.scale_form = FERRY_SCALES_COL_MAJOR,
	     out.scales_stride = 0 + 8),
	    FERRY_INVAL, "scales_stride is 8", "16");
	OUT((out.scales = b.at->scales,
	     out.scale_form = FERRY_SCALES_PACKED_UE8M0),
	    FERRY_INVAL, "scale_form", "PACKED_UE8M0", "UE8M0");
	OUT(out.scale_form = (enum ferry_scale_form)3, FERRY_INVAL,
	    "scale_form is 3", "0..2");
	OUT(out.index = b.at->counts, FERRY_INVAL, "index", "TOKEN");
	OUT(out.token_slots = b.at->ids[0], FERRY_INVAL, "token_slots",
	    "TOKEN");
	OUT(out.token_weights = b.at->weights, FERRY_INVAL, "token_weights",
	    "TOKEN");
	OUT(out.row_weight = b.at->weights, FERRY_INVAL, "row_weight",
	    "send_weights");
	CHECK_FAILS(ferry_dispatch_recv(b.d->moe, 0, NULL, b.stream),
	            FERRY_INVAL, "out", "NULL");
	CHECK_FAILS(ferry_dispatch_recv(NULL, 0, &b.out, b.stream), FERRY_INVAL,
	            "moe is NULL");
	CHECK_FAILS(ferry_dispatch_recv(b.d->moe, 2, &b.out, b.stream),
	            FERRY_RANGE, "slot is 2", "0..1");
	/*
	 * Known only when rows arrive, to a host that waits for them; the slot
	 * can still be received.
	 */
	b.out.rows = NULL;
	if (!run_on_gpus())
		CHECK_FAILS(ferry_dispatch_recv(b.d->moe, 0, &b.out, b.stream),
		            FERRY_INVAL, "rows is NULL", "8 rows");
	b.out.rows = b.at->rows;
	RANKS_OK(ferry_dispatch_recv(b.d->moe, 0, &b.out, b.stream));
	bench_end(&b);
}

static void no_scales_to_give(struct rank *rank)
{
	struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PACKED, FERRY_SCALE_NONE);
	struct bench b;

	bench_open(&b, rank, &config);
	RANKS_OK(ferry_dispatch_send(b.d->moe, 0, &b.in, b.stream));
	OUT(out.scales = b.at->scales, FERRY_INVAL, "scales", "NONE");
}

static void token_outputs(struct rank *rank)
{
	struct ferry_moe_config config =
		bench_config(FERRY_TOKEN, FERRY_SCALE_FP32);
	struct bench b;

	bench_open(&b, rank, &config);
	RANKS_OK(ferry_dispatch_send(b.d->moe, 0, &b.in, b.stream));
	OUT(out.rows = b.at->rows, FERRY_INVAL, "rows", "view");
	OUT(out.scales = b.at->scales, FERRY_INVAL, "scales", "view");
	OUT(out.token_weights = b.at->weights, FERRY_INVAL, "token_weights",
	    "send_weights");
}

/* One bad assignment to the good input `y` of a combine. */
#define Y(assignment, want, ...)                                               \
	do {                                                                   \
		struct ferry_combine_in y = b.y;                               \
                                                                               \
		assignment;                                                    \
		CHECK_FAILS(ferry_combine_send(b.d->moe, 0, &y, b.stream),     \
		            want, "combine", __VA_ARGS__);                     \
		CHECK_FAILS(ferry_combine(b.d->moe, 0, &y, &b.sum, b.stream),  \
		            want, "combine", __VA_ARGS__);                     \
	} while (0)

/* One bad assignment to the good output `sum` of a combine. */
#define SUM(assignment, want, ...)                                             \
	do {                                                                   \
		struct ferry_combine_out sum = b.sum;                          \
                                                                               \
		assignment;                                                    \
		CHECK_FAILS(ferry_combine_recv(b.d->moe, 0, &sum, b.stream),   \
		            want, "combine", __VA_ARGS__);                     \
		CHECK_FAILS(ferry_combine(b.d->moe, 1, &b.y, &sum, b.stream),  \
		            want, "combine", __VA_ARGS__);                     \
	} while (0)

static void combine_inputs(struct rank *rank)
{
	struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PADDED, FERRY_SCALE_NONE);
	struct bench b;

	bench_open(&b, rank, &config);
	RANKS_OK(ferry_dispatch(b.d->moe, 0, &b.in, &b.out, b.stream));
	Y(y.size = 2, FERRY_INVAL, "in", "size is 2");
	Y(y.y = NULL, FERRY_INVAL, "y is NULL");
	Y(y.y_stride = 14, FERRY_INVAL, "y_stride is 14", "16 bytes");
	Y(y.layout = (enum ferry_combine_layout)3, FERRY_INVAL, "layout is 3",
	  "0..2");
	Y(y.layout = FERRY_FROM_PRESUMMED, FERRY_INVAL, "layout",
	  "FROM_PRESUMMED", "REDUCED");
	CHECK_FAILS(ferry_combine_send(b.d->moe, 0, NULL, b.stream),
	            FERRY_INVAL, "in", "NULL");
	CHECK_FAILS(ferry_combine_send(NULL, 0, &b.y, b.stream), FERRY_INVAL,
	            "moe is NULL");
	CHECK_FAILS(ferry_combine_send(b.d->moe, -3, &b.y, b.stream),
	            FERRY_RANGE, "slot is -3", "0..1");
	RANKS_OK(ferry_combine(b.d->moe, 0, &b.y, &b.sum, b.stream));
	config.combine = FERRY_REDUCED;
	bench_open(&b, rank, &config);
	RANKS_OK(ferry_dispatch(b.d->moe, 0, &b.in, &b.out, b.stream));
	Y(y.layout = FERRY_FROM_PRESUMMED, FERRY_INVAL, "layout",
	  "FROM_PRESUMMED", "TOKEN");
}

static void combine_outputs(struct rank *rank)
{
	const struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PACKED, FERRY_SCALE_NONE);
	struct bench b;

	bench_open(&b, rank, &config);
	RANKS_OK(ferry_dispatch(b.d->moe, 1, &b.in, &b.out, b.stream));
	RANKS_OK(ferry_dispatch(b.d->moe, 0, &b.in, &b.out, b.stream));
	RANKS_OK(ferry_combine_send(b.d->moe, 0, &b.y, b.stream));
	SUM(sum.size = 0, FERRY_INVAL, "out", "size is 0");
	SUM(sum.out = NULL, FERRY_INVAL, "out is NULL");
	SUM(sum.out_stride = 3, FERRY_INVAL, "out_stride is 3", "16 bytes");
	SUM((sum.residual = b.at->x, sum.residual_stride = 15), FERRY_INVAL,
	    "residual_stride is 15", "16 bytes");
	CHECK_FAILS(ferry_combine_recv(b.d->moe, 0, NULL, b.stream),
	            FERRY_INVAL, "out", "NULL");
	CHECK_FAILS(ferry_combine_recv(NULL, 0, &b.sum, b.stream), FERRY_INVAL,
	            "moe is NULL");
	CHECK_FAILS(ferry_combine_recv(b.d->moe, 7, &b.sum, b.stream),
	            FERRY_RANGE, "slot is 7", "0..1");
	RANKS_OK(ferry_combine_recv(b.d->moe, 0, &b.sum, b.stream));
	RANKS_OK(ferry_combine(b.d->moe, 1, &b.y, &b.sum, b.stream));
	bench_end(&b);
}

/* vllm's combine in rows of another layout: more than a padded slot holds. */
static void padded_rows_that_do_not_fit(struct rank *rank)
{
	struct ferry_moe_config config =
		bench_config(FERRY_EXPERT_PACKED, FERRY_SCALE_NONE);
	struct bench b;

	bench_open(&b, rank, &config);
	struct arrays *arrays = (void *)b.held->mirror.host;

	for (int t = 0; t < 4; t++)
		arrays->ids[t][0] = 5; /* every token twice to expert 5 */
	mirror_push(b.d->memory, &b.held->mirror, b.stream);
	RANKS_OK(ferry_dispatch(b.d->moe, 0, &b.in, &b.out, b.stream));
	Y(y.layout = FERRY_FROM_PADDED, FERRY_INVAL, "FROM_PADDED", "8", "4");
	RANKS_OK(ferry_combine(b.d->moe, 0, &b.y, &b.sum, b.stream));
	bench_end(&b);
}

static void opening_and_views(struct rank *rank)
{
	struct ferry_moe_config config =
		bench_config(FERRY_TOKEN, FERRY_SCALE_NONE);
	struct ferry_moe_view view = FERRY_MOE_VIEW_INIT;
	struct ferry_moe *moe = NULL;
	struct bench b;

	CHECK_FAILS(ferry_moe_open(NULL, &config, &moe), FERRY_INVAL, "world",
	            "NULL");
	CHECK_FAILS(ferry_moe_open(rank->world, &config, NULL), FERRY_INVAL,
	            "moe", "NULL");
	CHECK_FAILS(ferry_moe_open(rank->world, NULL, &moe), FERRY_INVAL,
	            "config", "NULL");
	config.n_ranks = 2;
	CHECK_FAILS(ferry_moe_open(rank->world, &config, &moe), FERRY_INVAL,
	            "n_ranks is 2", "1");
	RANKS_CHECK(moe == NULL);
	config.n_ranks = 0;
	bench_open(&b, rank, &config);
	CHECK_FAILS(ferry_moe_get_view(NULL, 0, &view), FERRY_INVAL,
	            "moe is NULL");
	CHECK_FAILS(ferry_moe_get_view(b.d->moe, 2, &view), FERRY_RANGE,
	            "slot is 2", "0..1");
	CHECK_FAILS(ferry_moe_get_view(b.d->moe, 0, NULL), FERRY_INVAL, "view",
	            "NULL");
	view.size = 1;
	CHECK_FAILS(ferry_moe_get_view(b.d->moe, 0, &view), FERRY_INVAL, "view",
	            "size is 1");
	CHECK_FAILS(ferry_moe_poll(NULL, NULL), FERRY_INVAL, "moe is NULL");
	RANKS_OK(ferry_moe_poll(b.d->moe, NULL));
	config = bench_config(FERRY_EXPERT_PADDED, FERRY_SCALE_NONE);
	bench_open(&b, rank, &config);
	view = (struct ferry_moe_view)FERRY_MOE_VIEW_INIT;
	CHECK_FAILS(ferry_moe_get_view(b.d->moe, 0, &view), FERRY_UNSUPPORTED,
	            "layout is EXPERT_PADDED", "TOKEN");
}

CASE(dispatch_inputs)
CASE(unwanted_scales)
CASE(wrong_placements)
CASE(dispatch_outputs)
CASE(no_scales_to_give)
CASE(token_outputs)
CASE(combine_inputs)
CASE(combine_outputs)
CASE(opening_and_views)

static void test_padded_rows_that_do_not_fit(void **state)
{
	(void)state;
	if (run_on_gpus())
		skip(); /* the host does not know the counts */
	ranks_of_one(padded_rows_that_do_not_fit);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dispatch_inputs),
		cmocka_unit_test(test_unwanted_scales),
		cmocka_unit_test(test_wrong_placements),
		cmocka_unit_test(test_dispatch_outputs),
		cmocka_unit_test(test_no_scales_to_give),
		cmocka_unit_test(test_token_outputs),
		cmocka_unit_test(test_combine_inputs),
		cmocka_unit_test(test_combine_outputs),
		cmocka_unit_test(test_padded_rows_that_do_not_fit),
		cmocka_unit_test(test_opening_and_views),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
