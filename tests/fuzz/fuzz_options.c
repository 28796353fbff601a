/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that users write: options, addresses, node lists, paths with %, names
 * that are nearly right. The first byte says which; the rest is the text.
 */
#include "fuzz.h"

#include <string.h>

#include "boot/launch.h"
#include "core/ctx.h"
#include "core/log.h"
#include "core/nearest.h"

/* Every string ends in its field, and none is cut. */
static void check_strings(const struct ferry_options *opt)
{
#define CHECK_INT(field)
#define CHECK_COUNT(field)                                                     \
	FUZZ_CHECK(opt->field >= 0 && opt->field <= INT32_MAX);
#define CHECK_MS(field) FUZZ_CHECK(opt->field >= 1 && opt->field <= INT32_MAX);
#define CHECK_STRING(field)                                                    \
	FUZZ_CHECK(memchr(opt->field, 0, sizeof(opt->field)));
#define CHECK_CHOICE(field)                                                    \
	CHECK_STRING(field) FUZZ_CHECK(!strpbrk(opt->field, ", "));
#define X(field, name, type, value, help) CHECK_##type(field)
#include "core/env.def"
#undef X
}

static void options(const char *text)
{
	struct ferry_options opt;
	struct ferry_options before;

	memset(&opt, 0x5a, sizeof(opt));
	before = opt;
	ferry_last_error_set("");
	if (ferry_options_read(NULL, text, &opt) == FERRY_OK) {
		check_strings(&opt);
		return;
	}
	FUZZ_CHECK(!memcmp(&opt, &before, sizeof(opt)));
	FUZZ_CHECK(!strncmp(ferry_last_error(), "options: ", 9));
}

static void address(const char *text)
{
	struct ferry_address a;

	if (ferry_address_parse(NULL, text, &a) != FERRY_OK)
		return;
	FUZZ_CHECK(a.host[0] && memchr(a.host, 0, sizeof(a.host)));
	FUZZ_CHECK(a.is_unix ? !a.port[0] : atoi(a.port) > 0);
	FUZZ_CHECK(!strcmp(a.text, text));
}

static void nodelist(const char *text)
{
	char host[16];

	if (!ferry_nodelist_first(text, host, sizeof(host)))
		return;
	FUZZ_CHECK(host[0] && memchr(host, 0, sizeof(host)));
	FUZZ_CHECK(!strpbrk(host, "[],"));
}

static void path(const char *text)
{
	char whole[8 * 8192 + 100];
	char cut[16];

	const bool fits = ferry_path_expand(cut, sizeof(cut), text, 3);
	FUZZ_CHECK(memchr(cut, 0, sizeof(cut)));
	if (fits && ferry_path_expand(whole, sizeof(whole), text, 3))
		FUZZ_CHECK(!strcmp(whole, cut));
}

static void nearest(const char *text)
{
	static const char *const names[] = {"tokens", "hidden", "topk",
	                                    "experts", ""};
	const char *found = ferry_nearest(text, names, 5);

	for (int i = 0; i < 5; i++) {
		const int there = ferry_edit_distance(text, names[i]);

		FUZZ_CHECK(there == ferry_edit_distance(names[i], text));
		FUZZ_CHECK(!found || i == 4 ||
		           ferry_edit_distance(text, found) <= there);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_data)
{
	static void (*const parsers[])(const char *) = {
		options, address, nodelist, path, nearest};

	if (n_data < 1 || n_data > 8192)
		return 0;
	char *text = malloc(n_data);
	FUZZ_CHECK(text);
	memcpy(text, data + 1, n_data - 1);
	text[n_data - 1] = 0;
	parsers[data[0] % 5](text);
	free(text);
	return 0;
}
