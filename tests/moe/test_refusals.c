/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches that cannot be served: every rank gets the same clear error, which
 * names the rank, the place and the value; the channel is broken, the world is
 * not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "broken.h"
#include "run_args.h"

enum { OFTEN = 40 };

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 4;
	c.hidden = 16;
	c.topk = 2;
	c.n_experts = 8;
	c.n_slots = 2;
	c.layout = FERRY_EXPERT_PACKED;
	return c;
}

/* An operation on slot 1 with three tokens on every rank, not yet sent. */
static struct drive_op *begin(struct rank *rank, struct drive *d)
{
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = run_args.seed;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = 3;
	drive_run(d, 1, &step);
	return drive_begin(d, 1, &step);
}

static void expect(struct rank *rank, struct drive *d, struct drive_op *op,
                   enum ferry_status status, int32_t root, const char *part)
{
	RANKS_STATUS(drive_try_recv(op), status);
	drive_check_empty(op);
	broken_check(rank, d, status, root, part);
	drive_end(op);
	broken_reopen(rank, d);
}

static void run(int32_t n_ranks, ranks_body *body, void *arg)
{
	struct ranks how = run_args_ranks(n_ranks);

	how.arg = arg;
	ranks_run(&how, body);
}

static void set_id(struct drive_op *op, int32_t token, int32_t choice,
                   int32_t id)
{
	struct traffic_batch *b = drive_batch(op);

	memcpy(b->ids + 4 * (2 * token + choice), &id, 4);
}

/* mori#363: ids beyond the experts. */
static void bad_id_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);
	const int32_t id = *(const int32_t *)rank->arg;
	char part[64];

	if (rank->rank == 1)
		set_id(op, 2, 1, id);
	drive_dispatch_send(op);
	snprintf(part, sizeof(part), "topk_ids[2][1] is %d", id);
	expect(rank, d, op, FERRY_RANGE, 1, part);
}

static void a_bad_id_is_named_everywhere(void **state)
{
	int32_t ids[] = {8, 13, INT32_MAX, -2, INT32_MIN};

	(void)state;
	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
		run(3, bad_id_body, &ids[i]);
}

/* On a GPU one warp finds what is refused while others go on. */
static void often_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();

	for (int32_t i = 0; i < OFTEN; i++) {
		struct drive *d = drive_open(rank, &config, NULL);
		struct drive_op *op = begin(rank, d);
		char part[64];

		if (rank->rank == i % rank->n_ranks)
			set_id(op, i % 3, i % 2, 8 + i);
		drive_dispatch_send(op);
		RANKS_STATUS(drive_try_recv(op), FERRY_RANGE);
		drive_check_empty(op);
		snprintf(part, sizeof(part), "topk_ids[%d][%d] is %d", i % 3,
		         i % 2, 8 + i);
		RANKS_TEXT(d->failure, part);
		drive_end(op);
		drive_close(d);
	}
}

static void a_batch_is_refused_many_times(void **state)
{
	(void)state;
	run(4, often_body, NULL);
}

/* Slots are called so, also where there are as many as experts. */
static void bad_slot_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);

	drive_batch(op)->in.id_kind = FERRY_ID_SLOT;
	if (rank->rank == 1)
		set_id(op, 0, 1, 8);
	drive_dispatch_send(op);
	expect(rank, d, op, FERRY_RANGE, 1,
	       run_on_gpus() ? "topk_ids[0][1] is 8"
	                     : "topk_ids[0][1] is 8, expert slots are 0..7");
}

static void a_bad_slot_is_called_a_slot(void **state)
{
	(void)state;
	run(3, bad_slot_body, NULL);
}

/* Two ranks with bad ids: the lower one is the root, everywhere. */
static void two_bad_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);

	if (rank->rank > 0)
		set_id(op, 0, 1, 100 + rank->rank);
	drive_dispatch_send(op);
	expect(rank, d, op, FERRY_RANGE, 1, "topk_ids[0][1] is 101");
}

static void of_two_the_lower_rank_is_named(void **state)
{
	(void)state;
	run(3, two_bad_body, NULL);
}

/* The count comes from memory that a kernel may have written. */
static void bad_count_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);
	const int32_t count = *(const int32_t *)rank->arg;
	char part[64];

	if (rank->rank == 2)
		drive_batch(op)->in.n_tokens_ptr = &count;
	drive_dispatch_send(op);
	snprintf(part, sizeof(part), "n_tokens is %d", count);
	expect(rank, d, op, FERRY_RANGE, 2, part);
}

static void a_bad_count_in_memory_is_named(void **state)
{
	int32_t counts[] = {5, -1, INT32_MAX, INT32_MIN};

	(void)state;
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		run(3, bad_count_body, &counts[i]);
}

static void hidden_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);

	if (rank->rank == 2)
		drive_batch(op)->in.hidden = 12;
	drive_dispatch_send(op);
	expect(rank, d, op, FERRY_MISMATCH, 2, "hidden is 12 on rank 2");
}

static void another_hidden_size_is_named(void **state)
{
	(void)state;
	run(3, hidden_body, NULL);
}

/* Another placement on one rank; its map, not its version, counts. */
static void placement_body(struct rank *rank)
{
	static const int32_t usual[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	static const int32_t other[8] = {0, 1, 2, 3, 4, 5, 7, 6};
	struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct ferry_placement *placement;
	struct drive_op *op;

	p.n_experts = 8;
	p.n_ranks = rank->n_ranks;
	p.slot_expert = rank->rank == 1 ? other : usual;
	p.version = (uint64_t)rank->rank;
	RANKS_OK(ferry_placement_create(&p, &placement));
	op = begin(rank, d);
	drive_batch(op)->in.placement = placement;
	drive_dispatch_send(op);
	ferry_placement_destroy(placement);
	expect(rank, d, op, FERRY_MISMATCH, 1, "placement");
}

static void another_placement_is_named(void **state)
{
	(void)state;
	run(3, placement_body, NULL);
}

/* Of no tokens, which only memory knows to be none, and no placement named. */
static void empty_body(struct rank *rank)
{
	static const int32_t other[8] = {0, 1, 2, 3, 4, 5, 7, 6};
	struct drive_step step = {.from = FERRY_FROM_PACKED};
	struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;
	const struct ferry_moe_config config = small();
	struct drive *d;
	struct drive_op *op;

	p.n_experts = 8;
	p.n_ranks = rank->n_ranks;
	p.slot_expert = other;
	d = drive_open(rank, &config, &p);
	step.spec.seed = run_args.seed;
	step.spec.count_by_pointer = true;
	step.n_tokens[1] = 4;
	op = drive_begin(d, 0, &step);
	if (rank->rank != 1)
		drive_batch(op)->in.placement = NULL;
	drive_dispatch_send(op);
	drive_dispatch_recv(op);
	drive_combine_send(op);
	drive_combine_recv(op);
	drive_end(op);
	drive_close(d);
}

static void an_empty_batch_has_any_placement(void **state)
{
	(void)state;
	run(3, empty_body, NULL);
}

/* Everything to one expert, and room for less (nccl-extensions 9d4d94b). */
static void overflow_body(struct rank *rank)
{
	struct ferry_moe_config config = small();

	config.layout = (enum ferry_layout)(*(const int *)rank->arg);
	config.max_recv_rows = 6;
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_step step = {0};
	struct drive_op *op;

	step.spec.seed = 16; /* all want expert 0 */
	step.spec.routing = TRAFFIC_ONE_EXPERT;
	step.spec.duplicates = true;
	step.n_tokens[0] = 3; /* 6 rows fit */
	drive_dispatch(d, 1, &step);
	step.n_tokens[2] = 1;
	op = drive_begin(d, 1, &step);
	drive_dispatch_send(op);
	int32_t root;

	RANKS_STATUS(oracle_status(drive_oracle(op), &root), FERRY_OVERFLOW);
	RANKS_STATUS(drive_try_recv(op), FERRY_OVERFLOW);
	drive_check_empty(op);
	broken_check(rank, d, FERRY_OVERFLOW, root, "max_recv_rows");
	drive_end(op);
}

static void overflow_is_an_error_everywhere(void **state)
{
	(void)state;
	for (int layout = 0; layout < 3; layout++)
		run(3, overflow_body, &layout);
}

/* Two ranks of a group that do not have the same tokens. */
enum { MATE_ID, MATE_WEIGHT, MATE_NO_WEIGHTS, MATE_COUNT, MATE_TOPK, N_MATES };

static void mates_body(struct rank *rank)
{
	static const char *const parts[N_MATES] = {"rank 3", "rank 3", "rank 3",
	                                           "n_tokens", "topk"};
	const int what = *(const int *)rank->arg;
	struct ferry_moe_config config = small();

	config.group_size = 2;
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);
	struct traffic_batch *b = drive_batch(op);

	if (what == MATE_NO_WEIGHTS && rank->rank == 2)
		memset(b->weights, 0, b->weights_bytes);
	if (rank->rank == 3) {
		int32_t id;

		memcpy(&id, b->ids, 4);
		if (what == MATE_ID)
			set_id(op, 0, 0, (id + 1) % 8);
		else if (what == MATE_WEIGHT)
			b->weights[5] += 1;
		else if (what == MATE_NO_WEIGHTS)
			b->in.topk_weights = NULL; /* not 0 but 1 */
		else if (what == MATE_COUNT)
			b->in.n_tokens = 2;
		else
			b->in.topk = 1;
	}
	drive_dispatch_send(op);
	/* Rank 3 differs from rank 2, the first of its group. */
	expect(rank, d, op, FERRY_MISMATCH, 3, parts[what]);
}

static void groups_that_differ_are_named(void **state)
{
	(void)state;
	for (int what = 0; what < N_MATES; what++)
		run(4, mates_body, &what);
}

/* The same through the fused call, and found by a rank that was late. */
static void late_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);

	if (rank->rank == 0)
		set_id(op, 0, 0, 77);
	drive_dispatch_send(op);
	if (rank->rank == 2)
		ranks_meet(0, 3);
	RANKS_STATUS(drive_try_recv(op), FERRY_RANGE);
	broken_check(rank, d, FERRY_RANGE, 0, "topk_ids[0][0] is 77");
	drive_end(op);
	if (rank->rank != 2)
		ranks_meet(0, 3);
}

static void who_comes_late_learns_the_same(void **state)
{
	(void)state;
	run(3, late_body, NULL);
}

/* Other operations in flight end with the channel. */
static void other_slot_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, d);
	struct drive_op *other;
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	step.spec.seed = run_args.seed + 5;
	step.n_tokens[0] = 4;
	other = drive_begin(d, 0, &step);
	drive_dispatch_send(other);
	drive_dispatch_recv(other);
	drive_combine_send(other);
	if (rank->rank == 1)
		set_id(op, 0, 0, 8);
	drive_dispatch_send(op);
	RANKS_STATUS(drive_try_recv(op), FERRY_RANGE);
	RANKS_STATUS(drive_try_combine_recv(other), FERRY_BROKEN);
	drive_end(op);
	drive_end(other);
}

static void the_whole_channel_ends(void **state)
{
	(void)state;
	run(3, other_slot_body, NULL);
}

/* Another channel of the world goes on. */
static void other_channel_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *first = drive_open(rank, &config, NULL);
	struct drive *second = drive_open(rank, &config, NULL);
	struct drive_op *op = begin(rank, first);
	struct drive_step step = {.from = FERRY_FROM_PACKED};

	if (rank->rank == 1)
		set_id(op, 0, 0, 8);
	drive_dispatch_send(op);
	RANKS_STATUS(drive_try_recv(op), FERRY_RANGE);
	drive_end(op);
	step.n_tokens[1] = 4;
	drive_run(second, 0, &step);
}

static void other_channels_go_on(void **state)
{
	(void)state;
	run(3, other_channel_body, NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_id_is_named_everywhere),
		cmocka_unit_test(a_batch_is_refused_many_times),
		cmocka_unit_test(a_bad_slot_is_called_a_slot),
		cmocka_unit_test(of_two_the_lower_rank_is_named),
		cmocka_unit_test(a_bad_count_in_memory_is_named),
		cmocka_unit_test(another_hidden_size_is_named),
		cmocka_unit_test(another_placement_is_named),
		cmocka_unit_test(an_empty_batch_has_any_placement),
		cmocka_unit_test(overflow_is_an_error_everywhere),
		cmocka_unit_test(groups_that_differ_are_named),
		cmocka_unit_test(who_comes_late_learns_the_same),
		cmocka_unit_test(the_whole_channel_ends),
		cmocka_unit_test(other_channels_go_on),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
