/* SPDX-License-Identifier: Apache-2.0 */
/* copy: bytes, bounds and alignments; and the choice of a table. */
#include "kern_cases.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TO = 9, MAX_BYTES = 40000, SLACK = 128 };

static unsigned char from_mem[MAX_BYTES + SLACK];
static unsigned char to_mem[MAX_TO][MAX_BYTES + 2 * SLACK];

static void check(const struct ferry_kernels *k, size_t bytes, int n, bool far)
{
	const unsigned char *from = from_mem + random_below(SLACK);
	void *to[MAX_TO];

	for (int j = 0; j < n; j++) {
		const size_t before = 1 + random_below(SLACK);

		to[j] = to_mem[j] + before;
		to_mem[j][before - 1] = 0xa5;
		to_mem[j][before + bytes] = 0xa5;
		memset(to[j], 0, bytes);
	}
	k->copy(to, n, from, bytes, far);
	for (int j = 0; j < n; j++) {
		assert_same_bytes(to[j], from, bytes);
		assert_int_equal(((unsigned char *)to[j])[-1], 0xa5);
		assert_int_equal(((unsigned char *)to[j])[bytes], 0xa5);
	}
}

static void every_length(void **unused)
{
	const struct ferry_kernels *k;

	(void)unused;
	for (int t = 0; (k = ferry_kernels_at(t)) != NULL; t++)
		for (size_t bytes = 0; bytes <= 300; bytes++)
			for (int far = 0; far <= 1; far++)
				for (int i = 0; i < 6; i++)
					check(k, bytes,
					      (int)random_below(MAX_TO + 1),
					      far);
}

static void long_rows(void **unused)
{
	const struct ferry_kernels *k;

	(void)unused;
	for (int t = 0; (k = ferry_kernels_at(t)) != NULL; t++)
		for (int i = 0; i < 200; i++)
			check(k, random_below(MAX_BYTES + 1),
			      1 + (int)random_below(MAX_TO), i & 1);
}

static void tables(void **unused)
{
	const struct ferry_kernels *k, *last = NULL;

	(void)unused;
	assert_non_null(ferry_kernels_at(0));
	for (int i = 0; (k = ferry_kernels_at(i)) != NULL; i++) {
		printf("# table %d is %s\n", i, k->name);
		assert_ptr_equal(ferry_kernels_get(k->name), k);
		last = k;
	}
	assert_string_equal(last->name, "scalar");
	assert_ptr_equal(ferry_kernels_get("auto"), ferry_kernels_at(0));
	assert_null(ferry_kernels_get("mmx"));
	assert_null(ferry_kernels_get(""));
	assert_null(ferry_kernels_at(-1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables),
		cmocka_unit_test(every_length),
		cmocka_unit_test(long_rows),
	};

	cases_seed();
	for (size_t i = 0; i < sizeof(from_mem); i++)
		from_mem[i] = (unsigned char)random_u32();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
