/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair of wrong predictions on real routing (../shared/data): copies are
 * placed by counts in which each choice was kept with probability h and is
 * else a uniformly random expert; the exact split then shares the true counts.
 * Prints max/mean of 8 ranks, mean over 43 prompts and 24 layers.
 *
 * ferry_plan stops copying where the predicted loads are level; or it fills all
 * spare slots (spare_copies). That is what makes up for a wrong prediction:
 * quotas can be shifted only between ranks that hold the same expert.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/plan.h>

#include "core/bits.h"
#include "test_seed.h"

enum {
	RANKS = 8,
	EXPERTS = 32,
	OWN = EXPERTS / RANKS,
	COPIES = 2, /* spare slots of a rank */
	SLOTS = OWN + COPIES,
	LAYERS = 24,
	TOPK = 4,
	MOST_TOKENS = 600,
};

static uint64_t seed;

/* One prompt of the trace: the experts of every token in every layer. */
struct prompt {
	int32_t n_tokens;
	uint8_t ids[MOST_TOKENS][LAYERS][TOPK];
};

/* Expert e on rank e / OWN; the last slots of each rank are empty. */
static struct ferry_placement *contiguous(void)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;
	int32_t slots[RANKS], map[RANKS * SLOTS];

	for (int32_t r = 0; r < RANKS; r++) {
		slots[r] = SLOTS;
		for (int32_t i = 0; i < SLOTS; i++)
			map[r * SLOTS + i] = i < OWN ? r * OWN + i : -1;
	}
	c.n_experts = EXPERTS;
	c.n_ranks = RANKS;
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = FERRY_SPLIT_EXACT;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	return p;
}

/* What plans are made with. */
struct desk {
	struct ferry_planner *planner;
	struct ferry_placement *start;
	bool all_slots;
};

static struct ferry_placement *place(const struct desk *desk,
                                     const int64_t *predicted)
{
	static struct ferry_plan plan;
	struct ferry_plan_in in = FERRY_PLAN_IN_INIT;
	struct ferry_placement *next = NULL;

	plan.size = sizeof(plan);
	in.placement = desk->start;
	in.loads = predicted;
	in.max_swaps = -1;
	in.max_copies = COPIES;
	in.spare_copies = desk->all_slots;
	assert_int_equal(ferry_plan_make(desk->planner, &in, &plan), FERRY_OK);
	if (desk->all_slots)
		assert_int_equal(plan.n_moves, RANKS * COPIES);
	assert_int_equal(ferry_plan_apply(desk->start, &plan, NULL, &next),
	                 FERRY_OK);
	return next;
}

/* max/mean of the exact split of loads. */
static double ratio_of(const struct ferry_placement *p, const int64_t *loads)
{
	int64_t quota[RANKS * SLOTS], most, total = 0;

	for (int32_t e = 0; e < EXPERTS; e++)
		total += loads[e];
	assert_int_equal(ferry_split_quotas(p, loads, NULL, quota, &most),
	                 FERRY_OK);
	return (double)most * RANKS / (double)total;
}

/* Loads of a layer, true and as predicted with hit rate h. */
static void count(const struct prompt *prompt, int32_t layer, double h,
                  int64_t *loads, int64_t *predicted)
{
	for (int32_t i = 0; i < prompt->n_tokens * TOPK; i++) {
		const int32_t id = prompt->ids[i / TOPK][layer][i % TOPK];
		const bool kept = (double)(rng_next(&seed) >> 11) * 0x1p-53 < h;

		loads[id]++;
		predicted[kept ? id : (int32_t)(rng_next(&seed) % EXPERTS)]++;
	}
}

/* Reads the next prompt that the index names; false: no more. */
static bool read_prompt(FILE *index, FILE *trace, struct prompt *prompt)
{
	char line[400];

	while (fgets(line, sizeof(line), index)) {
		char *const last = strrchr(line, ',');

		if (line[0] == '#' || !strncmp(line, "dataset", 7) || !last)
			continue;
		*last = 0;
		prompt->n_tokens = atoi(strrchr(line, ',') + 1);
		assert_in_range(prompt->n_tokens, 1, MOST_TOKENS);
		assert_int_equal(fseek(trace, atol(last + 1), SEEK_SET), 0);
		assert_int_equal(fread(prompt->ids, sizeof(prompt->ids[0]),
		                       (size_t)prompt->n_tokens, trace),
		                 prompt->n_tokens);
		return true;
	}
	return false;
}

static FILE *open_data(const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", FERRY_SHARED_DATA, name);
	return fopen(path, "r");
}

static struct desk open_desk(bool all_slots)
{
	struct desk desk = {NULL, contiguous(), all_slots};

	assert_int_equal(ferry_planner_create(EXPERTS, RANKS * SLOTS, RANKS,
	                                      &desk.planner),
	                 FERRY_OK);
	return desk;
}

static void close_desk(const struct desk *desk)
{
	ferry_planner_destroy(desk->planner);
	ferry_placement_destroy(desk->start);
}

static double mean_ratio(double h, bool all_slots)
{
	const struct desk desk = open_desk(all_slots);
	static struct prompt prompt;
	FILE *const index = open_data("gptoss20b_token_trace.idx.csv");
	FILE *const trace = open_data("gptoss20b_token_trace.bin");
	double sum = 0;
	int n = 0;

	assert_non_null(index);
	assert_non_null(trace);
	while (read_prompt(index, trace, &prompt))
		for (int32_t l = 0; l < LAYERS; l++, n++) {
			int64_t loads[EXPERTS] = {0}, predicted[EXPERTS] = {0};

			count(&prompt, l, h, loads, predicted);
			struct ferry_placement *const p =
				place(&desk, predicted);

			sum += ratio_of(p, loads);
			ferry_placement_destroy(p);
		}
	close_desk(&desk);
	fclose(index);
	fclose(trace);
	assert_int_equal(n, 43 * LAYERS);
	return sum / n;
}

static double loss(double ratio, double perfect)
{
	return 100 * (ratio / perfect - 1);
}

static void split_makes_up_for_predictions(void **state)
{
	static const double rates[] = {.85, .75, .6, .4};
	static const double most[] = {.1, .1, .2, .5}; /* percent */
	const double perfect = mean_ratio(1, true);

	(void)state;
	printf("all slots:  h 1.00 %.4f\n", perfect);
	assert_true(perfect < 1.005);
	for (int i = 0; i < 4; i++) {
		const double ratio = mean_ratio(rates[i], true);

		printf("all slots:  h %.2f %.4f, loss %.3f %%\n", rates[i],
		       ratio, loss(ratio, perfect));
		assert_true(loss(ratio, perfect) <= most[i]);
	}
}

static void empty_slots_make_up_for_less(void **state)
{
	const double perfect = mean_ratio(1, false);
	const double ratio = mean_ratio(.75, false);

	(void)state;
	printf("as needed:  h 1.00 %.4f\nas needed:  h 0.75 %.4f, loss %.3f "
	       "%%\n",
	       perfect, ratio, loss(ratio, perfect));
	assert_true(perfect < 1.02);
	assert_true(loss(ratio, perfect) < 3);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(split_makes_up_for_predictions),
		cmocka_unit_test(empty_slots_make_up_for_less),
	};
	FILE *const there = open_data("gptoss20b_token_trace.bin");

	if (!there) {
		printf("skipped: no %s\n", FERRY_SHARED_DATA);
		return 77;
	}
	fclose(there);
	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
