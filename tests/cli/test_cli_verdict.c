/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry check --hosts makes of findings: which are good, slow, wrong. */
#include <stdio.h>
#include <string.h>

#include "cli_cmocka.h"
#include "hosts_judge.h"

enum { RANKS = 4 };

struct findings {
	struct hosts hosts;
	struct hosts_fact facts[RANKS];
	struct hosts_pair all[RANKS * RANKS];
	struct hosts_mode modes[RANKS * HOSTS_MODES];
};

static struct hosts_pair *way(struct findings *f, int a, int b)
{
	return &f->all[a * RANKS + b];
}

/* Two hosts of two ranks, all well. */
static void make(struct findings *f)
{
	memset(f, 0, sizeof(*f));
	f->hosts = (struct hosts){.n_ranks = RANKS,
	                          .whole = true,
	                          .facts = f->facts,
	                          .all = f->all,
	                          .all_modes = f->modes};
	for (int r = 0; r < RANKS; r++) {
		f->facts[r].host_id = 10 + (uint64_t)r / 2;
		snprintf(f->modes[r * HOSTS_MODES].name, 16, "exact");
		f->modes[r * HOSTS_MODES].state = HOSTS_TESTED;
		for (int s = 0; s < RANKS; s++) {
			struct hosts_pair *p = way(f, r, s);

			p->state = HOSTS_TESTED;
			p->link.flag_p50_us = r / 2 == s / 2 ? 1 : 30;
			p->link.bytes_per_s = r / 2 == s / 2 ? 10e9 : 1e9;
		}
	}
}

static bool is_bad(const struct findings *f, bool strict)
{
	struct hosts_judged judged;
	bool bad;

	hosts_judge(&f->hosts, strict, &judged);
	bad = judged.bad;
	hosts_judged_free(&judged);
	return bad;
}

static void test_what_is_counted(void **state)
{
	struct hosts_judged judged;
	struct findings f;

	(void)state;
	make(&f);
	way(&f, 3, 0)->link.bytes_per_s = 0.4e9;
	way(&f, 2, 3)->link.wrong = 7;
	way(&f, 1, 0)->state = HOSTS_FAILED;
	snprintf(way(&f, 1, 0)->text, HOSTS_TEXT_BYTES, "it has gone");
	hosts_judge(&f.hosts, false, &judged);
	assert_int_equal(judged.n_hosts, 2);
	assert_false(hosts_between(&judged, 0, 1));
	assert_true(hosts_between(&judged, 1, 2));
	assert_int_equal(judged.of[1].n, 4);
	assert_int_equal(judged.count[PAIR_OK], 3);
	assert_int_equal(hosts_verdict_of(&judged, 0, 3), PAIR_SLOW);
	assert_int_equal(hosts_verdict_of(&judged, 2, 3), PAIR_WRONG);
	assert_int_equal(hosts_verdict_of(&judged, 0, 1), PAIR_FAILED);
	assert_string_equal(hosts_text_of(&f.hosts, 0, 1), "it has gone");
	assert_string_equal(hosts_text_of(&f.hosts, 2, 3), "");
	assert_int_equal(judged.wrong, 7);
	hosts_judged_free(&judged);
}

static void test_good_and_slow(void **state)
{
	struct findings f;

	(void)state;
	make(&f);
	assert_false(is_bad(&f, false));
	assert_false(is_bad(&f, true));
	/* Ten times slower than inside is what the network is; half is not. */
	way(&f, 3, 0)->link.bytes_per_s = 0.6e9;
	assert_false(is_bad(&f, true));
	way(&f, 3, 0)->link.bytes_per_s = 0.4e9;
	assert_true(is_bad(&f, true));
	assert_false(is_bad(&f, false));
	make(&f);
	way(&f, 0, 2)->link.flag_p50_us = 300;
	assert_true(is_bad(&f, true));
	/* Of two pairs inside of hosts none is the rule. */
	make(&f);
	way(&f, 0, 1)->link.bytes_per_s = 1e9;
	assert_false(is_bad(&f, true));
}

static void test_bad(void **state)
{
	struct findings f;

	(void)state;
	for (int what = 0; what < 9; what++) {
		make(&f);
		switch (what) {
		case 0:
			way(&f, 2, 3)->link.wrong = 1;
			break;
		case 1:
			way(&f, 3, 1)->wrong_rows = 1;
			break;
		case 2:
			way(&f, 2, 2)->wrong_sums = 1;
			break;
		case 3:
			way(&f, 1, 0)->state = HOSTS_FAILED;
			break;
		case 4:
			way(&f, 1, 0)->state = HOSTS_UNTESTED;
			break;
		case 5:
			f.modes[3 * HOSTS_MODES].wrong = 2;
			break;
		case 6:
			f.modes[2 * HOSTS_MODES].state = HOSTS_FAILED;
			break;
		case 7:
			f.hosts.whole = false;
			break;
		default:
			snprintf(f.hosts.broken, 16, "a rank was lost");
			break;
		}
		if (!is_bad(&f, false))
			fail_msg("case %d was good", what);
	}
	/* No mode at all: nothing was dispatched. */
	make(&f);
	for (int r = 0; r < RANKS; r++)
		f.modes[r * HOSTS_MODES].state = HOSTS_UNTESTED;
	assert_true(is_bad(&f, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_counted),
		cmocka_unit_test(test_good_and_slow),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
