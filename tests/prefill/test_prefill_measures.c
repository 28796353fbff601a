/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run says of itself, counted once more from the ids that it recorded,
 * and from the stages of a layer.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../cli/cli_cmocka.h"
#include "../support/test_seed.h"
#include "alloc.h"
#include "prefill_lab.h"

enum { RANKS = 3, EXPERTS = 10 };

static const struct lab_input input = {4, 4, 30, false};

static void open_lab(struct lab *lab)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;

	tiny.n_experts = EXPERTS;
	tiny.topk = 3;
	tiny.n_layers = 3;
	lab_open(lab, &tiny, &input);
}

/* Counts of a layer in a step, of ids [n_tokens][n_layers][topk]. */
static void recount(const struct lab *lab, const int32_t *ids, int32_t step,
                    int32_t layer, int64_t counts[EXPERTS])
{
	const struct prefill_shape *s = &lab->shape;
	const int32_t *first = lab->first_sequence + step;
	const int64_t end = first[1] < s->n_sequences
	                            ? lab->first_token[first[1]]
	                            : s->n_tokens;

	memset(counts, 0, EXPERTS * sizeof(*counts));
	for (int64_t t = lab->first_token[*first]; t < end; t++)
		for (int32_t k = 0; k < s->topk; k++) {
			const int32_t e =
				ids[(t * s->n_layers + layer) * s->topk + k];

			if (e >= 0)
				counts[e]++;
		}
}

static void check_loads(const struct lab *lab, const struct prefill_run *run,
                        int32_t step, int32_t layer)
{
	const int64_t at =
		((int64_t)step * lab->shape.n_layers + layer) * EXPERTS;
	int64_t counts[EXPERTS];

	recount(lab, run->topk_ids, step, layer, counts);
	assert_memory_equal(run->loads + at, counts, sizeof(counts));
	recount(lab, run->predicted_ids, step, layer, counts);
	assert_memory_equal(run->predicted + at, counts, sizeof(counts));
}

/* Max/mean of ranks that have 4, 3 and 3 of the experts, in order. */
static double even_ratio(const int64_t counts[EXPERTS], int64_t ranks[RANKS])
{
	static const int32_t owner[EXPERTS] = {0, 0, 0, 0, 1, 1, 1, 2, 2, 2};
	int64_t most = 0, total = 0;

	memset(ranks, 0, RANKS * sizeof(*ranks));
	for (int32_t e = 0; e < EXPERTS; e++) {
		ranks[owner[e]] += counts[e];
		total += counts[e];
	}
	for (int32_t r = 0; r < RANKS; r++)
		most = ranks[r] > most ? ranks[r] : most;
	return (double)most * RANKS / (double)total;
}

static void check_ratios(const struct lab *lab, const struct prefill_run *run,
                         int32_t step, int32_t layer)
{
	const struct prefill_shape *s = &lab->shape;
	const struct prefill_cell *cell = prefill_cell_at(s, run, step, layer);
	int64_t counts[EXPERTS], ranks[RANKS], most = 0, total = 0;

	recount(lab, run->topk_ids, step, layer, counts);
	assert_true(fabs(cell->ratio_fixed - even_ratio(counts, ranks)) <
	            1e-12);
	for (int32_t r = 0; r < RANKS; r++) {
		const struct prefill_rank_cell *of =
			prefill_rank_cell_at(s, run, step, layer, r);

		assert_int_equal(of->tokens_fixed, ranks[r]);
		most = of->tokens > most ? of->tokens : most;
		total += of->tokens;
	}
	assert_int_equal(total, s->steps[step].n_tokens * s->topk);
	assert_true(fabs(cell->ratio - (double)most * RANKS / (double)total) <
	            1e-12);
	if (!step)
		assert_true(cell->ratio_stay == cell->ratio_fixed);
}

/* Predicted loads under the placement as opened are those of step 0. */
static void check_predicted(const struct lab *lab,
                            const struct prefill_run *run, int32_t layer)
{
	const struct prefill_cell *cell =
		prefill_cell_at(&lab->shape, run, 0, layer);
	int64_t counts[EXPERTS], ranks[RANKS];

	if (!cell->predicted)
		return;
	recount(lab, run->predicted_ids, 0, layer, counts);
	assert_true(fabs(cell->ratio_predicted_before -
	                 even_ratio(counts, ranks)) < 2e-6);
}

static bool has(const int32_t *ids, int32_t n, int32_t id)
{
	for (int32_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static void check_hits(const struct lab *lab, const struct prefill_run *run,
                       int32_t step, int32_t layer)
{
	const struct prefill_shape *s = &lab->shape;
	const struct prefill_cell *cell = prefill_cell_at(s, run, step, layer);
	const int64_t first = lab->first_token[lab->first_sequence[step]];
	const int32_t n = s->steps[step].n_tokens;
	double hits = 0;

	for (int64_t t = first; t < first + n; t++) {
		const int64_t at = (t * s->n_layers + layer) * s->topk;

		for (int32_t k = 0; k < s->topk; k++)
			hits += has(run->predicted_ids + at, s->topk,
			            run->topk_ids[at + k]);
	}
	assert_true(fabs(cell->topk_hit - hits / n / s->topk) < 1e-12);
	assert_true(cell->predicted || (hits == 0 && cell->logit_cosine == 0));
}

/*
 * Did anything move? Then bytes did, though not those of an expert that a copy
 * has brought to its new rank already; and else nothing was gained or lost.
 */
static bool check_moves(const struct lab *lab, const struct prefill_run *run,
                        int32_t step, int32_t layer)
{
	const struct prefill_cell *cell =
		prefill_cell_at(&lab->shape, run, step, layer);
	const int64_t of_expert = 3 * lm_expert_bytes(&lab->model, LM_GATE);
	const int64_t n = 2 * cell->n_swaps + cell->n_copies;
	const bool moved = n > 0;

	if (!cell->by_history)
		assert_true(cell->moved_bytes <= n * of_expert);
	if (!cell->by_history && !lab->shape.replicas)
		assert_int_equal(cell->moved_bytes, n * of_expert);
	assert_true(cell->migrate_ns > 0 || !cell->moved_bytes);
	assert_in_range(cell->hidden_ns, 0, cell->migrate_ns);
	assert_true(cell->exposed_ns >= cell->wait_ns && cell->wait_ns >= 0);
	if (!moved && !cell->by_history && !lab->shape.replicas)
		assert_true(cell->ratio == cell->ratio_stay);
	return moved;
}

static void check_spans(const struct lab *lab, const struct prefill_run *run,
                        int32_t step, int32_t layer)
{
	const struct prefill_span *whole = &run->step_spans[step];

	for (int32_t r = 0; r < RANKS; r++) {
		const struct prefill_rank_cell *cell =
			prefill_rank_cell_at(&lab->shape, run, step, layer, r);
		int64_t before = whole->begin_ns;

		for (int32_t i = 0; i < PREFILL_N_STAGES; i++) {
			const struct prefill_span *s = &cell->spans[i];

			assert_true(s->begin_ns <= s->end_ns);
			if (i < PREFILL_ATTENTION || !s->end_ns)
				continue;
			assert_true(before <= s->begin_ns);
			before = s->end_ns;
		}
		assert_true(before <= whole->end_ns);
	}
}

/* All that is said of all layers and steps; how many have moved. */
static int32_t check_all(const struct lab *lab, const struct prefill_run *run)
{
	int32_t n_moved = 0;

	for (int32_t s = 0; s < lab->shape.n_steps; s++)
		for (int32_t l = 0; l < lab->shape.n_layers; l++) {
			check_loads(lab, run, s, l);
			check_ratios(lab, run, s, l);
			check_hits(lab, run, s, l);
			check_spans(lab, run, s, l);
			n_moved += check_moves(lab, run, s, l);
		}
	for (int32_t l = 0; l < lab->shape.n_layers; l++)
		check_predicted(lab, run, l);
	return n_moved;
}

static void test_policies(void **state)
{
	struct lab lab;
	struct prefill_run run;

	(void)state;
	open_lab(&lab);
	for (int32_t i = 0; i < 3 * (FERRY_BALANCE_EPLB_FERRY + 1); i++) {
		const enum ferry_balance_policy policy =
			(enum ferry_balance_policy)(i / 3);
		const bool plans = policy & (FERRY_BALANCE_FREEBALANCE |
		                             FERRY_BALANCE_FERRY);

		lab_run(&lab,
		        &(struct lab_run){policy, RANKS, i % 3,
		                          FERRY_SPLIT_EXACT, PREFILL_START_EVEN,
		                          i % 2},
		        &run);
		const int32_t n_moved = check_all(&lab, &run);

		assert_true(plans ? n_moved > 0 : n_moved == 0);
		prefill_run_close(&lab.shape, &run);
	}
	lab_close(&lab);
}

/* Bytes of one rank without sum of all: history moves some, too. */
static void test_history(void **state)
{
	struct lab lab;
	struct prefill_run run;
	int32_t n = 0;

	(void)state;
	open_lab(&lab);
	lab_run(&lab,
	        &(struct lab_run){FERRY_BALANCE_EPLB, RANKS, 1,
	                          FERRY_SPLIT_EVEN, PREFILL_START_HOT, true},
	        &run);
	for (int32_t i = 0; i < lab.shape.n_steps * lab.shape.n_layers; i++) {
		n += run.cells[i].by_history;
		assert_true(!run.cells[i].predicted);
		assert_int_equal(run.cells[i].by_history,
		                 run.cells[i].moved_bytes > 0);
	}
	assert_true(n >= lab.shape.n_layers);
	prefill_run_close(&lab.shape, &run);
	lab_close(&lab);
}

/* The fullest experts of the first step are on rank 0, then on rank 1. */
static void test_hot_start(void **state)
{
	struct lab lab;
	struct prefill_run run;

	(void)state;
	open_lab(&lab);
	lab_run(&lab,
	        &(struct lab_run){FERRY_BALANCE_OFF, RANKS, 0, FERRY_SPLIT_EVEN,
	                          PREFILL_START_HOT, true},
	        &run);
	for (int32_t l = 0; l < lab.shape.n_layers; l++) {
		const struct prefill_rank_cell *cell =
			prefill_rank_cell_at(&lab.shape, &run, 0, l, 0);

		assert_true(cell[0].tokens >= cell[1].tokens);
		assert_true(cell[1].tokens >= cell[2].tokens);
		assert_true(prefill_cell_at(&lab.shape, &run, 0, l)->ratio >
		            1.2);
	}
	prefill_run_close(&lab.shape, &run);
	lab_close(&lab);
}

static double cosine(const float *a, const float *b, int32_t n)
{
	double ab = 0, aa = 0, bb = 0;

	for (int32_t i = 0; i < n; i++) {
		ab += (double)a[i] * b[i];
		aa += (double)a[i] * a[i];
		bb += (double)b[i] * b[i];
	}
	return ab / sqrt(aa * bb);
}

/* Cosines of the first layer of the first step, from its stages. */
static void expect_cosines(const struct lab *lab, double *hidden, double *logit)
{
	const struct lm_config *c = &lab->model.config;
	const int32_t n = lab->shape.steps[0].n_tokens;
	const size_t rows = (size_t)n * (size_t)c->hidden;
	float *h = alloc_or_exit(3 * rows, sizeof(*h));
	float *g = alloc_or_exit(2 * (size_t)n * EXPERTS, sizeof(*g));
	int32_t lengths[4]; /* input.batch */
	struct lm_batch batch = {lab->first_sequence[1], lengths, lab->tokens};
	struct lm_work *work;

	for (int32_t s = 0; s < batch.n_sequences; s++)
		lengths[s] = (int32_t)(lab->first_token[s + 1] -
		                       lab->first_token[s]);
	assert_true(lm_work_open(&lab->model, n, lab->shape.length, &work,
	                         &(struct fault){""}));
	lm_embed(&lab->model, &batch, h);
	lm_router(&lab->model, work, 0, h, n, h + rows, g);
	lm_attention(&lab->model, work, 0, &batch, h);
	lm_router(&lab->model, work, 0, h, n, h + 2 * rows, g + n * EXPERTS);
	*hidden = *logit = 0;
	for (int32_t t = 0; t < n; t++) {
		const float *x = h + rows + (size_t)t * (size_t)c->hidden;

		*hidden += cosine(x, x + rows, c->hidden) / n;
		*logit += cosine(g + t * EXPERTS, g + (n + t) * EXPERTS,
		                 EXPERTS) /
		          n;
	}
	lm_work_close(work);
	free(h);
	free(g);
}

static void test_cosines(void **state)
{
	struct lab lab;
	struct prefill_run run;
	double hidden, logit;

	(void)state;
	open_lab(&lab);
	expect_cosines(&lab, &hidden, &logit);
	lab_run(&lab,
	        &(struct lab_run){FERRY_BALANCE_FERRY, RANKS, 0,
	                          FERRY_SPLIT_EVEN, PREFILL_START_EVEN, false},
	        &run);
	assert_true(fabs(run.cells[0].hidden_cosine - hidden) < 1e-5);
	assert_true(fabs(run.cells[0].logit_cosine - logit) < 1e-5);
	prefill_run_close(&lab.shape, &run);
	lab_close(&lab);
}

/*
 * A window that is measured is 0 for the first layer of all, and known after
 * the first layer of a shape. One of 0 lets nothing move. One that is given is
 * what all cells say.
 */
static void test_windows(void **state)
{
	const struct lab_run how = {
		FERRY_BALANCE_FERRY, RANKS, 1, FERRY_SPLIT_QUOTA,
		PREFILL_START_HOT,   true};
	static const int64_t budgets[] = {-1, 0, 12345, INT64_MAX};
	struct lab lab;
	struct prefill_run run;

	(void)state;
	open_lab(&lab);
	for (int32_t i = 0; i < 4; i++) {
		lab.job.budget_ns = budgets[i];
		lab_run(&lab, &how, &run);
		for (int32_t c = 0; c < lab.shape.n_steps * lab.shape.n_layers;
		     c++) {
			assert_true(run.cells[c].predicted);
			if (i)
				assert_int_equal(run.cells[c].window_ns,
				                 budgets[i]);
			else if (c % lab.shape.n_layers || !c)
				assert_true((run.cells[c].window_ns > 0) ==
				            (c > 0));
			if (!run.cells[c].window_ns)
				assert_int_equal(run.cells[c].moved_bytes, 0);
		}
		prefill_run_close(&lab.shape, &run);
	}
	lab_close(&lab);
}

/* What was even without a move is not predicted in the next step. */
static void test_even(void **state)
{
	const struct lab_run how = {
		FERRY_BALANCE_FERRY, RANKS, 0, FERRY_SPLIT_EVEN,
		PREFILL_START_HOT,   true};
	struct prefill_run run;
	struct lab lab;

	(void)state;
	open_lab(&lab);
	lab.job.threshold_ppm = 1000000 * RANKS + 1; /* all are */
	lab_run(&lab, &how, &run);
	for (int32_t c = 0; c < lab.shape.n_steps * lab.shape.n_layers; c++) {
		assert_int_equal(run.cells[c].predicted,
		                 c < lab.shape.n_layers);
		assert_int_equal(run.cells[c].moved_bytes, 0);
	}
	prefill_run_close(&lab.shape, &run);
	lab_close(&lab);
}

/* Other logits, other hashes; the same ones, the same. */
static void test_compare(void **state)
{
	struct lab lab;
	struct prefill_run run;

	(void)state;
	open_lab(&lab);
	lab_run(&lab,
	        &(struct lab_run){FERRY_BALANCE_OFF, 2, 0, FERRY_SPLIT_EVEN,
	                          PREFILL_START_EVEN, true},
	        &run);
	run.sequences[2].hash ^= 1;
	prefill_compare(&lab.shape, &lab.truth, &run);
	assert_int_equal(run.n_differ, 1);
	assert_false(run.bits_equal);
	assert_true(prefill_hash(0, (const float[]){0.0f}, 1) !=
	            prefill_hash(0, (const float[]){-0.0f}, 1));
	assert_true(prefill_hash(prefill_hash(0, (const float[]){1}, 1),
	                         (const float[]){2}, 1) ==
	            prefill_hash(0, (const float[]){1, 2}, 2));
	prefill_run_close(&lab.shape, &run);
	lab_close(&lab);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policies),
		cmocka_unit_test(test_history),
		cmocka_unit_test(test_hot_start),
		cmocka_unit_test(test_cosines),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_compare),
	};

	lab_seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
