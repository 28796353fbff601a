/* SPDX-License-Identifier: Apache-2.0 */
/* See made_up_run.h. Loads are counted from drawn ids, all else from loads. */
#include "made_up_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "core/bits.h"

static const char *const texts[MADE_UP_TEXTS] = {
	"texts/c.txt", "texts/prose.txt", "texts/ja.txt"};
static const char *const names[MADE_UP_RUNS] = {"off", "eplb", "ferry"};
static const enum ferry_balance_policy policies[MADE_UP_RUNS] = {
	FERRY_BALANCE_OFF, FERRY_BALANCE_EPLB, FERRY_BALANCE_FERRY};
/* Of what a rank has too much, how many hundredths a policy leaves. */
static const int64_t left[MADE_UP_RUNS] = {100, 70, 20};
static char words[3][8] = {"prefill", "--model", "made-up"};
static char *argv[] = {words[0], words[1], words[2], NULL};

static double unit(uint64_t *state)
{
	return (double)(rng_next(state) >> 11) * 0x1p-53;
}

/* Favours low numbers, turned round by text and layer. */
static int32_t draw_expert(uint64_t *state, int32_t text, int32_t layer)
{
	const double u = unit(state);

	return ((int32_t)(u * u * MADE_UP_EXPERTS) + 11 * text + 5 * layer) %
	       MADE_UP_EXPERTS;
}

static bool is_among(const int32_t *ids, int32_t n, int32_t id)
{
	for (int32_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

/* Different ids; where there is a truth, four of five are as in it. */
static void draw_ids(uint64_t *state, int32_t text, int32_t layer,
                     const int32_t *truth, int32_t *ids)
{
	for (int32_t k = 0; k < MADE_UP_TOPK; k++) {
		ids[k] = truth && unit(state) < 0.8
		                 ? truth[k]
		                 : draw_expert(state, text, layer);
		while (is_among(ids, k, ids[k]))
			ids[k] = (ids[k] + 1) % MADE_UP_EXPERTS;
	}
}

static int32_t text_of(int32_t step)
{
	return step % MADE_UP_TEXTS;
}

static void draw_run(struct prefill_run *run, bool predicts)
{
	uint64_t state = 1;

	for (int64_t t = 0; t < MADE_UP_TOKENS; t++) {
		const int64_t step = t / (MADE_UP_BATCH * MADE_UP_LENGTH);

		for (int32_t l = 0; l < MADE_UP_LAYERS; l++) {
			const int64_t at = t * MADE_UP_LAYERS + l;
			const int64_t cell = step * MADE_UP_LAYERS + l;
			int32_t *const ids = run->topk_ids + at * MADE_UP_TOPK;
			int32_t *const seen =
				run->predicted_ids + at * MADE_UP_TOPK;

			draw_ids(&state, text_of((int32_t)step), l, NULL, ids);
			draw_ids(&state, text_of((int32_t)step), l, ids, seen);
			for (int32_t k = 0; k < MADE_UP_TOPK; k++) {
				run->loads[cell * MADE_UP_EXPERTS + ids[k]]++;
				run->predicted[cell * MADE_UP_EXPERTS +
				               seen[k]] += predicts;
				seen[k] = predicts ? seen[k] : -1;
			}
		}
	}
}

/* Share of true choices among the predicted ones of a cell. */
static double hit(const struct prefill_run *run, int32_t step, int32_t layer)
{
	const int32_t n = MADE_UP_BATCH * MADE_UP_LENGTH;
	int64_t hits = 0;

	for (int32_t t = step * n; t < (step + 1) * n; t++) {
		const int64_t at =
			((int64_t)t * MADE_UP_LAYERS + layer) * MADE_UP_TOPK;

		for (int32_t k = 0; k < MADE_UP_TOPK; k++)
			hits += is_among(run->predicted_ids + at, MADE_UP_TOPK,
			                 run->topk_ids[at + k]);
	}
	return (double)hits / (n * MADE_UP_TOPK);
}

static double ratio(const int64_t *loads, int32_t n)
{
	int64_t most = 0, sum = 0;

	for (int32_t i = 0; i < n; i++) {
		most = loads[i] > most ? loads[i] : most;
		sum += loads[i];
	}
	return sum ? (double)most * n / (double)sum : 0;
}

/* Loads of ranks as opened, and with `keep` hundredths of their excess. */
static void rank_loads(const int64_t *loads, int32_t n_ranks, int64_t keep,
                       int64_t *fixed, int64_t *now)
{
	int64_t sum = 0;

	for (int32_t r = 0; r < n_ranks; r++)
		fixed[r] = 0;
	for (int32_t e = 0; e < MADE_UP_EXPERTS; e++) {
		fixed[e * n_ranks / MADE_UP_EXPERTS] += loads[e];
		sum += loads[e];
	}
	int64_t rest = sum;

	for (int32_t r = 0; r < n_ranks; r++) {
		const int64_t mean = sum / n_ranks;

		now[r] = r < n_ranks - 1 ? mean + (fixed[r] - mean) * keep / 100
		                         : rest;
		rest -= now[r];
	}
}

/* Stages of a rank's layer, from begin_ns; returns when it ends. */
static int64_t fill_spans(struct prefill_span *spans, int64_t begin_ns,
                          int64_t tokens, bool moves)
{
	static const int64_t ns[PREFILL_N_STAGES] = {
		[PREFILL_PREDICT] = 60000,    [PREFILL_MIGRATE] = 90000,
		[PREFILL_ATTENTION] = 400000, [PREFILL_COMMIT] = 8000,
		[PREFILL_ROUTER] = 30000,     [PREFILL_DISPATCH] = 70000,
		[PREFILL_EXPERTS] = 9000,     [PREFILL_COMBINE] = 60000,
	};
	int64_t t = begin_ns;

	if (moves) {
		spans[PREFILL_PREDICT] = (struct prefill_span){
			t + 2000, t + 2000 + ns[PREFILL_PREDICT]};
		spans[PREFILL_MIGRATE] = (struct prefill_span){
			spans[PREFILL_PREDICT].end_ns,
			spans[PREFILL_PREDICT].end_ns + ns[PREFILL_MIGRATE]};
	}
	for (int s = PREFILL_ATTENTION; s < PREFILL_N_STAGES; s++) {
		const int64_t n = s == PREFILL_EXPERTS ? ns[s] * tokens : ns[s];

		if (s == PREFILL_COMMIT && !moves)
			continue;
		spans[s] = (struct prefill_span){t, t + n};
		t += n;
	}
	return t;
}

static void fill_plan(struct prefill_cell *cell, int policy, int32_t layer)
{
	cell->predicted = policy > 0;
	cell->window_ns = INT64_MAX;
	if (!cell->predicted)
		return;
	cell->hidden_cosine = 0.90 + 0.02 * layer;
	cell->logit_cosine = 0.93 + 0.01 * layer;
	cell->window_ns = 395000;
	cell->by_history = policy == 1;
	cell->n_swaps = 2;
	cell->n_copies = policy == 2;
	cell->moved_bytes = 5 * 98304;
	cell->plan_ns = 7000;
	cell->migrate_ns = 90000;
	cell->hidden_ns = 84000;
	cell->exposed_ns = 8000;
	cell->wait_ns = 3000;
}

/* A layer of a step; returns when the last rank has ended it. */
static int64_t fill_cell(const struct made_up *m, int policy, int32_t step,
                         int32_t layer, int64_t begin_ns)
{
	const struct prefill_run *const run = &m->runs[policy];
	const int32_t n = m->shape.n_ranks;
	struct prefill_cell *const cell =
		prefill_cell_at(&m->shape, run, step, layer);
	const int64_t at =
		((int64_t)step * MADE_UP_LAYERS + layer) * MADE_UP_EXPERTS;
	int64_t fixed[MADE_UP_EXPERTS], now[MADE_UP_EXPERTS], end = 0;

	fill_plan(cell, policy, layer);
	rank_loads(run->predicted + at, n, left[policy], fixed, now);
	cell->ratio_predicted_before = ratio(fixed, n);
	cell->ratio_predicted_after = ratio(now, n);
	rank_loads(run->loads + at, n, left[policy], fixed, now);
	cell->ratio_fixed = cell->ratio_stay = ratio(fixed, n);
	cell->ratio = ratio(now, n);
	cell->topk_hit = policy ? hit(run, step, layer) : 0;
	for (int32_t r = 0; r < n; r++) {
		struct prefill_rank_cell *const mine =
			prefill_rank_cell_at(&m->shape, run, step, layer, r);
		const int64_t t = fill_spans(mine->spans, begin_ns + 500 * r,
		                             now[r], policy > 0);

		mine->tokens_fixed = fixed[r];
		mine->tokens = now[r];
		end = t > end ? t : end;
	}
	return end;
}

static void fill_run(struct made_up *m, int policy)
{
	struct prefill_run *const run = &m->runs[policy];
	int64_t t = 100000;

	draw_run(run, policy > 0);
	for (int32_t s = 0; s < MADE_UP_STEPS; s++) {
		run->step_spans[s].begin_ns = t;
		for (int32_t l = 0; l < MADE_UP_LAYERS; l++)
			t = fill_cell(m, policy, s, l, t);
		t += 500000; /* the head */
		run->step_spans[s].end_ns = t;
	}
	for (int32_t i = 0; i < MADE_UP_SEQUENCES; i++)
		run->sequences[i] = (struct prefill_sequence){
			.text = text_of(i / MADE_UP_BATCH),
			.step = i / MADE_UP_BATCH,
			.n_tokens = MADE_UP_LENGTH,
			.hash = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15),
			.nll = (MADE_UP_LENGTH - 1) *
		               (3.0 + 0.5 * text_of(i / MADE_UP_BATCH)),
		};
}

static void open_run(struct made_up *m, int policy)
{
	const size_t cells = (size_t)MADE_UP_STEPS * MADE_UP_LAYERS;
	const size_t ids =
		(size_t)MADE_UP_TOKENS * MADE_UP_LAYERS * MADE_UP_TOPK;
	struct prefill_run *const run = &m->runs[policy];

	run->policy = policies[policy];
	run->name = names[policy];
	run->cells = alloc_or_exit(cells, sizeof(*run->cells));
	run->rank_cells = alloc_or_exit(cells * (size_t)m->shape.n_ranks,
	                                sizeof(*run->rank_cells));
	run->loads = alloc_or_exit(cells * MADE_UP_EXPERTS, sizeof(int64_t));
	run->predicted =
		alloc_or_exit(cells * MADE_UP_EXPERTS, sizeof(int64_t));
	run->sequences =
		alloc_or_exit(MADE_UP_SEQUENCES, sizeof(*run->sequences));
	run->step_spans =
		alloc_or_exit(MADE_UP_STEPS, sizeof(*run->step_spans));
	run->topk_ids = alloc_or_exit(ids, sizeof(int32_t));
	run->predicted_ids = alloc_or_exit(ids, sizeof(int32_t));
	run->bits_equal = true;
}

static void make_steps(struct made_up *m)
{
	for (int32_t s = 0; s < MADE_UP_STEPS; s++) {
		struct prefill_step *const step = &m->steps[s];

		snprintf(step->name, sizeof(step->name), "%s",
		         texts[text_of(s)]);
		step->text = text_of(s);
		step->warm_up = s == 0;
		step->n_sequences = MADE_UP_BATCH;
		step->n_tokens = MADE_UP_BATCH * MADE_UP_LENGTH;
		m->first_sequence[s + 1] = (s + 1) * MADE_UP_BATCH;
	}
	for (int32_t i = 0; i < MADE_UP_SEQUENCES; i++)
		m->first_token[i] = (int64_t)i * MADE_UP_LENGTH;
}

static void make_shape(struct made_up *m, int32_t n_ranks)
{
	m->model.config = (struct lm_config){
		.n_layers = MADE_UP_LAYERS,
		.hidden = 64,
		.n_heads = 4,
		.n_kv_heads = 2,
		.head_dim = 16,
		.n_experts = MADE_UP_EXPERTS,
		.topk = MADE_UP_TOPK,
		.expert_hidden = 256,
		.vocab = 300,
		.max_length = 512,
		.rope_theta = 10000,
		.norm_topk = true,
	};
	m->model.n_parameters = 6400000;
	m->model.file_bytes = 12800000;
	m->model.expert_type = LM_BF16;
	m->shape = (struct prefill_shape){
		.n_ranks = n_ranks,
		.n_layers = MADE_UP_LAYERS,
		.n_experts = MADE_UP_EXPERTS,
		.topk = MADE_UP_TOPK,
		.hidden = 64,
		.vocab = 300,
		.n_steps = MADE_UP_STEPS,
		.n_sequences = MADE_UP_SEQUENCES,
		.n_texts = MADE_UP_TEXTS,
		.batch = MADE_UP_BATCH,
		.length = MADE_UP_LENGTH,
		.replicas = 1,
		.n_tokens = MADE_UP_TOKENS,
		.expert_bytes = 98304,
		.all_logits = true,
		.model = "made-up",
		.texts = texts,
		.order = PREFILL_BY_TEXT,
		.steps = m->steps,
	};
}

void made_up_open(struct made_up *m, int32_t n_ranks)
{
	*m = (struct made_up){0};
	make_shape(m, n_ranks);
	make_steps(m);
	m->job = (struct prefill_job){
		.name = "ferry prefill",
		.model = &m->model,
		.shape = &m->shape,
		.tokens = m->tokens,
		.first_token = m->first_token,
		.first_sequence = m->first_sequence,
		.budget_ns = -1,
		.split = FERRY_SPLIT_EXACT,
		.max_copies = 1,
	};
	for (int i = 0; i < MADE_UP_RUNS; i++) {
		open_run(m, i);
		fill_run(m, i);
	}
	m->report = (struct prefill_report){
		.job = &m->job,
		.runs = m->runs,
		.n_runs = MADE_UP_RUNS,
		.checked = true,
		.bits_equal = true,
		.argc = 3,
		.argv = argv,
	};
}

void made_up_close(struct made_up *m)
{
	for (int i = 0; i < MADE_UP_RUNS; i++) {
		struct prefill_run *const run = &m->runs[i];

		free(run->cells);
		free(run->rank_cells);
		free(run->loads);
		free(run->predicted);
		free(run->sequences);
		free(run->step_spans);
		free(run->topk_ids);
		free(run->predicted_ids);
	}
}
