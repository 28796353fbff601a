/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the weights of a placement may be overwritten: the count of operations
 * that use it, whatever order the calls come in. CPU worlds only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"

enum { N_RANKS = 2, EXPERTS = 4, SLOTS = 6 };

/* The config must outlive the channel. */
struct setting {
	int32_t expert_slots[N_RANKS], slot_expert[SLOTS];
	struct ferry_placement_config placement;
};

static struct drive *open_placed(struct rank *rank, struct setting *s,
                                 enum ferry_split split)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	*s = (struct setting){
		{3, 3}, {0, 1, 2, 0, 3, -1}, FERRY_PLACEMENT_CONFIG_INIT};
	c.max_tokens = 6;
	c.hidden = 40;
	c.topk = 2;
	c.n_experts = EXPERTS;
	c.n_slots = 2;
	c.expert_slots = s->expert_slots;
	s->placement.n_experts = EXPERTS;
	s->placement.n_ranks = N_RANKS;
	s->placement.expert_slots = s->expert_slots;
	s->placement.slot_expert = s->slot_expert;
	s->placement.split = split;
	return drive_open(rank, &c, &s->placement);
}

static struct drive_step a_step(uint64_t seed)
{
	struct drive_step step = {.n_tokens = {5, 3}};

	step.spec.seed = run_args.seed + seed;
	return step;
}

#define IN_USE(d, n) RANKS_EQ(ferry_placement_in_use((d)->placement), n)

static void until_combine_is_sent(struct rank *rank)
{
	struct setting s;
	struct drive *d = open_placed(rank, &s, FERRY_SPLIT_EVEN);

	IN_USE(d, 0);
	for (uint64_t i = 0; i < 3; i++) {
		const struct drive_step step = a_step(i);
		struct drive_op *op = drive_begin(d, 0, &step);

		drive_dispatch_send(op);
		IN_USE(d, 1);
		drive_dispatch_recv(op);
		IN_USE(d, 1);
		drive_combine_send(op);
		IN_USE(d, 0);
		drive_combine_recv(op);
		IN_USE(d, 0);
		drive_end(op);
		op = drive_begin(d, 1, &step);
		drive_dispatch_fused(op);
		IN_USE(d, 1);
		drive_combine_fused(op);
		IN_USE(d, 0);
		drive_end(op);
	}
}

/* Two micro-batches: the weights are free when both have let go. */
static void each_slot_counts(struct rank *rank)
{
	const struct drive_step step = a_step(0);
	struct setting s;
	struct drive *d = open_placed(rank, &s, FERRY_SPLIT_EVEN);
	struct drive_op *a = drive_begin(d, 0, &step);
	struct drive_op *b = drive_begin(d, 1, &step);

	drive_dispatch_send(a);
	drive_dispatch_send(b);
	IN_USE(d, 2);
	drive_dispatch_recv(a);
	drive_combine_send(a);
	IN_USE(d, 1);
	drive_dispatch_recv(b);
	drive_combine_recv(a);
	IN_USE(d, 1);
	drive_combine_send(b);
	IN_USE(d, 0);
	drive_combine_recv(b);
	drive_end(a);
	drive_end(b);
}

/* Without a combine, until the slot's next dispatch, or the close. */
static void until_the_next_dispatch(struct rank *rank)
{
	const struct drive_step step = a_step(0);
	struct ferry_placement *other = NULL;
	struct setting s;
	struct drive *d = open_placed(rank, &s, FERRY_SPLIT_EVEN);

	RANKS_OK(ferry_placement_create(&s.placement, &other));
	for (int i = 0; i < 4; i++) {
		struct drive_op *op = drive_begin(d, 0, &step);

		if (i % 2)
			drive_batch(op)->in.placement = other;
		drive_dispatch_send(op);
		IN_USE(d, i % 2 == 0);
		RANKS_EQ(ferry_placement_in_use(other), i % 2);
		drive_dispatch_recv(op);
		drive_end(op);
	}
	RANKS_EQ(ferry_placement_in_use(other), 1);
	ferry_moe_close(d->moe);
	d->moe = NULL;
	RANKS_EQ(ferry_placement_in_use(other), 0);
	ferry_placement_destroy(other);
}

/* A careless caller: the placement goes after dispatch_recv, as it may. */
static void gone_before_combine(struct rank *rank)
{
	const struct drive_step step = a_step(0);
	struct ferry_placement *other = NULL;
	struct setting s;
	struct drive *d = open_placed(rank, &s, FERRY_SPLIT_EVEN);
	struct drive_op *op = drive_begin(d, 0, &step);

	RANKS_OK(ferry_placement_create(&s.placement, &other));
	drive_batch(op)->in.placement = other;
	drive_dispatch_send(op);
	drive_dispatch_recv(op);
	ferry_placement_destroy(other);
	drive_combine_send(op);
	drive_combine_recv(op);
	drive_end(op);
}

/* EXACT: logical ids are refused and count nothing, slots are fine. */
static void exact_takes_slots(struct rank *rank)
{
	struct drive_step step = a_step(0);
	struct setting s;
	struct drive *d = open_placed(rank, &s, FERRY_SPLIT_EXACT);
	struct drive_op *op = drive_begin(d, 0, &step);

	RANKS_STATUS(drive_try_send(op), FERRY_INVAL);
	RANKS_TEXT(d->failure, "split 2 (exact)");
	IN_USE(d, 0);
	drive_end(op);
	step.spec.id_kind = FERRY_ID_SLOT;
	op = drive_begin(d, 0, &step);
	drive_dispatch_send(op);
	IN_USE(d, 1);
	drive_dispatch_recv(op);
	drive_combine_send(op);
	IN_USE(d, 0);
	drive_combine_recv(op);
	drive_end(op);
}

#define CASE(name)                                                             \
	static void test_##name(void **state)                                  \
	{                                                                      \
		const struct ranks how = run_args_ranks(N_RANKS);              \
                                                                               \
		(void)state;                                                   \
		ranks_run(&how, name);                                         \
	}

CASE(until_combine_is_sent)
CASE(each_slot_counts)
CASE(until_the_next_dispatch)
CASE(gone_before_combine)
CASE(exact_takes_slots)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_until_combine_is_sent),
		cmocka_unit_test(test_each_slot_counts),
		cmocka_unit_test(test_until_the_next_dispatch),
		cmocka_unit_test(test_gone_before_combine),
		cmocka_unit_test(test_exact_takes_slots),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
