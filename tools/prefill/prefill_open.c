/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a rank, and the objects of the library that it holds. */
#include <stdio.h>
#include <stdlib.h>

#include "core/bits.h"
#include "prefill_rank.h"

#include "../alloc.h"
#include "../opt.h"

static bool open_memory(struct prefill_rank *r)
{
	const struct lm_config *config = &r->model->config;
	const size_t n = (size_t)r->setup->max_tokens;
	const size_t n_sequences = (size_t)r->job->shape->n_sequences;
	const size_t topk = (size_t)config->topk;
	const size_t n_layers = (size_t)config->n_layers;
	const size_t n_ranks = (size_t)r->job->shape->n_ranks;
	struct fault fault = {""};

	r->h = alloc_or_exit(n * (size_t)config->hidden, sizeof(*r->h));
	r->x = alloc_or_exit(n * (size_t)config->hidden, sizeof(*r->x));
	r->logits = alloc_or_exit(n * (size_t)config->n_experts,
	                          sizeof(*r->logits));
	r->ids = alloc_or_exit(n * topk, sizeof(*r->ids));
	r->slots = alloc_or_exit(n * topk, sizeof(*r->slots));
	r->weights = alloc_or_exit(n * topk, sizeof(*r->weights));
	r->came = alloc_or_exit(n_layers, sizeof(*r->came));
	r->came_to = alloc_or_exit(n_layers * n_ranks, sizeof(*r->came_to));
	r->moved = alloc_or_exit(n_layers, sizeof(*r->moved));
	r->even = alloc_or_exit(n_layers, sizeof(*r->even));
	r->batch.lengths =
		alloc_or_exit(n_sequences, sizeof(*r->batch.lengths));
	r->batch.sequences =
		alloc_or_exit(n_sequences, sizeof(*r->batch.sequences));
	r->batch.tokens = alloc_or_exit(n, sizeof(*r->batch.tokens));
	if (!lm_work_open(r->model, r->setup->max_tokens, r->setup->max_length,
	                  &r->work, &fault))
		return prefill_rank_fail(r, &fault);
	prefill_logits_open(&r->head, r->job, r->work);
	return true;
}

static bool open_placements(struct prefill_rank *r)
{
	const int32_t n_layers = r->model->config.n_layers;
	const int32_t *slots = r->setup->first;

	r->first = alloc_or_exit((size_t)n_layers, sizeof(*r->first));
	for (int32_t l = 0; l < n_layers; l++) {
		if (!crew_good(r->me,
		               prefill_placement(r->setup, slots, NULL,
		                                 &r->first[l]),
		               "placing experts"))
			return false;
		slots += r->setup->n_slots;
	}
	return true;
}

/* Room for all that may arrive: not zeroed, so that only what does is used. */
static float *rows_of(const struct ferry_moe_need *need)
{
	float *rows = malloc((size_t)need->recv_rows * need->row_bytes);

	if (rows)
		return rows;
	fprintf(stderr, "ferry: no memory for %lld rows of %zu bytes\n",
	        (long long)need->recv_rows, need->row_bytes);
	exit(EXIT_FAILED);
}

static bool open_channel(struct prefill_rank *r)
{
	const struct prefill_shape *shape = r->job->shape;
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	config.n_ranks = shape->n_ranks;
	config.max_tokens = r->setup->max_tokens;
	config.hidden = r->model->config.hidden;
	config.topk = shape->topk;
	config.n_experts = shape->n_experts;
	config.expert_slots = r->setup->slots_of_rank;
	config.dtype = FERRY_FP32;
	config.combine_dtype = FERRY_FP32;
	config.layout = FERRY_EXPERT_PACKED;
	if (!crew_good(r->me, ferry_moe_query(&config, &need), "asking") ||
	    !crew_good(r->me, ferry_moe_open(r->world, &config, &r->moe),
	               "opening a channel"))
		return false;
	r->rows = rows_of(&need);
	r->y = rows_of(&need);
	r->counts = alloc_or_exit((size_t)need.max_expert_slots,
	                          sizeof(*r->counts));
	r->offsets = alloc_or_exit((size_t)need.max_expert_slots + 1,
	                           sizeof(*r->offsets));
	return true;
}

static bool open_splitter(struct prefill_rank *r)
{
	const struct prefill_shape *shape = r->job->shape;
	struct ferry_splitter_config config = FERRY_SPLITTER_CONFIG_INIT;

	if (r->setup->split != FERRY_SPLIT_EXACT)
		return true;
	config.max_tokens = r->setup->max_tokens;
	config.topk = shape->topk;
	config.max_experts = shape->n_experts;
	config.max_expert_slots = r->setup->n_slots;
	return crew_good(r->me,
	                 ferry_splitter_open(r->world, &config, &r->splitter),
	                 "opening a splitter");
}

/* Every step may have a shape of its own. */
static bool open_windows(struct prefill_rank *r)
{
	struct ferry_windows_config config = FERRY_WINDOWS_CONFIG_INIT;

	if (r->job->budget_ns >= 0)
		return true;
	config.n_layers = r->model->config.n_layers;
	config.max_shapes = r->job->shape->n_steps;
	return crew_good(r->me, ferry_windows_create(&config, &r->windows),
	                 "opening windows");
}

static bool open_balancer(struct prefill_rank *r)
{
	const struct prefill_job *job = r->job;
	struct ferry_balancer_config config = FERRY_BALANCER_CONFIG_INIT;

	config.experts = r->experts;
	config.policy = r->setup->run->policy;
	if (config.policy & FERRY_BALANCE_FREEBALANCE)
		config.gamma_milli = job->gamma_milli;
	config.max_swaps = job->max_swaps;
	config.max_copies = job->max_copies;
	config.threshold_ppm = job->threshold_ppm;
	config.recheck_steps = job->recheck_steps;
	config.windows = r->windows;
	/* What is copied beyond the plan repairs what was foreseen wrongly. */
	config.spare_copies = r->setup->split == FERRY_SPLIT_EXACT;
	config.eplb_every = job->eplb_every;
	config.calibrate = job->calibrate;
	config.margin_ppm = job->margin_ppm;
	return crew_good(r->me,
	                 ferry_balancer_open(r->world, &config, &r->balancer),
	                 "opening a balancer");
}

bool prefill_rank_open(struct prefill_rank *rank)
{
	if (!crew_open(rank->me, 0, &rank->world) || !open_memory(rank) ||
	    !open_placements(rank) || !open_channel(rank) ||
	    !open_splitter(rank))
		return false;
	if (rank->setup->run->policy == FERRY_BALANCE_OFF)
		return true;
	return prefill_experts_open(rank) && open_windows(rank) &&
	       open_balancer(rank) && prefill_early_open(&rank->early, rank);
}

static void free_placements(struct prefill_rank *r)
{
	for (int32_t l = 0; r->first && l < r->model->config.n_layers; l++)
		ferry_placement_destroy(r->first[l]);
	free(r->first);
}

void prefill_rank_close(struct prefill_rank *rank)
{
	prefill_early_close(&rank->early);
	ferry_moe_close(rank->moe);
	ferry_balancer_close(rank->balancer);
	ferry_windows_destroy(rank->windows);
	ferry_experts_close(rank->experts);
	ferry_splitter_close(rank->splitter);
	free_placements(rank);
	ferry_world_close(rank->world);
	prefill_logits_close(&rank->head);
	lm_work_close(rank->work);
	free(rank->came);
	free(rank->came_to);
	free(rank->moved);
	free(rank->even);
	free(rank->batch.lengths);
	free(rank->batch.sequences);
	free(rank->batch.tokens);
	free(rank->h);
	free(rank->x);
	free(rank->logits);
	free(rank->ids);
	free(rank->slots);
	free(rank->weights);
	free(rank->rows);
	free(rank->y);
	free(rank->counts);
	free(rank->offsets);
}
