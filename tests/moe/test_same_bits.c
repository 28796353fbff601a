/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same bits every time: EXACT sums do not depend on the number of ranks,
 * the placement, replicas or the layout; the receive order does not depend on
 * anything that happens on the way; the caller's floating point mode matters
 * to nobody.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "drive.h"
#include "run_args.h"

enum { TOKENS = 40, HIDDEN = 48, TOPK = 6, EXPERTS = 15 };

static struct ferry_moe_config model(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = TOKENS;
	c.hidden = HIDDEN;
	c.topk = TOPK;
	c.n_experts = EXPERTS;
	return c;
}

/* The tokens of the whole world, cut into the batches of its ranks. */
struct world_of_tokens {
	struct traffic_batch all;
	int32_t n_ranks;
	struct ferry_moe_config config;
	bool placed;
	struct ferry_placement_config placement;
	int32_t expert_slots[8];
	int32_t slot_expert[4 * EXPERTS];
	int64_t quota[4 * EXPERTS];
};

static int32_t first_token(const struct world_of_tokens *w, int32_t rank)
{
	return rank * TOKENS / w->n_ranks;
}

static void *cut(const void *from, size_t row, int32_t first, int32_t n,
                 size_t *bytes)
{
	void *to = malloc(row * (size_t)n + 1);

	*bytes = row * (size_t)n;
	if (to == NULL)
		RANKS_FAIL("out of memory");
	memcpy(to, (const uint8_t *)from + row * (size_t)first, *bytes);
	return to;
}

static void cut_batch(const struct drive_step *step, int32_t rank,
                      struct traffic_batch *b)
{
	const struct world_of_tokens *w = step->make_arg;
	const int32_t first = first_token(w, rank);
	const int32_t n = first_token(w, rank + 1) - first;

	*b = (struct traffic_batch){.in = FERRY_DISPATCH_IN_INIT};
	b->x = cut(w->all.x, 2 * HIDDEN, first, n, &b->x_bytes);
	b->ids = cut(w->all.ids, 4 * TOPK, first, n, &b->ids_bytes);
	b->weights = cut(w->all.weights, 4 * TOPK, first, n, &b->weights_bytes);
	b->in.x = b->x;
	b->in.topk_ids = b->ids;
	b->in.topk_weights = b->weights;
	b->n_tokens = n;
	b->in.n_tokens = n;
}

static void world_body(struct rank *rank)
{
	const struct world_of_tokens *w = rank->arg;
	struct drive *d =
		drive_open(rank, &w->config, w->placed ? &w->placement : NULL);
	const size_t row = 2 * HIDDEN;
	struct drive_step step = {
		.make = cut_batch,
		.make_arg = rank->arg,
		.values = ORACLE_SPECIAL,
		.from = w->config.layout == FERRY_EXPERT_PADDED
	                        ? FERRY_FROM_PADDED
	                        : FERRY_FROM_PACKED,
		.residual = DRIVE_RESIDUAL,
	};
	struct drive_op *op;
	size_t bytes;

	/* Residuals follow from the seed, and would differ between worlds. */
	step.residual = DRIVE_NO_RESIDUAL;
	op = drive_begin(d, 0, &step);
	for (int i = 0; i < 2; i++) {
		drive_dispatch_send(op);
		drive_dispatch_recv(op);
		drive_combine_send(op);
		drive_combine_recv(op);
		if (i == 0) {
			drive_end(op);
			op = drive_begin(d, 0, &step);
		}
	}
	memcpy((uint8_t *)rank->shared +
	               row * (size_t)first_token(w, rank->rank),
	       drive_sum(op, &bytes),
	       row * (size_t)(first_token(w, rank->rank + 1) -
	                      first_token(w, rank->rank)));
	drive_end(op);
}

/* Experts anywhere, each on up to n_copies ranks, in unequal shares. */
static void place(struct world_of_tokens *w, int32_t n_copies, uint64_t *rng)
{
	int32_t slots[8][4 * EXPERTS];
	int32_t n[8] = {0};
	int32_t at = 0;

	for (int32_t e = 0; e < EXPERTS; e++) {
		const int32_t first =
			(int32_t)traffic_between(rng, 0, w->n_ranks - 1);

		for (int32_t i = 0; i < n_copies && i < w->n_ranks; i++) {
			const int32_t r = (first + i) % w->n_ranks;
			const int32_t s =
				(int32_t)traffic_between(rng, 0, n[r]);

			/* Inserted anywhere among the slots of the rank. */
			memmove(&slots[r][s + 1], &slots[r][s],
			        (size_t)(n[r] - s) * sizeof(int32_t));
			slots[r][s] = e;
			n[r]++;
		}
	}
	for (int32_t r = 0; r < w->n_ranks; r++) {
		w->expert_slots[r] = n[r];
		for (int32_t s = 0; s < n[r]; s++)
			w->slot_expert[at++] = slots[r][s];
	}
	w->placed = true;
	w->config.expert_slots = w->expert_slots;
	w->placement =
		(struct ferry_placement_config)FERRY_PLACEMENT_CONFIG_INIT;
	w->placement.n_experts = EXPERTS;
	w->placement.n_ranks = w->n_ranks;
	w->placement.expert_slots = w->expert_slots;
	w->placement.slot_expert = w->slot_expert;
	if (n_copies < 2)
		return;
	for (int32_t s = 0; s < at; s++)
		w->quota[s] = (int64_t)traffic_between(rng, 0, 9);
	w->placement.split = FERRY_SPLIT_QUOTA;
	w->placement.quota = w->quota;
}

static void run_world(struct world_of_tokens *w, uint8_t *sums)
{
	struct ranks how = run_args_ranks(w->n_ranks);
	void *shared;

	how.arg = w;
	how.shared_bytes = TOKENS * 2 * HIDDEN;
	how.shared = &shared;
	ranks_run(&how, world_body);
	memcpy(sums, shared, how.shared_bytes);
	ranks_free_shared(&how);
}

static void exact_sums_depend_on_nothing(void **state)
{
	static const int32_t sizes[] = {1, 2, 3, 5, 8};
	static uint8_t want[TOKENS * 2 * HIDDEN];
	static uint8_t got[TOKENS * 2 * HIDDEN];
	struct traffic_spec spec = {.seed = run_args.seed,
	                            .n_tokens = TOKENS,
	                            .mask_percent = 10,
	                            .duplicates = true,
	                            .special = true};
	const struct ferry_moe_config config = model();
	struct traffic_batch all;
	uint64_t rng = run_args.seed;

	(void)state;
	traffic_make(&all,
	             &(struct ferry_moe_config){.n_ranks = 1,
	                                        .hidden = HIDDEN,
	                                        .topk = TOPK,
	                                        .n_experts = EXPERTS},
	             NULL, 0, &spec);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int32_t copies = 0; copies < 4; copies++) {
			struct world_of_tokens w = {.all = all,
			                            .n_ranks = sizes[i],
			                            .config = config};

			/* Room for duplicates in a padded slot. */
			w.config.max_recv_rows = TOKENS * TOPK * EXPERTS;
			w.config.layout = copies % 2 ? FERRY_EXPERT_PACKED
			                             : FERRY_EXPERT_PADDED;
			if (copies > 0)
				place(&w, copies, &rng);
			run_world(&w, i + (size_t)copies == 0 ? want : got);
			if (i + (size_t)copies > 0)
				assert_memory_equal(got, want, sizeof(want));
		}
	traffic_free(&all);
}

/* A hundred times the same, while the fabric delivers as it likes. */
static void repeat_body(struct rank *rank)
{
	struct ferry_moe_config config = model();

	config.combine = (enum ferry_combine_mode)(*(int *)rank->arg);
	config.layout = FERRY_EXPERT_PACKED;
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_step step = {.from = FERRY_FROM_PACKED,
	                          .values = ORACLE_SPECIAL,
	                          .residual = DRIVE_RESIDUAL};

	step.spec.seed = run_args.seed;
	step.spec.special = true;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = 7 * r % 12;
	for (int i = 0; i < 100; i++)
		drive_run(d, 0, &step);
}

static void a_hundred_runs_are_equal(void **state)
{
	(void)state;
	for (int mode = 0; mode < 2; mode++) {
		struct ranks how = run_args_ranks(3);

		how.arg = &mode;
		ranks_run(&how, repeat_body);
	}
}

/* MXCSR: flush to zero, denormals are zero, rounding, unmasked exceptions. */
static void mode_body(struct rank *rank)
{
	static const uint32_t modes[] = {
		0x1f80,          /* default */
		0x9fc0,          /* flush, denormals are zero */
		0x3f80,          /* down */
		0x5f80,          /* up */
		0x7f80,          /* towards zero */
		0xffc0,          /* flush and towards zero */
		0x0000 | 0x8040, /* every exception traps */
		0x1fbf,          /* sticky flags set */
	};
	struct ferry_moe_config config = model();

	config.in_dtype = FERRY_BF16;
	config.dtype = FERRY_FP8_E4M3;
	config.scale_type = FERRY_SCALE_FP32;
	config.combine = (enum ferry_combine_mode)(*(int *)rank->arg);
	struct drive *d = drive_open(rank, &config, NULL);
	struct drive_step step = {.values = ORACLE_SPECIAL,
	                          .residual = DRIVE_RESIDUAL};

	step.spec.special = true;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = 12;
	for (size_t i = 0; i < 2 * sizeof(modes) / sizeof(*modes); i++) {
		step.spec.seed = run_args.seed + i;
		d->mxcsr = modes[(i + (size_t)rank->rank) %
		                 (sizeof(modes) / sizeof(*modes))];
		drive_run(d, 0, &step);
	}
}

static void the_floating_point_mode_does_not_matter(void **state)
{
	(void)state;
	for (int mode = 0; mode < 2; mode++) {
		struct ranks how = run_args_ranks(2);

		how.arg = &mode;
		ranks_run(&how, mode_body);
	}
}

/* Weights multiplied in before the expert, in the odd modes too. */
static void weighted_input_body(struct rank *rank)
{
	static const enum ferry_dtype dtypes[] = {FERRY_BF16, FERRY_FP16,
	                                          FERRY_FP32};

	for (int i = 0; i < 3; i++) {
		struct ferry_moe_config config = model();

		config.dtype = dtypes[i];
		config.weight_use = FERRY_WEIGHT_INPUT;
		config.routed_scale = i == 1 ? 0.7f : 0;
		struct drive *d = drive_open(rank, &config, NULL);
		struct drive_step step = {.values = ORACLE_SPECIAL};

		d->mxcsr = 0x9fc0;
		step.spec.seed = run_args.seed + (uint64_t)i;
		step.spec.special = true;
		step.spec.no_weights = i == 2;
		step.n_tokens[0] = 30;
		step.n_tokens[1] = 8;
		drive_run(d, 0, &step);
		drive_close(d);
	}
}

static void weighted_inputs_are_rounded_once(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, weighted_input_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exact_sums_depend_on_nothing),
		cmocka_unit_test(a_hundred_runs_are_equal),
		cmocka_unit_test(the_floating_point_mode_does_not_matter),
		cmocka_unit_test(weighted_inputs_are_rounded_once),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
