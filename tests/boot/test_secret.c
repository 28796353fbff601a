/* SPDX-License-Identifier: Apache-2.0 */
/* Where the job secret comes from, and where none is not allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot/star.h"
#include "core/clock.h"

static char path[64];

static int make_path(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/ferry-secret-%d", (int)getpid());
	return 0;
}

static int remove_path(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static void write_file(const void *bytes, size_t n, mode_t mode)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	fclose(f);
	assert_int_equal(chmod(path, mode), 0);
}

static enum ferry_status load(const char *more, struct ferry_secret *secret)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_ctx ctx;
	char options[256];

	snprintf(options, sizeof(options), "SECRET_FILE=%s;%s", path, more);
	config.options = options;
	assert_int_equal(ferry_ctx_init(&ctx, &config), FERRY_OK);
	const enum ferry_status status = ferry_secret_load(&ctx, secret);
	ferry_ctx_destroy(&ctx);
	return status;
}

static void assert_loaded(const char *more, const void *bytes, size_t n)
{
	struct ferry_secret secret;

	assert_int_equal(load(more, &secret), FERRY_OK);
	assert_int_equal(secret.n_bytes, n);
	assert_memory_equal(secret.bytes, bytes, n);
}

static void assert_refused(const char *text)
{
	struct ferry_secret secret;

	assert_int_not_equal(load("", &secret), FERRY_OK);
	if (!strstr(ferry_last_error(), text))
		fail_msg("'%s' does not contain '%s'", ferry_last_error(),
		         text);
}

static void test_loaded(void **state)
{
	static const uint8_t binary[] = {0, 1, 2, 255, 10, 0, 7};
	uint8_t longest[4095];

	(void)state;
	write_file("hush\n", 5, 0600);
	assert_loaded("", "hush", 4);
	write_file("hush\r\n", 6, 0400);
	assert_loaded("", "hush", 4);
	/* In the options, it wins over the file. */
	assert_loaded("SECRET=loud", "loud", 4);
	assert_loaded("SECRET_FILE=", "", 0);
	unlink(path);
	write_file(binary, sizeof(binary), 0600);
	assert_loaded("", binary, sizeof(binary));
	memset(longest, 'x', sizeof(longest));
	write_file(longest, sizeof(longest), 0600);
	assert_loaded("", longest, sizeof(longest));
}

static void test_refused(void **state)
{
	char text[128];
	char longer[4096];

	(void)state;
	assert_refused(": No such file or directory");
	write_file("hush", 4, 0640);
	assert_refused("has mode 640, others must not read or write it: "
	               "chmod 600");
	assert_int_equal(chmod(path, 0602), 0);
	assert_refused("has mode 602");
	write_file("", 0, 0600);
	snprintf(text, sizeof(text), "boot: secret file %s is empty", path);
	assert_refused(text);
	write_file("\n\n", 2, 0600);
	assert_refused(" is empty");
	memset(longer, 'x', sizeof(longer));
	write_file(longer, sizeof(longer), 0600);
	assert_refused(" is too long, allowed are 4095 bytes");
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_refused(" is not a regular file");
	unlink(path);
	assert_int_equal(symlink("/", path), 0);
	assert_refused(" is not a regular file");
}

static enum ferry_status open_at(const char *where, const char *secret)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world;
	char options[256];

	snprintf(options, sizeof(options),
	         "RANK=1;SIZE=2;RENDEZVOUS=%s;SECRET=%s", where, secret);
	config.options = options;
	config.open_timeout_ms = 50;
	return ferry_world_open(&config, &world);
}

/* Refused at once, on every rank, by the text of the address alone. */
static void test_no_secret(void **state)
{
	static const char *const open_to_others[] = {
		"10.1.2.3:5000", "example.org:5000", "[2001:db8::1]:5000",
		"0.0.0.0:5000", "127.example.org:5000"};
	static const char *const local[] = {"127.0.0.1:1", "localhost:1",
	                                    "[::1]:1", "unix:ferry-nobody"};

	(void)state;
	for (int i = 0; i < 5; i++) {
		const uint64_t start_ns = ferry_now_ns();

		assert_int_equal(open_at(open_to_others[i], ""), FERRY_INVAL);
		assert_non_null(strstr(ferry_last_error(), open_to_others[i]));
		assert_non_null(strstr(
			ferry_last_error(),
			" can be reached from other hosts and there is no job "
			"secret: set FERRY_SECRET, or FERRY_SECRET_FILE, to "
			"the same on all ranks"));
		assert_true(ferry_now_ns() - start_ns < 1000000000u);
	}
	/* Nobody is there, but they may go and look. */
	for (int i = 0; i < 4; i++)
		assert_int_equal(open_at(local[i], ""), FERRY_TIMEOUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_loaded, make_path,
	                                        remove_path),
		cmocka_unit_test_setup_teardown(test_refused, make_path,
	                                        remove_path),
		cmocka_unit_test(test_no_secret),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
