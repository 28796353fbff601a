/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels by chunks on fibres (fibres.h), without a GPU: dispatch and combine
 * in random cases of dev/cuda_try_check.h and of fibre_combine.h against the
 * oracle. For more:
 *
 *	TEST_SEED=S test_cuda_fibres_chunks CASES [RANKS]
 */
#include "cuda_try_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fibre_combine.h"
#include "fibres.h"
#include "ranks.h"

/* Blocks: one and two share senders and teams, more are of one kind each. */
enum { CTAS_MOST = 9, CTAS_CROWDED = 2 };
#ifdef FERRY_SANITIZED
enum { CASES = 3, WAY_STEP = 13 };
#else
enum { CASES = 10, WAY_STEP = 5 };
#endif

static uint64_t seed;
static int n_cases = CASES;
static int32_t n_ranks; /* 0: 2 to 4 */

static int32_t ranks_of(uint64_t s)
{
	return n_ranks ? n_ranks : 2 + (int32_t)(s % 3);
}

static void try_seeds(bool crowded, bool refused, int32_t most_ctas, int n)
{
	struct try_check run = {
		.kernels = {.dispatch = &ferry_cuda_dispatch_chunks,
	                    .combine = &ferry_cuda_combine_chunks,
	                    .path = FERRY_PATH_CHUNKS},
		.crowded = crowded,
		.refused = refused,
	};

	for (uint64_t s = seed; s < seed + (uint64_t)n; s++) {
		fibres_seed(s);
		run.kernels.ctas = 1 + (int32_t)(s / 3 % (uint64_t)most_ctas);
		try_check_case(&run, s, ranks_of(s));
	}
	printf("%d operations, %d failed as they should, %d wrong\n",
	       run.n_steps, run.n_failed, run.n_wrong);
	assert_int_equal(run.n_wrong, 0);
	assert_true(run.n_steps > 0);
}

static void test_random(void **state)
{
	(void)state;
	try_seeds(false, false, CTAS_MOST, n_cases);
}

/* Rings are used again and again. */
static void test_crowded(void **state)
{
	(void)state;
	try_seeds(true, false, CTAS_CROWDED, (n_cases + 1) / 2);
}

/* Batches with ids or a count out of range. */
static void test_refused(void **state)
{
	(void)state;
	try_seeds(false, true, CTAS_MOST, n_cases);
}

/* Some of the ways in which combine is compiled, others by the next seed. */
static void test_ways(void **state)
{
	struct combine_tries tries = {.chunks = true};

	(void)state;
	for (int way = (int)(seed % WAY_STEP); way < COMBINE_WAYS;
	     way += WAY_STEP)
		combine_try(&tries, way, seed + (uint64_t)way,
		            ranks_of(seed + (uint64_t)way));
	printf("%d sums, %d wrong\n", tries.n_sums, tries.n_wrong);
	assert_int_equal(tries.n_wrong, 0);
	assert_true(tries.n_sums > 0);
}

/*
 * y has fewer rows for a slot than have come, which the middle of a batch
 * finds: copies are under way then, and a block must not end before they have.
 */
static void test_no_room(void **state)
{
	const struct harness_kernels kernels = {
		.dispatch = &ferry_cuda_dispatch_chunks,
		.combine = &ferry_cuda_combine_chunks,
		.path = FERRY_PATH_CHUNKS,
		.ctas = 2,
	};
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct traffic_spec specs[2];

	(void)state;
	config.n_ranks = 2;
	config.max_tokens = 40;
	config.hidden = 64;
	config.topk = 4;
	config.n_experts = 4;
	for (int r = 0; r < 2; r++)
		specs[r] = (struct traffic_spec){
			.seed = 7 + (uint64_t)r,
			.n_tokens = 40,
		};
	fibres_seed(seed);
	struct harness *h = harness_open(&config, NULL, &kernels, seed);

	harness_batch(h, 0, specs);
	harness_dispatch(h, 0, FERRY_CUDA_SEND | FERRY_CUDA_RECV);
	assert_int_equal(harness_check_dispatch(h, 0), 0);
	harness_answer(h, 0);
	for (int r = 0; r < 2; r++)
		h->channel[r].padded_rows /= 4;
	harness_combine(h, 0, FERRY_CUDA_SEND | FERRY_CUDA_RECV);
	harness_sync(h);
	assert_true(h->host[0]->record.seal);
	assert_int_equal(h->host[0]->record.status, FERRY_INVAL);
	harness_close(h);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),  cmocka_unit_test(test_crowded),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_ways),
		cmocka_unit_test(test_no_room),
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	seed = ranks_seed();
	if (argc > 1)
		n_cases = atoi(argv[1]);
	if (argc > 2)
		n_ranks = atoi(argv[2]);
	if (n_cases < 1 || n_ranks < 0 || n_ranks > HARNESS_RANKS) {
		fprintf(stderr,
		        "test_cuda_fibres_chunks [CASES [RANKS]]: 1 or more "
		        "cases, 1..%d ranks, 0: some\n",
		        HARNESS_RANKS);
		return 2;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
