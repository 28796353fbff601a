/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs are the same bits before, during and after migrations: tokens are
 * dispatched, experts computed in fp32 from the weights where they are now, and
 * combined EXACT, under every policy and split, with two micro-batches in
 * flight of which the older still uses the version before. The reference is
 * computed from the experts' own weights, without any placement.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "lab_channel.h"

enum {
	HIDDEN = 12,
	INNER = 8,
	TOKENS = 9,
	TOPK = 3,
	EXPERTS = 12,
	STEPS = RANKS_STRIDE > 1 ? 2 : 4,
	LAYERS = 3,
};

static uint64_t seed;

/* How a layer is planned. */
struct policy {
	const char *name;
	bool eplb;         /* start from history */
	bool replan;       /* EPLB again and again, instead of plans */
	bool transient;    /* replicas go before the next plan */
	bool random;       /* moves by chance */
	int32_t max_swaps; /* -1: none */
	int32_t max_copies;
	enum ferry_plan_rule rule;
	int32_t gamma_milli;
};

static const struct policy policies[] = {
	{"fixed", .max_swaps = -1},
	{"eplb", .eplb = true, .max_swaps = -1},
	{"freebalance sorted", .max_swaps = 2, .rule = FERRY_RULE_SORTED,
         .gamma_milli = -1},
	{"freebalance reselect", .max_swaps = 2, .rule = FERRY_RULE_RESELECT,
         .gamma_milli = -1},
	{"swaps", .max_swaps = 3},
	{"eplb and swaps", .eplb = true, .max_swaps = 3},
	{"swaps and copies", .max_swaps = 2, .max_copies = 1},
	{"eplb again", .eplb = true, .replan = true, .max_swaps = -1},
	{"transient copies", .max_swaps = -1, .max_copies = 1,
         .transient = true},
	{"by chance", .random = true},
};

enum { N_POLICIES = sizeof(policies) / sizeof(*policies) };

struct task {
	const struct policy *policy;
	enum ferry_split split;
	enum ferry_experts_mode mode;
};

/* One expert, out of its three tensors. */
struct expert {
	float up[INNER][HIDDEN];
	float down[HIDDEN][INNER];
	float scale;
};

/* A batch of one rank, and its way through the channel. */
struct micro {
	int32_t ids[TOKENS][TOPK];
	float weights[TOKENS][TOPK];
	float x[TOKENS][HIDDEN];
	float sum[TOKENS][HIDDEN];
	struct lab_flow *flow;
};

struct model {
	const struct task *task;
	struct rank *rank;
	struct lab lab;
	struct lab_channel channel;
	struct ferry_planner *planner;
	struct micro micros[2];
	struct ferry_plan plan;
	uint64_t rng; /* alike on all ranks */
	int32_t n_moves;
	int32_t slots[RANKS_MAX]; /* of each rank */
};

static void make_expert(int32_t layer, int32_t expert, struct expert *e)
{
	uint64_t rng = hash_u64(seed, (uint64_t)(layer * EXPERTS + expert));

	for (int i = 0; i < INNER * HIDDEN; i++) {
		e->up[i / HIDDEN][i % HIDDEN] = lab_float(&rng);
		e->down[i / INNER][i % INNER] = lab_float(&rng);
	}
	e->scale = lab_float(&rng);
}

/* In a fixed order, so that it is the same bits everywhere. */
static void compute(const struct expert *e, const float *x, float *y)
{
	float inner[INNER];

	for (int j = 0; j < INNER; j++) {
		float sum = 0;

		for (int i = 0; i < HIDDEN; i++)
			sum += e->up[j][i] * x[i];
		inner[j] = sum > 0 ? sum : 0.125f * sum;
	}
	for (int i = 0; i < HIDDEN; i++) {
		float sum = 0;

		for (int j = 0; j < INNER; j++)
			sum += e->down[i][j] * inner[j];
		y[i] = sum * e->scale;
	}
}

static void fill_weights(struct model *m)
{
	for (int32_t l = 0; l < LAYERS; l++) {
		const struct ferry_placement *p = m->lab.first[l];
		const int32_t n = m->lab.n_own[l];
		int32_t first = 0;

		while (ferry_placement_rank(p, first) < m->rank->rank)
			first++;
		for (int32_t i = 0; i < n; i++) {
			struct expert e = {.scale = 0};
			const int32_t id = ferry_placement_expert(p, first + i);

			if (id >= 0)
				make_expert(l, id, &e);
			memcpy(ferry_experts_tensor(m->lab.experts, l, p, i, 0),
			       e.up, sizeof(e.up));
			memcpy(ferry_experts_tensor(m->lab.experts, l, p, i, 1),
			       e.down, sizeof(e.down));
			memcpy(ferry_experts_tensor(m->lab.experts, l, p, i, 2),
			       &e.scale, sizeof(e.scale));
		}
	}
}

/* Where the weights are under the batch's placement. */
static void run_experts(struct model *m, int32_t layer, struct micro *b)
{
	struct ferry_experts *x = m->lab.experts;
	struct lab_flow *const flow = b->flow;

	for (int64_t r = 0; r < flow->n_rows; r++) {
		const int32_t own = flow->row_slot[r];
		struct expert e;
		float y[HIDDEN];
		const void *from[3];

		for (int t = 0; t < 3; t++) {
			from[t] = ferry_experts_tensor(x, layer,
			                               flow->placement, own, t);
			RANKS_CHECK(from[t] != NULL);
		}
		memcpy(e.up, from[0], sizeof(e.up));
		memcpy(e.down, from[1], sizeof(e.down));
		memcpy(&e.scale, from[2], sizeof(e.scale));
		compute(&e, flow->rows + r * HIDDEN, y);
		memcpy(flow->rows + r * HIDDEN, y, sizeof(y));
	}
}

/* What a rank routes in a step; loads lean towards other experts each time. */
static void make_ids(int32_t of_rank, int32_t turn, int32_t ids[TOKENS][TOPK])
{
	uint64_t rng = hash_u64(seed, (uint64_t)(turn * 64 + of_rank));

	for (int i = 0; i < TOKENS * TOPK; i++) {
		const uint64_t a = rng_next(&rng) % EXPERTS;
		const uint64_t b = rng_next(&rng) % EXPERTS;
		const uint64_t low = a < b ? a : b;

		ids[i / TOPK][i % TOPK] =
			rng_next(&rng) % 10 == 0
				? -1
				: (int32_t)((low + (uint64_t)turn) % EXPERTS);
	}
}

static void make_batch(struct model *m, int32_t turn, struct micro *b)
{
	uint64_t rng =
		hash_u64(seed + 1, (uint64_t)(turn * 64 + m->rank->rank));

	make_ids(m->rank->rank, turn, b->ids);
	for (int i = 0; i < TOKENS * HIDDEN; i++)
		b->x[i / HIDDEN][i % HIDDEN] = lab_float(&rng);
	for (int i = 0; i < TOKENS * TOPK; i++)
		b->weights[i / TOPK][i % TOPK] = lab_float(&rng);
}

/* Perfect prediction: of all ranks' batches. */
static void count_loads(struct model *m, int32_t turn, int64_t *loads)
{
	memset(loads, 0, EXPERTS * sizeof(*loads));
	for (int32_t r = 0; r < m->rank->n_ranks; r++) {
		int32_t ids[TOKENS][TOPK];

		make_ids(r, turn, ids);
		for (int i = 0; i < TOKENS * TOPK; i++)
			if (ids[i / TOPK][i % TOPK] >= 0)
				loads[ids[i / TOPK][i % TOPK]]++;
	}
}

static void make_plan(struct model *m, int32_t layer, const int64_t *loads)
{
	const struct policy *policy = m->task->policy;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	const struct ferry_placement *p =
		ferry_experts_placement(m->lab.experts, layer);

	if (policy->random) {
		lab_plan(p, layer, &m->rng, 3, true, 3, &m->plan);
	} else {
		in.placement = p;
		in.loads = loads;
		in.layer = layer;
		in.max_swaps = policy->max_swaps;
		in.max_copies = policy->max_copies;
		in.rule = policy->rule;
		in.gamma_milli = policy->gamma_milli;
		m->plan.size = sizeof(m->plan);
		RANKS_OK(ferry_plan_make(m->planner, &in, &m->plan));
	}
	m->n_moves += m->plan.n_moves;
}

/* By EPLB, moving as little as possible from where experts are. */
static struct ferry_placement *
place(struct model *m, const struct ferry_placement *from, const int64_t *loads)
{
	struct ferry_eplb_config e = FERRY_EPLB_CONFIG_INIT;
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	int32_t slot_expert[EXPERTS + 2 * RANKS_MAX];
	int64_t quota[EXPERTS + 2 * RANKS_MAX] = {0};
	struct ferry_placement *placement;

	e.n_experts = EXPERTS;
	e.n_ranks = m->rank->n_ranks;
	e.n_slots = ferry_placement_n_slots(from);
	c.n_experts = EXPERTS;
	c.n_ranks = e.n_ranks;
	c.expert_slots = m->slots;
	c.slot_expert = slot_expert;
	c.split = m->task->split;
	c.quota = c.split == FERRY_SPLIT_QUOTA ? quota : NULL;
	RANKS_OK(ferry_eplb(&e, loads, slot_expert));
	RANKS_OK(ferry_placement_align(from, slot_expert, slot_expert, NULL));
	RANKS_OK(ferry_placement_create(&c, &placement));
	return placement;
}

/* Starts what the policy wants for the loads. */
static void start_moves(struct model *m, int32_t layer, const int64_t *loads)
{
	struct ferry_experts *x = m->lab.experts;
	const bool quotas = m->task->split == FERRY_SPLIT_QUOTA;

	if (m->task->policy->replan) {
		struct ferry_placement *to =
			place(m, ferry_experts_placement(x, layer), loads);

		RANKS_OK(ferry_experts_start_placement(x, layer, to, NULL));
		ferry_placement_destroy(to);
		return;
	}
	make_plan(m, layer, loads);
	RANKS_OK(ferry_experts_start(x, layer, &m->plan, quotas ? loads : NULL,
	                             NULL));
}

/* Gives up the replicas of the plan before. */
static void drop_copies(struct model *m, int32_t layer)
{
	struct ferry_experts *x = m->lab.experts;

	RANKS_OK(ferry_experts_start_placement(x, layer, m->lab.first[layer],
	                                       NULL));
	RANKS_OK(ferry_experts_commit(x, layer, NULL, NULL, NULL));
}

static void dispatch(struct model *m, int32_t layer, struct micro *b)
{
	b->flow->placement = ferry_experts_placement(m->lab.experts, layer);
	lab_dispatch(&m->channel, b->flow, b->ids[0], b->weights[0], b->x[0]);
}

static void send_back(struct model *m, int32_t layer, struct micro *b)
{
	run_experts(m, layer, b);
	lab_combine_send(&m->channel, b->flow);
}

/* Takes the sums and compares them, bit for bit. */
static void finish(struct model *m, int32_t layer, struct micro *b)
{
	lab_combine_recv(&m->channel, b->flow, b->sum[0]);
	for (int t = 0; t < TOKENS; t++) {
		float want[HIDDEN] = {0};

		for (int k = 0; k < TOPK; k++) {
			struct expert e;
			float y[HIDDEN];

			if (b->ids[t][k] < 0)
				continue;
			make_expert(layer, b->ids[t][k], &e);
			compute(&e, b->x[t], y);
			for (int i = 0; i < HIDDEN; i++)
				want[i] = fmaf(b->weights[t][k], y[i], want[i]);
		}
		RANKS_BYTES(b->sum[t], want, sizeof(want));
	}
}

/*
 * A layer: batch A is dispatched, and while it is in flight the experts move
 * for batch B. A still computes from the version that it was dispatched with.
 */
static void run_layer(struct model *m, int32_t layer, int32_t turn)
{
	struct ferry_experts *x = m->lab.experts;
	struct micro *a = &m->micros[0], *b = &m->micros[1];
	int64_t loads[EXPERTS];

	if (m->task->policy->transient)
		drop_copies(m, layer);
	make_batch(m, turn, a);
	make_batch(m, turn + 1, b);
	count_loads(m, turn + 1, loads);
	dispatch(m, layer, a);
	start_moves(m, layer, loads);
	const enum ferry_status status =
		ferry_experts_commit(x, layer, NULL, NULL, NULL);

	if (status == FERRY_STATE) {
		RANKS_EQ(m->task->mode, FERRY_EXPERTS_COPY);
		send_back(m, layer, a);
		RANKS_OK(ferry_experts_commit(x, layer, NULL, NULL, NULL));
		dispatch(m, layer, b);
	} else {
		RANKS_OK(status);
		RANKS_CHECK(m->task->mode == FERRY_EXPERTS_REMAP ||
		            m->plan.n_moves == 0);
		dispatch(m, layer, b);
		send_back(m, layer, a);
	}
	RANKS_CHECK(m->plan.n_moves == 0 ||
	            a->flow->placement != b->flow->placement);
	send_back(m, layer, b);
	finish(m, layer, a);
	finish(m, layer, b);
}

static void free_model(void *arg)
{
	struct model *m = arg;

	lab_channel_close(&m->channel);
	ferry_planner_destroy(m->planner);
	lab_close(&m->lab);
	free(m);
}

/* The lab's first placements become those of EPLB. */
static void place_by_history(struct model *m)
{
	int64_t loads[EXPERTS];

	for (int32_t l = 0; l < LAYERS; l++) {
		count_loads(m, 1000 + l, loads);
		struct ferry_placement *p = place(m, m->lab.first[l], loads);

		ferry_placement_destroy(m->lab.first[l]);
		m->lab.first[l] = p;
	}
}

static void open_model(struct model *m, const struct task *task,
                       struct rank *rank)
{
	const struct lab_shape shape = {
		.seed = seed,
		.n_layers = LAYERS,
		.n_experts = EXPERTS,
		.spare = 1,
		.n_staging = 16,
		.mode = task->mode,
		.split = task->split,
		.n_tensors = 3,
		.tensor_bytes = {sizeof(float[INNER][HIDDEN]),
	                         sizeof(float[HIDDEN][INNER]), sizeof(float)},
	};

	m->task = task;
	m->rank = rank;
	m->rng = seed;
	lab_make(&m->lab, rank, &shape);
	for (int32_t r = 0; r < rank->n_ranks; r++)
		m->slots[r] = EXPERTS / rank->n_ranks +
		              (r < EXPERTS % rank->n_ranks) + 1;
	if (task->policy->eplb)
		place_by_history(m);
	RANKS_OK(lab_try(&m->lab));
	fill_weights(m);
	lab_channel_open(&m->channel, &m->lab, TOKENS, HIDDEN, TOPK);
	for (int i = 0; i < 2; i++)
		m->micros[i].flow = &m->channel.flows[i];
	RANKS_OK(ferry_planner_create(EXPERTS, 2 * EXPERTS + RANKS_MAX,
	                              rank->n_ranks, &m->planner));
}

static uint64_t sum_over_ranks(const struct rank *rank, uint64_t own)
{
	uint64_t all[RANKS_MAX], sum = 0;

	RANKS_OK(ferry_world_allgather(rank->world, &own, all, sizeof(own)));
	for (int32_t r = 0; r < rank->n_ranks; r++)
		sum += all[r];
	return sum;
}

static void same_bits(struct rank *rank)
{
	struct model *m = calloc(1, sizeof(*m));

	ranks_defer(free_model, m);
	open_model(m, rank->arg, rank);
	for (int32_t step = 0; step < STEPS; step++)
		for (int32_t l = 0; l < LAYERS; l++)
			run_layer(m, l, 2 * (step * LAYERS + l));
	const struct ferry_experts_stats stats = lab_stats(&m->lab);

	RANKS_EQ(stats.n_committed,
	         STEPS * LAYERS * (1 + m->task->policy->transient));
	RANKS_EQ(stats.n_held_back, 0);
	if (m->task->policy->max_swaps > 0 || m->task->policy->max_copies ||
	    m->task->policy->random)
		RANKS_CHECK(m->n_moves > 0);
	if (m->task->policy->replan)
		RANKS_CHECK(sum_over_ranks(rank, stats.bytes_in) > 0);
}

static void test_policies(void **state)
{
	for (int m = 0; m < 2; m++)
		for (int i = 0; i < N_POLICIES; i++) {
			const struct task task = {
				.policy = &policies[i],
				.mode = (enum ferry_experts_mode)m,
			};

			lab_run(*state, 4, same_bits, &task);
		}
}

static void test_splits(void **state)
{
	static const enum ferry_split splits[] = {FERRY_SPLIT_QUOTA,
	                                          FERRY_SPLIT_EXACT};

	for (int s = 0; s < 2; s++)
		for (int i = 4; i < N_POLICIES; i++) {
			const struct task task = {
				.policy = &policies[i],
				.split = splits[s],
				.mode = (enum ferry_experts_mode)(i % 2),
			};

			lab_run(*state, 3 + i % 2, same_bits, &task);
		}
}

static void test_worlds(void **state)
{
	for (int32_t n_ranks = 1; n_ranks <= 8; n_ranks++) {
		const struct task task = {
			.policy = &policies[N_POLICIES - 1],
			.mode = (enum ferry_experts_mode)(n_ranks % 2),
		};

		/* One rank has nobody to move anything to. */
		if (n_ranks > 1)
			lab_run(*state, n_ranks, same_bits, &task);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_policies),
	cmocka_unit_test(test_splits),
	cmocka_unit_test(test_worlds),
};

int main(void)
{
	seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
