/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements from files and peers, as text or in binary: the first byte says
 * which. What is accepted comes back the same from its own writer.
 */
#include "fuzz.h"

#include <string.h>

#include <ferry/placement.h>

static void text(const char *bytes, size_t n)
{
	struct ferry_placement *p = NULL;
	struct ferry_placement *again = NULL;

	if (ferry_placement_read(bytes, n, &p)) {
		FUZZ_CHECK(!p);
		return;
	}
	const size_t length = ferry_placement_write(p, NULL, 0);
	char *const own = malloc(length + 1);

	FUZZ_CHECK(own);
	FUZZ_CHECK(ferry_placement_write(p, own, length + 1) == length);
	FUZZ_CHECK(strlen(own) == length);
	FUZZ_CHECK(!ferry_placement_read(own, length, &again));
	FUZZ_CHECK(ferry_placement_hash(p) == ferry_placement_hash(again));
	FUZZ_CHECK(ferry_placement_version(p) ==
	           ferry_placement_version(again));
	ferry_placement_destroy(p);
	ferry_placement_destroy(again);
	free(own);
}

static void binary(const void *bytes, size_t n)
{
	struct ferry_placement *p = NULL;

	if (ferry_placement_unpack(bytes, n, &p)) {
		FUZZ_CHECK(!p);
		return;
	}
	void *const own = malloc(n);

	FUZZ_CHECK(own);
	FUZZ_CHECK(ferry_placement_pack(p, own, n) == n);
	FUZZ_CHECK(!memcmp(own, bytes, n));
	ferry_placement_destroy(p);
	free(own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_data)
{
	if (n_data < 1)
		return 0;
	if (data[0] % 2)
		binary(data + 1, n_data - 1);
	else
		text((const char *)data + 1, n_data - 1);
	return 0;
}
