/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile of attention windows: types and their first layers, what is
 * measured, what is interpolated, the margin, and that nothing is overrated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/balance.h>

#include "core/bits.h"
#include "test_seed.h"

static uint64_t seed;

static struct ferry_windows *make(int32_t n_layers, const int32_t *layer_type)
{
	struct ferry_windows_config config = FERRY_WINDOWS_CONFIG_INIT;
	struct ferry_windows *windows = NULL;

	config.n_layers = n_layers;
	config.layer_type = layer_type;
	assert_int_equal(ferry_windows_create(&config, &windows), FERRY_OK);
	return windows;
}

static void add(struct ferry_windows *w, int32_t layer, int32_t n_tokens,
                int32_t seq_len, int64_t ns)
{
	assert_int_equal(ferry_windows_add(w, layer, n_tokens, seq_len, ns),
	                 FERRY_OK);
}

static int64_t get(const struct ferry_windows *w, int32_t layer,
                   int32_t n_tokens, int32_t seq_len)
{
	int64_t ns = -1;

	assert_int_equal(ferry_windows_get(w, layer, n_tokens, seq_len, &ns),
	                 FERRY_OK);
	return ns;
}

/* gpt-oss: sliding window and full attention in turn. */
static void test_types(void **state)
{
	const int32_t type[] = {7, 3, 7, 3, 7, 9};
	struct ferry_windows *w = make(6, type);

	(void)state;
	for (int32_t l = 0; l < 5; l++)
		assert_int_equal(ferry_windows_layer(w, l), l % 2);
	assert_int_equal(ferry_windows_layer(w, 5), 5);
	assert_int_equal(ferry_windows_layer(w, 6), -1);
	assert_int_equal(ferry_windows_layer(w, -1), -1);
	assert_int_equal(ferry_windows_layer(NULL, 0), -1);
	add(w, 4, 1024, 1024, 5000);
	add(w, 1, 1024, 1024, 9000);
	assert_int_equal(get(w, 0, 1024, 1024), 5000);
	assert_int_equal(get(w, 2, 1024, 1024), 5000);
	assert_int_equal(get(w, 3, 1024, 1024), 9000);
	/* Not measured: nothing may move. */
	assert_int_equal(get(w, 5, 1024, 1024), 0);
	ferry_windows_destroy(w);
	w = make(3, NULL); /* homogeneous: r(l) is layer 0 */
	assert_int_equal(ferry_windows_layer(w, 2), 0);
	ferry_windows_destroy(w);
	ferry_windows_destroy(NULL);
}

static void test_shortest_counts(void **state)
{
	struct ferry_windows *w = make(1, NULL);

	(void)state;
	add(w, 0, 8, 16, 700);
	add(w, 0, 8, 16, 900);
	assert_int_equal(get(w, 0, 8, 16), 700);
	add(w, 0, 8, 16, 650);
	assert_int_equal(get(w, 0, 8, 16), 650);
	ferry_windows_destroy(w);
}

static void test_interpolates(void **state)
{
	struct ferry_windows *w = make(1, NULL);

	(void)state;
	add(w, 0, 1000, 100, 10000);
	add(w, 0, 2000, 100, 18000);
	add(w, 0, 1000, 300, 20000);
	add(w, 0, 2000, 300, 36000);
	assert_int_equal(get(w, 0, 1500, 100), 14000);
	assert_int_equal(get(w, 0, 1000, 200), 15000);
	assert_int_equal(get(w, 0, 1500, 200), 21000);
	assert_int_equal(get(w, 0, 1001, 100), 10008);
	/* Below the smallest it falls to 0, in both directions. */
	assert_int_equal(get(w, 0, 500, 100), 5000);
	assert_int_equal(get(w, 0, 1000, 50), 5000);
	assert_int_equal(get(w, 0, 500, 50), 2500);
	assert_int_equal(get(w, 0, 0, 100), 0);
	assert_int_equal(get(w, 0, 1000, 0), 0);
	/* Beyond the largest it stays. */
	assert_int_equal(get(w, 0, 9999, 300), 36000);
	assert_int_equal(get(w, 0, INT32_MAX, INT32_MAX), 36000);
	assert_int_equal(get(w, 0, 1500, 4000), 28000);
	ferry_windows_destroy(w);
}

/* Of the grid only a diagonal was measured: 1K, 2K, 4K. */
static void test_missing_corners(void **state)
{
	struct ferry_windows *w = make(1, NULL);

	(void)state;
	add(w, 0, 1024, 1024, 1000);
	add(w, 0, 2048, 2048, 4000);
	assert_int_equal(get(w, 0, 1024, 1024), 1000);
	assert_int_equal(get(w, 0, 2048, 2048), 4000);
	/* (2048, 1024) counts as (1024, 1024), which it contains. */
	assert_int_equal(get(w, 0, 2048, 1024), 1000);
	assert_int_equal(get(w, 0, 1024, 2048), 1000);
	/* Half of the way in both: (1000 + 1000 + 1000 + 4000) / 4. */
	assert_int_equal(get(w, 0, 1536, 1536), 1750);
	ferry_windows_destroy(w);
}

static void test_margin(void **state)
{
	struct ferry_windows_config config = FERRY_WINDOWS_CONFIG_INIT;
	struct ferry_windows *w = NULL;

	(void)state;
	config.n_layers = 1;
	config.margin_ns = 300;
	config.margin_ppm = 100000;
	assert_int_equal(ferry_windows_create(&config, &w), FERRY_OK);
	add(w, 0, 10, 10, 1000);
	add(w, 0, 20, 10, INT64_MAX);
	assert_int_equal(get(w, 0, 10, 10), 1000 - 100 - 300);
	assert_int_equal(get(w, 0, 5, 10), 500 - 50 - 300);
	assert_int_equal(get(w, 0, 3, 10), 0); /* 300 - 30 is below 300 */
	assert_int_equal(get(w, 0, 20, 10),
	                 INT64_MAX - INT64_MAX / 10 - 1 - 300);
	ferry_windows_destroy(w);
}

/*
 * Attention of a + b t + c t s ns, measured at random shapes: what is asked for
 * at others is never more than it takes, and exact where it was measured.
 */
static void test_never_overrated(void **state)
{
	uint64_t rng = seed;

	(void)state;
	for (int round = 0; round < 50; round++) {
		const int64_t a = (int64_t)(rng_next(&rng) % 100000);
		const int64_t b = (int64_t)(rng_next(&rng) % 100);
		const int64_t c = (int64_t)(rng_next(&rng) % 50);
		struct ferry_windows *w = make(1, NULL);

		for (int i = 0; i < 30; i++) {
			const int32_t t = 1 + (int32_t)(rng_next(&rng) % 4096);
			const int32_t s = 1 + (int32_t)(rng_next(&rng) % 8192);

			add(w, 0, t, s, a + b * t + c * t * s);
			assert_int_equal(get(w, 0, t, s),
			                 a + b * t + c * t * s);
		}
		for (int i = 0; i < 300; i++) {
			const int32_t t = 1 + (int32_t)(rng_next(&rng) % 6000);
			const int32_t s = 1 + (int32_t)(rng_next(&rng) % 9000);

			assert_true(get(w, 0, t, s) <= a + b * t + c * t * s);
		}
		ferry_windows_destroy(w);
	}
}

static void test_full(void **state)
{
	struct ferry_windows_config config = FERRY_WINDOWS_CONFIG_INIT;
	struct ferry_windows *w = NULL;

	(void)state;
	config.n_layers = 2;
	config.max_shapes = 2;
	assert_int_equal(ferry_windows_create(&config, &w), FERRY_OK);
	add(w, 1, 1, 1, 10);
	add(w, 0, 2, 1, 20);
	assert_int_equal(ferry_windows_add(w, 0, 3, 1, 30), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "2 shapes"));
	add(w, 0, 2, 1, 15); /* known shapes still can be added */
	assert_int_equal(get(w, 0, 2, 1), 15);
	ferry_windows_destroy(w);
}

static void test_refused(void **state)
{
	struct ferry_windows_config config = FERRY_WINDOWS_CONFIG_INIT;
	struct ferry_windows *w = NULL;
	int64_t ns;

	(void)state;
	assert_int_equal(ferry_windows_create(&config, &w), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "n_layers is 0"));
	config.n_layers = 65537;
	assert_int_equal(ferry_windows_create(&config, &w), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "allowed are 1..65536"));
	config.n_layers = 1;
	config.margin_ppm = 1000001;
	assert_int_equal(ferry_windows_create(&config, &w), FERRY_RANGE);
	config.margin_ppm = 0;
	config.margin_ns = -1;
	assert_int_equal(ferry_windows_create(&config, &w), FERRY_RANGE);
	config.margin_ns = 0;
	config.max_shapes = -1;
	assert_int_equal(ferry_windows_create(&config, &w), FERRY_RANGE);
	assert_int_equal(ferry_windows_create(NULL, &w), FERRY_INVAL);
	assert_int_equal(ferry_windows_create(&config, NULL), FERRY_INVAL);
	assert_null(w);
	w = make(2, NULL);
	assert_int_equal(ferry_windows_add(w, 2, 1, 1, 1), FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "layer is 2, allowed are "
	                                           "0..1"));
	assert_int_equal(ferry_windows_add(w, 0, 0, 1, 1), FERRY_RANGE);
	assert_int_equal(ferry_windows_add(w, 0, 1, 0, 1), FERRY_RANGE);
	assert_int_equal(ferry_windows_add(w, 0, 1, 1, -1), FERRY_RANGE);
	assert_int_equal(ferry_windows_add(NULL, 0, 1, 1, 1), FERRY_INVAL);
	assert_int_equal(ferry_windows_get(w, -1, 1, 1, &ns), FERRY_RANGE);
	assert_int_equal(ferry_windows_get(w, 0, -1, 1, &ns), FERRY_RANGE);
	assert_int_equal(ferry_windows_get(w, 0, 1, -1, &ns), FERRY_RANGE);
	assert_int_equal(ferry_windows_get(w, 0, 1, 1, NULL), FERRY_INVAL);
	assert_int_equal(ferry_windows_get(NULL, 0, 1, 1, &ns), FERRY_INVAL);
	ferry_windows_destroy(w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_shortest_counts),
		cmocka_unit_test(test_interpolates),
		cmocka_unit_test(test_missing_corners),
		cmocka_unit_test(test_margin),
		cmocka_unit_test(test_never_overrated),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_refused),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
