/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry check --hosts makes of findings: which are good, slow, wrong. */
#include <stdio.h>
#include <string.h>

#include "cli_cmocka.h"
#include "hosts.h"

enum { RANKS = 4 };

struct findings {
	struct crew crew;
	struct crew_member me;
	struct hosts hosts;
	struct hosts_fact facts[RANKS];
	struct hosts_pair all[RANKS * RANKS];
	struct hosts_mode modes[RANKS * HOSTS_MODES];
};

static struct hosts_pair *way(struct findings *f, int a, int b)
{
	return &f->all[a * RANKS + b];
}

/* Two hosts of two ranks, all well. Rank 1: nobody prints. */
static void make(struct findings *f)
{
	memset(f, 0, sizeof(*f));
	f->me = (struct crew_member){1, &f->crew};
	f->hosts = (struct hosts){.me = &f->me,
	                          .n_ranks = RANKS,
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

static int judge(const struct findings *f, bool strict)
{
	const struct hosts_options o = {.strict = strict};

	return hosts_report(&f->hosts, &o);
}

static void test_good_and_slow(void **state)
{
	struct findings f;

	(void)state;
	make(&f);
	assert_int_equal(judge(&f, false), 0);
	assert_int_equal(judge(&f, true), 0);
	/* Ten times slower than inside is what the network is; half is not. */
	way(&f, 3, 0)->link.bytes_per_s = 0.6e9;
	assert_int_equal(judge(&f, true), 0);
	way(&f, 3, 0)->link.bytes_per_s = 0.4e9;
	assert_int_equal(judge(&f, true), 1);
	assert_int_equal(judge(&f, false), 0);
	make(&f);
	way(&f, 0, 2)->link.flag_p50_us = 300;
	assert_int_equal(judge(&f, true), 1);
	/* Of two pairs inside of hosts none is the rule. */
	make(&f);
	way(&f, 0, 1)->link.bytes_per_s = 1e9;
	assert_int_equal(judge(&f, true), 0);
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
		if (judge(&f, false) != 1)
			fail_msg("case %d was good", what);
	}
	/* No mode at all: nothing was dispatched. */
	make(&f);
	for (int r = 0; r < RANKS; r++)
		f.modes[r * HOSTS_MODES].state = HOSTS_UNTESTED;
	assert_int_equal(judge(&f, false), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_and_slow),
		cmocka_unit_test(test_bad),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
