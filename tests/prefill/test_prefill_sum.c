/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a run: what counts, means, worsts and sums, by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "prefill_result.h"

enum { STEPS = 4, LAYERS = 2, RANKS = 2, SEQUENCES = 5 };

static struct prefill_step steps[STEPS];
static struct prefill_cell cells[STEPS * LAYERS];
static struct prefill_rank_cell rank_cells[STEPS * LAYERS * RANKS];
static struct prefill_sequence sequences[SEQUENCES];
static struct prefill_span spans[STEPS];
static struct prefill_shape shape;
static struct prefill_run run;

/* Step 0 warms up; 1 is of text 0, 2 of text 1, 3 of both. */
static int set_up(void **state)
{
	static const int32_t texts[STEPS] = {0, 0, 1, -1};
	static const int32_t step_of[SEQUENCES] = {0, 1, 2, 3, 3};
	static const int32_t text_of[SEQUENCES] = {0, 0, 1, 0, 1};

	(void)state;
	shape = (struct prefill_shape){.n_ranks = RANKS,
	                               .n_layers = LAYERS,
	                               .n_steps = STEPS,
	                               .n_sequences = SEQUENCES,
	                               .n_texts = 2,
	                               .steps = steps};
	run = (struct prefill_run){.cells = cells,
	                           .rank_cells = rank_cells,
	                           .sequences = sequences,
	                           .step_spans = spans};
	for (int32_t s = 0; s < STEPS; s++) {
		steps[s] = (struct prefill_step){.text = texts[s],
		                                 .warm_up = s == 0};
		spans[s] = (struct prefill_span){s * 1000, s * 1000 + 500 + s};
	}
	for (int i = 0; i < STEPS * LAYERS; i++)
		cells[i] = (struct prefill_cell){.ratio_fixed = i,
		                                 .ratio_stay = 2,
		                                 .ratio = 1,
		                                 .window_ns = INT64_MAX};
	for (int i = 0; i < STEPS * LAYERS * RANKS; i++)
		rank_cells[i] = (struct prefill_rank_cell){0};
	for (int i = 0; i < SEQUENCES; i++)
		sequences[i] = (struct prefill_sequence){.text = text_of[i],
		                                         .step = step_of[i],
		                                         .n_tokens = 3 + i,
		                                         .nll = 10.0 * i};
	return 0;
}

static void test_warm_up_is_left_out(void **state)
{
	struct prefill_totals t;

	(void)state;
	prefill_sum(&shape, &run, -1, &t);
	assert_int_equal(t.n_steps, 3);
	assert_int_equal(t.n_cells, 6);
	assert_true(t.ratio_before == (2 + 3 + 4 + 5 + 6 + 7) / 6.0);
	assert_true(t.ratio_before_worst == 7);
	assert_true(t.ratio_after == 1);
	assert_true(t.ratio_after_worst == 1);
	assert_true(t.ratio_stay == 2);
	assert_int_equal(t.total_ns, 501 + 502 + 503);
	assert_int_equal(t.n_tokens, 4 + 5 + 6 + 7);
	assert_true(t.nll_mean == (10.0 + 20 + 30 + 40) / (3 + 4 + 5 + 6));
}

static void test_a_text(void **state)
{
	struct prefill_totals t;

	(void)state;
	prefill_sum(&shape, &run, 1, &t);
	assert_int_equal(t.n_steps, 1);
	assert_true(t.ratio_before == 4.5);
	assert_int_equal(t.total_ns, 502);
	/* With its sequence in the step of both. */
	assert_int_equal(t.n_tokens, 5 + 7);
	assert_true(t.nll_mean == (20.0 + 40) / (4 + 6));
}

static void test_a_layer_and_a_step(void **state)
{
	struct prefill_totals t;

	(void)state;
	prefill_sum_layer(&shape, &run, 1, &t);
	assert_int_equal(t.n_cells, 3);
	assert_true(t.ratio_before == (3 + 5 + 7) / 3.0);
	prefill_sum_step(&shape, &run, 0, &t);
	assert_int_equal(t.n_cells, 2);
	assert_true(t.ratio_before == 0.5);
	assert_int_equal(t.n_tokens, 3);
	prefill_sum_step(&shape, &run, 2, &t);
	assert_int_equal(t.n_tokens, 5);
	prefill_sum_step(&shape, &run, 3, &t);
	assert_int_equal(t.n_tokens, 6 + 7);
	assert_true(t.nll_mean == (30.0 + 40) / (5 + 6));
}

static void test_means_of_what_was_predicted(void **state)
{
	struct prefill_totals t;

	(void)state;
	prefill_sum(&shape, &run, -1, &t);
	assert_int_equal(t.n_predicted, 0);
	assert_true(t.topk_hit == 0);
	assert_int_equal(t.window_ns, -1);
	for (int i = 0; i < 4; i++) {
		cells[2 + i].predicted = true;
		cells[2 + i].topk_hit = 0.5 + i * 0.125;
		cells[2 + i].hidden_cosine = 0.75;
		cells[2 + i].logit_cosine = 0.5;
		cells[2 + i].ratio_predicted_before = 3;
		cells[2 + i].ratio_predicted_after = 1.5;
	}
	cells[2].window_ns = 1000;
	cells[3].window_ns = 4000;
	prefill_sum(&shape, &run, -1, &t);
	assert_int_equal(t.n_predicted, 4);
	assert_true(t.topk_hit == 0.6875);
	assert_true(t.hidden_cosine == 0.75);
	assert_true(t.logit_cosine == 0.5);
	assert_true(t.ratio_predicted_before == 3);
	assert_true(t.ratio_predicted_after == 1.5);
	assert_int_equal(t.window_ns, 2500);
}

static void test_moves(void **state)
{
	struct prefill_totals t;

	(void)state;
	cells[2].n_swaps = 2; /* improves */
	cells[2].migrate_ns = 100;
	cells[2].hidden_ns = 70;
	cells[2].exposed_ns = 30;
	cells[3].n_copies = 1;
	cells[3].ratio = 2; /* does not */
	cells[3].migrate_ns = 10;
	cells[3].hidden_ns = 2;
	cells[3].exposed_ns = 50;
	cells[4].moved_bytes = 7; /* history's */
	cells[4].plan_ns = 5;
	cells[4].wait_ns = 6;
	prefill_sum(&shape, &run, -1, &t);
	assert_int_equal(t.n_moved, 3);
	assert_int_equal(t.n_improved, 2);
	assert_true(t.moves_mean == 0.5);
	assert_int_equal(t.moved_bytes, 7);
	assert_int_equal(t.migrate_ns, 110);
	assert_int_equal(t.exposed_ns, 80);
	/* However long tokens waited. */
	assert_int_equal(t.hidden_ns, 72);
	assert_int_equal(t.plan_ns, 5);
	assert_int_equal(t.wait_ns, 6);
}

static void test_the_longest_rank_of_a_stage(void **state)
{
	struct prefill_totals t;

	(void)state;
	for (int32_t l = 0; l < LAYERS; l++)
		for (int32_t r = 0; r < RANKS; r++)
			prefill_rank_cell_at(&shape, &run, 2, l, r)
				->spans[PREFILL_EXPERTS] =
				(struct prefill_span){100, 110 + 5 * r + l};
	prefill_sum(&shape, &run, -1, &t);
	assert_int_equal(t.stage_ns[PREFILL_EXPERTS], 15 + 16);
	assert_int_equal(t.stage_ns[PREFILL_ATTENTION], 0);
}

/* Steps of 10 and 30 against ones of 10 and 20: 4/3, and the steps are 10/3
 * under and over that. */
static void test_times_of_two_runs(void **state)
{
	struct prefill_span now[STEPS] = {{0, 0}}, was[STEPS] = {{0, 0}};
	struct prefill_run other = run, this = run;

	(void)state;
	steps[3].warm_up = true;
	this.step_spans = now;
	other.step_spans = was;
	now[1] = (struct prefill_span){100, 110};
	was[1] = (struct prefill_span){0, 10};
	now[2] = (struct prefill_span){110, 140};
	was[2] = (struct prefill_span){10, 30};
	const struct prefill_change change =
		prefill_compare_times(&shape, &this, &other, -1);

	assert_true(change.known);
	assert_true(fabs(change.share - 1.0 / 3) < 1e-12);
	assert_true(fabs(change.error - 20.0 / 90) < 1e-12);
	/* A text of one step. */
	assert_false(prefill_compare_times(&shape, &this, &other, 1).known);
}

static void test_nothing_counted(void **state)
{
	struct prefill_totals t;

	(void)state;
	prefill_sum(&shape, &run, 5, &t);
	assert_int_equal(t.n_steps, 0);
	assert_true(t.ratio_before == 0);
	assert_true(t.nll_mean == 0);
	assert_int_equal(t.window_ns, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_warm_up_is_left_out, set_up),
		cmocka_unit_test_setup(test_a_text, set_up),
		cmocka_unit_test_setup(test_a_layer_and_a_step, set_up),
		cmocka_unit_test_setup(test_means_of_what_was_predicted,
	                               set_up),
		cmocka_unit_test_setup(test_moves, set_up),
		cmocka_unit_test_setup(test_the_longest_rank_of_a_stage,
	                               set_up),
		cmocka_unit_test_setup(test_times_of_two_runs, set_up),
		cmocka_unit_test_setup(test_nothing_counted, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
