/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations in flight beside each other: two slots, two channels, in every
 * legal order; and every illegal call, which is refused and changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"

static struct ferry_moe_config small(int32_t topk)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 6;
	c.hidden = 40;
	c.topk = topk;
	c.n_experts = 6;
	c.n_slots = 2;
	return c;
}

/* The four calls of an operation, in their order. */
enum { N_PHASES = 4 };
static void (*const phases[N_PHASES])(struct drive_op *op) = {
	drive_dispatch_send, drive_dispatch_recv, drive_combine_send,
	drive_combine_recv};

static void fill_step(struct drive_step *step, uint64_t seed, int32_t n_ranks)
{
	uint64_t rng = seed;

	memset(step, 0, sizeof(*step));
	step->spec.seed = seed;
	for (int32_t r = 0; r < n_ranks; r++)
		step->n_tokens[r] = (int32_t)traffic_between(&rng, 0, 6);
}

/* One side of an interleaving: a channel and a slot of it. */
struct side {
	struct drive *d;
	int32_t slot;
	struct drive_op *op;
	int done; /* phases of op */
};

static void advance(struct side *side, uint64_t seed, int32_t n_ranks)
{
	struct drive_step step;

	if (side->done == 0) {
		fill_step(&step, seed, n_ranks);
		side->op = drive_begin(side->d, side->slot, &step);
	}
	phases[side->done++](side->op);
	if (side->done == N_PHASES) {
		drive_end(side->op);
		side->done = 0;
	}
}

/* All 70 ways to mix four calls of one side with four of the other. */
static void mix(struct side sides[2], int32_t n_ranks)
{
	uint64_t seed = run_args.seed;

	for (unsigned order = 0; order < 256; order++) {
		if (__builtin_popcount(order) != N_PHASES)
			continue;
		for (int i = 0; i < 2 * N_PHASES; i++)
			advance(&sides[order >> i & 1], seed++, n_ranks);
	}
}

static void two_slots_body(struct rank *rank)
{
	const struct ferry_moe_config config = small(3);
	struct drive *d = drive_open(rank, &config, NULL);
	struct side sides[2] = {{.d = d, .slot = 0}, {.d = d, .slot = 1}};

	mix(sides, rank->n_ranks);
}

static void two_slots_in_every_order(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, two_slots_body);
}

/* nccl#2303, DeepSpeed#8557: two channels of one world, another top-k each. */
static void two_channels_body(struct rank *rank)
{
	const struct ferry_moe_config first = small(1);
	struct ferry_moe_config second = small(2);

	second.combine = FERRY_REDUCED;
	second.hidden = 24;
	struct side sides[2] = {{.d = drive_open(rank, &first, NULL)},
	                        {.d = drive_open(rank, &second, NULL)}};

	mix(sides, rank->n_ranks);
}

static void two_channels_in_every_order(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, two_channels_body);
}

/* Ranks may differ in their order when all sends come before the first recv. */
static void own_order_body(struct rank *rank)
{
	const struct ferry_moe_config config = small(3);
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t i = 0; i < 30; i++) {
		struct drive_op *ops[2];
		const int first = (rank->rank + (int)i) & 1;
		const int other = !first;

		for (int slot = 0; slot < 2; slot++) {
			struct drive_step step;

			fill_step(&step, run_args.seed + 2 * i + (uint64_t)slot,
			          rank->n_ranks);
			ops[slot] = drive_begin(d, slot, &step);
		}
		drive_dispatch_send(ops[first]);
		drive_dispatch_send(ops[other]);
		drive_dispatch_recv(ops[other]);
		drive_dispatch_recv(ops[first]);
		drive_combine_send(ops[other]);
		drive_combine_send(ops[first]);
		drive_combine_recv(ops[first]);
		drive_combine_recv(ops[other]);
		drive_end(ops[0]);
		drive_end(ops[1]);
	}
}

static void ranks_differ_in_order(void **state)
{
	const struct ranks how = run_args_ranks(4);

	(void)state;
	ranks_run(&how, own_order_body);
}

/* Ranks at different speed: one is ahead by as much as the others allow. */
static void ahead_body(struct rank *rank)
{
	struct ferry_moe_config config = small(3);

	config.n_slots = 8;
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t round = 0; round < 12; round++) {
		struct drive_op *ops[8];

		for (int slot = 0; slot < 8; slot++) {
			struct drive_step step;

			fill_step(&step,
			          run_args.seed + 8 * round + (uint64_t)slot,
			          rank->n_ranks);
			ops[slot] = drive_begin(d, slot, &step);
			drive_dispatch_send(ops[slot]);
		}
		for (int slot = 7; slot >= 0; slot--) {
			drive_dispatch_recv(ops[slot]);
			if (round % 3 != 2)
				drive_combine_send(ops[slot]);
		}
		for (int slot = 0; slot < 8; slot++) {
			if (round % 3 != 2)
				drive_combine_recv(ops[slot]);
			drive_end(ops[slot]);
		}
	}
}

static void eight_slots_in_flight(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, ahead_body);
}

/* One thread drives all ranks: all sends of a phase before its first recv. */
static void one_thread_body(struct rank *rank)
{
	const struct ferry_moe_config config = small(3);
	struct drive **all = rank->arg;

	all[rank->rank] = drive_open(rank, &config, NULL);
	RANKS_OK(ferry_world_barrier(rank->world));
	for (uint64_t i = 0; rank->rank == 0 && i < 20; i++) {
		struct drive_op *ops[3];
		struct drive_step step;

		fill_step(&step, run_args.seed + i, 3);
		for (int r = 0; r < 3; r++)
			ops[r] = drive_begin(all[r], (int32_t)(i % 2), &step);
		for (int phase = 0; phase < N_PHASES; phase++)
			for (int r = 0; r < 3; r++)
				phases[phase](ops[(r + (int)i) % 3]);
		for (int r = 0; r < 3; r++)
			drive_end(ops[r]);
	}
	RANKS_OK(ferry_world_barrier(rank->world));
}

static void one_thread_drives_all_ranks(void **state)
{
	struct ranks how = run_args_ranks(3);
	struct drive *all[3];

	(void)state;
	if (how.kind == RANKS_PROCESSES)
		skip(); /* ranks of other processes cannot be driven */
	how.arg = all;
	ranks_run(&how, one_thread_body);
}

/* The four calls and the two fused ones, on a slot, with legal arguments. */
enum call {
	DISPATCH_SEND,
	DISPATCH_RECV,
	COMBINE_SEND,
	COMBINE_RECV,
	DISPATCH,
	COMBINE,
	N_CALLS,
};

static enum ferry_status call(struct drive *d, enum call which, int32_t slot)
{
	/* All of these calls are refused: nobody looks at the arrays. */
	static const int32_t ids[6][3] = {{0}};
	static const uint16_t x[6][40] = {{0}};
	static uint16_t sink[6 * 3 * 6 * 40 * 4];
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in y = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;

	in.n_tokens = 1;
	in.x = x;
	in.topk_ids = ids;
	out.rows = sink;
	y.y = x;
	sum.out = sink;
	switch (which) {
	case DISPATCH_SEND:
		return ferry_dispatch_send(d->moe, slot, &in, NULL);
	case DISPATCH_RECV:
		return ferry_dispatch_recv(d->moe, slot, &out, NULL);
	case COMBINE_SEND:
		return ferry_combine_send(d->moe, slot, &y, NULL);
	case COMBINE_RECV:
		return ferry_combine_recv(d->moe, slot, &sum, NULL);
	case DISPATCH:
		return ferry_dispatch(d->moe, slot, &in, &out, NULL);
	default:
		return ferry_combine(d->moe, slot, &y, &sum, NULL);
	}
}

/* After so many phases, which calls are refused (bits of enum call). */
static const unsigned refused[N_PHASES] = {
	1 << DISPATCH_RECV | 1 << COMBINE_SEND | 1 << COMBINE_RECV |
		1 << COMBINE,
	1 << DISPATCH_SEND | 1 << COMBINE_SEND | 1 << COMBINE_RECV |
		1 << DISPATCH | 1 << COMBINE,
	1 << DISPATCH_RECV | 1 << COMBINE_RECV,
	1 << DISPATCH_SEND | 1 << DISPATCH_RECV | 1 << COMBINE_SEND |
		1 << DISPATCH | 1 << COMBINE,
};

static void illegal_body(struct rank *rank)
{
	const struct ferry_moe_config config = small(3);
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t round = 0; round < 3; round++) {
		struct drive_step step;
		struct drive_op *op;

		fill_step(&step, run_args.seed + round, rank->n_ranks);
		op = drive_begin(d, 1, &step);
		for (int phase = 0; phase < N_PHASES; phase++) {
			for (int c = 0; c < N_CALLS; c++) {
				if (!(refused[phase] >> c & 1))
					continue;
				RANKS_STATUS(call(d, (enum call)c, 1),
				             FERRY_STATE);
				RANKS_TEXT(ferry_last_error(), "slot 1");
			}
			phases[phase](op);
		}
		drive_end(op);
	}
}

static void illegal_orders_are_refused(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, illegal_body);
}

/* DeepEP#220: dispatch after dispatch, combine left out. */
static void no_combine_body(struct rank *rank)
{
	const struct ferry_moe_config config = small(3);
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t i = 0; i < 60; i++) {
		struct drive_step step;

		fill_step(&step, run_args.seed + i, rank->n_ranks);
		if (i % 7 == 3)
			drive_run(d, (int32_t)(i / 20 % 2), &step);
		else
			drive_dispatch(d, (int32_t)(i / 20 % 2), &step);
	}
}

static void combine_may_be_left_out(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, no_combine_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_slots_in_every_order),
		cmocka_unit_test(two_channels_in_every_order),
		cmocka_unit_test(ranks_differ_in_order),
		cmocka_unit_test(eight_slots_in_flight),
		cmocka_unit_test(one_thread_drives_all_ranks),
		cmocka_unit_test(illegal_orders_are_refused),
		cmocka_unit_test(combine_may_be_left_out),
	};

	run_args.few_ranks = true;
	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
