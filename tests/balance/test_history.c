/* SPDX-License-Identifier: Apache-2.0 */
/* Windows, decay and layers of a history, against sums made directly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/eplb.h>

#include "core/bits.h"
#include "test_seed.h"

enum { LAYERS = 3, EXPERTS = 5, STEPS = 40 };

static uint64_t seed;

static int64_t below(int64_t n)
{
	return (int64_t)(rng_next(&seed) % (uint64_t)n);
}

static struct ferry_history *create(int32_t window, int32_t decay_ppm)
{
	struct ferry_history_config c = FERRY_HISTORY_CONFIG_INIT;
	struct ferry_history *h = NULL;

	c.n_layers = LAYERS;
	c.n_experts = EXPERTS;
	c.window = window;
	c.decay_ppm = decay_ppm;
	if (ferry_history_create(&c, &h))
		fail_msg("%s", ferry_last_error());
	return h;
}

static void add(struct ferry_history *h, int32_t layer, const int64_t *loads)
{
	if (ferry_history_add(h, layer, loads))
		fail_msg("%s", ferry_last_error());
}

/* All steps that there were, kept whole. */
struct past {
	int64_t loads[STEPS][LAYERS][EXPERTS];
	int32_t n; /* the step that goes on included, once it has loads */
};

/* Sum over the newest `window` steps, step by step older times decay. */
static double direct(const struct past *past, int32_t window, double decay,
                     int32_t layer, int32_t expert)
{
	const int32_t first = window && past->n > window ? past->n - window : 0;
	double weight = 1, sum = 0;

	for (int32_t s = past->n - 1; s >= first; s--) {
		sum += weight * (double)past->loads[s][layer][expert];
		weight *= decay;
	}
	return sum;
}

/* Rounded down once a step: less by some 2^-20 of each step at most. */
static void compare(const struct ferry_history *h, const struct past *past,
                    int32_t window, int32_t decay_ppm)
{
	const double decay = decay_ppm ? decay_ppm / 1e6 : 1;
	int64_t out[EXPERTS];

	for (int32_t l = 0; l < LAYERS; l++) {
		assert_int_equal(ferry_history_loads(h, l, out), FERRY_OK);
		for (int32_t e = 0; e < EXPERTS; e++) {
			const double want = direct(past, window, decay, l, e);

			if ((double)out[e] > want + 1e-6 ||
			    (double)out[e] < want - 1.001)
				fail_msg("layer %d expert %d: %lld, not %f", l,
				         e, (long long)out[e], want);
			if (decay_ppm == 0)
				assert_int_equal(out[e], (int64_t)want);
		}
	}
}

/* One step: some layers, some of them twice. */
static void random_step(struct ferry_history *h, struct past *past)
{
	int64_t(*const to)[EXPERTS] = past->loads[past->n];

	memset(to, 0, sizeof(past->loads[0]));
	for (int i = (int)below(6); i >= 0; i--) {
		const int32_t layer = (int32_t)below(LAYERS);
		int64_t loads[EXPERTS];

		for (int32_t e = 0; e < EXPERTS; e++) {
			loads[e] = below(4) ? below(100000) : 0;
			to[layer][e] += loads[e];
		}
		add(h, layer, loads);
	}
	past->n++;
}

static void sums_are_those_of_the_window(void **state)
{
	static const int32_t windows[] = {0, 1, 2, 3, 7, 1000};
	static const int32_t decays[] = {0, 1000000, 999000, 900000, 500000, 1};

	(void)state;
	for (int round = 0; round < 300; round++) {
		const int32_t window = windows[below(6)];
		const int32_t decay = decays[below(6)];
		struct ferry_history *const h = create(window, decay);
		struct past past = {.n = 0};

		compare(h, &past, window, decay);
		while (past.n < STEPS) {
			if (below(5) == 0) /* nothing was added */
				ferry_history_step(h);
			random_step(h, &past);
			compare(h, &past, window, decay);
			ferry_history_step(h);
			compare(h, &past, window, decay);
		}
		ferry_history_destroy(h);
	}
}

/* sglang 25948, 25961: counts go to the layer that is named, and no other. */
static void other_layers_stay(void **state)
{
	static const int64_t loads[] = {1, 2, 3, 4, 5};
	struct ferry_history *const h = create(2, 0);
	int64_t out[EXPERTS];

	(void)state;
	add(h, 1, loads);
	for (int32_t l = 0; l < LAYERS; l++) {
		assert_int_equal(ferry_history_loads(h, l, out), FERRY_OK);
		for (int32_t e = 0; e < EXPERTS; e++)
			assert_int_equal(out[e], l == 1 ? loads[e] : 0);
	}
	ferry_history_destroy(h);
}

/* The numbers themselves: the same on every machine. */
static void sums_are_golden(void **state)
{
	static const int64_t want[EXPERTS] = {0, 504426, 1008852, 1513278,
	                                      2017704};
	struct ferry_history *const h = create(0, 999999);
	int64_t loads[EXPERTS] = {0}, out[EXPERTS];

	(void)state;
	for (int64_t step = 0; step < 1000; step++) {
		for (int64_t e = 0; e < EXPERTS; e++)
			loads[e] = e * (step * 7919 % 1009);
		add(h, 0, loads);
		ferry_history_step(h);
	}
	assert_int_equal(ferry_history_loads(h, 0, out), FERRY_OK);
	assert_memory_equal(out, want, sizeof(want));
	ferry_history_destroy(h);
}

/* As much as planning takes, in the same proportions. */
static void huge_sums_are_halved(void **state)
{
	static const int64_t loads[] = {FERRY_MAX_LOAD, FERRY_MAX_LOAD / 2, 0,
	                                FERRY_MAX_LOAD, FERRY_MAX_LOAD / 4};

	(void)state;
	for (int32_t window = 0; window < 70; window += 35) {
		struct ferry_history *const h = create(window, 0);
		int64_t out[EXPERTS];
		int64_t sum = 0;

		for (int step = 0; step < 100; step++) {
			add(h, 2, loads);
			ferry_history_step(h);
		}
		assert_int_equal(ferry_history_loads(h, 2, out), FERRY_OK);
		for (int32_t e = 0; e < EXPERTS; e++)
			sum += out[e];
		assert_in_range(sum, FERRY_MAX_LOAD / 2, FERRY_MAX_LOAD);
		assert_int_equal(out[0], out[3]);
		assert_int_equal(out[0] / 2, out[1]);
		assert_int_equal(out[0] / 4, out[4]);
		assert_int_equal(out[2], 0);
		ferry_history_destroy(h);
	}
}

static void config_refused(const struct ferry_history_config *c,
                           enum ferry_status status, const char *text)
{
	struct ferry_history *h = NULL;

	assert_int_equal(ferry_history_create(c, &h), status);
	assert_null(h);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void bad_configs(void **state)
{
	struct ferry_history_config c = FERRY_HISTORY_CONFIG_INIT;

	(void)state;
	config_refused(NULL, FERRY_INVAL, "NULL");
	config_refused(&c, FERRY_RANGE, "n_layers is 0, allowed are 1..65536");
	c.n_layers = 1;
	config_refused(&c, FERRY_RANGE, "n_experts is 0");
	c.n_experts = 1;
	c.window = -1;
	config_refused(&c, FERRY_RANGE, "window is -1, allowed are 0..");
	c.window = 0;
	c.decay_ppm = 1000001;
	config_refused(&c, FERRY_RANGE,
	               "decay_ppm is 1000001, allowed are 0..1000000");
	c.decay_ppm = 0;
	assert_int_equal(ferry_history_create(&c, NULL), FERRY_INVAL);
}

static void bad_adds(void **state)
{
	struct ferry_history *const h = create(0, 0);
	int64_t loads[EXPERTS] = {1, 2, 3, 4, 5}, out[EXPERTS];

	(void)state;
	add(h, 0, loads);
	assert_int_equal(ferry_history_add(h, 3, loads), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "layer is 3, allowed are "
	                                           "0..2"));
	assert_int_equal(ferry_history_add(h, -1, loads), FERRY_RANGE);
	loads[4] = -1;
	assert_int_equal(ferry_history_add(h, 0, loads), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "loads[4] of layer 0 is "
	                                           "-1"));
	loads[4] = FERRY_MAX_LOAD - 4;
	assert_int_equal(ferry_history_add(h, 0, loads), FERRY_RANGE);
	assert_int_equal(ferry_history_add(h, 0, NULL), FERRY_INVAL);
	assert_int_equal(ferry_history_add(NULL, 0, loads), FERRY_INVAL);
	assert_int_equal(ferry_history_loads(h, 3, out), FERRY_RANGE);
	assert_int_equal(ferry_history_loads(h, 0, NULL), FERRY_INVAL);
	assert_string_equal(ferry_last_error(), "history_loads: out is NULL");
	assert_int_equal(ferry_history_loads(NULL, 0, out), FERRY_INVAL);
	/* What was refused has left nothing behind. */
	assert_int_equal(ferry_history_loads(h, 0, out), FERRY_OK);
	for (int32_t e = 0; e < EXPERTS; e++)
		assert_int_equal(out[e], e + 1);
	ferry_history_step(NULL);
	ferry_history_destroy(NULL);
	ferry_history_destroy(h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_those_of_the_window),
		cmocka_unit_test(other_layers_stay),
		cmocka_unit_test(sums_are_golden),
		cmocka_unit_test(huge_sums_are_halved),
		cmocka_unit_test(bad_configs),
		cmocka_unit_test(bad_adds),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
