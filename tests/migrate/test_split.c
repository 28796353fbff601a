/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits of random batches on every fabric, threads and processes: over all
 * ranks each slot gets exactly its quota, the fullest rank is the optimum of
 * the true counts, and every choice goes to a slot that has its expert.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/plan.h>

#include "core/bits.h"
#include "runs.h"
#include "split_lab.h"

enum { ROUNDS = 12, PLACEMENTS = 3 };

struct task {
	uint64_t seed;
	int32_t n_slots;
	int32_t group_size;
	/* Made before ranks start: a round takes them in turn. */
	struct ferry_placement *placements[PLACEMENTS];
	const int32_t *speed;
};

static const struct ferry_placement *placement_of(const struct task *task,
                                                  int32_t round)
{
	return task->placements[round % PLACEMENTS];
}

/* What a rank brings in a round; ranks of a group bring the same. */
static void fill(struct lab_batch *batch, const struct task *task, int32_t rank,
                 int32_t round)
{
	lab_fill(batch, task->seed, rank / task->group_size, round,
	         ferry_placement_n_experts(placement_of(task, round)));
}

static void true_loads(struct rank *rank, int32_t round, int64_t *loads)
{
	const struct task *const task = rank->arg;
	struct lab_batch batch;

	for (int32_t r = 0; r < rank->n_ranks; r += task->group_size) {
		fill(&batch, task, r, round);
		lab_count(&batch, loads);
	}
}

/* Choices of a batch that each slot serves. */
static void count_slots(const struct lab_batch *batch,
                        int32_t slots[LAB_TOKENS][LAB_TOPK],
                        const struct ferry_placement *placement, int64_t *got)
{
	for (int32_t i = 0; i < batch->n_tokens * LAB_TOPK; i++) {
		const int32_t id = batch->ids[i / LAB_TOPK][i % LAB_TOPK];
		const int32_t slot = slots[i / LAB_TOPK][i % LAB_TOPK];

		RANKS_EQ(ferry_placement_expert(placement, slot), id);
		if (slot >= 0)
			got[slot]++;
		else
			RANKS_EQ(slot, -1);
	}
}

/* Sums over ranks, one of each group. */
static void sum_up(struct rank *rank, const int64_t *own, int64_t *sum)
{
	const struct task *const task = rank->arg;
	int64_t all[LAB_RANKS][LAB_SLOTS];

	RANKS_OK(ferry_world_allgather(rank->world, own, all, sizeof(all[0])));
	memset(sum, 0, sizeof(all[0]));
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		const int32_t first = r - r % task->group_size;

		RANKS_BYTES(all[r], all[first], sizeof(all[0]));
		for (int32_t s = 0; r == first && s < LAB_SLOTS; s++)
			sum[s] += all[r][s];
	}
}

static void check(struct rank *rank, int32_t round,
                  int32_t slots[LAB_TOKENS][LAB_TOPK], const int64_t *loads_out,
                  int64_t max_load)
{
	const struct task *const task = rank->arg;
	const struct ferry_placement *const p = placement_of(task, round);
	int64_t loads[LAB_SLOTS] = {0}, quota[LAB_SLOTS] = {0}, most;
	int64_t own[LAB_SLOTS] = {0}, sum[LAB_SLOTS];
	int64_t rank_loads[LAB_RANKS] = {0};
	struct lab_batch batch;

	fill(&batch, task, rank->rank, round);
	count_slots(&batch, slots, p, own);
	sum_up(rank, own, sum);
	true_loads(rank, round, loads);
	RANKS_OK(ferry_split_quotas(p, loads, task->speed, quota, &most));
	RANKS_BYTES(sum, quota, sizeof(sum));
	RANKS_EQ(max_load, most);
	for (int32_t s = 0; s < ferry_placement_n_slots(p); s++)
		rank_loads[ferry_placement_rank(p, s)] += sum[s];
	RANKS_BYTES(loads_out, rank_loads,
	            (size_t)rank->n_ranks * sizeof(*rank_loads));
}

/* As many splits in flight as there are slots; every third in one call. */
static void splits(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter =
		lab_open(rank, task->n_slots, task->group_size);
	int32_t slots[LAB_TOKENS][LAB_TOPK];
	int64_t rank_loads[LAB_RANKS], max_load;
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;

	out.slots = slots[0];
	out.rank_loads = rank_loads;
	out.max_load = &max_load;
	for (int32_t first = 0; first < ROUNDS; first += task->n_slots) {
		const bool fused = task->n_slots == 1 && first % 3 == 0;

		for (int32_t i = 0; i < task->n_slots; i++) {
			struct lab_batch batch;

			fill(&batch, task, rank->rank, first + i);
			struct ferry_split_in in =
				lab_in(&batch, placement_of(task, first + i));

			in.speed = task->speed;
			RANKS_OK(fused ? ferry_split(splitter, i, &in, &out)
			               : ferry_split_send(splitter, i, &in));
			memset(&batch, 0xee, sizeof(batch)); /* it is read */
		}
		for (int32_t i = task->n_slots - 1; i >= 0; i--) {
			if (!fused)
				RANKS_OK(ferry_split_recv(splitter, i, &out));
			check(rank, first + i, slots, rank_loads, max_load);
		}
	}
}

static void run_splits(const struct lab_setting *setting, int32_t n_ranks,
                       int32_t n_slots, int32_t group_size,
                       const int32_t *speed)
{
	struct task task = {ranks_seed(), n_slots, group_size, {NULL}, speed};
	uint64_t seed = task.seed;

	for (int i = 0; i < PLACEMENTS; i++)
		task.placements[i] = random_map(&seed, n_ranks,
		                                (enum ferry_split)(i % 2 * 2));
	lab_run(setting, (struct ranks){.n_ranks = n_ranks, .arg = &task}, "",
	        splits);
	for (int i = 0; i < PLACEMENTS; i++)
		ferry_placement_destroy(task.placements[i]);
}

static void test_every_number_of_ranks(void **state)
{
	for (int32_t n = 1; n <= LAB_RANKS; n++)
		run_splits(*state, n, 1 + n % 3, 1, NULL);
}

static void test_groups(void **state)
{
	run_splits(*state, 4, 1, 2, NULL);
	run_splits(*state, 6, 2, 3, NULL);
	run_splits(*state, 3, 1, 3, NULL);
}

static void test_speeds(void **state)
{
	static const int32_t speed[] = {500, 1000, 2000, 1};

	run_splits(*state, 4, 1, 1, speed);
}

/* Rows of ids of int64, wider than topk; rows of slots, too; fewer choices. */
static void strides(struct rank *rank)
{
	struct ferry_splitter *const splitter = lab_open(rank, 1, 1);
	const struct ferry_placement *const *const placement = rank->arg;
	static const int64_t ids[2][5] = {{1, 0, 9, 9, 9}, {-1, 1, 9, 9, 9}};
	int32_t slots[2][3] = {{7, 7, 7}, {7, 7, 7}};
	struct ferry_split_in in = FERRY_SPLIT_IN_INIT;
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;

	in.n_tokens = 2;
	in.topk = 2;
	in.ids = ids;
	in.ids_stride = sizeof(ids[0]);
	in.id_type = FERRY_ID_INT64;
	in.placement = *placement;
	out.slots = slots[0];
	out.slots_stride = sizeof(slots[0]);
	RANKS_OK(ferry_split(splitter, 0, &in, &out));
	/* Expert 1 has a slot on each rank, and both bring as much of it. */
	RANKS_EQ(slots[0][0], rank->rank == 0 ? 1 : 2);
	RANKS_EQ(slots[0][1], 0);
	RANKS_EQ(slots[0][2], 7);
	RANKS_EQ(slots[1][0], -1);
	RANKS_EQ(slots[1][1], 2);
	RANKS_EQ(slots[1][2], 7);
}

static void test_strides(void **state)
{
	static const int32_t map[] = {0, 1, 1, -1}, slots[] = {2, 2};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement = NULL;

	c.n_experts = 2;
	c.n_ranks = 2;
	c.expert_slots = slots;
	c.slot_expert = map;
	assert_int_equal(ferry_placement_create(&c, &placement), FERRY_OK);
	lab_run(*state, (struct ranks){.n_ranks = 2, .arg = &placement}, "",
	        strides);
	ferry_placement_destroy(placement);
}

/* One thread sends for all ranks, then receives: sending never waits. */
static void driven(struct rank *rank)
{
	struct ferry_splitter **const splitters = rank->shared;
	const struct task *const task = rank->arg;

	splitters[rank->rank] = lab_open(rank, 1, 1);
	ranks_meet(0, rank->n_ranks);
	for (int32_t i = 0; rank->rank == 0 && i < ROUNDS; i++) {
		const struct ferry_placement *const p = placement_of(task, i);
		int64_t loads[LAB_SLOTS] = {0}, got[LAB_SLOTS] = {0};
		int64_t quota[LAB_SLOTS] = {0};
		struct lab_batch batch[LAB_RANKS];
		struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;
		int32_t slots[LAB_TOKENS][LAB_TOPK];

		out.slots = slots[0];
		for (int32_t r = 0; r < rank->n_ranks; r++) {
			fill(&batch[r], task, r, i);
			lab_count(&batch[r], loads);
			const struct ferry_split_in in = lab_in(&batch[r], p);

			RANKS_OK(ferry_split_send(splitters[r], 0, &in));
		}
		for (int32_t r = rank->n_ranks - 1; r >= 0; r--) {
			RANKS_OK(ferry_split_recv(splitters[r], 0, &out));
			count_slots(&batch[r], slots, p, got);
		}
		RANKS_OK(ferry_split_quotas(p, loads, NULL, quota, NULL));
		RANKS_BYTES(got, quota, sizeof(got));
	}
	ranks_meet(1, rank->n_ranks);
}

static void test_driven(void **state)
{
	struct task task = {ranks_seed(), 1, 1, {NULL}, NULL};
	uint64_t seed = task.seed;
	struct ranks how = {
		.n_ranks = LAB_RANKS,
		.arg = &task,
		.shared_bytes = LAB_RANKS * sizeof(struct ferry_splitter *),
	};

	for (int i = 0; i < PLACEMENTS; i++)
		task.placements[i] =
			random_map(&seed, LAB_RANKS, FERRY_SPLIT_EXACT);
	lab_run(*state, how, "", driven);
	for (int i = 0; i < PLACEMENTS; i++)
		ferry_placement_destroy(task.placements[i]);
}

static struct runs runs;

int main(void)
{
	for (int i = 0; i < LAB_N_SETTINGS; i++) {
		const struct lab_setting *const s = &lab_settings[i];

		runs_add(&runs, "1 to 8 ranks", test_every_number_of_ranks,
		         s->name, s);
		runs_add(&runs, "groups", test_groups, s->name, s);
		runs_add(&runs, "speeds", test_speeds, s->name, s);
		runs_add(&runs, "strides", test_strides, s->name, s);
		if (s->kind == RANKS_THREADS)
			runs_add(&runs, "driven", test_driven, s->name, s);
	}
	return runs_go(&runs, "split");
}
