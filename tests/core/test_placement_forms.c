/* SPDX-License-Identifier: Apache-2.0 */
/* Placements as text and in binary: there and back, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/placement.h>

#include "core/bits.h"
#include "test_seed.h"

enum { MAX_RANKS = 9, MAX_SLOTS = 72, MAX_BYTES = 8192 };

static uint64_t seed;

static int64_t below(int64_t n)
{
	return (int64_t)(rng_next(&seed) % (uint64_t)n);
}

static int32_t small(int32_t n)
{
	return (int32_t)below(n);
}

static bool rank_has(const int32_t *map, int32_t n, int32_t expert)
{
	for (int32_t i = 0; i < n; i++)
		if (map[i] == expert)
			return true;
	return false;
}

/* Any legal placement: uneven ranks, empty slots, replicas, any split. */
static struct ferry_placement *random_placement(void)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	int32_t slots[MAX_RANKS], map[MAX_SLOTS];
	int64_t quota[MAX_SLOTS];
	struct ferry_placement *p = NULL;
	int32_t n = 0;

	c.n_ranks = 1 + small(MAX_RANKS);
	for (int32_t r = 0; r < c.n_ranks; r++)
		n += slots[r] = r ? small(9) : 1 + small(8);
	c.n_experts = 1 + small(n);
	for (int32_t s = 0; s < n; s++) {
		map[s] = s < c.n_experts ? s : -1;
		quota[s] = below(3) ? below(1000)
		                    : (int64_t)(rng_next(&seed) >> 1);
	}
	for (int32_t r = 0, first = 0; r < c.n_ranks; first += slots[r++])
		for (int32_t s = first; s < first + slots[r]; s++) {
			const int32_t e = small(c.n_experts);

			if (map[s] < 0 && !rank_has(map + first, slots[r], e))
				map[s] = e;
		}
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = (enum ferry_split)below(3);
	c.quota = c.split == FERRY_SPLIT_QUOTA ? quota : NULL;
	c.version = rng_next(&seed) >> below(64);
	if (ferry_placement_create(&c, &p))
		fail_msg("%s", ferry_last_error());
	return p;
}

static void are_equal(const struct ferry_placement *a,
                      const struct ferry_placement *b)
{
	const int32_t n = ferry_placement_n_slots(a);

	assert_int_equal(ferry_placement_hash(a), ferry_placement_hash(b));
	assert_int_equal(ferry_placement_version(a),
	                 ferry_placement_version(b));
	assert_int_equal(ferry_placement_split(a), ferry_placement_split(b));
	assert_int_equal(ferry_placement_n_slots(b), n);
	for (int32_t s = 0; s < n; s++) {
		assert_int_equal(ferry_placement_expert(a, s),
		                 ferry_placement_expert(b, s));
		assert_int_equal(ferry_placement_rank(a, s),
		                 ferry_placement_rank(b, s));
		assert_int_equal(ferry_placement_quota(a, s),
		                 ferry_placement_quota(b, s));
	}
}

static void text_there_and_back(void **state)
{
	char text[MAX_BYTES], cut[MAX_BYTES];

	(void)state;
	for (int round = 0; round < 1000; round++) {
		struct ferry_placement *const p = random_placement();
		struct ferry_placement *back = NULL;
		const size_t n = ferry_placement_write(p, text, sizeof(text));

		assert_int_equal(n, strlen(text));
		if (ferry_placement_read(text, n, &back))
			fail_msg("%s", ferry_last_error());
		are_equal(p, back);
		ferry_placement_destroy(back);
		assert_int_equal(ferry_placement_read(text, n - 1, &back),
		                 FERRY_INVAL);
		/* A short buffer has the beginning, and the length is known. */
		const size_t bytes = 1 + (size_t)below((int64_t)n);

		memset(cut, 'x', sizeof(cut));
		assert_int_equal(ferry_placement_write(p, cut, bytes), n);
		assert_int_equal(strlen(cut), bytes - 1);
		assert_memory_equal(cut, text, bytes - 1);
		assert_int_equal(cut[bytes], 'x');
		assert_int_equal(ferry_placement_write(p, NULL, 0), n);
		ferry_placement_destroy(p);
	}
}

static void binary_there_and_back(void **state)
{
	unsigned char bytes[MAX_BYTES];

	(void)state;
	for (int round = 0; round < 1000; round++) {
		struct ferry_placement *const p = random_placement();
		struct ferry_placement *back = NULL;
		const size_t n = ferry_placement_pack(p, bytes, sizeof(bytes));

		assert_true(n > 0 && n <= sizeof(bytes));
		assert_int_equal(ferry_placement_pack(p, NULL, 0), n);
		if (ferry_placement_unpack(bytes, n, &back))
			fail_msg("%s", ferry_last_error());
		are_equal(p, back);
		ferry_placement_destroy(back);
		/* Too small a buffer stays as it is. */
		memset(bytes, 0x5a, n);
		assert_int_equal(ferry_placement_pack(p, bytes, n - 1), n);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(bytes[i], 0x5a);
		ferry_placement_destroy(p);
	}
}

/* One changed bit, anywhere: refused, and nothing is written. */
static void a_changed_bit_is_found(void **state)
{
	unsigned char bytes[MAX_BYTES];

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct ferry_placement *const p = random_placement();
		const size_t n = ferry_placement_pack(p, bytes, sizeof(bytes));

		for (int i = 0; i < 100; i++) {
			struct ferry_placement *back = NULL;
			const size_t at = (size_t)below((int64_t)n);
			const unsigned char bit =
				(unsigned char)(1 << below(8));
			unsigned char *const copy = malloc(n);

			memcpy(copy, bytes, n);
			copy[at] ^= bit;
			if (!ferry_placement_unpack(copy, n, &back))
				fail_msg("byte %zu of %zu", at, n);
			assert_null(back);
			free(copy);
		}
		ferry_placement_destroy(p);
	}
}

/* Any length but the right one. The copy ends where the bytes do. */
static void a_cut_is_found(void **state)
{
	unsigned char bytes[MAX_BYTES];
	struct ferry_placement *const p = random_placement();
	const size_t n = ferry_placement_pack(p, bytes, sizeof(bytes));

	(void)state;
	for (size_t i = 0; i < n + 9; i++) {
		struct ferry_placement *back = NULL;
		unsigned char *const copy = calloc(1, i + 1);

		memcpy(copy, bytes, i < n ? i : n);
		assert_int_equal(ferry_placement_unpack(copy, i, &back),
		                 i == n ? FERRY_OK : FERRY_INVAL);
		ferry_placement_destroy(back);
		free(copy);
	}
	ferry_placement_destroy(p);
}

/* The layout, byte by byte: the same on every machine and in every release. */
static void binary_is_golden(void **state)
{
	static const unsigned char want[] = {
		'F', 'E', 'R', 'R', 'Y', 'P', 'L', 'C', 1, 0, 0, 0, 1, 0,
		0,   0,   2,   0,   0,   0,   2,   0,   0, 0, 3, 0, 0, 0,
		0,   0,   0,   0,   9,   0,   0,   0,   0, 0, 0, 0};
	static const unsigned char body[] = {
		2,    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff,
		0xff, 1, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0,    0,    0,
		0,    0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0,    0};
	static const int32_t slots[] = {2, 1}, map[] = {0, -1, 1};
	static const int64_t quota[] = {260, 5, 6};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_placement *p = NULL;
	unsigned char bytes[128];

	(void)state;
	c.n_experts = 2;
	c.n_ranks = 2;
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = FERRY_SPLIT_QUOTA;
	c.quota = quota;
	c.version = 9;
	assert_int_equal(ferry_placement_create(&c, &p), FERRY_OK);
	assert_int_equal(ferry_placement_pack(p, bytes, sizeof(bytes)), 100);
	assert_memory_equal(bytes, want, sizeof(want));
	assert_memory_equal(bytes + 56, body, sizeof(body));
	ferry_placement_destroy(p);
}

static const char good[] = "ferry placement 1\n"
			   "experts 4 ranks 3 split quota version 7\n"
			   "0: 0*120 1*50 2*9\n"
			   "1:\n"
			   "2: 0*80 3*44 -\n";

static struct ferry_placement *read_text(const char *text)
{
	struct ferry_placement *p = NULL;

	if (ferry_placement_read(text, strlen(text), &p))
		fail_msg("%s", ferry_last_error());
	return p;
}

static void text_is_golden(void **state)
{
	struct ferry_placement *const p = read_text(good);
	char text[512];

	(void)state;
	assert_int_equal(ferry_placement_version(p), 7);
	assert_int_equal(ferry_placement_n_ranks(p), 3);
	assert_int_equal(ferry_placement_quota(p, 3), 80);
	assert_int_equal(ferry_placement_expert(p, 5), -1);
	ferry_placement_write(p, text, sizeof(text));
	assert_string_equal(text, good);
	ferry_placement_destroy(p);
}

/* As people and other systems write it. */
static void text_is_taken_loosely(void **state)
{
	struct ferry_placement *const a = read_text(good);
	struct ferry_placement *const b = read_text(
		"# from 420 prompts\r\n\r\n  ferry placement\t1 # form\r\n\n"
		"experts 4 ranks 3 split quota version 7\r\n\n"
		"  0:0*120  1*50\t2*9# the first\r\n# none:\r\n1:\r\n"
		"2: 0*80 3*44 - # and the end\n#\n");

	(void)state;
	are_equal(a, b);
	ferry_placement_destroy(a);
	ferry_placement_destroy(b);
}

#define HEAD "ferry placement 1\nexperts 2 ranks 2 split even version 0\n"

static void bad_texts(void **state)
{
	static const struct {
		const char *text, *error;
	} bad[] = {
		{"", "line 1, column 1: expected \"ferry\", found the end"},
		{"ferry", "line 1, column 6: expected \"placement\""},
		{"ferry placements 1", "expected placement, found 'p'"},
		{"ferry placement 2\n", "form is 2, this library reads 1"},
		{"ferry placement x", "column 17: expected placement, 0.."},
		{"ferry placement 1 2", "column 19: expected the end of the "
	                                "line, found '2'"},
		{"ferry placement 1\nexpert 2", "line 2, column 1: expected "
	                                        "\"experts\""},
		{"ferry placement 1\nexperts 99999999999 ranks 1",
	         "line 2, column 9: expected experts, 0..16777216"},
		{"ferry placement 1\nexperts 2 ranks 65537",
	         "expected ranks, 0..65536"},
		{"ferry placement 1\nexperts 2 ranks 2 split odd version 0",
	         "expected even, quota or exact, found 'o'"},
		{"ferry placement 1\nexperts 2 ranks 2 split even version "
	         "18446744073709551616",
	         "expected version, 0..18446744073709551615"},
		{HEAD "0: 0\n2: 1\n", "line 4, column 1: expected \"1:\""},
		{HEAD "0: 0\n", "expected \"1:\", found the end"},
		{HEAD "0: 0\n1: 1\n2: 1\n", "line 5, column 1: expected the "
	                                    "end, found '2'"},
		/* Cut off within the last line. */
		{HEAD "0: 0\n1: 1", "line 4, column 5: expected a new line, "
	                            "found the end"},
		{HEAD "0: 0\n1: 1\n#", "line 5, column 2: expected a new "
	                               "line, found the end"},
		{HEAD "0: 0\n1: x\n", "line 4, column 4: expected an expert or "
	                              "'-', 0..16777216, found 'x'"},
		{HEAD "0: 0-\n1: 1\n", "line 3, column 5: expected a blank"},
		{HEAD "0: 0*5\n1: 1\n", "expected a blank, found '*'"},
		{HEAD "0: 0\n1: \x01\n", "found byte 1"},
		{HEAD "0: 0\n1: 2\n", "slot_expert[1] of rank 1 is 2"},
		{HEAD "0: 0\n1: 0\n", "expert 1 of 2 is in none"},
		{HEAD "0: 0 1 0\n1: 0\n", "expert 0 is in slots 0 and 2"},
		{"ferry placement 1\nexperts 16777216 ranks 1 split even "
	         "version 0\n0: 1\n",
	         "experts is 16777216, but there are 1 slots"},
		{"ferry placement 1\nexperts 1 ranks 0 split even version 0\n",
	         "experts is 1, but there are 0 slots"},
		{"ferry placement 1\nexperts 1 ranks 1 split quota version 0\n"
	         "0: 0\n",
	         "line 3, column 5: expected '*' and a quota, found a new "
	         "line"},
		{"ferry placement 1\nexperts 1 ranks 1 split quota version 0\n"
	         "0: 0* 1\n",
	         "expected a quota"},
		{"ferry placement 1\nexperts 1 ranks 1 split quota version 0\n"
	         "0: 0*9223372036854775808\n",
	         "expected a quota, 0..9223372036854775807"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ferry_placement *p = NULL;
		const enum ferry_status status = ferry_placement_read(
			bad[i].text, strlen(bad[i].text), &p);

		assert_true(status == FERRY_INVAL || status == FERRY_RANGE);
		assert_null(p);
		if (!strstr(ferry_last_error(), bad[i].error))
			fail_msg("%zu: \"%s\" lacks \"%s\"", i,
			         ferry_last_error(), bad[i].error);
	}
}

/* Random changes of good texts: whatever comes, it is legal or refused. */
static void any_text(void **state)
{
	static const char odd[] = "0123456789*-: \n#evnquotax";
	char text[MAX_BYTES];
	int n_read = 0;

	(void)state;
	for (int round = 0; round < 5000; round++) {
		struct ferry_placement *const p = random_placement();
		struct ferry_placement *back = NULL;
		const size_t n = ferry_placement_write(p, text, sizeof(text));

		for (int64_t i = below(4); i >= 0; i--)
			text[below((int64_t)n)] =
				odd[below((int64_t)sizeof(odd))];
		char *const copy = malloc(n);

		memcpy(copy, text, n);
		if (ferry_placement_read(copy, n, &back) == FERRY_OK) {
			assert_int_equal(ferry_placement_n_ranks(back),
			                 ferry_placement_n_ranks(p));
			n_read++;
		}
		free(copy);
		ferry_placement_destroy(back);
		ferry_placement_destroy(p);
	}
	assert_in_range(n_read, 10, 4500);
}

static void without_arguments(void **state)
{
	struct ferry_placement *p = NULL;
	char text[4] = "abc";

	(void)state;
	assert_int_equal(ferry_placement_write(NULL, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	assert_int_equal(ferry_placement_pack(NULL, text, sizeof(text)), 0);
	assert_int_equal(ferry_placement_read(NULL, 0, &p), FERRY_INVAL);
	assert_int_equal(ferry_placement_read("", 0, NULL), FERRY_INVAL);
	assert_int_equal(ferry_placement_read("", (size_t)1 << 40, &p),
	                 FERRY_INVAL);
	assert_int_equal(ferry_placement_read("", SIZE_MAX, &p), FERRY_INVAL);
	assert_int_equal(ferry_placement_unpack(NULL, 0, &p), FERRY_INVAL);
	assert_int_equal(ferry_placement_unpack(text, 0, NULL), FERRY_INVAL);
	assert_int_equal(ferry_placement_unpack(text, 0, &p), FERRY_INVAL);
	assert_null(p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_there_and_back),
		cmocka_unit_test(binary_there_and_back),
		cmocka_unit_test(a_changed_bit_is_found),
		cmocka_unit_test(a_cut_is_found),
		cmocka_unit_test(binary_is_golden),
		cmocka_unit_test(text_is_golden),
		cmocka_unit_test(text_is_taken_loosely),
		cmocka_unit_test(bad_texts),
		cmocka_unit_test(any_text),
		cmocka_unit_test(without_arguments),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
