/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny models, random sequences, runs. */
#include "prefill_lab.h"

#include <stdlib.h>

#include "../cli/cli_cmocka.h"
#include "alloc.h"
#include "core/bits.h"

uint64_t lab_seed;

int32_t lab_draw(int32_t n)
{
	return (int32_t)(rng_next(&lab_seed) % (uint64_t)n);
}

static const char *const lab_texts[] = {"drawn.txt"};

static void describe(struct lab *lab, const struct lab_input *input)
{
	const struct lm_config *c = &lab->model.config;

	lab->shape = (struct prefill_shape){
		.n_ranks = 1,
		.n_layers = c->n_layers,
		.n_experts = c->n_experts,
		.topk = c->topk,
		.hidden = c->hidden,
		.vocab = c->vocab,
		.n_steps = input->n_steps,
		.n_sequences = input->n_steps * input->batch,
		.n_texts = 1,
		.batch = input->batch,
		.length = input->length,
		.model = lab->directory,
		.texts = lab_texts,
		.all_logits = !input->last,
	};
	lab->job = (struct prefill_job){
		.name = "test",
		.model = &lab->model,
		.shape = &lab->shape,
		.budget_ns = INT64_MAX,
		.timeout_ms = 20000,
		.eplb_every = 2,
	};
}

static void draw_tokens(struct lab *lab, const struct lab_input *input)
{
	const int32_t n = lab->shape.n_sequences;
	const size_t most = (size_t)n * (size_t)input->length;
	int64_t at = 0;

	lab->tokens = alloc_or_exit(most, sizeof(*lab->tokens));
	lab->first_token = alloc_or_exit((size_t)n, sizeof(*lab->first_token));
	lab->first_sequence = alloc_or_exit((size_t)input->n_steps + 1,
	                                    sizeof(*lab->first_sequence));
	lab->shape.steps = alloc_or_exit((size_t)input->n_steps,
	                                 sizeof(*lab->shape.steps));
	for (int32_t s = 0; s < n; s++) {
		struct prefill_step *step = &lab->shape.steps[s / input->batch];
		const int32_t length = 1 + lab_draw(input->length);

		lab->first_token[s] = at;
		step->n_tokens += length;
		step->n_sequences++;
		for (int32_t i = 0; i < length; i++)
			lab->tokens[at++] = lab_draw(lab->shape.vocab);
	}
	for (int32_t i = 0; i <= input->n_steps; i++)
		lab->first_sequence[i] = i * input->batch;
	lab->shape.n_tokens = at;
	lab->job.tokens = lab->tokens;
	lab->job.first_token = lab->first_token;
	lab->job.first_sequence = lab->first_sequence;
}

void lab_open(struct lab *lab, const struct tiny_shape *tiny,
              const struct lab_input *input)
{
	struct fault fault = {""};

	lab->directory = tiny_model_make(tiny);
	if (!lm_model_open(lab->directory, &lab->model, &fault))
		fail_msg("%s", fault.text);
	describe(lab, input);
	draw_tokens(lab, input);
	prefill_run_open(&lab->shape, true, &lab->truth);
	if (!prefill_run_alone(&lab->job, &lab->truth, &fault))
		fail_msg("%s", fault.text);
}

void lab_close(struct lab *lab)
{
	lab->shape.n_ranks = 1; /* as the truth was opened */
	prefill_run_close(&lab->shape, &lab->truth);
	lm_model_close(&lab->model);
	tiny_model_remove(lab->directory);
	free(lab->tokens);
	free(lab->first_token);
	free(lab->first_sequence);
	free(lab->shape.steps);
}

int lab_try(struct lab *lab, const struct lab_run *how, struct prefill_run *run)
{
	lab->shape.n_ranks = how->n_ranks;
	lab->shape.replicas = how->replicas;
	lab->job.split = how->split;
	lab->job.start = how->start;
	lab->job.threads = how->threads;
	*run = (struct prefill_run){.policy = how->policy, .name = "test"};
	prefill_run_open(&lab->shape, true, run);
	return prefill_run_ranks(&lab->job, run);
}

static void compare(const struct lab *lab, struct prefill_run *run)
{
	const struct prefill_shape *s = &lab->shape;
	const size_t n_loads =
		(size_t)s->n_steps * (size_t)s->n_layers * (size_t)s->n_experts;
	const size_t n_ids =
		(size_t)s->n_tokens * (size_t)s->n_layers * (size_t)s->topk;

	prefill_compare(s, &lab->truth, run);
	assert_int_equal(run->n_differ, 0);
	assert_true(run->bits_equal);
	assert_memory_equal(run->loads, lab->truth.loads,
	                    n_loads * sizeof(*run->loads));
	assert_memory_equal(run->topk_ids, lab->truth.topk_ids,
	                    n_ids * sizeof(*run->topk_ids));
	for (int32_t i = 0; i < s->n_sequences; i++) {
		assert_true(run->sequences[i].nll ==
		            lab->truth.sequences[i].nll);
		assert_int_equal(run->sequences[i].step,
		                 lab->truth.sequences[i].step);
		assert_int_equal(run->sequences[i].n_tokens,
		                 lab->truth.sequences[i].n_tokens);
	}
}

void lab_run(struct lab *lab, const struct lab_run *how,
             struct prefill_run *run)
{
	if (lab_try(lab, how, run))
		fail_msg("policy %d, %d ranks, %d replicas, split %d",
		         how->policy, how->n_ranks, how->replicas, how->split);
	compare(lab, run);
}

void lab_check(struct lab *lab, const struct lab_run *how)
{
	struct prefill_run run;

	lab_run(lab, how, &run);
	prefill_run_close(&lab->shape, &run);
}
