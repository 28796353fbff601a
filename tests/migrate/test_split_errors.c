/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a splitter refuses, and how a failure of one rank becomes one of all:
 * bad ids, other placements, speeds and batches, deaths, stalls, aborts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/ctx.h"
#include "runs.h"
#include "split_lab.h"

enum {
	SHORT_MS = 600,
};

/* Two ranks' worth of slots on each of four ranks; expert 1 is everywhere. */
struct task {
	struct ferry_placement *placement;
	struct ferry_placement *other;
};

static struct ferry_placement *create(const int32_t *map)
{
	static const int32_t slots[] = {2, 2, 2, 2};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;

	c.n_experts = 5;
	c.n_ranks = 4;
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = FERRY_SPLIT_EXACT;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	return p;
}

static void run_task(const struct lab_setting *setting, struct ranks how,
                     const char *fault, ranks_body *body)
{
	static const int32_t map[] = {0, 1, 2, 1, 3, 1, 4, 1};
	static const int32_t other[] = {0, 1, 2, 1, 3, 1, 4, -1};
	struct task task = {create(map), create(other)};

	how.n_ranks = 4;
	how.arg = &task;
	lab_run(setting, how, fault, body);
	ferry_placement_destroy(task.placement);
	ferry_placement_destroy(task.other);
}

static int32_t slots_of[LAB_RANKS][LAB_TOKENS][LAB_TOPK];

static struct ferry_split_out out_of(const struct rank *rank)
{
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;

	out.slots = slots_of[rank->rank][0];
	return out;
}

/* A batch of two tokens, all for expert 1. */
static struct lab_batch simple(void)
{
	struct lab_batch batch = {.n_tokens = 2};

	for (int i = 0; i < 2 * LAB_TOPK; i++)
		batch.ids[i / LAB_TOPK][i % LAB_TOPK] = 1;
	return batch;
}

static enum ferry_status split_once(struct rank *rank,
                                    struct ferry_splitter *splitter,
                                    const struct lab_batch *batch,
                                    const struct ferry_placement *placement)
{
	const struct ferry_split_in in = lab_in(batch, placement);
	const struct ferry_split_out out = out_of(rank);

	return ferry_split(splitter, 0, &in, &out);
}

/* It is broken now, for this reason, on all slots. */
static void expect_broken(struct rank *rank, struct ferry_splitter *splitter,
                          enum ferry_status status, const char *text)
{
	const struct task *const task = rank->arg;
	const struct lab_batch batch = simple();
	const struct ferry_split_in in = lab_in(&batch, task->placement);
	const struct ferry_split_out out = out_of(rank);
	struct ferry_error error = FERRY_ERROR_INIT;

	RANKS_STATUS(ferry_world_poll(rank->world, &error), status);
	RANKS_TEXT(error.text, text);
	RANKS_STATUS(ferry_split_send(splitter, 1, &in), FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_STATUS(ferry_split_recv(splitter, 0, &out), FERRY_BROKEN);
	RANKS_STATUS(ferry_split(splitter, 0, &in, &out), FERRY_BROKEN);
}

static void expect(struct rank *rank, struct ferry_splitter *splitter,
                   enum ferry_status got, enum ferry_status want,
                   const char *text)
{
	RANKS_STATUS(got, want);
	RANKS_TEXT(ferry_last_error(), text);
	expect_broken(rank, splitter, want, text);
}

static void bad_id(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter = lab_open(rank, 2, 1);
	struct lab_batch batch = simple();

	RANKS_OK(split_once(rank, splitter, &batch, task->placement));
	if (rank->rank == 2)
		batch.ids[1][3] = 5;
	expect(rank, splitter,
	       split_once(rank, splitter, &batch, task->placement), FERRY_RANGE,
	       "split: ids[1][3] is 5, experts are 0..4 (rank 2)");
}

static void test_bad_id(void **state)
{
	run_task(*state, (struct ranks){0}, "", bad_id);
}

static void skipped_id(struct rank *rank)
{
	struct ferry_splitter_config config = FERRY_SPLITTER_CONFIG_INIT;
	const struct task *const task = rank->arg;
	struct ferry_splitter *splitter = NULL;
	struct lab_batch batch = simple();

	config.max_tokens = LAB_TOKENS;
	config.topk = LAB_TOPK;
	config.max_experts = 5;
	config.max_expert_slots = 8;
	config.bad_id = FERRY_BAD_ID_SKIP;
	RANKS_OK(ferry_splitter_open(rank->world, &config, &splitter));
	ranks_defer((void (*)(void *))ferry_splitter_close, splitter);
	batch.ids[1][3] = 5;
	batch.ids[0][0] = -7;
	RANKS_OK(split_once(rank, splitter, &batch, task->placement));
	for (int i = 0; i < 2 * LAB_TOPK; i++)
		RANKS_EQ(slots_of[rank->rank][i / LAB_TOPK][i % LAB_TOPK],
		         i == 0 || i == 7 ? -1 : 2 * rank->rank + 1);
}

static void test_skipped_id(void **state)
{
	run_task(*state, (struct ranks){0}, "", skipped_id);
}

static void other_placement(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter = lab_open(rank, 2, 1);
	const struct lab_batch batch = simple();
	char text[160];

	snprintf(text, sizeof(text),
	         "placement has hash %016llx on rank 3, %016llx on rank 0",
	         (unsigned long long)ferry_placement_hash(task->other),
	         (unsigned long long)ferry_placement_hash(task->placement));
	expect(rank, splitter,
	       split_once(rank, splitter, &batch,
	                  rank->rank == 3 ? task->other : task->placement),
	       FERRY_MISMATCH, text);
}

static void test_other_placement(void **state)
{
	run_task(*state, (struct ranks){0}, "", other_placement);
}

static void other_speed(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter = lab_open(rank, 2, 1);
	const struct lab_batch batch = simple();
	const int32_t speed[] = {1000, 1000, 1000, 1000 + (rank->rank == 1)};
	struct ferry_split_in in = lab_in(&batch, task->placement);
	const struct ferry_split_out out = out_of(rank);

	in.speed = speed;
	expect(rank, splitter, ferry_split(splitter, 0, &in, &out),
	       FERRY_MISMATCH, "speed of rank 1 differs from that of rank 0");
}

static void test_other_speed(void **state)
{
	run_task(*state, (struct ranks){0}, "", other_speed);
}

static void other_mate(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter = lab_open(rank, 2, 2);
	struct lab_batch batch = simple();

	batch.n_tokens = rank->rank == 3 ? 1 : 2;
	expect(rank, splitter,
	       split_once(rank, splitter, &batch, task->placement),
	       FERRY_MISMATCH,
	       "ids of rank 3 differ from those of rank 2, which is in its "
	       "group");
}

static void test_other_mate(void **state)
{
	run_task(*state, (struct ranks){0}, "", other_mate);
}

static enum ferry_status split_until_failure(struct rank *rank,
                                             struct ferry_splitter *splitter)
{
	const struct task *const task = rank->arg;
	const struct lab_batch batch = simple();

	for (;;)
		FERRY_TRY(split_once(rank, splitter, &batch, task->placement));
}

static void killed(struct rank *rank)
{
	struct ferry_splitter *const splitter = lab_open(rank, 2, 1);
	const uint64_t begin = ferry_now_ns();
	const enum ferry_status status = split_until_failure(rank, splitter);

	if (rank->rank == 1)
		return;
	RANKS_CHECK(ferry_now_ns() - begin <
	            RANKS_AT_ONCE_MS * UINT64_C(1000000));
	expect(rank, splitter, status, FERRY_PEER, "rank 1");
}

static void test_killed(void **state)
{
	const int after[] = {0, 1, 7, 40};

	for (int i = 0; i < 4; i++) {
		const struct ranks how = {
			.killed = RANKS_BIT(1),
			.timeout_ms = RANKS_LONG_MS,
		};
		char fault[64];

		snprintf(fault, sizeof(fault), "kill:rank=1,after=%d",
		         after[i]);
		run_task(*state, how, fault, killed);
	}
}

static void stalls(struct rank *rank)
{
	struct ferry_splitter *const splitter = lab_open(rank, 2, 1);

	expect(rank, splitter, split_until_failure(rank, splitter),
	       FERRY_TIMEOUT, "rank 2");
}

static void test_stalls(void **state)
{
	run_task(*state, (struct ranks){.timeout_ms = SHORT_MS},
	         "stall:rank=2,ms=1800,after=30", stalls);
}

static void aborts(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter = lab_open(rank, 2, 1);
	const struct lab_batch batch = simple();

	for (int i = 0; rank->rank == 1 && i < 3; i++)
		RANKS_OK(split_once(rank, splitter, &batch, task->placement));
	if (rank->rank == 1)
		ferry_world_abort(rank->world);
	expect(rank, splitter, split_until_failure(rank, splitter),
	       FERRY_ABORTED, "rank 1");
}

static void test_aborts(void **state)
{
	run_task(*state, (struct ranks){0}, "", aborts);
}

static void refuse_in(struct rank *rank, struct ferry_splitter *splitter,
                      const struct ferry_split_in *in, enum ferry_status status,
                      const char *text)
{
	(void)rank;
	RANKS_STATUS(ferry_split_send(splitter, 0, in), status);
	RANKS_TEXT(ferry_last_error(), text);
}

/* Refusals that leave everything as it was. */
static void arguments(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter = lab_open(rank, 2, 1);
	const struct lab_batch batch = simple();
	const struct ferry_split_in good = lab_in(&batch, task->placement);
	struct ferry_split_in in = good;
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;
	static const int32_t speed[] = {1000, 0, 1000, 1000};

	refuse_in(rank, splitter, NULL, FERRY_INVAL, "split: in is NULL");
	in.n_tokens = LAB_TOKENS + 1;
	refuse_in(rank, splitter, &in, FERRY_RANGE,
	          "split_send: n_tokens is 49, allowed are 0..48");
	in = good;
	in.topk = 5;
	refuse_in(rank, splitter, &in, FERRY_RANGE, "topk is 5, allowed are");
	in = good;
	in.ids = NULL;
	refuse_in(rank, splitter, &in, FERRY_INVAL, "ids is NULL");
	in = good;
	in.ids_stride = 12;
	refuse_in(rank, splitter, &in, FERRY_INVAL, "ids_stride is 12");
	in = good;
	in.ids = (const char *)good.ids + 1;
	refuse_in(rank, splitter, &in, FERRY_INVAL,
	          ", allowed are multiples of 4");
	in = good;
	in.id_type = (enum ferry_id_type)2;
	refuse_in(rank, splitter, &in, FERRY_RANGE, "id_type is 2");
	in = good;
	in.placement = NULL;
	refuse_in(rank, splitter, &in, FERRY_INVAL, "placement is NULL");
	in = good;
	in.speed = speed;
	refuse_in(rank, splitter, &in, FERRY_RANGE, "speed[1] is 0");
	RANKS_STATUS(ferry_split_send(NULL, 0, &good), FERRY_INVAL);
	RANKS_STATUS(ferry_split_send(splitter, 2, &good), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "slot is 2, allowed are 0..1");

	RANKS_STATUS(ferry_split_recv(splitter, 0, &out), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "slot 0 expects split_send");
	RANKS_OK(ferry_split_send(splitter, 0, &good));
	RANKS_STATUS(ferry_split_send(splitter, 0, &good), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "slot 0 expects split_recv");
	RANKS_STATUS(ferry_split_recv(splitter, 0, &out), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "split_recv: slots is NULL");
	out = out_of(rank);
	out.slots_stride = 8;
	RANKS_STATUS(ferry_split_recv(splitter, 0, &out), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "slots_stride is 8");
	out.slots_stride = 0;
	RANKS_OK(ferry_split_recv(splitter, 0, &out));
	ferry_splitter_close(NULL);
}

static void test_arguments(void **state)
{
	run_task(*state, (struct ranks){0}, "", arguments);
}

struct refused_config {
	struct ferry_splitter_config config;
	enum ferry_status status;
	const char *text;
};

static const struct refused_config configs[] = {
	{{sizeof(configs[0].config), 0, 4, 5, 8, 1, 1, FERRY_BAD_ID_ERROR},
         FERRY_RANGE,
         "max_tokens is 0, allowed are 1..2147483647"},
	{{sizeof(configs[0].config), 9, 65, 5, 8, 1, 1, FERRY_BAD_ID_ERROR},
         FERRY_RANGE,
         "topk is 65, allowed are 1..64"},
	{{sizeof(configs[0].config), 9, 4, 0, 8, 1, 1, FERRY_BAD_ID_ERROR},
         FERRY_RANGE,
         "max_experts is 0"},
	{{sizeof(configs[0].config), 9, 4, 5, -8, 1, 1, FERRY_BAD_ID_ERROR},
         FERRY_RANGE,
         "max_expert_slots is -8"},
	{{sizeof(configs[0].config), 9, 4, 5, 8, 257, 1, FERRY_BAD_ID_ERROR},
         FERRY_RANGE,
         "n_slots is 257, allowed are 1..256"},
	{{sizeof(configs[0].config), 9, 4, 5, 8, 1, 3, FERRY_BAD_ID_ERROR},
         FERRY_INVAL,
         "group_size is 3, it must divide the 4 ranks"},
	{{sizeof(configs[0].config), 9, 4, 5, 8, 1, 1, (enum ferry_bad_id)2},
         FERRY_RANGE,
         "bad_id is 2"},
	{{sizeof(configs[0].config), 1 << 30, 4, 5, 8, 1, 1,
          FERRY_BAD_ID_ERROR},
         FERRY_RANGE,
         "max_tokens * topk is 4294967296"},
};

/* What one rank refuses, the others hear of. */
static void opens(struct rank *rank)
{
	struct ferry_splitter *splitter = NULL;
	struct ferry_splitter_config c = FERRY_SPLITTER_CONFIG_INIT;

	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
		RANKS_STATUS(ferry_splitter_open(rank->world,
		                                 &configs[i].config, &splitter),
		             configs[i].status);
		RANKS_TEXT(ferry_last_error(), configs[i].text);
	}
	RANKS_STATUS(ferry_splitter_open(rank->world, NULL, &splitter),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_splitter_open(NULL, &c, &splitter), FERRY_INVAL);
	RANKS_STATUS(ferry_splitter_open(rank->world, &c, NULL), FERRY_INVAL);
	c.max_tokens = 9;
	c.topk = 4;
	c.max_experts = 5 + (rank->rank == 2);
	RANKS_STATUS(ferry_splitter_open(rank->world, &c, &splitter),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(),
	           "splitter_open: max_experts is 6 on rank 2, 5 on rank 0");
	RANKS_CHECK(!splitter);
	/* 0 and the default that it stands for are equal. */
	c.max_experts = 5;
	c.n_slots = rank->rank == 2;
	RANKS_OK(ferry_splitter_open(rank->world, &c, &splitter));
	ranks_defer((void (*)(void *))ferry_splitter_close, splitter);
	/* The placement has 8 slots, this splitter room for 5. */
	const struct task *const task = rank->arg;
	const struct lab_batch batch = simple();
	const struct ferry_split_in in = lab_in(&batch, task->placement);

	RANKS_STATUS(ferry_split_send(splitter, 0, &in), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(),
	           "placement has 8 expert slots, allowed are 1..5");
}

static void test_opens(void **state)
{
	run_task(*state, (struct ranks){0}, "", opens);
}

static struct runs runs;

int main(void)
{
	for (int i = 0; i < LAB_N_SETTINGS; i++) {
		const struct lab_setting *const s = &lab_settings[i];

		if (!ranks_worth(s->kind))
			continue;
		runs_add(&runs, "bad id", test_bad_id, s->name, s);
		runs_add(&runs, "skipped id", test_skipped_id, s->name, s);
		runs_add(&runs, "other placement", test_other_placement,
		         s->name, s);
		runs_add(&runs, "other speed", test_other_speed, s->name, s);
		runs_add(&runs, "other mate", test_other_mate, s->name, s);
		runs_add(&runs, "killed", test_killed, s->name, s);
		runs_add(&runs, "stalls", test_stalls, s->name, s);
		runs_add(&runs, "aborts", test_aborts, s->name, s);
		runs_add(&runs, "arguments", test_arguments, s->name, s);
		runs_add(&runs, "opens", test_opens, s->name, s);
	}
	return runs_go(&runs, "split_errors");
}
