/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of statuses and phases, the version, and the last error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>

#include "core/ctx.h"

static void test_status(void **state)
{
	(void)state;
	assert_string_equal(ferry_status_name(FERRY_OK), "FERRY_OK");
	assert_string_equal(ferry_status_name(FERRY_INTERNAL),
	                    "FERRY_INTERNAL");
	assert_string_equal(ferry_status_name((enum ferry_status) - 99),
	                    "FERRY_?");
	assert_string_equal(ferry_status_text(FERRY_PEER),
	                    "a peer died or is out of reach");
	assert_string_equal(ferry_status_text((enum ferry_status)7),
	                    "unknown status");
	/* Values are for ever. */
	assert_int_equal(FERRY_TIMEOUT, -6);
	assert_int_equal(FERRY_INTERNAL, -16);
}

static void test_phase(void **state)
{
	(void)state;
	assert_string_equal(ferry_phase_name(FERRY_PHASE_NONE), "none");
	assert_string_equal(ferry_phase_name(FERRY_PHASE_COMBINE_RECV),
	                    "combine_recv");
	assert_string_equal(ferry_phase_name((enum ferry_phase)77), "?");
}

static void test_version(void **state)
{
	char number[32];

	(void)state;
	snprintf(number, sizeof(number), "%d.%d.%d (", FERRY_VERSION_MAJOR,
	         FERRY_VERSION_MINOR, FERRY_VERSION_PATCH);
	assert_int_equal(ferry_version(), FERRY_VERSION);
	assert_memory_equal(ferry_version_text(), number, strlen(number));
	assert_non_null(strstr(ferry_version_text(), ", "));
}

static void *other_thread(void *arg)
{
	(void)arg;
	assert_string_equal(ferry_last_error(), "");
	(void)ferry_fail(NULL, FERRY_INVAL, "of the other");
	return NULL;
}

static void test_last_error_is_of_the_thread(void **state)
{
	pthread_t id;

	(void)state;
	assert_int_equal(ferry_fail(NULL, FERRY_RANGE, "x is %d", 3),
	                 FERRY_RANGE);
	pthread_create(&id, NULL, other_thread, NULL);
	pthread_join(id, NULL);
	assert_string_equal(ferry_last_error(), "x is 3");
}

static void test_last_error_is_cut(void **state)
{
	char text[2000];

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	(void)ferry_fail(NULL, FERRY_INVAL, "%s", text);
	assert_int_equal(strlen(ferry_last_error()), 511);
	(void)ferry_fail_errno(NULL, FERRY_SYS, ENOENT, "%s", text);
	assert_int_equal(strlen(ferry_last_error()), 511);
	ferry_last_error_set(ferry_last_error());
	assert_int_equal(strlen(ferry_last_error()), 511);
}

static void test_errno(void **state)
{
	(void)state;
	assert_int_equal(
		ferry_fail_errno(NULL, FERRY_SYS, ENOSPC, "shm: %d GiB", 4),
		FERRY_SYS);
	assert_string_equal(ferry_last_error(),
	                    "shm: 4 GiB: No space left on device");
}

static enum ferry_status tries(enum ferry_status status)
{
	FERRY_TRY(status);
	return FERRY_RANGE;
}

static void test_try(void **state)
{
	(void)state;
	assert_int_equal(tries(FERRY_OK), FERRY_RANGE);
	assert_int_equal(tries(FERRY_PEER), FERRY_PEER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_phase),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_last_error_is_of_the_thread),
		cmocka_unit_test(test_last_error_is_cut),
		cmocka_unit_test(test_errno),
		cmocka_unit_test(test_try),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
