/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's surroundings: whatever device is current stays current, two
 * worlds live in one process, the legacy stream is a stream, and an error that
 * the caller has not looked at is not the channel's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lab.h"
#include "moe/drive_inner.h"

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 8;
	c.hidden = 120;
	c.topk = 3;
	c.n_experts = 9;
	return c;
}

static struct drive_step step_of(const struct rank *rank, uint64_t seed)
{
	struct drive_step step = {.values = ORACLE_SPECIAL};

	step.spec.seed = seed;
	step.spec.special = true;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = (int32_t)((seed + 3 * (uint64_t)r) % 9);
	return step;
}

/* Every call is made while another device is current. */
#define ELSEWHERE(call)                                                        \
	do {                                                                   \
		int now;                                                       \
                                                                               \
		LAB_OK(cudaSetDevice(other));                                  \
		call;                                                          \
		LAB_OK(cudaGetDevice(&now));                                   \
		RANKS_EQ(now, other);                                          \
	} while (0)

static void elsewhere_body(struct rank *rank)
{
	struct ferry_moe_config config = small();
	struct ferry_moe_view view = FERRY_MOE_VIEW_INIT;
	const int own = lab_device(rank);
	const int other = (own + 1) % rank->n_gpus;
	struct drive *d;

	config.layout = FERRY_TOKEN;
	ELSEWHERE(d = drive_open(rank, &config, NULL));
	for (uint64_t i = 0; i < 6; i++) {
		struct drive_step step = step_of(rank, run_args.seed + i);
		struct drive_op *op;

		step.from = FERRY_FROM_PACKED;
		op = drive_begin(d, 0, &step);
		if (i % 2) {
			ELSEWHERE(drive_dispatch_fused(op));
			ELSEWHERE(drive_combine_fused(op));
		} else {
			ELSEWHERE(drive_dispatch_send(op));
			ELSEWHERE(drive_dispatch_recv(op));
			ELSEWHERE(drive_combine_send(op));
			ELSEWHERE(drive_combine_recv(op));
		}
		drive_end(op);
	}
	ELSEWHERE(RANKS_OK(ferry_moe_get_view(d->moe, 0, &view)));
	ELSEWHERE(RANKS_OK(ferry_moe_poll(d->moe, NULL)));
	ELSEWHERE(drive_close(d));
	ELSEWHERE(ferry_world_close(rank->world));
	rank->world = NULL;
}

static void the_current_device_stays(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	if (run_args.n_gpus < 2)
		skip();
	ranks_run(&how, elsewhere_body);
}

/* cuda_device 0: the device that is current when the world opens. */
static void default_body(struct rank *rank)
{
	const struct ferry_moe_config shape = small();
	const struct drive_step step = step_of(rank, run_args.seed);
	struct ferry_world_config config;

	lab_device(rank);
	ranks_config(&config);
	config.cuda_device = 0;
	RANKS_OK(ferry_world_open(&config, &rank->world));
	struct drive *d = drive_open(rank, &shape, NULL);

	drive_run(d, 0, &step);
	drive_run(d, 0, &step);
}

static void the_current_device_is_taken(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	how.no_world = true;
	ranks_run(&how, default_body);
}

/* A second world of the same ranks, used in turn with the first. */
static void worlds_body(struct rank *rank)
{
	struct ferry_moe_config shapes[2] = {small(), small()};
	struct ferry_world_config config;
	struct rank second = *rank;
	struct drive *channels[2];

	lab_device(rank);
	ranks_config(&config);
	RANKS_OK(ferry_world_open(&config, &second.world));
	shapes[1].combine = FERRY_REDUCED;
	shapes[1].topk = 1;
	channels[0] = drive_open(rank, &shapes[0], NULL);
	channels[1] = drive_open(&second, &shapes[1], NULL);
	for (uint64_t i = 0; i < 20; i++) {
		const struct drive_step step = step_of(rank, run_args.seed + i);
		struct drive_op *ops[2];

		for (int w = 0; w < 2; w++)
			ops[w] = drive_begin(channels[w], 0, &step);
		/* Ranks differ in order: all sends come first. */
		for (int w = 0; w < 2; w++)
			drive_dispatch_send(ops[(w + rank->rank) % 2]);
		for (int w = 0; w < 2; w++)
			drive_dispatch_recv(ops[w]);
		for (int w = 0; w < 2; w++) {
			drive_combine_send(ops[w]);
			drive_combine_recv(ops[w]);
			drive_end(ops[w]);
		}
	}
	drive_close(channels[rank->rank % 2]);
	drive_close(channels[(rank->rank + 1) % 2]);
	RANKS_OK(ferry_world_barrier(second.world));
	ferry_world_close(second.world);
}

static void two_worlds_in_one_process(void **state)
{
	struct ranks how = run_args_ranks(4);

	(void)state;
	if (how.kind == RANKS_PROCESSES)
		skip(); /* the environment has one meeting point */
	ranks_run(&how, worlds_body);
}

/* NULL is the legacy stream: one rank, as ranks of a GPU would share it. */
static void legacy_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	const struct drive_step step = step_of(rank, 8);

	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = drive_begin_lasting(d, 0, &step);

	for (uint64_t i = 0; i < 4; i++) {
		drive_renew(op, &step, i);
		drive_refill(op, NULL);
		RANKS_OK(drive_issue(op, DRIVE_DISPATCH, NULL));
		RANKS_OK(drive_issue(op, DRIVE_COMBINE, NULL));
		LAB_OK(cudaStreamSynchronize(NULL));
		drive_finish(op, true, rank_memory_stream(d->memory, 0));
	}
}

static void the_legacy_stream_is_a_stream(void **state)
{
	struct ranks how = run_args_ranks(1);

	(void)state;
	ranks_run(&how, legacy_body);
	if (run_args.n_gpus < 2)
		return;
	how.n_ranks = 2; /* a GPU each */
	ranks_run(&how, legacy_body);
}

/* The last error of the thread is one before each call. */
#define AFTER_ERROR(call)                                                      \
	do {                                                                   \
		RANKS_CHECK(cudaSetDevice(1 << 20) != cudaSuccess);            \
		call;                                                          \
	} while (0)

static void error_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive_step step = step_of(rank, run_args.seed);

	lab_device(rank);
	step.from = FERRY_FROM_PACKED;
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = drive_begin(d, 0, &step);

	AFTER_ERROR(drive_dispatch_send(op));
	AFTER_ERROR(drive_dispatch_recv(op));
	AFTER_ERROR(drive_combine_send(op));
	AFTER_ERROR(drive_combine_recv(op));
	drive_end(op);
	op = drive_begin(d, 0, &step);
	AFTER_ERROR(drive_dispatch_fused(op));
	AFTER_ERROR(drive_combine_fused(op));
	drive_end(op);
	(void)cudaGetLastError();
	drive_close(d);
}

static void an_error_of_the_caller_ends_nothing(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, error_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_current_device_stays),
		cmocka_unit_test(the_current_device_is_taken),
		cmocka_unit_test(two_worlds_in_one_process),
		cmocka_unit_test(the_legacy_stream_is_a_stream),
		cmocka_unit_test(an_error_of_the_caller_ends_nothing),
	};

	lab_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
