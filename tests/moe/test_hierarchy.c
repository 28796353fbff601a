/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels between hosts, in bytes: a row once for each token and host
 * that wants it, and the tables. 2 hosts of 4 ranks, or those of the command
 * line; with the hierarchy off, which the option does, a row for each rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <ferry/trace.h>

#include "core/order.h"
#include "drive.h"
#include "run_args.h"

enum {
	N_RANKS = 8,
	N_TOKENS = 128,
	HIDDEN = 2048,
	ROW_BYTES = 2 * HIDDEN,
	N_STEPS = 1,
};

static struct ferry_moe_config config_of(const struct rank *rank,
                                         enum ferry_combine_mode combine)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = N_TOKENS;
	c.hidden = HIDDEN;
	c.topk = 8;
	c.n_experts = 64;
	c.layout = FERRY_TOKEN;
	c.combine = combine;
	c.group_size = rank->arg ? *(const int32_t *)rank->arg : 1;
	return c;
}

/* Rows to other hosts: one per (token, host), and one per (token, rank). */
struct bound {
	uint64_t hosts, ranks;
};

/* What the batch in flight asks of this rank. */
static void add_bound(const struct drive *d, const struct drive_op *op,
                      struct bound *bound)
{
	bool to_host[N_TOKENS][N_RANKS] = {{false}};

	for (int32_t r = 0; r < N_RANKS; r++) {
		bool to_rank[N_TOKENS] = {false};
		const struct oracle_row *rows;
		const int64_t n = oracle_rows(drive_oracle(op), r, &rows);

		if (d->host[r] == d->host[d->rank])
			continue;
		for (int64_t i = 0; i < n; i++) {
			if (rows[i].source != d->rank)
				continue;
			bound->ranks += !to_rank[rows[i].token];
			bound->hosts += !to_host[rows[i].token][d->host[r]];
			to_rank[rows[i].token] = true;
			to_host[rows[i].token][d->host[r]] = true;
		}
	}
}

static void run_step(struct drive *d, int i, struct bound *bound)
{
	struct drive_step step = {.from = FERRY_FROM_PACKED, .light = true};

	step.spec.seed = run_args.seed + (uint64_t)i;
	for (int32_t r = 0; r < N_RANKS; r++)
		step.n_tokens[r] = N_TOKENS;
	struct drive_op *op = drive_begin(d, 0, &step);

	add_bound(d, op, bound);
	drive_dispatch_send(op);
	drive_dispatch_recv(op);
	drive_combine_send(op);
	drive_combine_recv(op);
	drive_end(op);
}

static struct ferry_moe_stats run_steps(struct rank *rank,
                                        enum ferry_combine_mode combine,
                                        struct bound *bound)
{
	const struct ferry_moe_config config = config_of(rank, combine);
	struct ferry_moe_stats stats = FERRY_MOE_STATS_INIT;
	struct drive *d = drive_open(rank, &config, NULL);
	int32_t n_far = 0;

	for (int i = 0; i < N_STEPS; i++)
		run_step(d, i, bound);
	for (int32_t r = 0; r < N_RANKS; r++)
		n_far += d->host[r] != d->host[d->rank];
	RANKS_OK(ferry_moe_get_stats(d->moe, &stats));
	/* Of a header and 8 slots, and weights, for each dispatch. */
	RANKS_EQ(stats.host_bytes_tables,
	         N_STEPS * n_far * (128 + N_TOKENS * 8 * (combine ? 8 : 4)));
	return stats;
}

static void once_per_host(struct rank *rank)
{
	struct bound bound = {0, 0};
	const struct ferry_moe_stats stats =
		run_steps(rank, FERRY_EXACT, &bound);
	const double least = (double)(bound.hosts * ROW_BYTES);

	RANKS_EQ(stats.host_bytes_dispatch, bound.hosts * ROW_BYTES);
	RANKS_CHECK(bound.ranks > 4 * bound.hosts / 3);
	RANKS_CHECK((double)(stats.host_bytes_dispatch +
	                     stats.host_bytes_tables) <= 1.05 * least);
	if (rank->rank == 0)
		printf("# dispatch: %.3f of a row per token and host, with "
		       "tables %.3f; without the hierarchy %.3f\n",
		       (double)stats.host_bytes_dispatch / least,
		       (double)(stats.host_bytes_dispatch +
		                stats.host_bytes_tables) /
		               least,
		       (double)bound.ranks / (double)bound.hosts);
}

static void once_per_rank(struct rank *rank)
{
	struct bound bound = {0, 0};
	const struct ferry_moe_stats stats =
		run_steps(rank, FERRY_EXACT, &bound);

	RANKS_EQ(stats.host_bytes_dispatch, bound.ranks * ROW_BYTES);
}

/* All ranks together: whoever comes last sends a host's sums. */
struct total {
	uint64_t sent, tables, bound, n_rows;
};

static void sums_once_per_host(struct rank *rank)
{
	struct total *total = rank->shared;
	struct bound bound = {0, 0};
	const struct ferry_moe_stats stats =
		run_steps(rank, FERRY_PER_HOST, &bound);

	RANKS_EQ(stats.host_bytes_dispatch, bound.hosts * ROW_BYTES);
	add_seq_u64(&total->sent, stats.host_bytes_combine);
	add_seq_u64(&total->tables, stats.host_bytes_tables);
	add_seq_u64(&total->bound, bound.hosts * ROW_BYTES);
	add_seq_u64(&total->n_rows, bound.ranks);
}

static struct total add_up(int32_t group_size)
{
	struct ranks how = run_args_ranks(N_RANKS);
	void *shared;

	how.arg = &group_size;
	how.options = "RANKS_PER_HOST=4";
	how.shared_bytes = sizeof(struct total);
	how.shared = &shared;
	ranks_run(&how, sums_once_per_host);
	const struct total total = *(const struct total *)shared;

	ranks_free_shared(&how);
	return total;
}

static void bytes_of_sums(void **state)
{
	const struct total total = add_up(1);

	(void)state;
	assert_int_equal(total.sent, total.bound);
	assert_true((double)(total.bound + total.sent + total.tables) <=
	            1.05 * 2 * (double)total.bound);
	assert_true(total.n_rows * ROW_BYTES > 4 * total.bound / 3);
}

/* Not once for each rank that has the token. */
static void bytes_of_sums_for_groups(void **state)
{
	const struct total total = add_up(2);

	(void)state;
	assert_true(total.bound > 0);
	assert_int_equal(total.sent, total.bound);
}

static void bytes_between_hosts(void **state)
{
	struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	how.options = "RANKS_PER_HOST=4";
	ranks_run(&how, once_per_host);
	how.options = "RANKS_PER_HOST=4;HIERARCHY=off";
	ranks_run(&how, once_per_rank);
}

/*
 * Rows that land with a rank reach its mates while it makes no call: whoever
 * takes them out of the network tells everybody.
 */
static void idle_mates(struct rank *rank)
{
	const struct ferry_moe_config config = config_of(rank, FERRY_EXACT);
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_step step = {.from = FERRY_FROM_PACKED, .light = true};

	step.spec.seed = run_args.seed;
	for (int32_t r = 0; r < N_RANKS; r++)
		step.n_tokens[r] = N_TOKENS;
	struct drive_op *op = drive_begin(d, 0, &step);

	drive_dispatch_send(op);
	if (rank->rank % 2)
		ranks_meet(0, N_RANKS);
	drive_dispatch_recv(op);
	if (rank->rank % 2 == 0)
		ranks_meet(0, N_RANKS);
	drive_end(op);
}

static void nobody_need_call(void **state)
{
	struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	how.options = "RANKS_PER_HOST=4";
	ranks_run(&how, idle_mates);
}

/* One rank that does not want it is enough, so that all do the same. */
static void configure_off(const struct rank *rank,
                          struct ferry_world_config *config)
{
	if (rank->rank == 3)
		config->options = "RANKS_PER_HOST=4;HIERARCHY=off";
}

static void all_or_none(void **state)
{
	struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	how.options = "RANKS_PER_HOST=4";
	how.configure = configure_off;
	ranks_run(&how, once_per_rank);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_between_hosts),
		cmocka_unit_test(bytes_of_sums),
		cmocka_unit_test(bytes_of_sums_for_groups),
		cmocka_unit_test(all_or_none),
		cmocka_unit_test(nobody_need_call),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
