/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combine PER_HOST: who is missing is named, who has done his part may go, one
 * host is REDUCED, and where it cannot be it is refused. 4 ranks on 2 hosts, of
 * which rank 3 is the one to watch; every token goes to every rank. For a group
 * of ranks 0 and 1, whose sums land with either, it is rank 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "broken.h"
#include "run_args.h"

enum { N_RANKS = 4, CULPRIT = 3, N_TOKENS = 40, TIMEOUT_MS = 1500 };

static struct ferry_moe_config config_of(enum ferry_combine_mode combine)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = N_TOKENS;
	c.hidden = 300;
	c.topk = 8;
	c.n_experts = 8;
	c.layout = FERRY_EXPERT_PACKED;
	c.combine = combine;
	return c;
}

static struct ferry_moe_config config_of_group(void)
{
	struct ferry_moe_config c = config_of(FERRY_PER_HOST);

	c.group_size = 2;
	return c;
}

/*
 * Rank 3, and who is not in the group, has no tokens of its own, and so nothing
 * to wait for.
 */
static struct drive_op *dispatched(struct drive *d, uint64_t seed)
{
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = run_args.seed + seed;
	for (int32_t r = 0; d->config.group_size < 2 && r < CULPRIT; r++)
		step.n_tokens[r] = N_TOKENS - 7 * r;
	for (int32_t r = 0; r < d->config.group_size; r++)
		step.n_tokens[r] = N_TOKENS;
	struct drive_op *op = drive_begin(d, 0, &step);

	drive_dispatch_send(op);
	drive_dispatch_recv(op);
	/* Whoever goes or fails from here on disturbs nobody's dispatch. */
	ranks_meet(2, N_RANKS);
	return op;
}

/* The send fails, too, where another rank has told of the failure before. */
static enum ferry_status try_combine(struct drive_op *op)
{
	const enum ferry_status sent = drive_try_combine_send(op);

	return sent == FERRY_OK ? drive_try_combine_recv(op) : sent;
}

/* What the others say when rank 3 does not do its part. */
static void others(struct rank *rank, struct drive *d, struct drive_op *op,
                   enum ferry_status want)
{
	const enum ferry_status got = try_combine(op);

	RANKS_STATUS(got, want);
	broken_check(rank, d, got, CULPRIT, "rank 3");
	broken_same_root(rank, d, 0, N_RANKS - 1);
}

static void dies_body(struct rank *rank)
{
	const struct ferry_moe_config c = config_of(FERRY_PER_HOST);
	struct drive *d = drive_open(rank, &c, NULL);
	struct drive_op *op = dispatched(d, 1);

	if (rank->rank == CULPRIT)
		ranks_die();
	others(rank, d, op, FERRY_PEER);
}

static void absent_body(struct rank *rank)
{
	const struct ferry_moe_config c = config_of(FERRY_PER_HOST);
	struct drive *d = drive_open(rank, &c, NULL);
	struct drive_op *op = dispatched(d, 2);

	if (rank->rank != CULPRIT)
		others(rank, d, op, FERRY_TIMEOUT);
	ranks_meet(1, N_RANKS);
}

static void closes_body(struct rank *rank)
{
	const struct ferry_moe_config c = config_of(FERRY_PER_HOST);
	struct drive *d = drive_open(rank, &c, NULL);
	struct drive_op *op = dispatched(d, 3);

	if (rank->rank == CULPRIT)
		drive_close(d);
	else
		others(rank, d, op, FERRY_PEER);
	ranks_meet(1, N_RANKS);
}

static void run(ranks_body *body, uint64_t killed, int32_t timeout_ms)
{
	struct ranks how = run_args_ranks(N_RANKS);
	void *shared;

	how.killed = killed;
	if (timeout_ms)
		how.timeout_ms = timeout_ms;
	how.shared_bytes = BROKEN_SHARED;
	how.shared = &shared;
	ranks_run(&how, body);
	ranks_free_shared(&how);
}

static void who_is_missing_is_named(void **state)
{
	(void)state;
	run(dies_body, RANKS_BIT(CULPRIT), 0);
	run(absent_body, 0, TIMEOUT_MS);
	run(closes_body, 0, 0);
}

static void come_late(void)
{
	nanosleep(&(struct timespec){0, 300000000}, NULL);
}

/* Rank 3 closes at once; rank 2, of the same host, comes later. */
static void early_body(struct rank *rank)
{
	const struct ferry_moe_config c = config_of(FERRY_PER_HOST);
	struct drive *d = drive_open(rank, &c, NULL);
	struct drive_op *op = dispatched(d, 4);

	if (rank->rank == 2)
		come_late();
	drive_combine_send(op);
	drive_combine_recv(op);
	drive_close(d);
}

/* Rank 0 reads what landed with rank 1 when that one has gone. */
static void mate_goes_body(struct rank *rank)
{
	const struct ferry_moe_config c = config_of_group();
	struct drive *d = drive_open(rank, &c, NULL);
	struct drive_op *op = dispatched(d, 6);

	drive_combine_send(op);
	if (rank->rank == 0)
		come_late();
	drive_combine_recv(op);
	drive_close(d);
}

static void who_has_done_his_part_may_go(void **state)
{
	(void)state;
	run(early_body, 0, 0);
	run(mate_goes_body, 0, 0);
}

/* Rank 1 goes before anything has landed with it. */
static void mate_leaves_body(struct rank *rank)
{
	const struct ferry_moe_config c = config_of_group();
	struct drive *d = drive_open(rank, &c, NULL);
	struct drive_op *op = dispatched(d, 7);

	if (rank->rank >= 2)
		come_late();
	if (rank->rank == 0) {
		const enum ferry_status got = try_combine(op);

		RANKS_STATUS(got, FERRY_PEER);
		broken_check(rank, d, got, 1, "rank 1");
	} else {
		drive_try_combine_send(op);
	}
	if (rank->rank == 1)
		drive_close(d);
	ranks_meet(1, N_RANKS);
}

static void where_sums_land_counts(void **state)
{
	(void)state;
	if (!run_args.hosts) {
		print_message("skipped: on wire the sender lets rows arrive\n");
		skip();
	}
	run(mate_leaves_body, 0, 0);
}

/* The same bits as REDUCED, on as many ranks as one host has. */
static void one_host_body(struct rank *rank)
{
	uint8_t *sums[2];
	size_t bytes[2];

	for (int i = 0; i < 2; i++) {
		const struct ferry_moe_config c =
			config_of(i ? FERRY_PER_HOST : FERRY_REDUCED);
		struct drive *d = drive_open(rank, &c, NULL);
		struct drive_op *op = dispatched(d, 5);

		drive_combine_send(op);
		drive_combine_recv(op);
		const void *sum = drive_sum(op, &bytes[i]);

		sums[i] = malloc(bytes[i] + 1);
		RANKS_CHECK(sums[i] != NULL);
		memcpy(sums[i], sum, bytes[i]);
		drive_close(d);
	}
	RANKS_EQ(bytes[0], bytes[1]);
	RANKS_BYTES(sums[1], sums[0], bytes[0]);
	free(sums[0]);
	free(sums[1]);
}

static void one_host_is_reduced(void **state)
{
	struct ranks how = run_args_ranks(N_RANKS);

	(void)state;
	if (run_args.hosts) {
		print_message("skipped: the command line asks for hosts\n");
		skip();
	}
	how.options = NULL;
	how.fabric = run_args.kind == RANKS_THREADS ? "local" : "shm";
	ranks_run(&how, one_host_body);
}

struct refusal {
	struct ferry_moe_config config;
	const char *text;
};

static void refused_body(struct rank *rank)
{
	const struct refusal *refusal = rank->arg;
	struct ferry_moe *moe = NULL;

	RANKS_STATUS(ferry_moe_open(rank->world, &refusal->config, &moe),
	             FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), refusal->text);
	RANKS_CHECK(moe == NULL);
}

static void refuse(const char *fabric, const char *options, int32_t group_size,
                   const char *text)
{
	struct refusal refusal = {config_of(FERRY_PER_HOST), text};
	struct ranks how = run_args_ranks(N_RANKS);

	refusal.config.group_size = group_size;
	how.fabric = fabric;
	how.options = options;
	how.arg = &refusal;
	ranks_run(&how, refused_body);
}

static void what_cannot_be_is_refused(void **state)
{
	const char *const fabric = run_args.fabric; /* shm+ and a network */
	struct ferry_moe_config c = config_of(FERRY_PER_HOST);
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	(void)state;
	refuse(fabric + 4, "RANKS_PER_HOST=2", 1, "stores within a host");
	refuse(fabric, "RANKS_PER_HOST=2;HIERARCHY=off", 1, "HIERARCHY");
	refuse(fabric, "RANKS_PER_HOST=3", 2, "ranks 2 and 3 of a group");
	c.n_ranks = 2;
	c.device = FERRY_DEVICE_CUDA;
	assert_int_equal(ferry_moe_query(&c, &need), FERRY_UNSUPPORTED);
	assert_non_null(strstr(ferry_last_error(), "2 (PER_HOST)"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_missing_is_named),
		cmocka_unit_test(who_has_done_his_part_may_go),
		cmocka_unit_test(where_sums_land_counts),
		cmocka_unit_test(one_host_is_reduced),
		cmocka_unit_test(what_cannot_be_is_refused),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
