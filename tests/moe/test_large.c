/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers beyond 2^32 bytes: outputs of dispatch and inputs of combine are
 * sparse mappings, of which only rows at their end are touched; offsets in the
 * window are compared with 64-bit arithmetic, without a window.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "cuda/cuda_info.h"
#include "drive_inner.h"
#include "proto/window.h"
#include "run_args.h"

enum {
	HIDDEN = 65536,
	TOKENS = 16,
	PACKED_TOKENS = 3, /* worst case: 12 experts, a GiB of rows each */
	EXPERTS = 4200,
	ROW_BYTES = HIDDEN,   /* FERRY_BYTES */
	Y_BYTES = 2 * HIDDEN, /* bf16 */
	RANK_GIB = 58,        /* of one rank, all tests, powers of two */
};

static int32_t tokens_of(enum ferry_layout layout)
{
	return layout == FERRY_EXPERT_PACKED ? PACKED_TOKENS : TOKENS;
}

static struct ferry_moe_config large(enum ferry_layout layout)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = tokens_of(layout);
	c.hidden = HIDDEN;
	c.topk = 2;
	c.n_experts = EXPERTS;
	c.dtype = FERRY_BYTES;
	c.layout = layout;
	c.alignment = layout == FERRY_EXPERT_PACKED ? 1 << 14 : 0;
	return c;
}

/* Sparse, or of the GPU, which has that much. */
static uint8_t *map_large(struct drive *d, struct mirror *mirror, size_t bytes)
{
	if (d->memory->is_device) {
		*mirror = mirror_make(d->memory, bytes, 0);
		return mirror->device;
	}
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		RANKS_FAIL("mmap of %zu bytes", bytes);
	return p;
}

static void unmap_large(struct drive *d, struct mirror *mirror, uint8_t *p,
                        size_t bytes)
{
	if (d->memory->is_device)
		mirror_drop(d->memory, mirror);
	else
		munmap(p, bytes);
}

/* The row of the expert-major output. */
static size_t row_at(const struct ferry_moe_config *config,
                     const struct oracle_row *row)
{
	return (size_t)(config->layout == FERRY_EXPERT_PADDED ? row->padded
	                                                      : row->packed);
}

/* One row arrives far out; its answer is put as far out. */
static void answer(const struct drive *d, const struct oracle *o,
                   const struct oracle_row *row, const uint8_t *rows,
                   uint8_t *y, uint8_t *expected)
{
	const size_t at = row_at(&d->config, row);
	const uint8_t *scales;
	static _Thread_local uint8_t got[ROW_BYTES], made[Y_BYTES];

	oracle_row_bits(o, row, expected, &scales);
	rank_memory_read(d->memory, got, rows + at * ROW_BYTES, ROW_BYTES);
	RANKS_BYTES(got, expected, ROW_BYTES);
	oracle_expert(made, FERRY_BF16, HIDDEN, expected, ROW_BYTES, NULL, 0,
	              row->expert, ORACLE_PLAIN);
	rank_memory_write(d->memory, y + at * Y_BYTES, made, Y_BYTES);
}

/*
 * The experts with the highest numbers of each rank; where few tokens move the
 * rows far out by their alignment, another one for each.
 */
static void fill(struct traffic_batch *b, int32_t n_tokens, int32_t rank)
{
	static const int32_t last[2] = {EXPERTS / 2 - 1, EXPERTS - 1};

	for (int32_t t = 0; t < n_tokens; t++)
		for (int32_t k = 0; k < 2; k++) {
			const int32_t step = n_tokens == TOKENS
			                             ? t / 4
			                             : t + n_tokens * rank;
			const int32_t id = last[(k + rank) % 2] - step;

			memcpy(b->ids + 4 * (2 * t + k), &id, 4);
		}
}

static void make(const struct drive_step *step, int32_t rank,
                 struct traffic_batch *b)
{
	const struct ferry_moe_config *config = step->make_arg;
	struct traffic_spec spec = {.seed = run_args.seed + (uint64_t)rank,
	                            .n_tokens = config->max_tokens};
	struct ferry_moe_config named = *config;

	named.n_ranks = 2;
	traffic_make(b, &named, NULL, rank, &spec);
	fill(b, config->max_tokens, rank);
}

static void body(struct rank *rank)
{
	struct ferry_moe_config config =
		large(*(const enum ferry_layout *)rank->arg);
	struct drive *d = drive_open(rank, &config, NULL);
	const size_t n = (size_t)d->need.recv_rows;
	const size_t n_tokens = (size_t)config.max_tokens;
	const struct drive_step step = {.make = make, .make_arg = &config};
	struct drive_op *op = drive_begin(d, 0, &step);
	const struct oracle *o = drive_oracle(op);
	struct mirror far[2] = {{0}};
	uint8_t *rows = map_large(d, &far[0], n * ROW_BYTES);
	uint8_t *y = map_large(d, &far[1], n * Y_BYTES);
	struct mirror sum =
		mirror_make(d->memory, n_tokens * Y_BYTES, n_tokens * Y_BYTES);
	uint8_t *expected = malloc(n_tokens * Y_BYTES);
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in in = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out got = FERRY_COMBINE_OUT_INIT;
	const struct oracle_combine_how how = {.values = ORACLE_PLAIN};
	const struct oracle_row *list;

	RANKS_CHECK(expected != NULL);
	RANKS_CHECK(n * ROW_BYTES > (size_t)1 << 32);
	out.rows = rows;
	const struct ferry_dispatch_in lent = drive_in_lend(op, stream);

	RANKS_OK(ferry_dispatch(d->moe, 0, &lent, &out, stream));
	const int64_t n_rows = oracle_rows(o, d->rank, &list);

	RANKS_EQ(n_rows, 2 * (int64_t)n_tokens);
	RANKS_CHECK(row_at(&config, &list[n_rows - 1]) * ROW_BYTES >
	            (size_t)1 << 32);
	for (int64_t i = 0; i < n_rows; i++)
		answer(d, o, &list[i], rows, y, expected);
	in.y = y;
	in.layout = config.layout == FERRY_EXPERT_PADDED ? FERRY_FROM_PADDED
	                                                 : FERRY_FROM_PACKED;
	got.out = sum.device;
	RANKS_OK(ferry_combine(d->moe, 0, &in, &got, stream));
	mirror_pull(d->memory, &sum, stream);
	rank_memory_sync(d->memory, stream);
	RANKS_OK(ferry_moe_poll(d->moe, NULL));
	got.out = expected;
	oracle_combine(o, d->rank, &how, &got);
	RANKS_BYTES(sum.host, expected, n_tokens * Y_BYTES);
	free(expected);
	mirror_drop(d->memory, &sum);
	unmap_large(d, &far[0], rows, n * ROW_BYTES);
	unmap_large(d, &far[1], y, n * Y_BYTES);
}

/* Has each GPU memory for the ranks that share it? */
static void need_room(void)
{
	const int32_t n_gpus = run_args.n_gpus;
	struct ferry_cuda_device gpu;

	for (int32_t g = 0; run_on_gpus() && g < n_gpus && g < 2; g++) {
		const int32_t gib = RANK_GIB * (n_gpus > 1 ? 1 : 2);

		if (ferry_cuda_device_get(g, &gpu) &&
		    gpu.memory_bytes >> 30 >= (uint64_t)gib)
			continue;
		printf("# skipped: wants %d GiB of GPU %d, for all ranks "
		       "there\n",
		       gib, g);
		skip();
	}
}

static void rows_far_out(void **state)
{
	enum ferry_layout layout = FERRY_EXPERT_PADDED;
	struct ranks how = run_args_ranks(2);

	(void)state;
	need_room();
	how.arg = &layout;
	ranks_run(&how, body);
}

/* An alignment that no GEMM wants moves the few rows as far. */
static void packed_rows_far_out(void **state)
{
	enum ferry_layout layout = FERRY_EXPERT_PACKED;
	struct ranks how = run_args_ranks(2);

	(void)state;
	need_room();
	how.arg = &layout;
	ranks_run(&how, body);
}

/* 65536 tokens of 7168 bf16 to 8 of 64 ranks: terabytes. */
static struct ferry_moe_config huge(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 65536;
	c.hidden = 7168;
	c.topk = 8;
	c.n_experts = 256;
	c.n_slots = 2;
	c.layout = FERRY_TOKEN;
	return c;
}

static void window_offsets_are_exact(void **state)
{
	const struct ferry_moe_config config = huge();
	struct ferry_window w;
	struct ferry_shape s;
	uint64_t want;

	(void)state;
	assert_int_equal(ferry_shape_init(&s, &config, 64, 3), FERRY_OK);
	assert_int_equal(ferry_window_init(&w, &s, false), FERRY_OK);
	/* The last row of the last source in the second half of slot 1. */
	want = (uint64_t)w.slot_bytes + w.offset[FERRY_REGION_ROW] +
	       ((uint64_t)(64 + 63) * 65536 + 65535) * s.row_stride;
	assert_true(want > (uint64_t)1 << 36);
	assert_true(want == ferry_window_row(&w, &s, 1, 1, 3, 63, 65535));
	want = (uint64_t)w.slot_bytes + w.offset[FERRY_REGION_BACK] +
	       ((uint64_t)65535 * (unsigned)s.back_rows + 7) * s.back_stride;
	assert_true(want == ferry_window_back(&w, &s, 1, 65535, 7));
	want = (uint64_t)w.slot_bytes + w.offset[FERRY_REGION_TABLE] +
	       (uint64_t)(64 + 63) * s.table_bytes;
	assert_true(want == ferry_window_table(&w, &s, 1, 1, 63));
	assert_true(w.bytes == 2 * w.slot_bytes);
	ferry_shape_destroy(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_far_out),
		cmocka_unit_test(packed_rows_far_out),
		cmocka_unit_test(window_offsets_are_exact),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
