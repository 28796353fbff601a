/* SPDX-License-Identifier: Apache-2.0 */
/* The model of balancer_lab.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "balancer_lab.h"
#include "core/bits.h"
#include "migrate/balancer_inner.h"

uint64_t bal_seed;

/* What an expert does to a number: by its first and its last weight. */
static float weigh(unsigned char first, unsigned char last, float x)
{
	return fmaf((float)first - 100.5f, x, (float)last * 0x1p-8f);
}

static float want_of(const struct bal *m, int32_t layer, int32_t expert,
                     float x)
{
	const size_t last = m->lab.shape.tensor_bytes[1] - 1;

	return weigh(lab_byte(&m->lab, layer, expert, 0, 0),
	             lab_byte(&m->lab, layer, expert, 1, last), x);
}

/* Of all ranks: loads lean towards others with each turn. */
static void make_ids(int32_t of_rank, int32_t turn,
                     int32_t ids[BAL_TOKENS][BAL_TOPK])
{
	uint64_t rng = hash_u64(bal_seed, (uint64_t)(turn * 64 + of_rank));

	for (int i = 0; i < BAL_TOKENS * BAL_TOPK; i++) {
		const uint64_t a = rng_next(&rng) % BAL_EXPERTS;
		const uint64_t b = rng_next(&rng) % BAL_EXPERTS;
		const uint64_t low = a < b ? a : b;

		ids[i / BAL_TOPK][i % BAL_TOPK] =
			rng_next(&rng) % 12 == 0
				? -1
				: (int32_t)((low + (uint64_t)turn / 5) %
		                            BAL_EXPERTS);
	}
}

/* A router that always errs alike. */
static void bias(int32_t counts[BAL_EXPERTS])
{
	for (int e = 0; e < BAL_EXPERTS; e += 2) {
		const int32_t n = counts[e] * 3 / 4;

		counts[e] -= n;
		counts[e + 1] += n;
	}
}

void bal_counts(const struct bal *bal, int32_t of_rank, int32_t turn,
                bool foreseen, int32_t counts[BAL_EXPERTS])
{
	uint64_t rng = hash_u64(bal_seed + 2, (uint64_t)(turn * 64 + of_rank));
	int32_t ids[BAL_TOKENS][BAL_TOPK];

	memset(counts, 0, BAL_EXPERTS * sizeof(*counts));
	make_ids(of_rank, turn, ids);
	for (int i = 0; i < BAL_TOKENS * BAL_TOPK; i++) {
		const bool wrong =
			(int32_t)(rng_next(&rng) % 16) < bal->task->noise;
		const int32_t other = (int32_t)(rng_next(&rng) % BAL_EXPERTS);
		const int32_t id = ids[i / BAL_TOPK][i % BAL_TOPK];

		if (id >= 0)
			counts[wrong && foreseen ? other : id]++;
	}
	if (foreseen && bal->task->biased)
		bias(counts);
}

void bal_lopsided(const struct bal *bal, int32_t layer,
                  int32_t counts[BAL_EXPERTS])
{
	const struct ferry_placement *p =
		ferry_experts_placement(bal->lab.experts, layer);

	memset(counts, 0, BAL_EXPERTS * sizeof(*counts));
	for (int32_t s = 0; s < ferry_placement_first_slot(p, 1); s++)
		if (ferry_placement_expert(p, s) >= 0)
			counts[ferry_placement_expert(p, s)] = 100;
}

void bal_batch(struct bal *bal, int32_t turn, struct bal_batch *batch)
{
	uint64_t rng =
		hash_u64(bal_seed + 1, (uint64_t)(turn * 64 + bal->rank->rank));

	make_ids(bal->rank->rank, turn, batch->ids);
	for (int i = 0; i < BAL_TOKENS * BAL_HIDDEN; i++)
		batch->x[i / BAL_HIDDEN][i % BAL_HIDDEN] = lab_float(&rng);
	for (int i = 0; i < BAL_TOKENS * BAL_TOPK; i++)
		batch->weights[i / BAL_TOPK][i % BAL_TOPK] = lab_float(&rng);
}

/*
 * What is under way by a plan, at 1 us and 1 ns a byte each: out of a rank, and
 * into it, no more than fits into the window.
 */
static void check_window(const struct bal *bal, int32_t layer)
{
	const struct experts_flight *f = bal->lab.experts->layers[layer].flight;
	const int64_t each = 1000 + (int64_t)bal->lab.experts->expert_bytes;
	int64_t out[RANKS_MAX] = {0}, in[RANKS_MAX] = {0};

	if (!bal->task->window_ns || bal->task->measured ||
	    bal->balancer->layers[layer].report.by_history)
		return;
	for (int32_t i = 0; i < f->n_transfers; i++) {
		const struct experts_transfer *t = &f->transfers[i];

		if (t->from_rank == t->to_rank)
			continue;
		out[t->from_rank] += each;
		in[t->to_rank] += each;
		RANKS_CHECK(out[t->from_rank] <= bal->task->window_ns);
		RANKS_CHECK(in[t->to_rank] <= bal->task->window_ns);
	}
}

void bal_predict(struct bal *bal, int32_t layer, int32_t turn)
{
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	int32_t counts[BAL_EXPERTS];

	bal_counts(bal, bal->rank->rank, turn, true, counts);
	in.counts = counts;
	if (bal->task->window_ns)
		in.window_ns = max_i64(bal->task->window_ns, 0);
	RANKS_OK(ferry_balancer_predict(bal->balancer, layer, &in));
	check_window(bal, layer);
}

void bal_observe(struct bal *bal, int32_t layer, int32_t turn)
{
	int32_t counts[BAL_EXPERTS], foreseen[BAL_EXPERTS];
	int64_t off[BAL_EXPERTS] = {0};

	bal_counts(bal, bal->rank->rank, turn, false, counts);
	RANKS_OK(ferry_balancer_observe(bal->balancer, layer, counts));
	for (int32_t r = 0; r < bal->rank->n_ranks; r++) {
		bal_counts(bal, r, turn, false, counts);
		bal_counts(bal, r, turn, true, foreseen);
		for (int e = 0; e < BAL_EXPERTS; e++)
			off[e] += counts[e] - foreseen[e];
	}
	for (int e = 0; e < BAL_EXPERTS; e++)
		bal->wrong += (uint64_t)llabs(off[e]);
}

const struct ferry_placement *bal_commit(struct bal *bal, int32_t layer)
{
	const struct ferry_placement *placement = NULL;

	bal->report = (struct ferry_balancer_report)FERRY_BALANCER_REPORT_INIT;
	RANKS_OK(ferry_balancer_commit(bal->balancer, layer, &placement,
	                               &bal->report));
	RANKS_CHECK(bal->report.exposed_ns >=
	            bal->report.wait_ns + bal->report.meet_ns);
	RANKS_CHECK(placement ==
	            ferry_experts_placement(bal->lab.experts, layer));
	lab_check(&bal->lab, layer, placement);
	return placement;
}

void bal_dispatch(struct bal *bal, struct bal_batch *batch)
{
	lab_dispatch(&bal->channel, batch->flow, batch->ids[0],
	             batch->weights[0], batch->x[0]);
}

void bal_send_back(struct bal *bal, int32_t layer, struct bal_batch *batch)
{
	const size_t last = bal->lab.shape.tensor_bytes[1] - 1;
	struct lab_flow *const flow = batch->flow;

	for (int64_t r = 0; r < flow->n_rows; r++) {
		const unsigned char *a = ferry_experts_tensor(
			bal->lab.experts, layer, flow->placement,
			flow->row_slot[r], 0);
		const unsigned char *b = ferry_experts_tensor(
			bal->lab.experts, layer, flow->placement,
			flow->row_slot[r], 1);

		RANKS_CHECK(a && b);
		for (int i = 0; i < BAL_HIDDEN; i++) {
			float *x = &flow->rows[r * BAL_HIDDEN + i];

			*x = weigh(a[0], b[last], *x);
		}
	}
	lab_combine_send(&bal->channel, flow);
}

void bal_finish(struct bal *bal, int32_t layer, struct bal_batch *batch)
{
	float sum[BAL_TOKENS][BAL_HIDDEN];

	lab_combine_recv(&bal->channel, batch->flow, sum[0]);
	for (int t = 0; t < BAL_TOKENS; t++) {
		float want[BAL_HIDDEN] = {0};

		for (int k = 0; k < BAL_TOPK; k++)
			for (int i = 0; i < BAL_HIDDEN && batch->ids[t][k] >= 0;
			     i++)
				want[i] = fmaf(batch->weights[t][k],
				               want_of(bal, layer,
				                       batch->ids[t][k],
				                       batch->x[t][i]),
				               want[i]);
		RANKS_BYTES(sum[t], want, sizeof(want));
	}
}

void bal_layer(struct bal *bal, int32_t layer, int32_t turn)
{
	struct bal_batch *batch = &bal->batches[0];
	const bool wants = ferry_balancer_wants(bal->balancer, layer);

	bal->n_wanted += wants;
	if (wants || bal->task->always)
		bal_predict(bal, layer, turn);
	batch->flow->placement = bal_commit(bal, layer);
	bal_batch(bal, turn, batch);
	bal_dispatch(bal, batch);
	bal_observe(bal, layer, turn);
	bal_send_back(bal, layer, batch);
	bal_finish(bal, layer, batch);
}

void bal_run(struct bal *bal)
{
	for (int32_t step = 0; step < bal->task->n_steps; step++)
		for (int32_t l = 0; l < BAL_LAYERS; l++)
			bal_layer(bal, l, step + l);
}

static void free_model(void *arg)
{
	struct bal *m = arg;

	ferry_balancer_close(m->balancer);
	lab_channel_close(&m->channel);
	lab_close(&m->lab);
	free(m);
}

struct bal *bal_make(struct rank *rank)
{
	struct bal *m = calloc(1, sizeof(*m));
	const struct bal_task *task = rank->arg;
	const struct lab_shape shape = {
		.seed = bal_seed,
		.n_layers = BAL_LAYERS,
		.n_experts = BAL_EXPERTS,
		.spare = task->spare,
		.n_staging = task->n_staging,
		.mode = task->mode,
		.split = task->split,
		.n_tensors = 2,
		.tensor_bytes = {500, 77},
	};

	m->task = task;
	m->rank = rank;
	ranks_defer(free_model, m);
	lab_make(&m->lab, rank, &shape);
	RANKS_OK(lab_try(&m->lab));
	lab_fill(&m->lab);
	lab_channel_open(&m->channel, &m->lab, BAL_TOKENS, BAL_HIDDEN,
	                 BAL_TOPK);
	for (int i = 0; i < 2; i++)
		m->batches[i].flow = &m->channel.flows[i];
	return m;
}

void bal_config(struct bal *bal, struct ferry_balancer_config *config)
{
	const struct bal_task *task = bal->task;
	struct ferry_balancer_config c = FERRY_BALANCER_CONFIG_INIT;

	for (int i = 0; i < RANKS_MAX * RANKS_MAX; i++) {
		bal->alpha[i] = 1000;
		bal->beta[i] = 1000;
	}
	bal->cost = (struct ferry_cost)FERRY_COST_INIT;
	bal->cost.n_ranks = bal->rank->n_ranks;
	bal->cost.alpha_ns = bal->alpha;
	bal->cost.ps_per_byte = bal->beta;
	c.cost = task->measured ? NULL : &bal->cost;
	c.experts = bal->lab.experts;
	c.policy = task->policy;
	c.rule = task->rule;
	c.max_copies = task->max_copies;
	c.threshold_ppm = task->threshold_ppm;
	c.eplb_every = task->eplb_every;
	c.spare_copies = task->spare_copies;
	c.calibrate = task->calibrate;
	c.margin_ppm = task->margin_ppm;
	*config = c;
}

struct bal *bal_open(struct rank *rank)
{
	struct bal *m = bal_make(rank);
	struct ferry_balancer_config config;

	bal_config(m, &config);
	RANKS_OK(ferry_balancer_open(rank->world, &config, &m->balancer));
	return m;
}

struct ferry_balancer_stats bal_stats(const struct bal *bal)
{
	struct ferry_balancer_stats stats = FERRY_BALANCER_STATS_INIT;

	RANKS_OK(ferry_balancer_get_stats(bal->balancer, &stats));
	return stats;
}
