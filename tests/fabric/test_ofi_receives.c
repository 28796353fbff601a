/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every test program asks of libfabric (support/fabrics.c) reaches it,
 * also where libfabric is loaded before any rank begins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/world.h"
#include "fabrics.h"
#include "ranks.h"

/* 35 MiB are taken, and 87 with 4096 receives (libfabric 1.17). */
enum { SMALL_BYTES = 60 << 20 };

static int64_t resident_bytes(void)
{
	FILE *const f = fopen("/proc/self/statm", "r");
	long long pages = 0;

	RANKS_CHECK(f != NULL);
	RANKS_EQ(fscanf(f, "%*d %lld", &pages), 1);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

/* With receives for all connections together, as users have them. */
static void open_small(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	setenv("FI_OFI_RXM_USE_SRX", "1", 1);
	const int64_t before = resident_bytes();

	RANKS_OK(ferry_segment_open(rank->world, 4096, 1, &s));
	if (strstr(rank->world->fabric_says, "tcp;ofi_rxm"))
		RANKS_CHECK(resident_bytes() - before < SMALL_BYTES);
	ferry_segment_close(s);
}

static void test_few_receives(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 2,
	                          .fabric = "ofi",
	                          .kind = RANKS_PROCESSES},
	          open_small);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_receives),
	};

	fabrics_need("ofi");
	return cmocka_run_group_tests_name("receives", tests, NULL, NULL);
}
