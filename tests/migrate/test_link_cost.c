/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring links: all ranks get the same tables, whatever their number; a rank
 * that is made slow is seen in its links and in no others; what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/balance.h>

#include "ranks.h"

enum {
	MOST = 9,
	ALL = MOST * MOST,
	SLOW_US = 20000,
};

struct board {
	int64_t alpha_ns[MOST][ALL];
	int64_t ps_per_byte[MOST][ALL];
};

static void measure(struct rank *rank)
{
	const int32_t n = rank->n_ranks;
	struct board *board = rank->shared;
	int64_t *alpha = board->alpha_ns[rank->rank];
	int64_t *ps = board->ps_per_byte[rank->rank];
	struct ferry_cost_config config = FERRY_COST_CONFIG_INIT;

	config.max_bytes = 64 << 10;
	config.rounds = 3;
	RANKS_OK(ferry_cost_measure(rank->world, &config, alpha, ps));
	for (int32_t a = 0; a < n; a++)
		for (int32_t b = 0; b < n; b++) {
			if (a == b) {
				RANKS_EQ(alpha[a * n + b], 0);
				RANKS_EQ(ps[a * n + b], 0);
				continue;
			}
			RANKS_CHECK(alpha[a * n + b] > 0);
			RANKS_CHECK(ps[a * n + b] >= 0);
			/* No link here is slower than 100 kB/s. */
			RANKS_CHECK(ps[a * n + b] < 10000000);
		}
	ranks_meet(0, n);
	RANKS_BYTES(alpha, board->alpha_ns[0], ALL * sizeof(*alpha));
	RANKS_BYTES(ps, board->ps_per_byte[0], ALL * sizeof(*ps));
}

/*
 * The puts of a CUDA world are copies of copy engines. Where fake_gpu.c is
 * linked those of pretended GPUs make them.
 */
#ifdef FAKE_GPU
enum { N_GPUS = 2 };
#else
enum { N_GPUS = 0 };
#endif

static void test_measure(void **state)
{
	static const struct {
		const char *fabric;
		enum ranks_kind kind;
		int32_t n_ranks;
	} runs[] = {
#ifdef FAKE_GPU
		{"p2p", RANKS_PROCESSES, 3},
		{"p2p", RANKS_THREADS, 2},
#else
		{"local", RANKS_THREADS, 1},  {"local", RANKS_THREADS, 2},
		{"local", RANKS_THREADS, 9},  {"shm", RANKS_PROCESSES, 2},
		{"shm", RANKS_PROCESSES, 5},  {"shm", RANKS_PROCESSES, 8},
		{"wire", RANKS_PROCESSES, 3}, {"wire", RANKS_THREADS, 6},
#endif
	};

	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		const struct ranks how = {
			.fabric = runs[i].fabric,
			.kind = runs[i].kind,
			.n_ranks = runs[i].n_ranks,
			.device = N_GPUS ? FERRY_DEVICE_CUDA : FERRY_DEVICE_CPU,
			.n_gpus = N_GPUS,
			.shared_bytes = sizeof(struct board),
		};

		ranks_run(&how, measure);
	}
}

#ifndef FAKE_GPU
/* Every put of rank 1 is held up: half of it is alpha, on its links alone. */
static void one_slow_rank(struct rank *rank)
{
	const int32_t n = rank->n_ranks;
	struct ferry_cost_config config = FERRY_COST_CONFIG_INIT;
	int64_t alpha[ALL];
	int64_t ps[ALL];

	config.max_bytes = 4096;
	config.rounds = 5;
	RANKS_OK(ferry_cost_measure(rank->world, &config, alpha, ps));
	for (int32_t a = 0; a < n; a++)
		for (int32_t b = 0; b < n; b++) {
			const int64_t ns = alpha[a * n + b];

			if (a != b && (a == 1 || b == 1))
				RANKS_CHECK(ns >= SLOW_US * 500);
			else
				RANKS_CHECK(ns < SLOW_US * 500);
		}
}

static void test_one_slow_rank(void **state)
{
	char options[64];
	const struct ranks how = {
		.fabric = "shm",
		.kind = RANKS_PROCESSES,
		.n_ranks = 4,
		.options = options,
	};

	(void)state;
	snprintf(options, sizeof(options), "FAULT=delay:us=%d,rank=1", SLOW_US);
	ranks_run(&how, one_slow_rank);
}

static void differ(struct rank *rank)
{
	struct ferry_cost_config config = FERRY_COST_CONFIG_INIT;
	int64_t alpha[4] = {77};
	int64_t ps[4];

	config.max_bytes = 4096;
	config.rounds = 1 + rank->rank;
	RANKS_STATUS(ferry_cost_measure(rank->world, &config, alpha, ps),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(),
	           "cost_measure: rounds is 2 on rank 1, 1 on rank 0");
	RANKS_EQ(alpha[0], 77);
	config.rounds = -1;
	RANKS_STATUS(ferry_cost_measure(rank->world, &config, alpha, ps),
	             FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "rounds is -1, allowed are 1..1000");
	config.rounds = 1;
	config.max_bytes = 4095;
	RANKS_STATUS(ferry_cost_measure(rank->world, &config, alpha, ps),
	             FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "max_bytes is 4095, allowed are 4096..");
	RANKS_STATUS(ferry_cost_measure(NULL, NULL, alpha, ps), FERRY_INVAL);
	RANKS_STATUS(ferry_cost_measure(rank->world, NULL, NULL, ps),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_cost_measure(rank->world, NULL, alpha, NULL),
	             FERRY_INVAL);
}

static void test_differ(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 2, .fabric = "local"}, differ);
}

/* Nobody measures with the next call of a rank that was refused. */
static void one_refused(struct rank *rank)
{
	struct ferry_cost_config config = FERRY_COST_CONFIG_INIT;
	int64_t alpha[9], ps[9];

	config.max_bytes = 4096;
	config.rounds = rank->rank == 1 ? -1 : 1;
	RANKS_STATUS(ferry_cost_measure(rank->world, &config, alpha, ps),
	             FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "rounds is -1, allowed are 1..1000");
	if (rank->rank != 1)
		RANKS_TEXT(ferry_last_error(), "rank 1: ");
	config.rounds = 1;
	RANKS_OK(ferry_cost_measure(rank->world, &config, alpha, ps));
}

static void test_one_refused(void **state)
{
	(void)state;
	ranks_run(&(struct ranks){.n_ranks = 3, .fabric = "local"},
	          one_refused);
}

static void dies(struct rank *rank)
{
	struct ferry_cost_config config = FERRY_COST_CONFIG_INIT;
	int64_t alpha[ALL];
	int64_t ps[ALL];

	config.max_bytes = 4096;
	config.rounds = 1000;
	const enum ferry_status status =
		ferry_cost_measure(rank->world, &config, alpha, ps);

	if (rank->rank == 1)
		return;
	RANKS_STATUS(status, FERRY_PEER);
	RANKS_TEXT(ferry_last_error(), "rank 1");
}

static void test_dies(void **state)
{
	const struct ranks how = {
		.fabric = "shm",
		.kind = RANKS_PROCESSES,
		.n_ranks = 3,
		.killed = RANKS_BIT(1),
		.options = "FAULT=kill:rank=1,after=500",
	};

	(void)state;
	ranks_run(&how, dies);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_measure),
#ifndef FAKE_GPU
		cmocka_unit_test(test_one_slow_rank),
		cmocka_unit_test(test_differ),
		cmocka_unit_test(test_one_refused),
		cmocka_unit_test(test_dies),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
