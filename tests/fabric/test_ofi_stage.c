/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that are staged for puts over libfabric, which sends them long after:
 * the stage is filled anew within a send, and by the next phase of the slot,
 * and not one of its bytes may change before it has left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/cpu_flow.h"
#include "drive.h"
#include "injected.h"

enum { TOKENS = 24, TOPK = 4 };

struct scene {
	int32_t hidden;
	int32_t n_tokens;
	int n_steps;
	uint32_t hold_us;
	bool fills; /* the stage, in combine */
	uint64_t seed;
};

static struct drive *open_channel(struct rank *rank)
{
	const struct scene *scene = rank->arg;
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = TOKENS;
	c.hidden = scene->hidden;
	c.topk = TOPK;
	c.n_experts = 8;
	c.layout = FERRY_EXPERT_PACKED;
	c.dtype = FERRY_FP32;
	c.combine_dtype = FERRY_FP32;
	return drive_open(rank, &c, NULL);
}

/* Kicked before it is full, and full several times; or not even once. */
static void check_stage(const struct drive *d, const struct scene *scene)
{
	const int32_t rows = d->moe->window.stage_rows;
	const int32_t sent = scene->n_tokens * TOPK;

	if (!scene->fills) {
		RANKS_CHECK(sent <= rows);
		return;
	}
	RANKS_CHECK(sent > 2 * rows);
	RANKS_CHECK((size_t)rows * d->moe->shape.back_stride > CPU_KICK_BYTES);
}

static void body(struct rank *rank)
{
	const struct scene *scene = rank->arg;
	struct drive *d = open_channel(rank);

	check_stage(d, scene);
	for (int i = 0; i < scene->n_steps; i++) {
		struct drive_step step = {
			.spec = {.seed = scene->seed + (uint64_t)i,
		                 .routing = TRAFFIC_REMOTE},
			.n_tokens = {scene->n_tokens, scene->n_tokens},
			.from = FERRY_FROM_PACKED,
			.light = true,
		};

		drive_run(d, 0, &step);
	}
}

/*
 * Only rank 0 is held up: so what it waits for is there, and it goes on while
 * its own rows have yet to leave.
 */
static void run(struct scene scene)
{
	const struct ofi_faults faults = {.as = "efa",
	                                  .ranks = RANKS_BIT(0),
	                                  .hold_us = scene.hold_us,
	                                  .seed = (uint32_t)scene.seed};
	struct ofi_faults_done done;
	struct ranks how = {.n_ranks = 2, .limit_ms = 8000, .arg = &scene};

	injected_ranks(&how);
	injected_set(&faults);
	ranks_run(&how, body);
	injected_done(&done);
	/* Bytes and an immediate each, of rows there and rows back. */
	assert_in_range(done.held, scene.n_steps * 4, 100000);
}

static void test_filled_again_in_a_send(void **state)
{
	(void)state;
	run((struct scene){.hidden = 16384,
	                   .n_tokens = TOKENS,
	                   .n_steps = 1,
	                   .hold_us = 10000,
	                   .fills = true,
	                   .seed = ranks_seed()});
}

static void test_filled_again_by_the_next_phase(void **state)
{
	(void)state;
	run((struct scene){.hidden = 64,
	                   .n_tokens = 4,
	                   .n_steps = 2,
	                   .hold_us = 50000,
	                   .seed = ranks_seed()});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_filled_again_in_a_send),
		cmocka_unit_test(test_filled_again_by_the_next_phase),
	};

	injected_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
