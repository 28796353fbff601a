/* SPDX-License-Identifier: Apache-2.0 */
/* Options: defaults, environment, overrides, and what is refused how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/ctx.h"

static struct ferry_options read_good(const char *overrides)
{
	struct ferry_options opt;

	assert_int_equal(ferry_options_read(NULL, overrides, &opt), FERRY_OK);
	return opt;
}

/* Refused with exactly this text; nothing is written. */
static void read_bad(const char *overrides, const char *text)
{
	struct ferry_options opt;
	struct ferry_options before;

	memset(&opt, 0x5a, sizeof(opt));
	before = opt;
	assert_int_equal(ferry_options_read(NULL, overrides, &opt),
	                 FERRY_INVAL);
	assert_string_equal(ferry_last_error(), text);
	assert_memory_equal(&opt, &before, sizeof(opt));
}

static void test_defaults(void **state)
{
	const struct ferry_options opt = read_good(NULL);

	(void)state;
	assert_string_equal(opt.log_level, "warn");
	assert_string_equal(opt.fabric, "auto");
	assert_int_equal(opt.timeout_ms, 100000);
	assert_int_equal(opt.open_timeout_ms, 60000);
	assert_int_equal(opt.rank, -1);
	assert_string_equal(opt.secret, "");
}

static void test_environment_then_overrides(void **state)
{
	(void)state;
	setenv("FERRY_SPIN_US", "7", 1);
	setenv("FERRY_FABRIC", "wire", 1);
	assert_int_equal(read_good("").spin_us, 7);
	assert_int_equal(read_good("SPIN_US=8").spin_us, 8);
	assert_string_equal(read_good("SPIN_US=8").fabric, "wire");
	/* Empty is unset. */
	assert_int_equal(read_good("SPIN_US=").spin_us, 50);
	setenv("FERRY_SPIN_US", "", 1);
	assert_int_equal(read_good(NULL).spin_us, 50);
	unsetenv("FERRY_SPIN_US");
	unsetenv("FERRY_FABRIC");
}

static void test_values(void **state)
{
	(void)state;
	assert_int_equal(read_good("SPIN_US=3k").spin_us, 3072);
	assert_int_equal(read_good("SPIN_US=2M").spin_us, 2097152);
	assert_int_equal(read_good("SPIN_US=1g").spin_us, 1073741824);
	assert_int_equal(read_good("TIMEOUT_MS=2147483647").timeout_ms,
	                 INT32_MAX);
	assert_string_equal(
		read_good(";;FAULT=kill:rank=1,after=2;;SHM=file;").fault,
		"kill:rank=1,after=2");
	assert_string_equal(read_good("SPIN_US=1;SHM=file").shm, "file");
	assert_int_equal(read_good("SPIN_US=1;SPIN_US=2").spin_us, 2);
}

static void test_bad_numbers(void **state)
{
	(void)state;
	read_bad("SPIN_US=x",
	         "options: SPIN_US is 'x', allowed is a whole number "
	         "0..2147483647 (suffix k, m, g): Microseconds that a wait "
	         "spins, and gives way to others, before it sleeps");
	read_bad("RANKS_PER_HOST=-2",
	         "options: RANKS_PER_HOST is '-2', allowed is a whole number "
	         "0..2147483647 (suffix k, m, g): For tests: every so many "
	         "consecutive ranks count as a host of their own; 0: as the "
	         "machines are");
	read_bad("RANK=-2",
	         "options: RANK is '-2', allowed is a whole number "
	         "-1..9223372036854775807 (suffix k, m, g): Rank of this "
	         "process, -1: not given; set by ferry run");
	read_bad("TIMEOUT_MS=0",
	         "options: TIMEOUT_MS is '0', allowed is a whole number "
	         "1..2147483647 (suffix k, m, g): Bound of each wait of an "
	         "operation, in milliseconds");
	for (int i = 0; i < 11; i++) {
		static const char *const bad[] = {
			"SPIN_US=-1",
			"WIRE_DELAY_US=-1",
			"RANKS_PER_HOST=2g",
			"SPIN_US=1kk",
			"SPIN_US=1 ",
			"SPIN_US= 1",
			"SPIN_US=1t",
			"SPIN_US=0x10",
			"SPIN_US=1.5",
			"SPIN_US=9999999999g",
			"SPIN_US=99999999999999999999"};
		struct ferry_options opt;

		assert_int_equal(ferry_options_read(NULL, bad[i], &opt),
		                 FERRY_INVAL);
	}
}

static void test_bad_words(void **state)
{
	char pair[400] = "FABRIC=";

	(void)state;
	read_bad("SHM=memfdx", "options: SHM is 'memfdx', allowed is one of "
	                       "auto, memfd, file");
	read_bad("LOG_LEVEL=warn,", "options: LOG_LEVEL is 'warn,', allowed is "
	                            "one of error, warn, info, debug");
	read_bad("SPIN_UX=1",
	         "options: SPIN_UX is not known, did you mean SPIN_US?");
	read_bad("QQQQQQQQQQ=1", "options: QQQQQQQQQQ is not known");
	read_bad("FERRY_SHM=file",
	         "options: FERRY_SHM is not known, did you mean SHM?");
	read_bad("SHM", "options: 'SHM' is not NAME=VALUE");
	memset(pair + 7, 'x', 300);
	read_bad(pair, "options: FABRIC has 256 bytes, allowed are 255");
	/* A secret is not repeated. */
	memcpy(pair, "SECRET=", 7);
	read_bad(pair, "options: SECRET has 256 bytes, allowed are 255");
}

static void test_bad_environment(void **state)
{
	(void)state;
	setenv("FERRY_ISA", "sse9", 1);
	read_bad(NULL, "options: FERRY_ISA is 'sse9', allowed is one of auto, "
	               "scalar, avx2, avx512, neon");
	unsetenv("FERRY_ISA");
}

static void test_env_get(void **state)
{
	struct ferry_env env = FERRY_ENV_INIT;
	int n = 0;

	(void)state;
	setenv("FERRY_SECRET", "hush", 1);
	setenv("FERRY_SHM", "file", 1);
	for (; ferry_env_get(n, &env); n++) {
		assert_memory_equal(env.name, "FERRY_", 6);
		assert_true(strlen(env.help) > 10);
		assert_non_null(env.default_text);
		/* The parser takes the choices from the help. */
		if (!strcmp(env.type, "choice"))
			assert_non_null(strstr(env.help, ": "));
		if (!strcmp(env.name, "FERRY_SECRET"))
			assert_string_equal(env.value, "(set)");
		if (!strcmp(env.name, "FERRY_SHM")) {
			assert_string_equal(env.value, "file");
			assert_string_equal(env.type, "choice");
		}
		if (!strcmp(env.name, "FERRY_TIMEOUT_MS")) {
			assert_null(env.value);
			assert_string_equal(env.type, "int");
			assert_string_equal(env.default_text, "100000");
		}
	}
	assert_true(n >= 17);
	assert_false(ferry_env_get(-1, &env));
	env.size = 0;
	assert_false(ferry_env_get(0, &env));
	unsetenv("FERRY_SECRET");
	unsetenv("FERRY_SHM");
}

static void test_config_wins(void **state)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_ctx ctx;

	(void)state;
	config.options = "TIMEOUT_MS=5;OPEN_TIMEOUT_MS=6;FABRIC=shm";
	assert_int_equal(ferry_ctx_init(&ctx, &config), FERRY_OK);
	assert_int_equal(ctx.opt.timeout_ms, 5);
	assert_int_equal(ctx.opt.open_timeout_ms, 6);
	assert_string_equal(ctx.opt.fabric, "shm");
	ferry_ctx_destroy(&ctx);

	config.timeout_ms = 50;
	config.open_timeout_ms = 60;
	config.fabric = "wire";
	assert_int_equal(ferry_ctx_init(&ctx, &config), FERRY_OK);
	assert_int_equal(ctx.opt.timeout_ms, 50);
	assert_int_equal(ctx.opt.open_timeout_ms, 60);
	assert_string_equal(ctx.opt.fabric, "wire");
	ferry_ctx_destroy(&ctx);

	config.timeout_ms = -1;
	assert_int_equal(ferry_ctx_init(&ctx, &config), FERRY_INVAL);
	assert_string_equal(ferry_last_error(),
	                    "world_open: timeout_ms is -1, 0 is the default "
	                    "and 1.. a time");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_environment_then_overrides),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_bad_numbers),
		cmocka_unit_test(test_bad_words),
		cmocka_unit_test(test_bad_environment),
		cmocka_unit_test(test_env_get),
		cmocka_unit_test(test_config_wins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
