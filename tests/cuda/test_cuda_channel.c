/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels are given says the same as the window and the placement of the
 * host: the device's own functions, built for the CPU here, find every table,
 * row, flag and expert slot where the host's do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/cuda_channel.h"
#include "test_seed.h"
#include "traffic.h"

/* place.cuh holds no instruction of the device. */
#define __device__
#define __forceinline__ inline
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "cuda/place.cuh"
#pragma GCC diagnostic pop

enum { SHAPES = 300, WINDOW_AT = 1 << 20 };

static uint64_t seed;

static int32_t from_to(int32_t low, int32_t high)
{
	return (int32_t)traffic_between(&seed, low, high);
}

/* A shape, and the channel of one rank. */
struct bench {
	struct ferry_shape shape;
	struct ferry_window window;
	struct ferry_cuda_channel channel;
	unsigned char *windows[16]; /* addresses that nobody looks at */
	int32_t expert_slots[16];
};

static void configure(struct bench *b, struct ferry_moe_config *c)
{
	static const int32_t groups[] = {1, 1, 2, 4};
	const int32_t group_size = groups[from_to(0, 3)];

	*c = (struct ferry_moe_config)FERRY_MOE_CONFIG_INIT;
	c->n_ranks = group_size * from_to(1, 4);
	c->group_size = group_size;
	c->max_tokens = from_to(1, 40);
	c->hidden = from_to(1, 500);
	c->topk = from_to(1, 9);
	c->n_experts = from_to(1, 40);
	c->n_slots = from_to(1, 3);
	c->layout = (enum ferry_layout)from_to(0, 2);
	c->combine = (enum ferry_combine_mode)from_to(0, 1);
	c->device = FERRY_DEVICE_CUDA;
	c->path = from_to(0, 1) ? FERRY_PATH_LINES : FERRY_PATH_CHUNKS;
	if (from_to(0, 1)) {
		c->expert_slots = b->expert_slots;
		for (int32_t r = 0; r < c->n_ranks; r++)
			b->expert_slots[r] = from_to(r == 0, 12);
	}
}

static void bench_open(struct bench *b)
{
	struct ferry_moe_config c;

	configure(b, &c);
	if (ferry_shape_init(&b->shape, &c, c.n_ranks,
	                     from_to(0, c.n_ranks - 1)) ||
	    ferry_window_init(&b->window, &b->shape, false))
		fail_msg("%s", ferry_last_error());
	for (int32_t r = 0; r < c.n_ranks; r++)
		b->windows[r] = (unsigned char *)(uintptr_t)((size_t)(r + 1) *
		                                             WINDOW_AT);
	ferry_cuda_channel_fill(&b->channel, &b->shape, &b->window, b->windows);
}

#define SAME_PLACE(owner, found, offset)                                       \
	assert_ptr_equal(found, b->windows[owner] + (offset))

static void tables_are_found(const struct bench *b, int32_t slot, int32_t owner,
                             int32_t source)
{
	const struct ferry_shape *s = &b->shape;

	for (uint32_t half = 0; half < 2; half++)
		SAME_PLACE(
			owner, table_at(&b->channel, owner, slot, half, source),
			ferry_window_table(&b->window, s, slot, half, source));
}

static void rows_are_found(const struct bench *b, int32_t slot, int32_t owner,
                           int32_t source)
{
	const struct ferry_shape *s = &b->shape;
	const bool mates =
		ferry_shape_group(s, owner) == ferry_shape_group(s, source);

	if (mates && s->layout != FERRY_TOKEN)
		return;
	for (uint32_t half = 0; half < 2; half++)
		for (int32_t i = 0; i < s->cap; i++)
			SAME_PLACE(owner,
			           row_at(&b->channel, owner, slot, half,
			                  source, i),
			           ferry_window_row(&b->window, s, slot, half,
			                            owner, source, i));
}

static void backs_are_found(const struct bench *b, int32_t slot, int32_t owner)
{
	const struct ferry_shape *s = &b->shape;

	for (int32_t t = 0; t < s->max_tokens; t++)
		for (int32_t j = 0; j < s->back_rows; j++)
			SAME_PLACE(
				owner, back_at(&b->channel, owner, slot, t, j),
				ferry_window_back(&b->window, s, slot, t, j));
}

static void test_window(void **state)
{
	(void)state;
	for (int i = 0; i < SHAPES; i++) {
		struct bench bench, *b = &bench;

		bench_open(b);
		for (int32_t slot = 0; slot < b->shape.n_slots; slot++)
			for (int32_t r = 0; r < b->shape.n_ranks; r++) {
				backs_are_found(b, slot, r);
				for (int32_t q = 0; q < b->shape.n_ranks; q++) {
					tables_are_found(b, slot, r, q);
					rows_are_found(b, slot, r, q);
				}
			}
		ferry_shape_destroy(&b->shape);
	}
}

/* Bytes [at, end) of one region lie behind those of the one before. */
static void comes_next(const struct bench *b, int32_t owner, size_t *end,
                       const void *at, const void *last, size_t bytes)
{
	const size_t begin =
		(size_t)((const unsigned char *)at - b->windows[owner]);

	assert_true(begin >= *end);
	*end = (size_t)((const unsigned char *)last - b->windows[owner]) +
	       bytes;
}

/* Flags have no functions on the host: they overlap nothing. */
static void flags_have_room(const struct bench *b)
{
	const struct ferry_cuda_channel *c = &b->channel;
	const struct ferry_shape *s = &b->shape;
	const int32_t last = s->n_ranks - 1;
	const int32_t slot = s->n_slots - 1;
	const int32_t owner = 0; /* the last rank is not its mate, or TOKEN */
	const size_t base = (size_t)slot * b->window.slot_bytes;
	size_t end = base + b->window.offset[FERRY_REGION_BACK];

	if (c->table_parts)
		comes_next(b, owner, &end,
		           table_part_at(c, owner, slot, 0, 0, 0),
		           table_part_at(c, owner, slot, 1, last,
		                         c->table_parts - 1),
		           FERRY_TABLE_PART_BYTES);
	if (c->row_chunks && s->row_sources)
		comes_next(
			b, owner, &end,
			row_flag_at(c, owner, slot, 0,
		                    s->layout == FERRY_TOKEN ? 0
		                                             : s->group_size,
		                    0),
			row_flag_at(c, owner, slot, 1, last, c->row_chunks - 1),
			sizeof(uint64_t));
	if (c->back_chunks)
		comes_next(
			b, owner, &end, back_flag_at(c, owner, slot, 0, 0),
			back_flag_at(c, owner, slot, last, c->back_chunks - 1),
			sizeof(uint64_t));
	assert_true(end <= base + b->window.slot_bytes);
	assert_int_equal(c->poison_offset,
	                 (size_t)s->n_slots * b->window.slot_bytes);
}

static void test_flags(void **state)
{
	(void)state;
	for (int i = 0; i < SHAPES; i++) {
		struct bench b;

		bench_open(&b);
		flags_have_room(&b);
		ferry_shape_destroy(&b.shape);
	}
}

static void test_slot_ranks(void **state)
{
	(void)state;
	for (int i = 0; i < SHAPES; i++) {
		struct bench b;

		bench_open(&b);
		for (int32_t s = 0; s < b.shape.n_expert_slots; s++)
			assert_int_equal(rank_of_slot(&b.channel, s),
			                 b.shape.slot_rank[s]);
		ferry_shape_destroy(&b.shape);
	}
}

/* Rows of the view: as moe.h says, where the window has them. */
static void test_view(void **state)
{
	(void)state;
	for (int i = 0; i < SHAPES; i++) {
		struct bench b;

		bench_open(&b);
		const struct ferry_shape *s = &b.shape;
		const int32_t group = from_to(0, s->n_groups - 1);
		const int32_t token = from_to(0, s->max_tokens - 1);
		const int32_t carrier = ferry_shape_carrier(s, group, token);

		if (s->layout == FERRY_TOKEN)
			for (uint32_t half = 0; half < 2; half++)
				assert_int_equal(
					(size_t)view_row_of(&b.channel, half,
				                            group, token) *
						b.window.row_stride,
					ferry_window_row(
						&b.window, s, 0, half, s->rank,
						carrier,
						token / s->group_size) -
						ferry_window_row(&b.window, s,
				                                 0, 0, s->rank,
				                                 0, 0));
		ferry_shape_destroy(&b.shape);
	}
}

/* Arrays of a slot lie side by side, and are what is said to be allocated. */
static void test_op_memory(void **state)
{
	(void)state;
	for (int i = 0; i < SHAPES; i++) {
		struct ferry_cuda_op op;
		struct bench b;

		bench_open(&b);
		const size_t bytes = ferry_cuda_op_bytes(&b.channel, 1000);
		unsigned char *base = (unsigned char *)(uintptr_t)WINDOW_AT;

		assert_int_equal(
			ferry_cuda_op_lay_out(&op, &b.channel, 1000, base),
			bytes);
		assert_ptr_equal(op.slot, base);
		assert_true((unsigned char *)op.own_slots >=
		            base + sizeof(*op.slot));
		assert_true((unsigned char *)op.scratch + 1000 <= base + bytes);
		assert_int_equal(op.weights != NULL, b.shape.send_weights);
		ferry_shape_destroy(&b.shape);
	}
}

enum { EXPERTS = 7, MOST_RANKS = 16, DRAWS = 60 };

/*
 * On each rank a slot for each expert, some empty. Of expert 0 all quotas are
 * 0, of expert 1 all but one, of others some, or they are as large as can be.
 */
static struct ferry_placement *place(int32_t n_ranks, enum ferry_split split)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	int32_t expert_slots[MOST_RANKS];
	int32_t slot_expert[MOST_RANKS * EXPERTS];
	int64_t quota[MOST_RANKS * EXPERTS];
	struct ferry_placement *p;

	for (int32_t i = 0; i < n_ranks * EXPERTS; i++) {
		const int32_t e = i % EXPERTS, r = i / EXPERTS;
		const bool last = r == n_ranks - 1;

		expert_slots[r] = EXPERTS;
		slot_expert[i] = last || from_to(0, 3) ? e : -1;
		quota[i] = e == 0   ? 0
		           : e == 1 ? last
		           : e < 5  ? from_to(0, 9)
		                    : INT64_MAX - r;
	}
	c.n_experts = EXPERTS;
	c.n_ranks = n_ranks;
	c.expert_slots = expert_slots;
	c.slot_expert = slot_expert;
	c.split = split;
	c.quota = split == FERRY_SPLIT_QUOTA ? quota : NULL;
	if (ferry_placement_create(&c, &p))
		fail_msg("%s", ferry_last_error());
	return p;
}

static void choices_are_found(const struct bench *b, enum ferry_split split)
{
	const struct ferry_shape *s = &b->shape;
	struct ferry_placement *p = place(s->n_ranks, split);
	const int32_t n_slots = ferry_placement_n_slots(p);
	const size_t n = ferry_cuda_placement_words(EXPERTS, n_slots);
	int32_t *words = malloc(n * sizeof(*words));

	assert_non_null(words);
	ferry_cuda_placement_copy(words, p);
	const struct ferry_cuda_placement at =
		ferry_cuda_placement_at(words, p);

	assert_int_equal(at.hash, ferry_placement_hash(p));
	assert_int_equal(at.start != NULL, split == FERRY_SPLIT_QUOTA);
	for (int i = 0; i < DRAWS; i++) {
		const int32_t e = from_to(0, EXPERTS - 1);
		const int32_t token = from_to(0, s->max_tokens - 1);
		const int32_t choice = from_to(0, s->topk - 1);
		const int32_t carrier = ferry_shape_carrier(
			s, ferry_shape_group(s, s->rank), token);

		assert_int_equal(
			resolve_expert(&b->channel, &at, e, token, choice),
			ferry_placement_resolve(p, e, carrier, token, choice));
	}
	free(words);
	ferry_placement_destroy(p);
}

static void test_choices(void **state)
{
	const struct ferry_cuda_placement none = {.hash = 1};

	(void)state;
	for (int i = 0; i < SHAPES; i++) {
		struct bench b;

		bench_open(&b);
		assert_int_equal(resolve_expert(&b.channel, &none, i, 0, 0), i);
		choices_are_found(&b, FERRY_SPLIT_EVEN);
		choices_are_found(&b, FERRY_SPLIT_QUOTA);
		ferry_shape_destroy(&b.shape);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_slot_ranks),
		cmocka_unit_test(test_view),
		cmocka_unit_test(test_op_memory),
		cmocka_unit_test(test_choices),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
