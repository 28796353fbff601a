/* SPDX-License-Identifier: Apache-2.0 */
/* What a device has found, as hosts tell it to each other and to the caller. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/cuda_engine.h"

enum { FIRST_EPOCH = 1000, TIMEOUT_MS = 1500 };

static struct ferry_world world = {.timeout_ms = TIMEOUT_MS};

static const struct ferry_moe moe = {
	.world = &world,
	.shape = {.rank = 1,
                  .n_ranks = 4,
                  .n_experts = 10,
                  .layout = FERRY_EXPERT_PACKED,
                  .padded_rows = 7,
                  .recv_rows = 100},
	.first_epoch = FIRST_EPOCH,
};

/* Found in dispatch 5 of slot 2 by rank 1's GPU; rank 3 is to blame. */
static struct ferry_cuda_record record_of(enum ferry_status status,
                                          enum ferry_cuda_detail detail)
{
	return (struct ferry_cuda_record){
		.status = (int32_t)status,
		.root = 3,
		.phase = FERRY_PHASE_DISPATCH_RECV,
		.slot = 2,
		.token = -1,
		.choice = -1,
		.detail = (int32_t)detail,
		.epoch = FIRST_EPOCH + 5,
		.seal = 1,
	};
}

static void check(const struct ferry_cuda_record *r, const char *text)
{
	struct ferry_blame blame;

	ferry_cuda_report(&moe, r, &blame);
	assert_string_equal(blame.text, text);
	assert_int_equal(blame.verdict.status, r->status);
	assert_int_equal(blame.verdict.root, 3);
	assert_int_equal(blame.verdict.reporter, 1);
	assert_int_equal(blame.verdict.phase, FERRY_PHASE_DISPATCH_RECV);
	assert_int_equal(blame.verdict.slot, 2);
	assert_int_equal(blame.verdict.epoch, 5);
}

static void test_marks(void **state)
{
	struct ferry_cuda_record r = record_of(FERRY_RANGE, FERRY_CUDA_BAD_ID);

	(void)state;
	r.token = 4;
	r.choice = 1;
	r.value = 12;
	r.limit = 10;
	check(&r, "dispatch: topk_ids[4][1] is 12, experts are 0..9 (rank 3)");
	r.limit = 9;
	check(&r,
	      "dispatch: topk_ids[4][1] is 12, expert slots are 0..8 (rank 3)");
	r = record_of(FERRY_RANGE, FERRY_CUDA_BAD_COUNT);
	r.value = -5;
	r.limit = 129;
	check(&r, "dispatch: n_tokens is -5, allowed are 0..128 (rank 3)");
}

static void test_tables(void **state)
{
	struct ferry_cuda_record r =
		record_of(FERRY_PROTO, FERRY_CUDA_BAD_TABLE);

	(void)state;
	r.choice = FERRY_TABLE_TOPK;
	r.value = 99;
	check(&r, "dispatch: the table of rank 3 is malformed: topk is 99");
	r = record_of(FERRY_MISMATCH, FERRY_CUDA_BAD_HIDDEN);
	r.limit = 0;
	r.value = 64;
	r.other = 128;
	check(&r, "dispatch: hidden is 64 on rank 3, 128 on rank 0");
	r.detail = FERRY_CUDA_BAD_PLACEMENT;
	check(&r, "dispatch: placement has hash 0000000000000040 on rank 3, "
	          "0000000000000080 on rank 0");
	r.limit = 2;
	r.detail = FERRY_CUDA_BAD_MATE_COUNT;
	check(&r,
	      "dispatch: n_tokens of one group is 64 on rank 3, 128 on rank 2");
	r.detail = FERRY_CUDA_BAD_MATE_TOPK;
	check(&r, "dispatch: topk of one group is 64 on rank 3, 128 on rank 2");
	r.detail = FERRY_CUDA_BAD_MATE;
	check(&r, "dispatch: ids or weights of rank 3 differ from those of "
	          "rank 2, which is in its group");
	r = record_of(FERRY_INTERNAL, FERRY_CUDA_ODD_TABLES);
	check(&r, "dispatch_recv: slot 2, dispatch 5: the GPU of rank 3 found "
	          "something wrong with the tables, and not what");
}

static void test_room(void **state)
{
	struct ferry_cuda_record r =
		record_of(FERRY_OVERFLOW, FERRY_CUDA_NO_ROOM);

	(void)state;
	r.value = 101;
	check(&r, "dispatch: 101 rows arrive on rank 3, max_recv_rows is 100");
}

static void test_waits(void **state)
{
	struct ferry_cuda_record r =
		record_of(FERRY_TIMEOUT, FERRY_CUDA_WAITED);
	struct ferry_blame blame;

	(void)state;
	check(&r, "dispatch_recv: slot 2, dispatch 5: rank 3 did not come "
	          "within 1500 ms");
	/* Who was asked says whom it waits for, and leaves the words. */
	r.detail = FERRY_CUDA_ASKED;
	check(&r, "");
	ferry_cuda_report(&moe, &r, &blame);
	assert_int_equal(blame.verdict.flags, FERRY_VERDICT_ASKED);
	r = record_of(FERRY_STATE, FERRY_CUDA_BAD_ORDER);
	check(&r, "dispatch_recv: slot 2, dispatch 5: the GPU of rank 3 found "
	          "the slot in another state: are graphs replayed out of "
	          "order?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
