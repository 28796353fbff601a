/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of a channel that has its GPU for itself are launched early: they
 * may start while the kernel in front still runs. Here that one says so at
 * once and does its work late: it writes what combine reads, and reads what
 * combine writes. One that did not wait would take the old rows, or destroy
 * the sums of the operation before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lab.h"
#include "moe/drive_inner.h"

enum { MAX_TOKENS = 24, LATE_NS = 100000, N_ROUNDS = 4 };

static struct ferry_moe_config small(enum ferry_combine_mode combine)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = MAX_TOKENS;
	c.hidden = 1024;
	c.topk = 4;
	c.n_experts = 10;
	c.n_slots = 1;
	c.layout = FERRY_EXPERT_PACKED;
	c.combine = combine;
	return c;
}

/* Where rows and sums are kept meanwhile. */
struct kept {
	struct mirror y, sum;
};

static void add_copy(struct lab_copies *copies, const struct mirror *to,
                     const struct mirror *from, size_t bytes)
{
	copies->of[copies->n].to = to->device;
	copies->of[copies->n].from = from->device;
	copies->of[copies->n++].bytes = bytes;
}

/*
 * Two operations on the same batch and the same arrays. y is old until the
 * late kernel before the first combine has copied it; the one before the
 * second reads the sums of the first, then makes y old again.
 */
static void issue_two(struct drive_op *op, const struct kept *k,
                      const struct kept *old, struct CUstream_st *stream)
{
	struct lab_copies before = {0}, between = {0};

	add_copy(&before, &op->y, &k->y, k->y.bytes);
	add_copy(&between, &k->sum, &op->sum, k->sum.bytes);
	add_copy(&between, &op->y, &old->y, old->y.bytes);
	RANKS_OK(drive_issue(op, DRIVE_DISPATCH, stream));
	LAB_OK(lab_copy_late(&before, LATE_NS, stream));
	RANKS_OK(drive_issue(op, DRIVE_COMBINE, stream));
	RANKS_OK(drive_issue(op, DRIVE_DISPATCH, stream));
	LAB_OK(lab_copy_late(&between, LATE_NS, stream));
	RANKS_OK(drive_issue(op, DRIVE_COMBINE, stream));
}

static struct kept keep(struct drive_op *op)
{
	struct rank_memory *m = op->d->memory;
	struct kept k = {
		.y = mirror_make(m, op->y.device_room, op->y.device_room),
		.sum = mirror_make(m, op->sum.bytes, op->sum.bytes),
	};

	return k;
}

/* The second sums are of rows of zeros. */
static void check_second(struct drive_op *op, struct CUstream_st *stream)
{
	const size_t bytes = op->sum_stride * (size_t)op->n_tokens;

	mirror_pull(op->d->memory, &op->sum, stream);
	rank_memory_sync(op->d->memory, stream);
	for (size_t i = 0; i < bytes; i++)
		if (op->sum.host[i])
			RANKS_FAIL("byte %zu of the second sums is %d", i,
			           op->sum.host[i]);
}

static void round_of(struct drive_op *op, cudaGraphExec_t exec,
                     const struct kept *k, const struct kept *old)
{
	struct rank_memory *m = op->d->memory;
	struct CUstream_st *stream = rank_memory_stream(m, 0);

	drive_refill(op, stream);
	memcpy(k->y.host, op->y.host, op->y.bytes);
	mirror_push(m, &k->y, stream);
	mirror_fill(m, &old->y, 0, stream);
	mirror_fill(m, &op->y, 0, stream);
	rank_memory_sync(m, stream);
	if (exec)
		LAB_OK(cudaGraphLaunch(exec, stream));
	else
		issue_two(op, k, old, stream);
	check_second(op, stream);
	LAB_OK(cudaMemcpyAsync(op->sum.device, k->sum.device, op->sum.bytes,
	                       cudaMemcpyDeviceToDevice, stream));
	drive_finish(op, true, stream);
}

static void early_body(struct rank *rank)
{
	const struct ferry_moe_config config =
		small(*(const enum ferry_combine_mode *)rank->arg);
	struct drive_step step = {.from = FERRY_FROM_PACKED};
	uint64_t n_dispatches = 0;

	lab_device(rank);
	struct drive *d = drive_open(rank, &config, NULL);
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);

	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = MAX_TOKENS;
	step.spec.seed = run_args.seed;
	struct drive_op *op = drive_begin_lasting(d, 0, &step);
	struct kept k = keep(op), old = keep(op);

	lab_capture(stream);
	issue_two(op, &k, &old, stream);
	cudaGraphExec_t exec = lab_captured(rank->world, stream);

	for (int i = 0; i < N_ROUNDS; i++, n_dispatches += 2) {
		step.spec.seed++;
		drive_renew(op, &step, n_dispatches);
		round_of(op, i % 2 ? exec : NULL, &k, &old);
	}
	LAB_OK(cudaGraphExecDestroy(exec));
	drive_end(op);
	mirror_drop(d->memory, &k.y);
	mirror_drop(d->memory, &k.sum);
	mirror_drop(d->memory, &old.y);
	mirror_drop(d->memory, &old.sum);
	drive_close(d);
}

static void run(enum ferry_combine_mode mode)
{
	struct ranks how = run_args_ranks(2);

	how.arg = &mode;
	ranks_run(&how, early_body);
}

static void sums_wait_for_the_kernel_in_front(void **state)
{
	(void)state;
	run(FERRY_REDUCED);
}

static void exact_sums_do_too(void **state)
{
	(void)state;
	run(FERRY_EXACT);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_wait_for_the_kernel_in_front),
		cmocka_unit_test(exact_sums_do_too),
	};

	lab_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
