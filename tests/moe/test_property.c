/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random channels, random batches, every byte compared with the oracle on
 * every rank.
 *
 * A failure prints the seed of its case: --seed S --count 1 repeats it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <ferry/trace.h>

#include "random_case.h"
#include "run_args.h"

/* What the channel must have counted. */
struct tally {
	uint64_t n_dispatches, n_combines, rows_received;
};

/* One operation slot of this rank. */
struct lane {
	struct drive_op *op;
	int next; /* phase, 0..3 */
	bool combine, fused;
};

static void begin(const struct random_case *c, struct drive *d, int32_t slot,
                  int32_t i, struct lane *lane)
{
	struct drive_step step;

	random_case_step(c, i, d->rank, &step, &lane->combine);
	lane->fused = step.fused;
	lane->op = drive_begin(d, slot, &step);
	lane->next = 0;
}

/*
 * The dispatch that must fail, on every rank alike. Who is still sending when
 * another rank has seen his table learns it from his send.
 */
static void must_fail(struct rank *rank, struct drive *d, struct drive_op *op,
                      enum ferry_status want, int32_t root)
{
	struct ferry_error error = FERRY_ERROR_INIT;
	enum ferry_status status = drive_try_send(op);

	if (status == FERRY_OK) {
		status = drive_try_recv(op);
		drive_check_empty(op);
	}
	RANKS_STATUS(status, want);
	RANKS_STATUS(ferry_moe_poll(d->moe, &error), want);
	RANKS_EQ(error.root_rank, root);
	RANKS_STATUS(ferry_world_poll(rank->world, NULL), want);
}

/* A fused call takes the place of its send; that of its recv is empty. */
static void call(const struct lane *lane)
{
	switch (lane->next) {
	case 0:
		if (lane->fused)
			drive_dispatch_fused(lane->op);
		else
			drive_dispatch_send(lane->op);
		break;
	case 1:
		if (!lane->fused)
			drive_dispatch_recv(lane->op);
		break;
	case 2:
		if (lane->fused)
			drive_combine_fused(lane->op);
		else
			drive_combine_send(lane->op);
		break;
	default:
		if (!lane->fused)
			drive_combine_recv(lane->op);
	}
}

/* The next call of an operation; the last one ends it. */
static void advance(const struct drive *d, struct lane *lane,
                    struct tally *tally)
{
	const struct oracle_row *rows;

	call(lane);
	lane->next++;
	if (lane->next == 2) {
		tally->n_dispatches++;
		tally->rows_received += (uint64_t)oracle_rows(
			drive_oracle(lane->op), d->rank, &rows);
	}
	tally->n_combines += lane->next == 4;
	if (lane->next == 4 || (lane->next == 2 && !lane->combine)) {
		drive_end(lane->op);
		lane->op = NULL;
	}
}

static void check_tally(const struct drive *d, const struct tally *tally)
{
	struct ferry_moe_stats stats = FERRY_MOE_STATS_INIT;

	RANKS_OK(ferry_moe_get_stats(d->moe, &stats));
	RANKS_EQ(stats.n_dispatches, tally->n_dispatches);
	RANKS_EQ(stats.n_combines, tally->n_combines);
	if (!run_on_gpus()) /* the host is not told */
		RANKS_EQ(stats.rows_received, tally->rows_received);
}

/*
 * Calls in an order that all ranks share: any slot that is free begins
 * something, any other goes on. A step that must fail is the last.
 */
static void body(struct rank *rank)
{
	const struct random_case *c = rank->arg;
	struct drive *d =
		drive_open(rank, &c->config, c->placed ? &c->placement : NULL);
	const int32_t n_slots = c->config.n_slots ? c->config.n_slots : 1;
	struct lane lanes[RANDOM_CASE_SLOTS] = {0};
	struct tally tally = {0};
	uint64_t rng = c->seed + 99;
	int32_t n_begun = 0;
	int32_t n_open = 0;

	while (n_begun < c->n_steps || n_open > 0) {
		const int32_t slot =
			(int32_t)traffic_between(&rng, 0, n_slots - 1);
		struct lane *lane = &lanes[slot];
		enum ferry_status status;
		int32_t root;

		if (lane->op == NULL && n_begun == c->n_steps)
			continue;
		if (lane->op == NULL) {
			begin(c, d, slot, n_begun++, lane);
			status = oracle_status(drive_oracle(lane->op), &root);
			if (status != FERRY_OK) {
				must_fail(rank, d, lane->op, status, root);
				return;
			}
			n_open++;
		}
		advance(d, lane, &tally);
		n_open -= lane->op == NULL;
	}
	check_tally(d, &tally);
}

static void put_on_host(const struct rank *rank,
                        struct ferry_world_config *config)
{
	config->options = random_case_host(rank->arg, rank->rank);
}

static void every_case_agrees(void **state)
{
	(void)state;
	const int n_cases = run_args.count ? run_args.count : 60;

	for (int i = 0; i < n_cases; i++) {
		/* The seed of case 0 is the given one: it can be repeated. */
		uint64_t rng = run_args.seed + (uint64_t)i;
		const uint64_t seed = rng;
		struct random_case c;

		random_case_make(&c, seed,
		                 (int32_t)(traffic_random(&rng) >> 20 & 7) + 1);
		random_case_print(&c);
		fflush(stdout);
		struct ranks how = run_args_ranks(c.config.n_ranks);

		how.arg = &c;
		if (run_args.any_hosts)
			how.configure = put_on_host;
		ranks_run(&how, body);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_case_agrees),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
