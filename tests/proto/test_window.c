/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window: nothing overlaps, whatever the shape; it stays within its
 * budget; counters have numbers of their own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/bits.h"
#include "proto/table.h"
#include "proto/window.h"
#include "test_seed.h"

static uint64_t seed;

static int32_t from_to(int32_t low, int32_t high)
{
	return low + (int32_t)(rng_next(&seed) % (uint64_t)(high - low + 1));
}

static void shape_of(struct ferry_shape *s, const struct ferry_moe_config *c,
                     int32_t n_ranks)
{
	if (ferry_shape_init(s, c, n_ranks, 0))
		fail_msg("%s", ferry_last_error());
}

static void window_of(struct ferry_window *w, const struct ferry_shape *s,
                      bool staged)
{
	if (ferry_window_init(w, s, staged))
		fail_msg("%s", ferry_last_error());
}

/* Of the marks of a slot's parts, which lie side by side. */
static size_t marks_begin = SIZE_MAX, marks_end;

struct span {
	size_t begin, end;
};

struct spans {
	size_t n;
	struct span *at;
};

static void add(struct spans *spans, size_t begin, size_t bytes)
{
	spans->at[spans->n++] = (struct span){begin, begin + bytes};
}

static void add_half(struct spans *spans, const struct ferry_window *w,
                     const struct ferry_shape *s, int32_t slot, int32_t owner)
{
	const int32_t group = owner / s->group_size;

	for (uint32_t half = 0; half < 2; half++)
		for (int32_t r = 0; r < s->n_ranks; r++) {
			add(spans, ferry_window_table(w, s, slot, half, r),
			    ferry_table_bytes(s->max_tokens, s->topk,
			                      s->send_weights));
			if (s->layout != FERRY_TOKEN &&
			    r / s->group_size == group)
				continue;
			for (int32_t i = 0; i < s->cap; i++)
				add(spans,
				    ferry_window_row(w, s, slot, half, owner, r,
				                     i),
				    s->scale_offset + s->scale_row_bytes);
		}
}

/* PER_HOST: parts, marks and counts of the groups of other hosts. */
static void add_parts(struct spans *spans, const struct ferry_window *w,
                      const struct ferry_shape *s, int32_t slot)
{
	for (int32_t g = 0; g < s->n_groups && s->part_groups; g++) {
		if (!ferry_hosts_far(&s->hosts, g * s->group_size))
			continue;
		for (int32_t t = 0; t < s->max_tokens; t++)
			add(spans, ferry_window_part(w, s, slot, g, t),
			    w->back_stride);
		for (int32_t b = 0; b < s->part_blocks; b++)
			add(spans, ferry_window_arrived(w, s, slot, g, b),
			    sizeof(uint32_t));
		const size_t here = ferry_window_part_here(w, s, slot, g, 0);

		assert_int_equal(ferry_window_part_here(w, s, slot, g,
		                                        s->max_tokens - 1),
		                 here + (size_t)s->max_tokens - 1);
		marks_begin = here < marks_begin ? here : marks_begin;
		marks_end = here + (size_t)s->max_tokens > marks_end
		                    ? here + (size_t)s->max_tokens
		                    : marks_end;
	}
	if (marks_end)
		add(spans, marks_begin, marks_end - marks_begin);
	marks_begin = SIZE_MAX;
	marks_end = 0;
}

/* Everything that anybody may write into the window of `owner`. */
static void add_all(struct spans *spans, const struct ferry_window *w,
                    const struct ferry_shape *s, int32_t owner)
{
	for (int32_t slot = 0; slot < s->n_slots; slot++) {
		add_half(spans, w, s, slot, owner);
		for (int32_t t = 0; t < s->max_tokens; t++)
			for (int32_t j = 0; j < s->back_rows; j++)
				add(spans, ferry_window_back(w, s, slot, t, j),
				    (size_t)s->hidden * sizeof(uint16_t));
		add_parts(spans, w, s, slot);
		for (int32_t i = 0; i < w->stage_rows; i++)
			add(spans, ferry_window_stage(w, slot, i),
			    w->stage_stride);
	}
}

static size_t n_spans(const struct ferry_window *w, const struct ferry_shape *s)
{
	const size_t half = (size_t)s->n_ranks * (size_t)(1 + s->cap);
	const size_t back = (size_t)s->max_tokens * (size_t)s->back_rows;

	const size_t parts = (size_t)s->part_groups *
	                             (size_t)(s->max_tokens + s->part_blocks) +
	                     1;

	return (size_t)s->n_slots *
	       (2 * half + back + parts + (size_t)w->stage_rows);
}

static int by_begin(const void *a, const void *b)
{
	const size_t x = ((const struct span *)a)->begin;
	const size_t y = ((const struct span *)b)->begin;

	return (x > y) - (x < y);
}

static void random_config(struct ferry_moe_config *c, int32_t *n_ranks)
{
	static const enum ferry_layout layouts[] = {
		FERRY_EXPERT_PADDED, FERRY_EXPERT_PACKED, FERRY_TOKEN};

	*c = (struct ferry_moe_config)FERRY_MOE_CONFIG_INIT;
	c->group_size = from_to(1, 4);
	*n_ranks = c->group_size * from_to(1, 4);
	c->max_tokens = from_to(1, 20);
	c->hidden = from_to(1, 300);
	c->topk = from_to(1, 9);
	c->n_experts = from_to(1, 100);
	c->n_slots = from_to(1, 3);
	c->layout = layouts[from_to(0, 2)];
	c->combine = (enum ferry_combine_mode)from_to(0, 2);
	if (from_to(0, 1)) {
		c->scale_type = FERRY_SCALE_BYTES;
		c->scale_bytes = from_to(1, 70);
	}
}

/* Whole groups on two or three hosts, in turn. */
static void use_hosts(struct ferry_shape *s, int32_t owner)
{
	const int32_t n_hosts = from_to(2, 3);
	struct ferry_hosts hosts;
	uint64_t ids[16];

	for (int32_t r = 0; r < s->n_ranks; r++)
		ids[r] = (uint64_t)(r / s->group_size % n_hosts);
	assert_int_equal(ferry_hosts_init(&hosts, ids, s->n_ranks, owner),
	                 FERRY_OK);
	ferry_shape_use_hosts(s, &hosts);
}

static void nothing_overlaps(void **state)
{
	(void)state;
	for (int round = 0; round < 300; round++) {
		struct ferry_moe_config c;
		struct ferry_shape s;
		struct ferry_window w;
		int32_t n_ranks;

		random_config(&c, &n_ranks);
		const int32_t owner = from_to(0, n_ranks - 1);

		shape_of(&s, &c, n_ranks);
		if (c.combine == FERRY_PER_HOST)
			use_hosts(&s, owner);
		window_of(&w, &s, from_to(0, 1));
		struct spans spans = {
			.at = calloc(n_spans(&w, &s), sizeof(struct span))};

		assert_non_null(spans.at);
		add_all(&spans, &w, &s, owner);
		qsort(spans.at, spans.n, sizeof(*spans.at), by_begin);
		for (size_t i = 0; i < spans.n; i++) {
			assert_int_equal(spans.at[i].begin % 64, 0);
			assert_true(spans.at[i].end <=
			            (i + 1 < spans.n ? spans.at[i + 1].begin
			                             : w.bytes));
		}
		free(spans.at);
		ferry_shape_destroy(&s);
	}
}

/* moe.h promises this formula to callers of TOKEN channels. */
static void view_is_one_array(void **state)
{
	struct ferry_moe_config c;
	struct ferry_shape s;
	struct ferry_window w;
	int32_t n_ranks;

	(void)state;
	for (int round = 0; round < 100; round++) {
		random_config(&c, &n_ranks);
		c.layout = FERRY_TOKEN;
		shape_of(&s, &c, n_ranks);
		window_of(&w, &s, false);
		const size_t start = ferry_window_row(&w, &s, 0, 0, 0, 0, 0);

		for (int i = 0; i < 20; i++) {
			const int32_t r = from_to(0, n_ranks - 1);
			const int32_t at = from_to(0, s.cap - 1);
			const uint32_t half = (uint32_t)from_to(0, 1);
			const size_t row =
				((size_t)half * (size_t)n_ranks + (size_t)r) *
					(size_t)s.cap +
				(size_t)at;

			assert_int_equal(
				ferry_window_row(&w, &s, 0, half, 0, r, at),
				start + row * s.row_stride);
		}
		ferry_shape_destroy(&s);
	}
}

/* Offsets that 32 bits do not hold: the last of each region, by hand. */
static void large_windows(void **state)
{
	enum { CAP = 120000, ROW = 7168 * 2, TOPK = 2 };
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;
	struct ferry_shape s;
	struct ferry_window w;

	(void)state;
	c.max_tokens = CAP;
	c.hidden = 7168;
	c.topk = TOPK;
	c.n_experts = 4;
	c.n_slots = 2;
	c.layout = FERRY_EXPERT_PACKED;
	shape_of(&s, &c, 3);
	window_of(&w, &s, true);
	const size_t rows = ferry_window_row(&w, &s, 1, 0, 0, 1, 0);
	const size_t back = ferry_window_back(&w, &s, 1, 0, 0);
	const size_t stage = ferry_window_stage(&w, 1, 0);

	assert_true(s.row_sources == 2 && s.back_rows == TOPK);
	assert_true(rows > UINT64_C(1) << 32);
	assert_int_equal(ferry_window_row(&w, &s, 1, 1, 0, 2, CAP - 1) - rows,
	                 (UINT64_C(4) * CAP - 1) * ROW);
	assert_int_equal(ferry_window_back(&w, &s, 1, CAP - 1, TOPK - 1) - back,
	                 (UINT64_C(2) * CAP - 1) * ROW);
	assert_int_equal(ferry_window_stage(&w, 1, w.stage_rows - 1) - stage,
	                 ((uint64_t)w.stage_rows - 1) * ROW);
	assert_true(w.slot_bytes > UINT64_C(6) * CAP * ROW);
	assert_true(w.bytes >= 2 * w.slot_bytes);
	ferry_shape_destroy(&s);
}

static void counters_are_distinct(void **state)
{
	struct ferry_moe_config c;
	struct ferry_shape s;
	int32_t n_ranks;

	(void)state;
	random_config(&c, &n_ranks);
	shape_of(&s, &c, n_ranks);
	const uint32_t n = ferry_window_n_signals(&s);
	uint8_t *const seen = calloc(n, 1);

	assert_int_equal(n, s.n_slots * 4 * FERRY_N_COUNTS * n_ranks);
	for (int32_t slot = 0; slot < s.n_slots; slot++)
		for (uint64_t e = UINT64_MAX - 1; e != 2; e++)
			for (int k = 0; k < FERRY_N_COUNTS; k++)
				for (int32_t r = 0; r < n_ranks; r++) {
					const uint32_t i = ferry_window_signal(
						&s, slot, e,
						(enum ferry_stream_kind)k, r);

					assert_true(i < n);
					assert_int_equal(seen[i]++, 0);
				}
	free(seen);
	ferry_shape_destroy(&s);
}

/* Bytes of two halves of what arrives and one set of what comes back. */
static double rows_bytes(const struct ferry_shape *s)
{
	const double in = 2.0 * s->row_sources * s->cap *
	                  (double)(s->row_bytes + s->scale_row_bytes);
	const double back = (double)s->max_tokens * s->back_rows * s->hidden *
	                    (double)sizeof(uint16_t);

	return in + back;
}

static double worst_share(const struct ferry_moe_config *c, int32_t n_ranks)
{
	double worst = 0;

	for (int staged = 0; staged < 2; staged++) {
		struct ferry_shape s;
		struct ferry_window w;

		shape_of(&s, c, n_ranks);
		window_of(&w, &s, staged);
		const double share = (double)w.slot_bytes / rows_bytes(&s);

		if (share > worst)
			worst = share;
		ferry_shape_destroy(&s);
	}
	return worst;
}

static void budget(void **state)
{
	double worst = 0;

	(void)state;
	for (int32_t n_ranks = 2; n_ranks <= 16; n_ranks++)
		for (int form = 0; form < 12; form++) {
			struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

			c.max_tokens = 128;
			c.hidden = 7168;
			c.topk = 8;
			c.n_experts = 256;
			if (form & 1)
				c.combine = FERRY_REDUCED;
			if (form & 2) {
				c.dtype = FERRY_FP8_E4M3;
				c.in_dtype = FERRY_BF16;
				c.scale_type = FERRY_SCALE_FP32;
			}
			c.layout = (enum ferry_layout)(form / 4);
			const double share = worst_share(&c, n_ranks);

			if (share > worst)
				worst = share;
		}
	print_message("at most %.3f times the rows' bytes\n", worst);
	assert_true(worst <= 1.3);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_overlaps),
		cmocka_unit_test(view_is_one_array),
		cmocka_unit_test(large_windows),
		cmocka_unit_test(counters_are_distinct),
		cmocka_unit_test(budget),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
