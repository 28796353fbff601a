/* SPDX-License-Identifier: Apache-2.0 */
/*
 * EPLB: the published vector, inputs that users of EPLB reported, and
 * properties of random ones. Maps that a published EPLB made lie outside the
 * tree: test_eplb_maps.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/eplb.h>

#include "core/bits.h"
#include "test_seed.h"

enum { MAX = 1024 };

static uint64_t seed;

static int64_t below(int64_t n)
{
	return (int64_t)(rng_next(&seed) % (uint64_t)n);
}

static struct ferry_eplb_config shape(int32_t n_experts, int32_t n_slots,
                                      int32_t n_groups, int32_t n_nodes,
                                      int32_t n_ranks)
{
	struct ferry_eplb_config c = FERRY_EPLB_CONFIG_INIT;

	c.n_experts = n_experts;
	c.n_slots = n_slots;
	c.n_groups = n_groups;
	c.n_nodes = n_nodes;
	c.n_ranks = n_ranks;
	return c;
}

static void place(const struct ferry_eplb_config *c, const int64_t *loads,
                  int32_t *map)
{
	if (ferry_eplb(c, loads, map))
		fail_msg("%s", ferry_last_error());
}

static int32_t n_slots_of(const struct ferry_eplb_config *c)
{
	return c->n_slots ? c->n_slots : c->n_experts;
}

static int32_t first_slot(const struct ferry_eplb_config *c, int32_t rank)
{
	const int32_t n = n_slots_of(c);
	const int32_t rest = n % c->n_ranks;

	return rank * (n / c->n_ranks) + (rank < rest ? rank : rest);
}

static int32_t n_copies(const struct ferry_eplb_config *c, const int32_t *map,
                        int32_t expert)
{
	int32_t n = 0;

	for (int32_t s = 0; s < n_slots_of(c); s++)
		n += map[s] == expert;
	return n;
}

/* Load of the fullest rank, copies sharing alike, times 1000. */
static int64_t fullest(const struct ferry_eplb_config *c, const int64_t *loads,
                       const int32_t *map)
{
	int64_t most = 0;

	for (int32_t r = 0; r < c->n_ranks; r++) {
		int64_t sum = 0;

		for (int32_t s = first_slot(c, r); s < first_slot(c, r + 1);
		     s++)
			if (map[s] >= 0)
				sum += loads[map[s]] * 1000 /
				       n_copies(c, map, map[s]);
		most = max_i64(most, sum);
	}
	return most;
}

static int32_t n_duplicates(const struct ferry_eplb_config *c,
                            const int32_t *map)
{
	int32_t n = 0;

	for (int32_t r = 0; r < c->n_ranks; r++)
		for (int32_t a = first_slot(c, r); a < first_slot(c, r + 1);
		     a++)
			for (int32_t b = first_slot(c, r); b < a; b++)
				n += map[a] >= 0 && map[a] == map[b];
	return n;
}

/* Ours is one that ferry_placement_create takes. */
static struct ferry_placement *placement_of(const struct ferry_eplb_config *c,
                                            const int32_t *map)
{
	struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *placement = NULL;
	int32_t slots[MAX];

	for (int32_t r = 0; r < c->n_ranks; r++)
		slots[r] = first_slot(c, r + 1) - first_slot(c, r);
	p.n_experts = c->n_experts;
	p.n_ranks = c->n_ranks;
	p.expert_slots = slots;
	p.slot_expert = map;
	if (ferry_placement_create(&p, &placement))
		fail_msg("%s", ferry_last_error());
	return placement;
}

static void is_a_placement(const struct ferry_eplb_config *c,
                           const int32_t *map)
{
	ferry_placement_destroy(placement_of(c, map));
}

static void published_vector(void **state)
{
	static const int64_t loads[2][12] = {
		{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
		{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
	static const int32_t want[2][16] = {
		{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
		{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
	struct ferry_eplb_config c = shape(12, 16, 4, 2, 8);
	int32_t map[16];

	(void)state;
	for (int published = 0; published < 2; published++)
		for (int layer = 0; layer < 2; layer++) {
			c.as_published = published;
			place(&c, loads[layer], map);
			assert_memory_equal(map, want[layer], sizeof(map));
		}
}

/* From the tests of vLLM: every rank gets one copy of the hot expert. */
static void hot_expert_in_one_group(void **state)
{
	static const int64_t loads[] = {1000, 1, 1, 1, 1, 1, 1, 1};
	struct ferry_eplb_config c = shape(8, 12, 2, 2, 4);
	int32_t map[12];

	(void)state;
	place(&c, loads, map);
	is_a_placement(&c, map);
	assert_int_equal(n_copies(&c, map, 0), 2);
	/* Hosts keep their group. */
	for (int32_t s = 0; s < 12; s++)
		assert_int_equal(map[s] / 4, s / 6);
	c.as_published = true;
	place(&c, loads, map);
	assert_int_equal(n_copies(&c, map, 0), 3);
	assert_int_equal(n_duplicates(&c, map), 3);
}

static void one_rank(void **state)
{
	static const int64_t loads[] = {10, 20, 30, 40};
	static const int32_t want[] = {3, 2, 1, 0};
	struct ferry_eplb_config c = shape(4, 4, 1, 1, 1);
	int32_t map[6];

	(void)state;
	place(&c, loads, map);
	assert_memory_equal(map, want, sizeof(want));
	/* More slots than a rank can use stay empty. */
	c.n_slots = 6;
	place(&c, loads, map);
	assert_memory_equal(map, want, sizeof(want));
	assert_int_equal(map[4], -1);
	assert_int_equal(map[5], -1);
}

/*
 * The vector of vllm-ascend's FlashLB, which brings the fullest rank from 232
 * down to 205 by choosing copies and places together. Where the tokens of
 * copies need not be shared alike, EPLB's own map does better.
 */
static void flash_lb(void **state)
{
	static const int64_t loads[] = {600000, 560000, 120000, 120000,
	                                20000,  10000,  10000,  10000};
	struct ferry_eplb_config c = shape(8, 16, 1, 1, 8);
	int32_t map[16];
	int64_t quota[16], most = 0;

	(void)state;
	c.as_published = true;
	place(&c, loads, map);
	assert_int_equal(fullest(&c, loads, map), 232000000);
	c.as_published = false;
	place(&c, loads, map);
	assert_int_equal(fullest(&c, loads, map), 232000000);
	struct ferry_placement *const p = placement_of(&c, map);

	assert_int_equal(ferry_split_quotas(p, loads, NULL, quota, &most),
	                 FERRY_OK);
	printf("# fullest rank: 232.000 in equal shares, %lld.%03lld by "
	       "quotas, mean 181.250\n",
	       (long long)most / 1000, (long long)most % 1000);
	assert_in_range(most, 181250, 205000);
	ferry_placement_destroy(p);
}

/*
 * From the tests of vLLM: equal loads, made anew, change nothing. There by
 * keeping slots within a rank, here whatever the ranks.
 */
static void made_anew_nothing_moves(void **state)
{
	struct ferry_eplb_config c = shape(8, 8, 1, 1, 4);
	int64_t loads[64];
	int32_t map[96], next[96], rotated[96], n_moved = -1;

	(void)state;
	for (int32_t e = 0; e < 8; e++)
		loads[e] = 50;
	for (int round = 0; round < 100; round++) {
		place(&c, loads, map);
		struct ferry_placement *const p = placement_of(&c, map);
		const int32_t k = c.n_slots / c.n_ranks;

		/* A plan that names the ranks otherwise. */
		for (int32_t s = 0; s < c.n_slots; s++)
			rotated[(s + k) % c.n_slots] = map[s];
		assert_int_equal(
			ferry_placement_align(p, rotated, next, &n_moved),
			FERRY_OK);
		assert_int_equal(n_moved, 0);
		assert_memory_equal(next, map,
		                    (size_t)c.n_slots * sizeof(*map));
		ferry_placement_destroy(p);
		c = shape(64, 96, 1, 1, 8);
		for (int32_t e = 0; e < 64; e++)
			loads[e] = below(1000);
	}
}

static void random_loads(int32_t n, int64_t *loads)
{
	const int64_t kind = below(5);

	for (int32_t e = 0; e < n; e++)
		switch (kind) {
		case 0:
			loads[e] = below(1000);
			break;
		case 1: /* ties */
			loads[e] = 10 * below(4);
			break;
		case 2: /* a long tail */
			loads[e] = (int64_t)1 << below(20);
			break;
		case 3: /* as large as can be */
			loads[e] = FERRY_MAX_LOAD / n - below(100);
			break;
		default:
			loads[e] = 0;
			break;
		}
	if (below(3) == 0)
		loads[below(n)] = kind == 3 ? 0 : 1 << 30;
}

static struct ferry_eplb_config random_shape(void)
{
	const int32_t n_nodes = 1 + (int32_t)below(4);
	const int32_t n_ranks = n_nodes * (1 + (int32_t)below(8));
	const int32_t n_groups = 1 + (int32_t)below(8);
	const int32_t n_experts = n_groups * (1 + (int32_t)below(16));
	const int32_t spare = (int32_t)below(2 * n_ranks + 1);

	return shape(n_experts, n_experts + spare, n_groups, n_nodes, n_ranks);
}

/*
 * Greedy copying: the last copy of every expert was of one whose copies were
 * the heaviest then, and so they were heavier than any is at the end.
 */
static void copies_are_of_the_heaviest(const struct ferry_eplb_config *c,
                                       const int64_t *loads, const int32_t *map,
                                       int32_t most)
{
	for (int32_t a = 0; a < c->n_experts; a++) {
		const int64_t n_a = n_copies(c, map, a);

		for (int32_t b = 0; n_a > 1 && b < c->n_experts; b++) {
			const int64_t n_b = n_copies(c, map, b);

			if (n_b < most)
				assert_true((__int128_t)loads[a] * n_b >=
				            (__int128_t)loads[b] * (n_a - 1));
		}
	}
}

/* Empty slots only where there is no expert that lacks a copy on a rank. */
static void empties_are_needed(const struct ferry_eplb_config *c,
                               const int32_t *map, int32_t most)
{
	if (n_copies(c, map, -1) == 0)
		return;
	for (int32_t e = 0; e < c->n_experts; e++)
		assert_int_equal(n_copies(c, map, e), most);
}

static void random_layers(void **state)
{
	int64_t loads[MAX];
	int32_t map[MAX], again[MAX];

	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct ferry_eplb_config c = random_shape();

		random_loads(c.n_experts, loads);
		place(&c, loads, map);
		is_a_placement(&c, map);
		if (c.n_nodes == 1 || c.n_groups % c.n_nodes != 0) {
			copies_are_of_the_heaviest(&c, loads, map, c.n_ranks);
			empties_are_needed(&c, map, c.n_ranks);
		}
		place(&c, loads, again);
		assert_memory_equal(map, again,
		                    (size_t)c.n_slots * sizeof(*map));
	}
}

/* A value of 200 random layers: from every compiler, on every machine. */
static void maps_are_golden(void **state)
{
	const uint64_t own = seed;
	int64_t loads[MAX];
	int32_t map[MAX];
	uint64_t h = 0;

	(void)state;
	seed = 4711;
	for (int round = 0; round < 200; round++) {
		struct ferry_eplb_config c = random_shape();

		random_loads(c.n_experts, loads);
		place(&c, loads, map);
		for (int32_t s = 0; s < c.n_slots; s++)
			h = hash_u64(h, (uint64_t)map[s]);
	}
	seed = own;
	assert_int_equal(h, 0xa5dd37d3280855e2);
}

/* Hierarchical: no expert on two hosts. */
static void hosts_keep_groups(void **state)
{
	int64_t loads[MAX];
	int32_t map[MAX];

	(void)state;
	for (int round = 0; round < 500; round++) {
		const int32_t n_nodes = 2 + (int32_t)below(3);
		const int32_t per_node = 1 + (int32_t)below(4);
		const int32_t n_ranks = n_nodes * per_node;
		const int32_t n_groups = n_nodes * (1 + (int32_t)below(3));
		const int32_t n_experts = n_groups * (1 + (int32_t)below(8));
		const int32_t n_slots =
			n_ranks *
			(int32_t)(div_up(n_experts, n_ranks) + below(3));
		struct ferry_eplb_config c =
			shape(n_experts, n_slots, n_groups, n_nodes, n_ranks);
		int32_t group_node[64];

		random_loads(n_experts, loads);
		place(&c, loads, map);
		is_a_placement(&c, map);
		memset(group_node, -1, sizeof(group_node));
		for (int32_t s = 0; s < n_slots; s++) {
			const int32_t node = s / (n_slots / n_nodes);

			if (map[s] < 0)
				continue;
			int32_t *const of =
				&group_node[map[s] / (n_experts / n_groups)];

			assert_true(*of < 0 || *of == node);
			*of = node;
		}
	}
}

/* Ours differs from the published one only where that wastes slots. */
static void as_published_where_that_is_sound(void **state)
{
	int64_t loads[MAX];
	int32_t map[MAX], published[MAX];
	int n_sound = 0, n_wasted = 0;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct ferry_eplb_config c = random_shape();

		c.n_slots = (int32_t)div_up(c.n_slots, c.n_ranks) * c.n_ranks;
		random_loads(c.n_experts, loads);
		c.as_published = true;
		place(&c, loads, published);
		if (n_duplicates(&c, published) > 0) {
			n_wasted++;
			continue;
		}
		c.as_published = false;
		place(&c, loads, map);
		assert_memory_equal(map, published,
		                    (size_t)c.n_slots * sizeof(*map));
		n_sound++;
	}
	assert_true(n_sound > 100 && n_wasted > 100);
}

/* deepseek-ai/EPLB#22, as far as its loads are known. */
static void two_copies_on_one_rank(void **state)
{
	static const int64_t head[] = {10545, 11846, 8542,  33117, 8385,  4892,
	                               24052, 27875, 12287, 21604, 31428, 19248,
	                               13467, 12080, 5198,  1323,  19034, 28040,
	                               44965, 3112,  13323, 4808,  10167};
	struct ferry_eplb_config c = shape(256, 288, 16, 2, 32);
	int64_t loads[256];
	int32_t map[288];
	int32_t wasted = 0;

	(void)state;
	for (int round = 0; round < 50; round++) {
		for (int32_t e = 0; e < 256; e++)
			loads[e] = 1000 + below(30000);
		memcpy(loads, head, sizeof(head));
		c.as_published = false;
		place(&c, loads, map);
		is_a_placement(&c, map);
		c.as_published = true;
		place(&c, loads, map);
		wasted += n_duplicates(&c, map);
	}
	printf("# published: %d wasted slots in 50 maps of 32 copies\n",
	       wasted);
	assert_true(wasted > 0);
}

/* vLLM 52435 and 18343, TensorRT-LLM 8886: no shape is refused. */
static void shapes_that_do_not_divide(void **state)
{
	static const int32_t shapes[][5] = {
		{256, 0, 8, 1, 3},     {256, 256, 8, 4, 3},
		{256, 321, 8, 1, 5},   {64, 64, 1, 1, 5},
		{256, 288, 8, 1, 8},   {384, 416, 1, 4, 32},
		{512, 577, 16, 4, 64}, {7, 7, 7, 1, 7},
		{5, 9, 1, 1, 8},       {1, 3, 1, 1, 3},
		{2, 3, 1, 3, 6}};
	int64_t loads[MAX];
	int32_t map[MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		const int32_t *const s = shapes[i];
		struct ferry_eplb_config c =
			shape(s[0], s[1], s[2], s[3] > s[4] ? 1 : s[3], s[4]);

		random_loads(c.n_experts, loads);
		place(&c, loads, map);
		is_a_placement(&c, map);
	}
}

/* All load on one expert: it is everywhere, and nothing else is. */
static void one_expert_has_it_all(void **state)
{
	struct ferry_eplb_config c = shape(8, 11, 1, 1, 4);
	int64_t loads[8] = {0};
	int32_t map[11];

	(void)state;
	loads[5] = FERRY_MAX_LOAD;
	place(&c, loads, map);
	is_a_placement(&c, map);
	assert_int_equal(n_copies(&c, map, 5), 4);
	for (int32_t e = 0; e < 8; e++)
		assert_int_equal(n_copies(&c, map, e), e == 5 ? 4 : 1);
}

static void refused(const struct ferry_eplb_config *c, const int64_t *loads,
                    enum ferry_status status, const char *text)
{
	int32_t map[MAX];

	assert_int_equal(ferry_eplb(c, loads, map), status);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void bad_arguments(void **state)
{
	struct ferry_eplb_config c = shape(8, 7, 1, 1, 2);
	int64_t loads[8] = {0};

	(void)state;
	refused(NULL, loads, FERRY_INVAL, "NULL");
	refused(&c, loads, FERRY_RANGE, "n_slots is 7, allowed are 8..");
	c = shape(0, 0, 1, 1, 2);
	refused(&c, loads, FERRY_RANGE, "n_experts is 0, allowed are 1..");
	c = shape(8, 8, 1, 1, 0);
	refused(&c, loads, FERRY_RANGE, "n_ranks is 0");
	c = shape(8, 8, 9, 1, 2);
	refused(&c, loads, FERRY_RANGE, "n_groups is 9, allowed are 1..8");
	c = shape(8, 8, 3, 1, 2);
	refused(&c, loads, FERRY_INVAL,
	        "n_experts is 8, which n_groups, 3, does not divide");
	c = shape(8, 8, 1, 3, 4);
	refused(&c, loads, FERRY_INVAL,
	        "n_ranks is 4, which n_nodes, 3, does not divide");
	c = shape(8, 9, 1, 1, 2);
	c.as_published = true;
	refused(&c, loads, FERRY_INVAL,
	        "n_slots is 9, which n_ranks, 2, does not divide");
	c = shape(8, 8, 1, 1, 2);
	loads[3] = -1;
	refused(&c, loads, FERRY_RANGE, "loads[3] is -1, allowed are 0..");
	loads[3] = FERRY_MAX_LOAD;
	loads[4] = 1;
	refused(&c, loads, FERRY_RANGE,
	        "the sum of loads[0..7] is 1099511627777");
	loads[3] = FERRY_MAX_LOAD + 1;
	refused(&c, loads, FERRY_RANGE, "loads[3] is 1099511627777");
	refused(&c, NULL, FERRY_INVAL, "loads is NULL");
	loads[3] = 0;
	assert_int_equal(ferry_eplb(&c, loads, NULL), FERRY_INVAL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_vector),
		cmocka_unit_test(hot_expert_in_one_group),
		cmocka_unit_test(one_rank),
		cmocka_unit_test(flash_lb),
		cmocka_unit_test(made_anew_nothing_moves),
		cmocka_unit_test(random_layers),
		cmocka_unit_test(maps_are_golden),
		cmocka_unit_test(hosts_keep_groups),
		cmocka_unit_test(as_published_where_that_is_sound),
		cmocka_unit_test(two_copies_on_one_rank),
		cmocka_unit_test(shapes_that_do_not_divide),
		cmocka_unit_test(one_expert_has_it_all),
		cmocka_unit_test(bad_arguments),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
