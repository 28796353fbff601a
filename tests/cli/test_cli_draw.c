/* SPDX-License-Identifier: Apache-2.0 */
/* Generated loads: the same everywhere, and as they are asked for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferry/eplb.h>

#include "cli_cmocka.h"
#include "route_draw.h"
#include "route_maps.h"
#include "route_parts.h"

static void test_mathematics(void **state)
{
	(void)state;
	for (double x = -40; x < 40; x += 0.0625) {
		assert_true(fabs(draw_exp(x) / exp(x) - 1) < 1e-13);
		assert_true(fabs(draw_log(exp(x)) - x) < 1e-13 * 40);
	}
	assert_true(fabs(draw_normal(0.5)) < 1e-9);
	assert_true(fabs(draw_normal(0.975) - 1.959963985) < 1e-7);
	assert_true(fabs(draw_normal(0.001) + 3.090232306) < 1e-7);
}

static uint64_t draw_hash(const char *spec, uint64_t seed, struct route *route)
{
	const struct route_draw draw = {spec, 128, 4, 3, seed};
	struct fault fault;
	char note[100];
	uint64_t hash = 0;

	assert_true(route_draw(&draw, route, note, sizeof(note), &fault));
	for (int32_t i = 0; i < 3 * 4 * 128; i++)
		hash = hash * 31 + (uint64_t)route->loads[i];
	return hash;
}

static void test_draws_repeat(void **state)
{
	struct route a, b, c;

	(void)state;
	const uint64_t first = draw_hash("lognormal:1.4", 1, &a);

	assert_true(first == draw_hash("lognormal:1.4", 1, &b));
	assert_true(first != draw_hash("lognormal:1.4", 2, &c));
	/* The same numbers on every machine. */
	assert_int_equal(a.loads[0], 4341);
	assert_int_equal(a.loads[127], 2365);
	route_close(&a);
	route_close(&b);
	route_close(&c);
}

/* The fullest expert has `ratio` times the mean, whoever it is. */
static void test_zipf(void **state)
{
	struct route route;
	int64_t most = 0, sum = 0;

	(void)state;
	draw_hash("zipf:6.5", 1, &route);
	for (int32_t e = 0; e < 128; e++) {
		const int64_t n = route_loads(&route, 2, 3)[e];

		sum += n;
		most = n > most ? n : most;
	}
	assert_true(most >= 64990 && most <= 65010);
	assert_true(sum >= 128 * 9999 && sum <= 128 * 10001);
	route_close(&route);
}

static void test_draw_refuses(void **state)
{
	static const char *const specs[] = {"lognormal:9", "lognormal",
	                                    "zipf:0.5",    "zipf:129",
	                                    "normal:1",    "lognormal:1x"};
	struct route route;
	struct fault fault;
	char note[100];

	(void)state;
	for (int i = 0; i < 6; i++) {
		const struct route_draw draw = {specs[i], 128, 1, 1, 1};

		assert_false(
			route_draw(&draw, &route, note, sizeof(note), &fault));
		assert_non_null(strstr(fault.text,
		                       "allowed are lognormal:0..5, "
		                       "zipf:1..128, maps:FOLDER"));
	}
}

static void need_data(void)
{
	if (access(FERRY_SHARED_DATA "/eplb_maps", R_OK) == 0)
		return;
	print_message("no %s\n", FERRY_SHARED_DATA);
	skip();
}

/* docs/man/ferry-replay.1.md says how well the fit is. */
static void test_fit(void **state)
{
	static const int32_t n_experts[] = {128, 64}, n_layers[] = {48, 26};
	struct route route;
	struct fault fault;
	char note[100];

	(void)state;
	need_data();
	for (int i = 0; i < 2; i++) {
		const struct route_draw draw = {"maps:" FERRY_SHARED_DATA
		                                "/eplb_maps",
		                                n_experts[i], 1, 1, 1};
		double share;

		assert_true(
			route_draw(&draw, &route, note, sizeof(note), &fault));
		assert_int_equal(route.n_steps, 2);
		assert_int_equal(route.n_layers, n_layers[i]);
		assert_string_equal(route.steps[1].name, "all");
		assert_int_equal(sscanf(strchr(note, ';') + 1, "%lf", &share),
		                 1);
		assert_true(share >= 95);
		route_close(&route);
	}
}

/* EPLB places the fitted loads as the map that they were fitted to. */
static void test_fit_gives_the_map(void **state)
{
	const struct route_draw draw = {"maps:" FERRY_SHARED_DATA "/eplb_maps",
	                                128, 1, 1, 1};
	struct ferry_eplb_config config = FERRY_EPLB_CONFIG_INIT;
	struct route route;
	struct route_bytes in;
	struct route_map map;
	struct fault fault;
	char note[100];
	int32_t slots[128];

	(void)state;
	need_data();
	config.n_experts = 128;
	config.n_ranks = 8;
	assert_true(route_draw(&draw, &route, note, sizeof(note), &fault));
	assert_true(route_bytes_read(
		FERRY_SHARED_DATA "/eplb_maps/Qwen3-30B-A3B-Instruct-2507-128-"
				  "1-1-8-all.jsonl",
		&in, &fault));
	assert_true(route_map_read(&in, 128, &map, &fault));
	for (int32_t layer = 0; layer < 48; layer++) {
		assert_int_equal(ferry_eplb(&config,
		                            route_loads(&route, 1, layer),
		                            slots),
		                 FERRY_OK);
		assert_memory_equal(slots, map.experts + layer * 128,
		                    sizeof(slots));
	}
	free(map.experts);
	route_bytes_free(&in);
	route_close(&route);
}

static void write_file(const char *path, const char *text)
{
	FILE *const f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* No map is left out without a word: not a broken one, not the last of many. */
static void test_all_maps_count(void **state)
{
	char folder[] = "/tmp/test-cli-XXXXXX", path[128], spec[64];
	const struct route_draw draw = {spec, 2, 1, 1, 1};
	struct route route;
	struct fault fault;
	char note[100];

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(spec, sizeof(spec), "maps:%s", folder);
	for (int i = 0; i < 65; i++) {
		snprintf(path, sizeof(path), "%s/m-2-1-1-1-t%d.jsonl", folder,
		         i);
		write_file(path, "{\"phy2log\": [[0, 1]]}");
	}
	assert_false(route_draw(&draw, &route, note, sizeof(note), &fault));
	assert_non_null(strstr(fault.text, "more than 64 maps of 2 experts"));
	assert_int_equal(unlink(path), 0);
	assert_true(route_draw(&draw, &route, note, sizeof(note), &fault));
	assert_int_equal(route.n_steps, 64);
	route_close(&route);
	for (int i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), "%s/m-2-1-1-1-t%d.jsonl", folder,
		         i);
		assert_int_equal(unlink(path), 0);
	}
	write_file(path, "{\"phy2log\": [[0,");
	assert_false(route_draw(&draw, &route, note, sizeof(note), &fault));
	assert_non_null(strstr(fault.text, "phy2log is no array"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mathematics),
		cmocka_unit_test(test_draws_repeat),
		cmocka_unit_test(test_zipf),
		cmocka_unit_test(test_draw_refuses),
		cmocka_unit_test(test_all_maps_count),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_fit_gives_the_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
