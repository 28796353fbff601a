/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of signals among ranks, one of which may fail. */
#include "fault_rounds.h"

#include <stdio.h>
#include <time.h>

#include "core/clock.h"

int32_t fault_n_gpus;

void fault_run(const struct fault_setting *setting, struct ranks how,
               const char *fault, ranks_body *body)
{
	char options[200];

	snprintf(options, sizeof(options), "%s;FAULT=%s", setting->options,
	         fault);
	how.fabric = setting->fabric;
	how.kind = setting->kind;
	how.options = options;
	how.device = fault_n_gpus ? FERRY_DEVICE_CUDA : FERRY_DEVICE_CPU;
	how.n_gpus = fault_n_gpus;
	how.shared_bytes = sizeof(struct fault_board);
	if (!how.timeout_ms)
		how.timeout_ms = RANKS_LONG_MS;
	fault_place(&how);
	ranks_run(&how, body);
}

void fault_pause_ms(int64_t ms)
{
	const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

int64_t fault_ms_since(uint64_t ns)
{
	return (int64_t)((ferry_now_ns() - ns) / 1000000);
}

struct ferry_segment *fault_open_segment(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, 4096,
	                            (uint32_t)rank->n_ranks + 1, &s));
	ranks_defer((void (*)(void *))ferry_segment_close, s);
	return s;
}

enum ferry_status fault_meet_all(struct rank *rank, struct ferry_segment *s,
                                 uint64_t round)
{
	const struct ferry_wait_at at = {FERRY_PHASE_DISPATCH_RECV, 0, round};
	struct ferry_wait_item items[RANKS_MAX];

	FERRY_TRY(ferry_segment_check(s));
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		FERRY_TRY(ferry_segment_signal(s, r, (uint32_t)rank->rank));
		items[r] = (struct ferry_wait_item){
			.signal = (uint32_t)r, .peer = r, .value = round};
	}
	FERRY_TRY(ferry_segment_kick(s));
	return ferry_segment_wait_all(s, items, rank->n_ranks, &at);
}

enum ferry_status fault_rounds(struct rank *rank, struct ferry_segment *s,
                               int n, int64_t *took_ms)
{
	enum ferry_status status = FERRY_OK;
	uint64_t begin = 0;

	for (int i = 1; status == FERRY_OK && i <= n; i++) {
		begin = ferry_now_ns();
		status = fault_meet_all(rank, s, (uint64_t)i);
	}
	*took_ms = fault_ms_since(begin);
	return status;
}

static void expect_broken(struct ferry_segment *s, const char *text)
{
	RANKS_STATUS(ferry_segment_signal(s, 0, 0), FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_STATUS(ferry_segment_put(s, 0, 0, NULL, 0, 0), FERRY_BROKEN);
	RANKS_STATUS(ferry_segment_kick(s), FERRY_BROKEN);
	RANKS_STATUS(ferry_segment_flush(s), FERRY_BROKEN);
	RANKS_STATUS(ferry_segment_wait(s, 0, 0), FERRY_BROKEN);
	RANKS_STATUS(ferry_segment_check(s), FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), text);
}

void fault_expect_failure(struct rank *rank, struct ferry_segment *s,
                          enum ferry_status got, enum ferry_status want,
                          int32_t root)
{
	struct fault_board *board = rank->shared;
	struct ferry_error error = FERRY_ERROR_INIT;

	board->decided_ns[rank->rank] = ferry_now_ns();
	RANKS_STATUS(got, want);
	RANKS_STATUS(ferry_world_poll(rank->world, &error), want);
	RANKS_EQ(error.status, want);
	RANKS_EQ(error.rank, rank->rank);
	RANKS_TEXT(ferry_last_error(), error.text);
	if (root >= 0)
		RANKS_EQ(error.root_rank, root);
	board->roots[rank->rank] = error.root_rank;
	snprintf(board->texts[rank->rank], sizeof(board->texts[0]), "%.*s",
	         (int)sizeof(board->texts[0]) - 1, error.text);
	expect_broken(s, error.text);
}
