/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol holds in every order of steps, and each of its parts is needed:
 * the explorer finds what goes wrong without it. docs/protocol.md quotes the
 * numbers of states, so they are compared. With an argument, the steps that
 * lead to each fault are printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"

enum { MANY = 20000000 };

static bool verbose;

#define TOKEN(from, to, fate) ((uint32_t)(fate) << 2 * (from * 3 + to))
#define PAIR(there, back)     (TOKEN(0, 1, there) | TOKEN(1, 0, back))

static const uint32_t two_all[] = {
	PAIR(NO_ROW, NO_ROW),           PAIR(ROW_KEPT, NO_ROW),
	PAIR(NO_ROW, ROW_KEPT),         PAIR(ROW_KEPT, ROW_KEPT),
	PAIR(ROW_DROPPED, NO_ROW),      PAIR(NO_ROW, ROW_DROPPED),
	PAIR(ROW_DROPPED, ROW_KEPT),    PAIR(ROW_KEPT, ROW_DROPPED),
	PAIR(ROW_DROPPED, ROW_DROPPED),
};
enum { N_UNDROPPED = 4, N_ALL = 9, ONE_WAY = 1, BOTH_WAYS = 3 };

/* None, one way, some, all. */
static const uint32_t three_some[] = {
	0,
	TOKEN(0, 1, ROW_KEPT),
	PAIR(ROW_KEPT, NO_ROW) | TOKEN(0, 2, ROW_KEPT) | TOKEN(1, 2, ROW_KEPT),
	PAIR(ROW_KEPT, ROW_KEPT) | TOKEN(0, 2, ROW_KEPT) |
		TOKEN(1, 2, ROW_KEPT) | TOKEN(2, 0, ROW_KEPT) |
		TOKEN(2, 1, ROW_KEPT),
};

/* 2 ranks, 1 slot, 3 epochs, everything that can be chosen. */
static struct model two_ranks(void)
{
	return (struct model){
		.n_ranks = 2,
		.n_slots = 1,
		.n_epochs = 3,
		.n_keys = 4,
		.give_ups = 1,
		.traffic = two_all,
		.n_traffic = N_ALL,
	};
}

/* 2 ranks of which one sleeps; 2 epochs. */
static struct model sleeper(void)
{
	struct model m = two_ranks();

	m.n_epochs = 2;
	m.futex = 1;
	m.at_once = 1;
	m.n_traffic = N_UNDROPPED;
	return m;
}

static struct model three_ranks(void)
{
	struct model m = two_ranks();

	m.n_ranks = 3;
	m.n_epochs = 2;
	m.give_ups = 0;
	m.at_once = 1;
	m.traffic = three_some;
	m.n_traffic = 4;
	return m;
}

/* To one of two ranks of another host, to both, back, and all. */
static const uint32_t host_some[] = {
	0,
	TOKEN(0, 2, ROW_KEPT),
	TOKEN(0, 1, ROW_KEPT) | TOKEN(0, 2, ROW_KEPT),
	TOKEN(0, 1, ROW_DROPPED) | TOKEN(0, 2, ROW_KEPT) |
		TOKEN(1, 0, ROW_KEPT),
	TOKEN(1, 0, ROW_KEPT) | TOKEN(2, 0, ROW_KEPT) | TOKEN(1, 2, ROW_KEPT),
	PAIR(ROW_KEPT, ROW_KEPT) | TOKEN(0, 2, ROW_KEPT) |
		TOKEN(1, 2, ROW_KEPT) | TOKEN(2, 0, ROW_KEPT) |
		TOKEN(2, 1, ROW_KEPT),
};
enum { N_HOST_SOME = 6, TO_OTHER = 1, TO_BOTH = 2 };

static struct model two_hosts(void)
{
	struct model m = three_ranks();

	m.hosts = 1;
	m.traffic = host_some;
	m.n_traffic = N_HOST_SOME;
	return m;
}

static struct model two_slots(int traffic)
{
	struct model m = two_ranks();

	m.n_slots = 2;
	m.give_ups = 0;
	m.at_once = 1;
	m.traffic = &two_all[traffic];
	m.n_traffic = 1;
	return m;
}

static void print_path(const struct explore_result *r)
{
	char text[128];

	for (uint32_t i = 0; i < r->n_path; i++) {
		model_step_text(r->path[i], text, sizeof(text));
		print_message("  %3u %s\n", i + 1, text);
	}
}

static void holds(const struct model *m, uint64_t n_states)
{
	struct explore_result r = model_check(m, MANY);

	print_message("%llu states, %llu steps, %u deep\n",
	              (unsigned long long)r.n_states,
	              (unsigned long long)r.n_steps, r.max_depth);
	if (r.wrong) {
		print_path(&r);
		fail_msg("%s", r.wrong);
	}
	assert_int_equal(r.n_states, n_states);
}

static void fails(const struct model *m, const char *wrong)
{
	struct explore_result r = model_check(m, MANY);

	assert_non_null(r.wrong);
	print_message("after %u steps: %s\n", r.n_path, r.wrong);
	if (verbose)
		print_path(&r);
	assert_string_equal(r.wrong, wrong);
	free(r.path);
}

static void fails_without(unsigned without, const char *wrong)
{
	struct model m = two_ranks();

	m.without = without;
	fails(&m, wrong);
}

static void two_ranks_hold(void **state)
{
	const struct model m = two_ranks();

	(void)state;
	holds(&m, 327976);
}

static void three_ranks_hold(void **state)
{
	struct model m = three_ranks();

	(void)state;
	holds(&m, 497573);
	m.give_ups = 1;
	m.traffic = &three_some[ONE_WAY];
	m.n_traffic = 1;
	holds(&m, 866132);
}

static void two_slots_hold(void **state)
{
	struct model m = two_slots(ONE_WAY);

	(void)state;
	holds(&m, 357429);
	m.n_epochs = 2;
	m.give_ups = 1;
	holds(&m, 1381098);
	m = two_slots(BOTH_WAYS);
	holds(&m, 683069);
}

static void sleep_holds(void **state)
{
	const struct model m = sleeper();

	(void)state;
	holds(&m, 1119574);
}

static void hosts_hold(void **state)
{
	struct model m = two_hosts();

	(void)state;
	holds(&m, 1705491);
	m.traffic = &host_some[TO_OTHER];
	m.n_traffic = 2;
	m.n_epochs = 3;
	holds(&m, 313275);
	m = two_hosts();
	m.traffic = &host_some[TO_BOTH];
	m.n_traffic = 1;
	m.always_combine = 1;
	m.give_ups = 1;
	holds(&m, 970137);
}

static void hosts_need_all(void **state)
{
	struct model m = two_hosts();

	(void)state;
	m.without = WITHOUT_FAN;
	fails(&m, "dispatch_recv reads another row");
	m.without = WITHOUT_ARRIVAL;
	fails(&m, "combine_send adds another part");
	m.without = WITHOUT_SECOND_HALF;
	fails(&m, "dispatch_recv reads another table");
	m.without = WITHOUT_BACK_FLAG;
	fails(&m, "combine_recv reads another row");
}

static void half_is_needed(void **state)
{
	(void)state;
	fails_without(WITHOUT_SECOND_HALF, "dispatch_recv reads another table");
}

static void flags_are_needed(void **state)
{
	(void)state;
	fails_without(WITHOUT_TABLE_FLAG, "dispatch_recv reads another table");
	fails_without(WITHOUT_ROW_FLAG, "dispatch_recv reads another row");
	fails_without(WITHOUT_BACK_FLAG, "combine_recv reads another row");
}

static void late_writes_are_waited_for(void **state)
{
	(void)state;
	fails_without(WITHOUT_LATE_WAIT, "dispatch_recv reads another row");
}

static void sources_are_waited_for(void **state)
{
	(void)state;
	fails_without(WITHOUT_FLUSH, "dispatch_recv reads another row");
}

static void failure_must_stop(void **state)
{
	(void)state;
	fails_without(WITHOUT_STOP, "dispatch_recv reads another table");
}

static void second_look_is_needed(void **state)
{
	struct model m = sleeper();

	(void)state;
	m.without = WITHOUT_SECOND_LOOK;
	fails(&m, "a rank waits for ever");
	m.without = WITHOUT_LATE_ASLEEP;
	fails(&m, "a rank waits for ever");
}

/* Two keys would do; one does not. */
static void epochs_need_keys(void **state)
{
	struct model m = two_ranks();

	(void)state;
	m.n_keys = 1;
	fails(&m, "dispatch_recv reads another table");
	m.n_keys = 2;
	holds(&m, 327976);
}

/* Why the model has traffic that is not full: full traffic hides the fault. */
static void full_traffic_hides_the_half(void **state)
{
	struct model m = two_ranks();

	(void)state;
	m.without = WITHOUT_SECOND_HALF;
	m.traffic = &two_all[BOTH_WAYS];
	m.n_traffic = 1;
	m.always_combine = 1;
	m.give_ups = 0;
	holds(&m, 890);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_ranks_hold),
		cmocka_unit_test(three_ranks_hold),
		cmocka_unit_test(two_slots_hold),
		cmocka_unit_test(sleep_holds),
		cmocka_unit_test(hosts_hold),
		cmocka_unit_test(hosts_need_all),
		cmocka_unit_test(half_is_needed),
		cmocka_unit_test(flags_are_needed),
		cmocka_unit_test(late_writes_are_waited_for),
		cmocka_unit_test(sources_are_waited_for),
		cmocka_unit_test(failure_must_stop),
		cmocka_unit_test(second_look_is_needed),
		cmocka_unit_test(epochs_need_keys),
		cmocka_unit_test(full_traffic_hides_the_half),
	};

	(void)argv;
	verbose = argc > 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
