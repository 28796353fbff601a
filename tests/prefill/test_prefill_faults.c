/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong ends the run on all ranks, soon, with a message and exit
 * status 1: a rank dies or stalls, wherever it is at the moment, or there
 * cannot be such a run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../cli/cli_cmocka.h"
#include "../support/test_seed.h"
#include "core/clock.h"
#include "prefill_inner.h"
#include "prefill_lab.h"

enum { TEXT_BYTES = 1 << 16, SOON_MS = 10000 };

static const struct lab_input input = {14, 4, 8, false};

/* What a run said on stderr. */
static char said[TEXT_BYTES];

static int try_and_listen(struct lab *lab, const struct lab_run *how)
{
	const int file = memfd_create("stderr", MFD_CLOEXEC);
	const int old = dup(STDERR_FILENO);
	struct prefill_run run;

	fflush(stderr);
	assert_true(file >= 0 && old >= 0);
	dup2(file, STDERR_FILENO);
	const uint64_t begin = ferry_now_ns();
	const int status = lab_try(lab, how, &run);
	const uint64_t took_ms = (ferry_now_ns() - begin) / 1000000;

	fflush(stderr);
	dup2(old, STDERR_FILENO);
	const ssize_t n = pread(file, said, sizeof(said) - 1, 0);

	said[n > 0 ? n : 0] = 0;
	close(file);
	close(old);
	prefill_run_close(&lab->shape, &run);
	assert_in_range(took_ms, 0, SOON_MS);
	return status;
}

static void expect_failure(struct lab *lab, const struct lab_run *how,
                           const char *fault, const char *words)
{
	setenv("FERRY_FAULT", fault, 1);
	const int status = try_and_listen(lab, how);

	unsetenv("FERRY_FAULT");
	if (status != 1 || !strstr(said, words) || !strstr(said, "test: "))
		fail_msg("%s: status %d, \"%s\" not in:\n%s", fault, status,
		         words, said);
}

/* Rank 1 dies at some put of its own, in either thread. */
static void kill_ranks(bool threads)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	struct lab lab;

	tiny.n_layers = 4;
	lab_open(&lab, &tiny, &input);
	for (int32_t i = 0; i < 8; i++) {
		const struct lab_run how = {.policy = FERRY_BALANCE_EPLB_FERRY,
		                            .n_ranks = 3,
		                            .replicas = 1,
		                            .split = FERRY_SPLIT_EXACT,
		                            .start = PREFILL_START_HOT,
		                            .threads = threads};
		char fault[64];

		snprintf(fault, sizeof(fault), "kill:rank=1,after=%d",
		         i ? lab_draw(600) : 0);
		expect_failure(&lab, &how, fault, "rank 1");
	}
	lab_close(&lab);
}

static void test_killed_processes(void **state)
{
	(void)state;
	kill_ranks(false);
}

static void test_killed_threads(void **state)
{
	(void)state;
	kill_ranks(true);
}

/* Who stalls longer than the others wait is named. */
static void test_stalled(void **state)
{
	const struct lab_run how = {
		FERRY_BALANCE_FERRY, 2,    0, FERRY_SPLIT_EVEN,
		PREFILL_START_HOT,   false};
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	struct lab lab;

	(void)state;
	lab_open(&lab, &tiny, &input);
	lab.job.timeout_ms = 200;
	expect_failure(&lab, &how, "stall:rank=1,ms=1000,after=200", "rank 1");
	lab_close(&lab);
}

static void test_impossible(void **state)
{
	struct lab_run how = {FERRY_BALANCE_FERRY, 9,    0, FERRY_SPLIT_EVEN,
	                      PREFILL_START_EVEN,  false};
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	struct lab lab;

	(void)state;
	lab_open(&lab, &tiny, &input);
	expect_failure(&lab, &how, "", "9 ranks, but the model has 8 experts");
	how.n_ranks = 2;
	lab.job.fabric = "carrier-pigeon";
	expect_failure(&lab, &how, "", "carrier-pigeon");
	lab_close(&lab);
}

/* Overwrites weights in memory, which ranks that are forked then have, too. */
static void damage(const struct lm_matrix *m)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const uintptr_t begin = (uintptr_t)m->data;
	const size_t n = (size_t)m->rows * (size_t)m->cols *
	                 (size_t)lm_type_bytes(m->type);
	const uintptr_t first = begin / page * page;

	assert_int_equal(mprotect((void *)first, begin + n - first,
	                          PROT_READ | PROT_WRITE),
	                 0);
	memset((void *)begin, 0xff, n); /* NaN of every type */
}

static void damage_experts(const struct lab *lab, int32_t layer)
{
	for (int32_t e = 0; e < lab->model.config.n_experts; e++)
		damage(&lab->model.layers[layer].experts[e][LM_DOWN]);
}

/* Neither a run on ranks nor the one that it is compared with goes well. */
static void expect_broken(struct lab *lab, const char *where)
{
	struct lab_run how = {FERRY_BALANCE_FERRY, 2,    0, FERRY_SPLIT_EVEN,
	                      PREFILL_START_EVEN,  false};
	struct prefill_run alone = {.name = "alone"};
	struct fault fault = {""};

	for (int i = 0; i < 2; i++) {
		how.policy = i ? FERRY_BALANCE_FERRY : FERRY_BALANCE_OFF;
		how.threads = i;
		expect_failure(lab, &how, "", where);
		assert_non_null(strstr(said, ": drawn.txt, sequence "));
		assert_non_null(strstr(said, "token "));
	}
	lab->shape.n_ranks = 1;
	prefill_run_open(&lab->shape, false, &alone);
	assert_false(prefill_run_alone(&lab->job, &alone, &fault));
	prefill_run_close(&lab->shape, &alone);
	if (strncmp(fault.text, "drawn.txt, sequence 0: ", 23) != 0 ||
	    !strstr(fault.text, where))
		fail_msg("'%s' not in: %s", where, fault.text);
	assert_false(
		prefill_route_alone(&lab->job, 0, lab->truth.loads, &fault) &&
		strstr(where, "layer 1"));
}

/* Weights that are none do not pass, with all logits or the last ones only. */
static void test_damaged(void **state)
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;

	(void)state;
	tiny.tied = false;
	for (int i = 0; i < 6; i++) {
		const struct lab_input some = {2, 4, 8, i % 2};
		struct lab lab;

		lab_open(&lab, &tiny, &some);
		if (i < 2) {
			damage_experts(&lab, 0);
			expect_broken(&lab, "layer 1, token ");
		} else if (i < 4) {
			damage_experts(&lab, 1);
			expect_broken(&lab, "hidden states after the last "
			                    "layer are not finite");
		} else {
			damage(&lab.model.head);
			expect_broken(&lab, "logits are not finite");
		}
		lab_close(&lab);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_processes),
		cmocka_unit_test(test_killed_threads),
		cmocka_unit_test(test_stalled),
		cmocka_unit_test(test_impossible),
		cmocka_unit_test(test_damaged),
	};

	lab_seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
