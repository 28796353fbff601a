/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split ids in dispatch and combine: with replicas placed by chance, which no
 * load was planned for, each rank gets the rows that the optimum of the true
 * counts gives it, and the sums of EXACT are those of a run without replicas,
 * bit for bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/moe.h>
#include <ferry/plan.h>

#include "core/bits.h"
#include "split_lab.h"

enum { HIDDEN = 20, STEPS = 6 };

struct task {
	uint64_t seed;
	struct ferry_placement *with;    /* replicas, split EXACT */
	struct ferry_placement *without; /* the first of each only */
};

struct setup {
	const struct task *task;
	struct rank *rank;
	struct ferry_moe *moe;
	struct ferry_splitter *splitter;
	struct lab_batch batch;
	float x[LAB_TOKENS][HIDDEN];
	float weights[LAB_TOKENS][LAB_TOPK];
	float sum[2][LAB_TOKENS][HIDDEN];
	float *rows;
	int32_t *row_slot;
};

static void free_setup(void *arg)
{
	struct setup *const s = arg;

	ferry_moe_close(s->moe);
	free(s->rows);
	free(s->row_slot);
	free(s);
}

static struct setup *open_setup(struct rank *rank)
{
	struct setup *const s = calloc(1, sizeof(*s));
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;
	int32_t slots[LAB_RANKS];

	RANKS_CHECK(s);
	ranks_defer(free_setup, s);
	s->task = rank->arg;
	s->rank = rank;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		slots[r] = ferry_placement_first_slot(s->task->with, r + 1) -
		           ferry_placement_first_slot(s->task->with, r);
	c.n_ranks = rank->n_ranks;
	c.max_tokens = LAB_TOKENS;
	c.hidden = HIDDEN;
	c.topk = LAB_TOPK;
	c.n_experts = ferry_placement_n_experts(s->task->with);
	c.expert_slots = slots;
	c.dtype = FERRY_FP32;
	c.combine_dtype = FERRY_FP32;
	c.layout = FERRY_EXPERT_PACKED;
	RANKS_OK(ferry_moe_query(&c, &need));
	RANKS_OK(ferry_moe_open(rank->world, &c, &s->moe));
	s->rows = calloc((size_t)need.recv_rows, need.row_bytes);
	s->row_slot = calloc((size_t)need.recv_rows, sizeof(*s->row_slot));
	RANKS_CHECK(s->rows && s->row_slot);
	s->splitter = lab_open(rank, 1, 1);
	return s;
}

static void fill_step(struct setup *s, int32_t step)
{
	const uint64_t seed = hash_u64(s->task->seed, (uint64_t)step);
	uint64_t rng = hash_u64(seed, (uint64_t)s->rank->rank);

	lab_fill(&s->batch, s->task->seed, s->rank->rank, step,
	         ferry_placement_n_experts(s->task->with));
	for (int i = 0; i < LAB_TOKENS * HIDDEN; i++)
		s->x[i / HIDDEN][i % HIDDEN] =
			(float)(int64_t)rng_next(&rng) * 0x1p-60f;
	for (int i = 0; i < LAB_TOKENS * LAB_TOPK; i++)
		s->weights[i / LAB_TOPK][i % LAB_TOPK] =
			(float)(rng_next(&rng) >> 40) * 0x1p-24f;
}

/* Expert e divides by e + 3, wherever it is. */
static void run_experts(struct setup *s, const struct ferry_placement *p,
                        int64_t n_rows)
{
	const int32_t first = ferry_placement_first_slot(p, s->rank->rank);

	for (int64_t r = 0; r < n_rows; r++) {
		const int32_t e =
			ferry_placement_expert(p, first + s->row_slot[r]);

		RANKS_CHECK(e >= 0);
		for (int i = 0; i < HIDDEN; i++)
			s->rows[r * HIDDEN + i] /= (float)(e + 3);
	}
}

/* One layer; the number of rows that came to this rank. */
static int64_t layer(struct setup *s, const struct ferry_placement *p,
                     const int32_t *ids, enum ferry_id_kind kind, void *sum)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out end = FERRY_COMBINE_OUT_INIT;
	int64_t n_rows = -1;

	in.n_tokens = s->batch.n_tokens;
	in.x = s->x;
	in.topk_ids = ids;
	in.id_kind = kind;
	in.topk_weights = s->weights[0];
	in.placement = p;
	out.rows = s->rows;
	out.row_expert_slot = s->row_slot;
	out.n_rows = &n_rows;
	RANKS_OK(ferry_dispatch(s->moe, 0, &in, &out, NULL));
	/* Ranks that are threads count together. */
	RANKS_CHECK(ferry_placement_in_use(p) >= 1);
	run_experts(s, p, n_rows);
	back.y = s->rows;
	back.layout = FERRY_FROM_PACKED;
	end.out = sum;
	RANKS_OK(ferry_combine(s->moe, 0, &back, &end, NULL));
	return n_rows;
}

/* The least load of the fullest rank for what all ranks bring. */
static int64_t optimum(const struct setup *s, int32_t step)
{
	int64_t loads[LAB_SLOTS] = {0}, quota[LAB_SLOTS], most;
	struct lab_batch batch;

	for (int32_t r = 0; r < s->rank->n_ranks; r++) {
		lab_fill(&batch, s->task->seed, r, step,
		         ferry_placement_n_experts(s->task->with));
		lab_count(&batch, loads);
	}
	RANKS_OK(ferry_split_quotas(s->task->with, loads, NULL, quota, &most));
	return most;
}

static void steps(struct rank *rank)
{
	struct setup *const s = open_setup(rank);
	int32_t slots[LAB_TOKENS][LAB_TOPK];
	int64_t rank_loads[LAB_RANKS], max_load;
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;

	out.slots = slots[0];
	out.rank_loads = rank_loads;
	out.max_load = &max_load;
	for (int32_t step = 0; step < STEPS; step++) {
		int64_t all[LAB_RANKS], n_rows, most = 0;

		fill_step(s, step);
		layer(s, s->task->without, s->batch.ids[0], FERRY_ID_LOGICAL,
		      s->sum[0]);
		const struct ferry_split_in in =
			lab_in(&s->batch, s->task->with);

		RANKS_OK(ferry_split(s->splitter, 0, &in, &out));
		n_rows = layer(s, s->task->with, slots[0], FERRY_ID_SLOT,
		               s->sum[1]);
		RANKS_EQ(n_rows, rank_loads[rank->rank]);
		RANKS_BYTES(s->sum[1], s->sum[0],
		            (size_t)s->batch.n_tokens * sizeof(s->x[0]));
		RANKS_OK(ferry_world_allgather(rank->world, &n_rows, all,
		                               sizeof(n_rows)));
		for (int32_t r = 0; r < rank->n_ranks; r++)
			most = max_i64(most, all[r]);
		RANKS_EQ(most, optimum(s, step));
		RANKS_EQ(max_load, most);
	}
}

/* The same expert slots, without what is a replica. */
static struct ferry_placement *strip(const struct ferry_placement *p,
                                     int32_t n_ranks)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *stripped = NULL;
	int32_t slots[LAB_RANKS], map[LAB_SLOTS];

	for (int32_t r = 0; r < n_ranks; r++)
		slots[r] = ferry_placement_first_slot(p, r + 1) -
		           ferry_placement_first_slot(p, r);
	for (int32_t s = 0; s < ferry_placement_n_slots(p); s++) {
		const int32_t e = ferry_placement_expert(p, s);

		map[s] = e;
		for (int32_t before = 0; before < s && e >= 0; before++)
			if (ferry_placement_expert(p, before) == e)
				map[s] = -1;
	}
	c.n_experts = ferry_placement_n_experts(p);
	c.n_ranks = n_ranks;
	c.expert_slots = slots;
	c.slot_expert = map;
	assert_int_equal(ferry_placement_create(&c, &stripped), FERRY_OK);
	return stripped;
}

static void test_steps(void **state)
{
	uint64_t seed = ranks_seed();

	for (int32_t n = 1; n <= LAB_RANKS; n++) {
		struct task task = {.seed = seed};

		task.with = random_map(&seed, n, FERRY_SPLIT_EXACT);
		task.without = strip(task.with, n);
		lab_run(*state, (struct ranks){.n_ranks = n, .arg = &task}, "",
		        steps);
		ferry_placement_destroy(task.with);
		ferry_placement_destroy(task.without);
	}
}

int main(void)
{
	struct CMUnitTest tests[LAB_N_SETTINGS];

	for (int i = 0; i < LAB_N_SETTINGS; i++)
		tests[i] = (struct CMUnitTest){
			.name = lab_settings[i].name,
			.test_func = test_steps,
			.initial_state = (void *)(uintptr_t)&lab_settings[i],
		};
	return _cmocka_run_group_tests("split_moe", tests, LAB_N_SETTINGS, NULL,
	                               NULL);
}
