/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of moving experts was hidden behind attention, and what tokens waited
 * for: from times of two ranks as they may be.
 */
#include <stdlib.h>
#include <string.h>

#include "../cli/cli_cmocka.h"
#include "../support/test_seed.h"
#include "prefill_inner.h"
#include "prefill_lab.h"

enum { RANKS = 2 };

static const struct lab_input input = {1, 4, 8, true};

/* Of a rank in the first layer, in ns. */
struct times {
	struct prefill_span attention, push;
	int64_t late, switched;
};

static void fill(const struct prefill_setup *setup, int32_t rank,
                 const struct times *t)
{
	struct prefill_note *const note = &setup->notes[rank];
	struct prefill_span *const spans = setup->run->rank_cells[rank].spans;

	note->migrate_ns = t->push.end_ns - t->push.begin_ns;
	note->late_ns = t->late;
	note->switch_ns = t->switched;
	spans[PREFILL_ATTENTION] = t->attention;
	spans[PREFILL_MIGRATE] = t->push;
	/* Long after, for reasons of its own: waiting for its turn. */
	spans[PREFILL_COMMIT] =
		(struct prefill_span){t->attention.end_ns, 90000 + rank};
}

static struct prefill_cell measure(const struct times times[RANKS])
{
	struct tiny_shape tiny = TINY_SHAPE_INIT;
	struct prefill_run run = {.policy = FERRY_BALANCE_FERRY};
	struct prefill_setup setup;
	struct fault fault = {""};
	struct lab lab;

	lab_open(&lab, &tiny, &input);
	lab.shape.n_ranks = RANKS;
	prefill_run_open(&lab.shape, false, &run);
	if (!prefill_setup_open(&setup, &lab.job, &run, &fault))
		fail_msg("%s", fault.text);
	for (int32_t r = 0; r < RANKS; r++)
		fill(&setup, r, &times[r]);
	if (!prefill_measure(&setup, &fault))
		fail_msg("%s", fault.text);
	const struct prefill_cell cell = run.cells[0];

	prefill_setup_close(&setup);
	prefill_run_close(&lab.shape, &run);
	lab_close(&lab);
	return cell;
}

/* All was pushed while both computed: that one had to wait for the other's
 * attention, and for its turn, is not what moving cost. */
static void test_hidden(void **state)
{
	const struct times times[RANKS] = {
		{{100, 500}, {200, 300}, 400, 7},
		{{100, 900}, {200, 280}, 0, 5},
	};
	const struct prefill_cell cell = measure(times);

	(void)state;
	assert_int_equal(cell.migrate_ns, 100);
	assert_int_equal(cell.hidden_ns, 100);
	assert_int_equal(cell.wait_ns, 0);
	assert_int_equal(cell.exposed_ns, 7);
}

/* The longest push goes on after attention, and both wait for it. */
static void test_exposed(void **state)
{
	const struct times times[RANKS] = {
		{{100, 500}, {450, 650}, 150, 3},
		{{100, 520}, {300, 380}, 130, 4},
	};
	const struct prefill_cell cell = measure(times);

	(void)state;
	assert_int_equal(cell.migrate_ns, 200);
	assert_int_equal(cell.hidden_ns, 50);
	assert_int_equal(cell.wait_ns, 130);
	assert_int_equal(cell.exposed_ns, 134);
}

/* A push after attention hides nothing. */
static void test_late(void **state)
{
	const struct times times[RANKS] = {
		{{100, 500}, {600, 700}, 200, 0},
		{{100, 500}, {600, 650}, 200, 0},
	};
	const struct prefill_cell cell = measure(times);

	(void)state;
	assert_int_equal(cell.hidden_ns, 0);
	assert_int_equal(cell.exposed_ns, 200);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hidden),
		cmocka_unit_test(test_exposed),
		cmocka_unit_test(test_late),
	};

	lab_seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
