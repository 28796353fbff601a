/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only worlds of GPUs have, on pretended ones: a start that waits for
 * nothing, copies behind the caller's stream, memory that kernels may still
 * read after the host has given it back, copies that never come, a balancer,
 * other fabrics.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/balancer.h>

#include "../fabric/fake_gpu.h"
#include "core/order.h"
#include "experts_lab.h"

enum { SHORT_MS = 300, EXPERTS = 13 /* of lab_small */ };

static void start(struct lab *lab, int32_t layer)
{
	const struct ferry_plan plan = lab_one_swap(
		ferry_experts_placement(lab->experts, layer), layer);

	RANKS_OK(ferry_experts_start(lab->experts, layer, &plan, NULL, NULL));
}

static void commit(struct lab *lab, int32_t layer)
{
	RANKS_OK(ferry_experts_commit(lab->experts, layer, NULL, NULL, NULL));
}

static void barrier(const struct lab *lab)
{
	RANKS_OK(ferry_world_barrier(lab->rank->world));
}

/* Threads share the switch: one of them turns it, when nobody works. */
static void set_busy(const struct lab *lab, uint32_t busy)
{
	barrier(lab);
	if (lab->rank->rank == 0 || lab->rank->kind == RANKS_PROCESSES)
		store_seq_u32(&fake_gpu_busy, busy);
	barrier(lab);
}

static struct lab *open_lab(struct rank *rank)
{
	const struct lab_shape shape =
		lab_small(7, *(const enum ferry_experts_mode *)rank->arg);

	return lab_open(rank, &shape);
}

/* While the stream has work the start is over, and nothing is staged. */
static void behind_the_stream(struct rank *rank)
{
	struct lab *lab = open_lab(rank);
	bool staged = true;

	set_busy(lab, 1);
	start(lab, 0);
	barrier(lab);
	RANKS_OK(ferry_experts_poll(lab->experts, 0, &staged));
	RANKS_CHECK(!staged);
	set_busy(lab, 0);
	commit(lab, 0);
	lab_check(lab, 0, ferry_experts_placement(lab->experts, 0));
}

/* Nobody uses the versions, says the host, but kernels do: they are kept. */
static void kept_for_kernels(struct rank *rank)
{
	struct lab *lab = open_lab(rank);
	const struct ferry_placement *const first =
		ferry_experts_placement(lab->experts, 0);

	start(lab, 0);
	commit(lab, 0);
	start(lab, 0);
	/* The copies of what is started are through; then kernels come. */
	bool staged = false;

	while (!staged)
		RANKS_OK(ferry_experts_poll(lab->experts, 0, &staged));
	set_busy(lab, 1);
	commit(lab, 0);
	RANKS_EQ(lab_stats(lab).versions_kept, 2);
	if (lab->shape.mode == FERRY_EXPERTS_REMAP)
		lab_check(lab, 0, first);
	set_busy(lab, 0);
	start(lab, 0);
	commit(lab, 0);
	RANKS_CHECK(lab_stats(lab).versions_kept <= 2);
	RANKS_EQ(ferry_experts_tensor(lab->experts, 0, first, 0, 0) == NULL, 1);
	lab_check(lab, 0, ferry_experts_placement(lab->experts, 0));
}

/* A copy that never comes is a named end, and the old weights are whole. */
static void never_staged(struct rank *rank)
{
	struct lab *lab = open_lab(rank);
	const struct ferry_placement *const first =
		ferry_experts_placement(lab->experts, 0);

	set_busy(lab, 1);
	start(lab, 0);
	const enum ferry_status status =
		ferry_experts_commit(lab->experts, 0, NULL, NULL, NULL);

	RANKS_STATUS(status, FERRY_TIMEOUT);
	RANKS_TEXT(ferry_last_error(), "experts_commit: layer 0");
	RANKS_CHECK(ferry_experts_placement(lab->experts, 0) == first);
	lab_check(lab, 0, first);
	store_seq_u32(&fake_gpu_busy, 0);
}

/* All tokens want experts of rank 0: the plan moves some, and they arrive. */
static void balanced(struct rank *rank)
{
	struct lab *lab = open_lab(rank);
	const struct ferry_placement *placement =
		ferry_experts_placement(lab->experts, 0);
	struct ferry_balancer_config config = FERRY_BALANCER_CONFIG_INIT;
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	struct ferry_balancer_report report = FERRY_BALANCER_REPORT_INIT;
	struct ferry_balancer *balancer = NULL;
	int32_t counts[EXPERTS] = {0};

	for (int32_t s = 0; s < ferry_placement_n_slots(placement); s++)
		if (ferry_placement_rank(placement, s) == 0 &&
		    ferry_placement_expert(placement, s) >= 0)
			counts[ferry_placement_expert(placement, s)] = 1000;
	config.experts = lab->experts;
	config.policy = FERRY_BALANCE_FERRY;
	RANKS_OK(ferry_balancer_open(rank->world, &config, &balancer));
	ranks_defer((void (*)(void *))ferry_balancer_close, balancer);
	in.counts = counts;
	RANKS_OK(ferry_balancer_predict(balancer, 0, &in));
	RANKS_OK(ferry_balancer_commit(balancer, 0, &placement, &report));
	RANKS_CHECK(report.n_swaps + report.n_copies > 0);
	RANKS_CHECK(report.after_ppm < report.before_ppm);
	lab_check(lab, 0, placement);
}

static void run(void **state, int32_t timeout_ms, ranks_body *body)
{
	static const enum ferry_experts_mode modes[] = {FERRY_EXPERTS_REMAP,
	                                                FERRY_EXPERTS_COPY};
	const struct lab_setting *setting = *state;

	for (int i = 0; i < 2; i++) {
		const struct ranks how = {
			.kind = setting->kind,
			.n_ranks = 2 + 3 * i,
			.device = FERRY_DEVICE_CUDA,
			.n_gpus = 2,
			.fabric = setting->fabric,
			.timeout_ms = timeout_ms,
			.arg = (void *)(uintptr_t)&modes[i],
		};

		store_seq_u32(&fake_gpu_busy, 0);
		ranks_run(&how, body);
	}
}

static void test_behind_the_stream(void **state)
{
	run(state, 0, behind_the_stream);
}

static void test_kept_for_kernels(void **state)
{
	run(state, 0, kept_for_kernels);
}

static void test_never_staged(void **state)
{
	run(state, SHORT_MS, never_staged);
}

static void test_balanced(void **state)
{
	run(state, 0, balanced);
}

/* Several hosts: memory of GPUs is not put there. */
static void refused(struct rank *rank)
{
	const struct lab_shape shape = lab_small(1, FERRY_EXPERTS_REMAP);
	struct lab lab;

	lab_make(&lab, rank, &shape);
	const enum ferry_status status = lab_try(&lab);

	lab_close(&lab);
	RANKS_STATUS(status, FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), "by fabric p2p");
}

static void test_refused(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 4,
	                          .device = FERRY_DEVICE_CUDA,
	                          .n_gpus = 2,
	                          .fabric = "p2p+wire",
	                          .options = "RANKS_PER_HOST=2"},
	          refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_behind_the_stream),
		cmocka_unit_test(test_kept_for_kernels),
		cmocka_unit_test(test_never_staged),
		cmocka_unit_test(test_balanced),
		cmocka_unit_test(test_refused),
	};

	return lab_main(tests, sizeof(tests) / sizeof(tests[0]));
}
