/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As much of cmocka as the kernel tests use, for a target that has no cmocka
 * installed (neon_cross.sh). A failure ends the program.
 */
#ifndef FERRY_CROSS_CMOCKA_H
#define FERRY_CROSS_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
	const char *name;
	void (*run)(void **state);
};

#define cmocka_unit_test(f)                                                    \
	{                                                                      \
#f, f                                                          \
	}

static inline void cross_check(int good, const char *what, const char *file,
                               int line)
{
	if (good)
		return;
	printf("%s:%d: %s\n", file, line, what);
	exit(1);
}

#define CROSS_CHECK(good, what)                                                \
	cross_check((good) != 0, what, __FILE__, __LINE__)
#define assert_true(x)                   CROSS_CHECK(x, #x)
#define assert_null(x)                   CROSS_CHECK((x) == NULL, #x)
#define assert_non_null(x)               CROSS_CHECK((x) != NULL, #x)
#define assert_int_equal(a, b)           CROSS_CHECK((a) == (b), #a " == " #b)
#define assert_ptr_equal(a, b)           CROSS_CHECK((a) == (b), #a " == " #b)
#define assert_string_equal(a, b)        CROSS_CHECK(strcmp(a, b) == 0, #a)
#define assert_memory_equal(a, b, n)     CROSS_CHECK(memcmp(a, b, n) == 0, #a)
#define assert_memory_not_equal(a, b, n) CROSS_CHECK(memcmp(a, b, n) != 0, #a)
#define fail()                           CROSS_CHECK(0, "fail")
#define skip()                           return

#define cmocka_run_group_tests(tests, setup, teardown)                         \
	cross_run(tests, sizeof(tests) / sizeof((tests)[0]))

static inline int cross_run(const struct CMUnitTest *tests, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		tests[i].run(NULL);
		printf("ok %s\n", tests[i].name);
	}
	return 0;
}

#endif
