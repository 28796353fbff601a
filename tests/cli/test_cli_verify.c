/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of bench and check: they pass right data and count every kind of
 * wrong data; medians, bytes and floors against numbers worked out by hand.
 */
#include <stdlib.h>
#include <string.h>

#include "bench_result.h"
#include "bench_verify.h"
#include "cli_cmocka.h"

/* Two ranks; a rank's outputs as they must be, built by the walk itself. */
struct world {
	struct bench_case c;
	struct bench_arrivals arrivals;
	uint16_t *rows;
	int32_t counts[8];
	struct bench_received got;
};

static const struct bench_case shape = {
	.n_ranks = 2,
	.tokens = 6,
	.hidden = 40,
	.topk = 3,
	.experts = 5,
	.layout = FERRY_EXPERT_PACKED,
	.routing = BENCH_MESSY,
	.seed = 11,
};

static void make(struct world *w, int32_t rank)
{
	*w = (struct world){.c = shape};
	bench_arrivals_make(&w->arrivals, &w->c, rank, 4, 0);
	w->rows = calloc((size_t)w->arrivals.n * 40, 2);
	for (int64_t i = 0; i < w->arrivals.n; i++)
		bench_make_row(&w->c, w->arrivals.list[i].source, 4,
		               w->arrivals.list[i].token, w->rows + i * 40);
	for (int32_t s = 0; s < w->arrivals.n_slots; s++)
		w->counts[s] = (int32_t)w->arrivals.counts[s];
	w->got = (struct bench_received){
		.rows = w->rows,
		.row_stride = 80,
		.counts = w->counts,
		.offsets = w->arrivals.offsets,
	};
}

static void unmake(struct world *w)
{
	free(w->rows);
	bench_arrivals_free(&w->arrivals);
}

static int64_t wrong(const struct world *w)
{
	return bench_check_received(&w->c, 4, &w->arrivals, &w->got,
	                            BENCH_WHOLE);
}

static void test_owners(void **state)
{
	const struct bench_case c = {.n_ranks = 3, .experts = 8};

	(void)state;
	/* 3, 3 and 2 experts. */
	for (int32_t e = 0; e < 8; e++)
		assert_int_equal(bench_owner(&c, e), e / 3);
	assert_int_equal(bench_first_expert(&c, 0), 0);
	assert_int_equal(bench_first_expert(&c, 1), 3);
	assert_int_equal(bench_first_expert(&c, 2), 6);
	assert_int_equal(bench_first_expert(&c, 3), 8);
}

static void test_arrivals_are_in_order_and_complete(void **state)
{
	int64_t all = 0, wanted = 0;

	(void)state;
	for (int32_t rank = 0; rank < 2; rank++) {
		int32_t ids[18];
		float weights[18];
		struct world w;

		make(&w, rank);
		all += w.arrivals.n;
		for (int64_t i = 1; i < w.arrivals.n; i++) {
			const struct bench_arrival *a = &w.arrivals.list[i];

			assert_true(a[-1].slot < a->slot ||
			            a[-1].source < a->source ||
			            a[-1].token < a->token ||
			            a[-1].choice < a->choice);
			assert_int_equal(bench_owner(&w.c, a->expert), rank);
		}
		bench_make_routing(&w.c, rank, 4, ids, weights);
		for (int i = 0; i < 18; i++)
			wanted += ids[i] >= 0;
		unmake(&w);
	}
	assert_int_equal(all, wanted);
}

static void test_right_rows_pass(void **state)
{
	(void)state;
	for (int32_t rank = 0; rank < 2; rank++) {
		struct world w;

		make(&w, rank);
		assert_int_equal(wrong(&w), 0);
		unmake(&w);
	}
}

static void test_wrong_rows_are_counted(void **state)
{
	struct world w;

	(void)state;
	make(&w, 0);
	assert_true(w.arrivals.n > 2);
	w.rows[3] ^= 1;
	w.rows[79] ^= 0x8000;
	assert_int_equal(wrong(&w), 2);
	w.rows[3] ^= 1;
	w.rows[79] ^= 0x8000;
	w.counts[0]++;
	assert_int_equal(wrong(&w), 1);
	unmake(&w);
}

/* Sums of what the experts make, by a loop of its own. */
static void test_sums(void **state)
{
	static const uint16_t zero[40];
	struct bench_case c = shape;
	uint16_t out[6 * 40];
	int32_t ids[3];
	float weights[3];

	(void)state;
	c.experts = 3;
	c.topk = 1;
	c.tokens = 1;
	c.routing = BENCH_UNIFORM;
	bench_make_routing(&c, 1, 2, ids, weights);
	uint16_t row[40], y[40];

	bench_make_row(&c, 1, 2, 0, row);
	bench_expert(&c, ids[0], row, NULL, y);
	for (int i = 0; i < 40; i++) {
		const uint32_t wide = (uint32_t)y[i] << 16;
		float f;

		memcpy(&f, &wide, 4);
		f *= weights[0];
		uint32_t u;

		memcpy(&u, &f, 4);
		out[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
	}
	assert_int_equal(bench_check_sums(&c, 1, 2, out, BENCH_WHOLE), 0);
	c.combine = FERRY_REDUCED; /* one part: the same */
	assert_int_equal(bench_check_sums(&c, 1, 2, out, BENCH_WHOLE), 0);
	out[7] ^= 1;
	assert_int_equal(bench_check_sums(&c, 1, 2, out, BENCH_WHOLE), 1);
	assert_int_equal(bench_check_sums(&c, 1, 2, zero, BENCH_WHOLE), 40);
}

/* A row at the wrong expert must not give the right sum. */
static void test_experts_differ(void **state)
{
	uint16_t row[40], a[40], b[40];
	int n_same = 0;

	(void)state;
	bench_make_row(&shape, 0, 0, 0, row);
	for (int32_t e = 0; e < 64; e++) {
		bench_expert(&shape, e, row, NULL, a);
		bench_expert(&shape, e + 1, row, NULL, b);
		n_same += !memcmp(a, b, sizeof(a));
	}
	assert_true(n_same <= 1);
}

static void test_percentiles(void **state)
{
	double v[100];

	(void)state;
	for (int i = 0; i < 100; i++)
		v[(i * 37) % 100] = i + 1;
	assert_true(bench_percentile(v, 100, 0.50) == 50);
	assert_true(bench_percentile(v, 100, 0.99) == 99);
	assert_true(bench_percentile(v, 100, 1) == 100);
	assert_true(bench_percentile(v, 1, 0.99) == v[0]);
	assert_true(bench_percentile(v, 3, 0.5) == v[0] ||
	            bench_percentile(v, 3, 0.5) == v[1] ||
	            bench_percentile(v, 3, 0.5) == v[2]);
}

/* The slowest rank of each iteration counts. */
static void test_summary(void **state)
{
	/* [2 ranks][3 phases][2 iterations] */
	const uint64_t ns[] = {1000, 9000, 5000, 5000, 6000, 14000,
	                       3000, 2000, 5000, 6000, 8000, 8000};
	struct bench_result r = {0};

	(void)state;
	bench_summarize(&r, ns, 2, 2);
	assert_true(r.phase[BENCH_DISPATCH].p50_us == 3);
	assert_true(r.phase[BENCH_DISPATCH].max_us == 9);
	assert_true(r.phase[BENCH_COMBINE].p50_us == 5);
	assert_true(r.phase[BENCH_PAIR].max_us == 14);
}

static void test_merge(void **state)
{
	struct bench_result rounds[4] = {0};

	(void)state;
	for (int i = 0; i < 3; i++)
		rounds[i].phase[0] = (struct bench_figure){
			10.0 + i, 20.0 - i, 30.0 + i, 7, 5, i};
	const struct bench_result all = bench_merge(rounds, 4);

	assert_true(all.phase[0].p50_us == 11);
	assert_true(all.phase[0].p99_us == 19);
	assert_true(all.phase[0].max_us == 32);
	assert_int_equal(all.phase[0].wire_bytes, 7);
	assert_int_equal(all.phase[0].host_bytes, 5);
	assert_int_equal(all.phase[0].wrong, 3);
}

/* 2 ranks, 4 tokens, experts 0 and 1 of 4: both are rank 0's. */
static void test_bytes(void **state)
{
	struct bench_case c = {
		.n_ranks = 2,
		.tokens = 4,
		.hidden = 256,
		.topk = 2,
		.experts = 4,
		.layout = FERRY_EXPERT_PACKED,
		.routing = BENCH_ONE,
	};
	struct bench_bytes b;

	(void)state;
	bench_count_bytes(&c, &b);
	assert_int_equal(b.logical[BENCH_DISPATCH], 8 * 2 * 512);
	assert_int_equal(b.floor[BENCH_DISPATCH], 8 * 512 + 16 * 512);
	assert_int_equal(b.floor[BENCH_COMBINE], 16 * 512 + 8 * 512);
	c.layout = FERRY_TOKEN; /* each row once */
	c.combine = FERRY_REDUCED;
	bench_count_bytes(&c, &b);
	assert_int_equal(b.floor[BENCH_DISPATCH], 8 * 512 + 8 * 512);
	assert_int_equal(b.floor[BENCH_COMBINE], 8 * 512 + 8 * 512);
	c.fp8 = true; /* 256 bytes and two scales */
	bench_count_bytes(&c, &b);
	assert_int_equal(b.logical[BENCH_DISPATCH], 16 * 264);
	assert_int_equal(b.logical[BENCH_COMBINE], 16 * 512);
	assert_int_equal(b.logical[BENCH_PAIR], 16 * 776);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_owners),
		cmocka_unit_test(test_arrivals_are_in_order_and_complete),
		cmocka_unit_test(test_right_rows_pass),
		cmocka_unit_test(test_wrong_rows_are_counted),
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_experts_differ),
		cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
