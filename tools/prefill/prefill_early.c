/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second thread of a rank. While the first one computes the attention of a
 * layer, it runs the layer's router on what goes into that attention, tells the
 * balancer what it foresees, and pushes the experts that then move. Both
 * threads take turns: what one fills in, the other reads after its turn.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prefill_rank.h"

#include "../alloc.h"

static void set_turn(struct prefill_early *e, enum prefill_turn turn)
{
	pthread_mutex_lock(&e->lock);
	e->turn = turn;
	pthread_cond_broadcast(&e->turned);
	pthread_mutex_unlock(&e->lock);
}

/* Early router, choice, counts of the own tokens. */
static bool foresee(struct prefill_early *e)
{
	const struct prefill_rank *r = e->rank;
	const struct lm_config *config = &r->model->config;
	struct ferry_ids ids = FERRY_IDS_INIT;
	struct fault fault = {""};

	memset(e->counts, 0, (size_t)config->n_experts * sizeof(*e->counts));
	if (!e->n_tokens)
		return true;
	lm_router(r->model, e->work, e->layer, e->h, e->n_tokens, e->x,
	          e->logits);
	if (!lm_choose(r->model, e->logits, e->n_tokens, e->ids, NULL, &fault))
		return prefill_rank_fail(r, &fault);
	ids.n_tokens = e->n_tokens;
	ids.topk = config->topk;
	ids.ids = e->ids;
	return crew_good(
		r->me, ferry_predict_counts(&ids, config->n_experts, e->counts),
		"counting");
}

/* An idle rank sets no limit to the window. */
static bool predict(const struct prefill_early *e)
{
	const struct prefill_rank *r = e->rank;
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;

	in.counts = e->foresees ? e->counts : NULL;
	if (r->windows) {
		in.n_tokens = e->n_tokens;
		in.seq_len = e->longest;
	} else {
		in.window_ns = r->job->budget_ns;
	}
	return crew_good(r->me,
	                 ferry_balancer_predict(r->balancer, e->layer, &in),
	                 "predicting");
}

static void answer(struct prefill_early *e)
{
	e->begin_ns = prefill_now(e->rank);
	e->good = (!e->foresees || foresee(e)) && predict(e);
	e->end_ns = prefill_now(e->rank);
}

static void *run(void *arg)
{
	struct prefill_early *e = arg;

	for (;;) {
		pthread_mutex_lock(&e->lock);
		while (e->turn != PREFILL_ASKED && e->turn != PREFILL_END)
			pthread_cond_wait(&e->turned, &e->lock);
		const bool end = e->turn == PREFILL_END;

		pthread_mutex_unlock(&e->lock);
		if (end)
			return NULL;
		answer(e);
		set_turn(e, PREFILL_DONE);
	}
}

static bool allocate(struct prefill_early *e)
{
	const struct prefill_rank *r = e->rank;
	const struct lm_config *config = &r->model->config;
	const size_t n = (size_t)r->setup->max_tokens;
	struct fault fault = {""};

	e->h = alloc_or_exit(n * (size_t)config->hidden, sizeof(*e->h));
	e->x = alloc_or_exit(n * (size_t)config->hidden, sizeof(*e->x));
	e->logits = alloc_or_exit(n * (size_t)config->n_experts, sizeof(*e->x));
	e->ids = alloc_or_exit(n * (size_t)config->topk, sizeof(*e->ids));
	e->counts =
		alloc_or_exit((size_t)config->n_experts, sizeof(*e->counts));
	return lm_work_open(r->model, r->setup->max_tokens,
	                    r->setup->max_length, &e->work, &fault) ||
	       prefill_rank_fail(r, &fault);
}

bool prefill_early_open(struct prefill_early *early, struct prefill_rank *rank)
{
	early->rank = rank;
	if (rank->setup->run->policy == FERRY_BALANCE_OFF)
		return true;
	early->foresees = rank->setup->run->policy &
	                  (FERRY_BALANCE_FREEBALANCE | FERRY_BALANCE_FERRY);
	if (!allocate(early))
		return false;
	pthread_mutex_init(&early->lock, NULL);
	pthread_cond_init(&early->turned, NULL);
	const int error = pthread_create(&early->thread, NULL, run, early);
	struct fault fault;

	early->started = !error;
	if (early->started)
		return true;
	fault_set(&fault, "second thread: %s", strerror(error));
	return prefill_rank_fail(rank, &fault);
}

void prefill_early_close(struct prefill_early *early)
{
	if (early->started) {
		set_turn(early, PREFILL_END);
		pthread_join(early->thread, NULL);
		pthread_cond_destroy(&early->turned);
		pthread_mutex_destroy(&early->lock);
	}
	lm_work_close(early->work);
	free(early->h);
	free(early->x);
	free(early->logits);
	free(early->ids);
	free(early->counts);
}

void prefill_early_ask(struct prefill_early *early, int32_t layer)
{
	const struct prefill_rank *r = early->rank;
	const size_t row = (size_t)r->model->config.hidden * sizeof(*r->h);

	early->layer = layer;
	early->n_tokens = r->batch.n_tokens;
	early->longest = r->batch.longest;
	/* Attention adds to its input in place. */
	if (early->foresees)
		memcpy(early->h, r->h, (size_t)early->n_tokens * row);
	set_turn(early, PREFILL_ASKED);
}

bool prefill_early_wait(struct prefill_early *early)
{
	pthread_mutex_lock(&early->lock);
	while (early->turn != PREFILL_DONE)
		pthread_cond_wait(&early->turned, &early->lock);
	early->turn = PREFILL_IDLE;
	pthread_mutex_unlock(&early->lock);
	return early->good;
}

enum { LANES = 16 };

/* Sums in lanes, which a compiler turns into vectors. */
static double cosine(const float *a, const float *b, int32_t n)
{
	float ab[LANES] = {0}, aa[LANES] = {0}, bb[LANES] = {0};
	double sums[3] = {0};
	int32_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int k = 0; k < LANES; k++) {
			ab[k] += a[i + k] * b[i + k];
			aa[k] += a[i + k] * a[i + k];
			bb[k] += b[i + k] * b[i + k];
		}
	for (int k = 0; k < LANES; k++) {
		sums[0] += ab[k];
		sums[1] += aa[k];
		sums[2] += bb[k];
	}
	for (; i < n; i++) {
		sums[0] += (double)a[i] * b[i];
		sums[1] += (double)a[i] * a[i];
		sums[2] += (double)b[i] * b[i];
	}
	const double value = sums[0] / sqrt(sums[1] * sums[2]);

	return isfinite(value) ? value : 0; /* of nothing, or past all floats */
}

static int64_t hits(const int32_t *truth, const int32_t *early, int32_t topk)
{
	int64_t n = 0;

	for (int32_t i = 0; i < topk; i++)
		for (int32_t k = 0; k < topk; k++)
			n += truth[i] == early[k];
	return n;
}

void prefill_early_judge(const struct prefill_early *early,
                         struct prefill_note *note)
{
	const struct prefill_rank *r = early->rank;
	const struct lm_config *c = &r->model->config;

	for (int64_t t = 0; t < early->n_tokens; t++) {
		note->hidden_cosine += cosine(early->x + t * c->hidden,
		                              r->x + t * c->hidden, c->hidden);
		note->logit_cosine +=
			cosine(early->logits + t * c->n_experts,
		               r->logits + t * c->n_experts, c->n_experts);
		note->n_hits += hits(r->ids + t * c->topk,
		                     early->ids + t * c->topk, c->topk);
	}
}
