/* SPDX-License-Identifier: Apache-2.0 */
/* What a channel tells about itself, and calls that may be tried again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <ferry/trace.h>

#include "fabric/world.h"
#include "proto/channel.h"
#include "run_args.h"
#include "smoke_pair.h"
#include "trace/events.h"

enum { N_RANKS = 3, TURNS = 5, ROW_BYTES = SMOKE_HIDDEN * 2 };

static void close_moe(void *moe)
{
	ferry_moe_close(moe);
}

static struct smoke_pair *open_pair(struct rank *rank)
{
	struct ferry_moe_config config = smoke_config(rank->n_ranks);
	struct ferry_moe *moe;

	config.path = run_args.path;
	config.device = run_args.device;
	/* Streams outlast the channel: what comes first ends last. */
	(void)rank_memory_of(rank, 1);
	RANKS_OK(ferry_moe_open(rank->world, &config, &moe));
	ranks_defer(close_moe, moe);
	return smoke_open(rank, moe, &config, 0);
}

/* Experts of the smoke tests are dealt out as evenly as possible: 3, 2, 2. */
static int32_t rank_of(int32_t expert)
{
	return expert < 3 ? 0 : expert < 5 ? 1 : 2;
}

/* Does rank r find its row with another rank of its host? */
static bool is_fanned(const struct smoke_pair *p, const bool *reached,
                      int32_t r)
{
	const struct ferry_hosts *hosts = &p->moe->shape.hosts;

	for (int32_t other = 0; other < r; other++)
		if (ferry_hosts_far(hosts, r) && reached[other] &&
		    hosts->of[other] == hosts->of[r])
			return true;
	return false;
}

/* What the batch in flight must add to the counters of its sender. */
static void expect_batch(const struct smoke_pair *p,
                         struct ferry_moe_stats *expected)
{
	expected->tokens_sent += (uint64_t)p->n_tokens;
	for (int32_t t = 0; t < p->n_tokens; t++) {
		bool reached[N_RANKS] = {false};

		for (int32_t k = 0; k < SMOKE_TOPK; k++) {
			const int32_t id = p->ids[t * SMOKE_TOPK + k];

			if (id < 0)
				continue;
			reached[rank_of(id)] = true;
			expected->logical_bytes_combine += ROW_BYTES;
		}
		for (int32_t r = 0; r < N_RANKS; r++)
			if (reached[r] && r != p->rank &&
			    !is_fanned(p, reached, r))
				expected->wire_bytes_dispatch += ROW_BYTES;
	}
}

/* What has arrived here adds to the counters of its receiver. */
static void expect_rows(const struct smoke_pair *p,
                        struct ferry_moe_stats *expected)
{
	expected->rows_received += (uint64_t)*p->n_rows;
	expected->logical_bytes_dispatch += (uint64_t)*p->n_rows * ROW_BYTES;
	for (int64_t i = 0; i < p->need.recv_rows; i++)
		if (p->row_source[i] >= 0 && p->row_source[i] != p->rank)
			expected->wire_bytes_combine += ROW_BYTES;
}

static void check_stats(const struct ferry_moe_stats *got,
                        const struct ferry_moe_stats *expected)
{
	RANKS_EQ(got->n_dispatches, TURNS);
	RANKS_EQ(got->n_combines, TURNS);
	RANKS_EQ(got->tokens_sent, expected->tokens_sent);
	if (run_on_gpus())
		return; /* the rest is known to the GPU only */
	RANKS_EQ(got->rows_received, expected->rows_received);
	RANKS_EQ(got->rows_dropped, 0);
	RANKS_EQ(got->wire_bytes_dispatch, expected->wire_bytes_dispatch);
	RANKS_EQ(got->wire_bytes_combine, expected->wire_bytes_combine);
	RANKS_EQ(got->logical_bytes_dispatch, expected->logical_bytes_dispatch);
	RANKS_EQ(got->logical_bytes_combine, expected->logical_bytes_combine);
}

static void counters(struct rank *rank)
{
	struct smoke_pair *p = open_pair(rank);
	struct ferry_moe_stats expected = FERRY_MOE_STATS_INIT;
	struct ferry_moe_stats got = FERRY_MOE_STATS_INIT;
	uint64_t by_slot[SMOKE_EXPERTS] = {0};

	for (int32_t turn = 0; turn < TURNS; turn++) {
		smoke_run(p, turn, SMOKE_TOKENS - turn);
		expect_batch(p, &expected);
		expect_rows(p, &expected);
		for (int32_t s = 0; s < p->need.max_expert_slots; s++)
			by_slot[s] += (uint64_t)p->counts[s];
	}
	RANKS_OK(ferry_moe_get_stats(p->moe, &got));
	check_stats(&got, &expected);
	if (run_on_gpus())
		return;
	RANKS_CHECK(got.hottest_slot >= 0);
	RANKS_EQ(got.hottest_rows, by_slot[got.hottest_slot]);
	for (int32_t s = 0; s < p->need.max_expert_slots; s++)
		RANKS_CHECK(by_slot[s] <= got.hottest_rows);
}

static void test_counters(void **state)
{
	const struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	ranks_run(&how, counters);
}

static void metrics(struct rank *rank)
{
	struct smoke_pair *p = open_pair(rank);
	char text[8192], line[96];

	smoke_run(p, 0, SMOKE_TOKENS);
	const size_t bytes =
		ferry_moe_metrics(p->moe, "smoke", text, sizeof(text));

	RANKS_EQ(bytes, strlen(text));
	snprintf(line, sizeof(line),
	         "ferry_dispatches_total{channel=\"smoke\",rank=\"%d\"} 1\n",
	         rank->rank);
	RANKS_TEXT(text, line);
	RANKS_EQ(ferry_moe_metrics(NULL, "none", text, sizeof(text)), 0);
	RANKS_EQ(text[0], 0);
}

static void test_metrics(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, metrics);
}

static void expect_event(struct ferry_trace *trace, uint64_t i,
                         const char *name, uint64_t epoch)
{
	struct ferry_trace_event event;

	RANKS_CHECK(ferry_trace_at(trace, i, &event));
	RANKS_TEXT(event.name, name);
	RANKS_TEXT(event.category, "moe");
	RANKS_EQ(event.epoch, epoch);
	RANKS_EQ(event.slot, 0);
	RANKS_CHECK(event.begin_ns > 0 && event.end_ns >= event.begin_ns);
}

static void events(struct rank *rank)
{
	struct ferry_trace *trace = rank->world->trace;
	struct smoke_pair *p = open_pair(rank);

	smoke_run(p, 0, SMOKE_TOKENS);
	smoke_fill(p, 1, SMOKE_TOKENS);
	RANKS_OK(ferry_dispatch_send(p->moe, 0, &p->in, p->stream));
	RANKS_OK(ferry_dispatch_recv(p->moe, 0, &p->dispatch_out, p->stream));
	RANKS_OK(ferry_combine_send(p->moe, 0, &p->combine_in, p->stream));
	RANKS_OK(ferry_combine_recv(p->moe, 0, &p->combine_out, p->stream));
	RANKS_EQ(ferry_trace_count(trace), 6);
	expect_event(trace, 0, "dispatch", 0);
	expect_event(trace, 1, "combine", 0);
	expect_event(trace, 2, "dispatch_send", 1);
	expect_event(trace, 3, "dispatch_recv", 1);
	expect_event(trace, 4, "combine_send", 1);
	expect_event(trace, 5, "combine_recv", 1);
}

static void test_events(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	how.options = "TRACE=/dev/null";
	ranks_run(&how, events);
}

/* What can only be refused after the tables came may be called once more. */
static void again(struct rank *rank)
{
	struct smoke_pair *p = open_pair(rank);

	for (int32_t turn = 0; turn < TURNS; turn++) {
		smoke_fill(p, turn, SMOKE_TOKENS);
		p->dispatch_out.rows = NULL;
		RANKS_STATUS(ferry_dispatch(p->moe, 0, &p->in, &p->dispatch_out,
		                            NULL),
		             FERRY_INVAL);
		RANKS_TEXT(ferry_last_error(), "rows is NULL, but ");
		RANKS_EQ(*p->n_rows, 0);
		p->dispatch_out.rows = p->rows;
		RANKS_OK(ferry_dispatch_recv(p->moe, 0, &p->dispatch_out,
		                             p->stream));
		smoke_check_rows(p);
		p->combine_in.y = NULL;
		RANKS_STATUS(ferry_combine(p->moe, 0, &p->combine_in,
		                           &p->combine_out, NULL),
		             FERRY_INVAL);
		RANKS_TEXT(ferry_last_error(), "y is NULL, but ");
		p->combine_in.y = p->rows;
		RANKS_OK(ferry_combine(p->moe, 0, &p->combine_in,
		                       &p->combine_out, NULL));
		smoke_check_out(p);
	}
}

static void test_again(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	if (run_on_gpus())
		skip(); /* the host does not know whether rows arrive */
	ranks_run(&how, again);
	how.n_ranks = 3;
	ranks_run(&how, again);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_metrics),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_again),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
