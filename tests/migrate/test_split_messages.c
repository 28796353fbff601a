/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that no rank would send: whatever comes is looked at before it is
 * taken for counts, and all ranks blame the same one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "migrate/split_inner.h"
#include "split_lab.h"

enum { N_RANKS = 3, LIAR = 1 };

/* What the liar makes of its message. */
struct lie {
	const char *what;
	void (*tell)(struct ferry_split_head *head, int32_t *words);
	enum ferry_status status;
	const char *text;
};

static void other_number(struct ferry_split_head *head, int32_t *words)
{
	(void)words;
	head->number = 7;
}

static void fewer_words(struct ferry_split_head *head, int32_t *words)
{
	(void)words;
	head->n_words--;
}

static void negative_count(struct ferry_split_head *head, int32_t *words)
{
	(void)head;
	words[N_RANKS] = -1;
}

static void many_choices(struct ferry_split_head *head, int32_t *words)
{
	(void)head;
	words[0] = LAB_TOKENS * LAB_TOPK;
	words[N_RANKS] = 1;
}

/* int32 would overflow: the sum must not. */
static void huge_counts(struct ferry_split_head *head, int32_t *words)
{
	(void)head;
	words[0] = INT32_MAX;
	words[1] = INT32_MAX;
}

static void other_hash(struct ferry_split_head *head, int32_t *words)
{
	(void)words;
	head->placement++;
}

static const struct lie lies[] = {
	{"number", other_number, FERRY_PROTO,
         "the message of rank 1 is of split 7 of slot 0, expected is 0"},
	{"fewer words", fewer_words, FERRY_PROTO,
         "the message of rank 1 has 3 words, expected are 4"},
	{"negative", negative_count, FERRY_PROTO, "word 3 of rank 1 is -1"},
	{"too many", many_choices, FERRY_PROTO,
         "word 3 of rank 1 is 1, and the sum so far 193"},
	{"huge", huge_counts, FERRY_PROTO, "word 0 of rank 1 is 2147483647"},
	{"hash", other_hash, FERRY_MISMATCH, "placement has hash"},
};

enum { N_LIES = sizeof(lies) / sizeof(lies[0]) };

struct task {
	const struct lie *lie;
	struct ferry_placement *placement;
};

/* Sends an empty batch, but for the lie. */
static void send_lie(struct ferry_splitter *s, const struct task *task)
{
	const struct ferry_split_round round = {0, 0};
	struct ferry_split_head *const head =
		ferry_split_region_own(&s->region, round);
	int32_t *const words = (int32_t *)(void *)(head + 1);
	const size_t n_words = N_RANKS + 1;

	*head = (struct ferry_split_head){
		.placement = ferry_placement_hash(task->placement),
		.n_words = (int32_t)n_words,
	};
	memset(words, 0, n_words * sizeof(*words));
	task->lie->tell(head, words);
	RANKS_OK(ferry_split_region_send(
		&s->region, round, sizeof(*head) + n_words * sizeof(*words)));
	s->slots[0].sent = true;
	s->slots[0].placement = task->placement;
	s->slots[0].topk = LAB_TOPK;
}

static void hears_a_lie(struct rank *rank)
{
	const struct task *const task = rank->arg;
	struct ferry_splitter *const splitter = lab_open(rank, 1, 1);
	const struct lab_batch batch = {.n_tokens = 0};
	const struct ferry_split_in in = lab_in(&batch, task->placement);
	const struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;

	if (rank->rank == LIAR)
		send_lie(splitter, task);
	else
		RANKS_OK(ferry_split_send(splitter, 0, &in));
	RANKS_STATUS(ferry_split_recv(splitter, 0, &out), task->lie->status);
	RANKS_TEXT(ferry_last_error(), task->lie->text);
	RANKS_STATUS(ferry_split_recv(splitter, 0, &out), FERRY_BROKEN);
}

static void test_lie(void **state)
{
	static const int32_t slots[N_RANKS] = {1, 1, 1};
	static const int32_t map[] = {0, 1, 0};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct task task = {.lie = *state};

	c.n_experts = 2;
	c.n_ranks = N_RANKS;
	c.expert_slots = slots;
	c.slot_expert = map;
	assert_int_equal(ferry_placement_create(&c, &task.placement), FERRY_OK);
	for (int i = 0; i < LAB_N_SETTINGS; i++)
		lab_run(&lab_settings[i],
		        (struct ranks){.n_ranks = N_RANKS, .arg = &task}, "",
		        hears_a_lie);
	ferry_placement_destroy(task.placement);
}

int main(void)
{
	struct CMUnitTest tests[N_LIES];

	for (int i = 0; i < N_LIES; i++)
		tests[i] = (struct CMUnitTest){
			.name = lies[i].what,
			.test_func = test_lie,
			.initial_state = (void *)(uintptr_t)&lies[i],
		};
	return _cmocka_run_group_tests("split_messages", tests, N_LIES, NULL,
	                               NULL);
}
