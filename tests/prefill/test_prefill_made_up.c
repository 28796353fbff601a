/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up run fits itself: what tests of tables and pictures rest on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "made_up_file.h"

static int64_t sum(const int64_t *values, int32_t n)
{
	int64_t total = 0;

	for (int32_t i = 0; i < n; i++)
		total += values[i];
	return total;
}

/* Rows of a cell, counted by experts and by ranks. */
static void check_cell(int policy, int32_t step, int32_t layer)
{
	const struct prefill_shape *const shape = &made_up.shape;
	const struct prefill_run *const run = &made_up.runs[policy];
	const int64_t at = ((int64_t)step * MADE_UP_LAYERS + layer);
	const int64_t rows = (int64_t)shape->steps[step].n_tokens * shape->topk;
	int64_t fixed = 0, now = 0, most = 0;

	for (int32_t r = 0; r < shape->n_ranks; r++) {
		const struct prefill_rank_cell *const cell =
			prefill_rank_cell_at(shape, run, step, layer, r);

		fixed += cell->tokens_fixed;
		now += cell->tokens;
		most = cell->tokens > most ? cell->tokens : most;
	}
	assert_int_equal(
		sum(run->loads + at * MADE_UP_EXPERTS, MADE_UP_EXPERTS), rows);
	assert_int_equal(fixed, rows);
	assert_int_equal(now, rows);
	const double ratio = prefill_cell_at(shape, run, step, layer)->ratio;

	assert_true(ratio == (double)most * shape->n_ranks / (double)rows);
}

static void test_rows_are_counted_alike(void **state)
{
	(void)state;
	for (int p = 0; p < MADE_UP_RUNS; p++)
		for (int32_t s = 0; s < MADE_UP_STEPS; s++)
			for (int32_t l = 0; l < MADE_UP_LAYERS; l++)
				check_cell(p, s, l);
}

static void test_balance_helps(void **state)
{
	const struct prefill_cell *const off =
		prefill_cell_at(&made_up.shape, &made_up.runs[0], 1, 0);
	const struct prefill_cell *const ferry =
		prefill_cell_at(&made_up.shape, &made_up.runs[2], 1, 0);

	(void)state;
	assert_true(off->ratio == off->ratio_fixed);
	assert_true(off->ratio_fixed == ferry->ratio_fixed);
	assert_true(ferry->ratio < 0.8 * off->ratio);
	assert_true(ferry->topk_hit > 0.5 && ferry->topk_hit < 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_are_counted_alike),
		cmocka_unit_test(test_balance_helps),
	};

	return cmocka_run_group_tests(tests, made_up_set_up, made_up_tear_down);
}
