/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule by which ranks choose one verdict: the classes and the order within
 * them, by hand; and by enumeration, that ranks which learn the verdicts in any
 * order, and may follow one who has decided, all report the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "fabric/verdict.h"
#include "ranks.h"

enum { MOST = 4 };

static struct ferry_verdict make(enum ferry_status status, int32_t root,
                                 int32_t reporter)
{
	return (struct ferry_verdict){
		.status = status,
		.root = root,
		.reporter = reporter,
		.slot = -1,
		.token = -1,
	};
}

static void expect(const struct ferry_verdict *verdicts, int32_t n,
                   int32_t chosen)
{
	bool here[MOST];

	for (int32_t i = 0; i < n; i++)
		here[i] = verdicts[i].reporter >= 0;
	assert_int_equal(ferry_verdict_choose(verdicts, here, n), chosen);
}

/* Each class counts more than all behind it, whatever else they say. */
static void test_classes(void **state)
{
	struct ferry_verdict v[] = {
		make(FERRY_PEER, 3, 0),     make(FERRY_PEER, 3, 0),
		make(FERRY_RANGE, 3, 0),    make(FERRY_ABORTED, 3, 0),
		make(FERRY_TIMEOUT, 3, 0),  make(FERRY_TIMEOUT, 3, 0),
		make(FERRY_TIMEOUT, -1, 0),
	};
	enum { N = sizeof(v) / sizeof(*v) };

	(void)state;
	v[1].flags = FERRY_VERDICT_CUT;
	v[5].flags = FERRY_VERDICT_ASKED;
	for (int i = 0; i < N; i++)
		v[i].epoch = (uint64_t)(N - i); /* a later class is earlier */
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++) {
			const struct ferry_verdict pair[] = {v[i], v[j]};

			if (i != j)
				expect(pair, 2, i < j ? 0 : 1);
		}
}

static void test_content_statuses(void **state)
{
	const enum ferry_status content[] = {
		FERRY_RANGE,  FERRY_OVERFLOW, FERRY_MISMATCH,
		FERRY_PROTO,  FERRY_INTERNAL, FERRY_INVAL,
		FERRY_FABRIC, FERRY_SYS,      FERRY_CUDA,
	};

	(void)state;
	for (int i = 0; i < 9; i++) {
		const struct ferry_verdict v[] = {
			make(FERRY_ABORTED, 0, 0),
			make(content[i], 1, 1),
			make(FERRY_TIMEOUT, 0, 2),
		};
		const struct ferry_verdict w[] = {
			make(content[i], 1, 0),
			make(FERRY_PEER, 2, 1),
		};

		expect(v, 3, 1);
		expect(w, 2, 1);
	}
}

static void test_order_within_a_class(void **state)
{
	struct ferry_verdict v[2] = {make(FERRY_RANGE, 5, 0),
	                             make(FERRY_RANGE, 5, 1)};

	(void)state;
	expect(v, 2, 0); /* reporter */
	v[1].root = 4;
	expect(v, 2, 1);
	v[0].slot = -2;
	expect(v, 2, 0);
	v[1].phase = -1;
	expect(v, 2, 1);
	v[1].epoch = UINT64_MAX;
	expect(v, 2, 0);
	v[0].epoch = UINT64_MAX;
	expect(v, 2, 1);
}

/* Rank 0 waits for 1, and 1 for 2: the one that does not wait is the cause. */
static void test_who_does_not_wait(void **state)
{
	struct ferry_verdict v[] = {
		make(FERRY_TIMEOUT, 1, 0),
		make(FERRY_TIMEOUT, 2, 1),
		make(FERRY_TIMEOUT, -1, -1),
	};

	(void)state;
	expect(v, 3, 1);
	/* The silent one turns up and misses nobody. */
	v[2] = make(FERRY_TIMEOUT, -1, 2);
	v[2].flags = FERRY_VERDICT_ASKED;
	expect(v, 3, 1);
	/* Rank 1 did not give up, it was asked. */
	v[1].flags = FERRY_VERDICT_ASKED;
	expect(v, 3, 1);
	/* They wait for each other: the first by order. */
	v[1].root = 0;
	expect(v, 3, 0);
	v[1].root = 2;
	/* He had left in good order: that is silence. */
	v[2] = make(FERRY_OK, -1, 2);
	expect(v, 3, 1);
}

/* Who only answers does not outdo the one whose time was over. */
static void test_asked(void **state)
{
	struct ferry_verdict v[] = {
		make(FERRY_TIMEOUT, 1, 0),
		make(FERRY_TIMEOUT, -1, -1),
		make(FERRY_TIMEOUT, 3, 2),
		make(FERRY_TIMEOUT, -1, -1),
	};

	(void)state;
	v[0].flags = FERRY_VERDICT_ASKED;
	expect(v, 4, 2);
}

/*
 * Rank 3 died while it told that rank 2 had: who knows its verdict and who does
 * not take the same one. Ranks that call each other dead still choose.
 */
static void test_cut_short(void **state)
{
	struct ferry_verdict v[] = {
		make(FERRY_PEER, 3, 0),
		make(FERRY_PEER, 3, 1),
		make(FERRY_RANGE, 1, 2),
		make(FERRY_PEER, 2, 3),
	};

	(void)state;
	v[0].epoch = v[1].epoch = 9;
	v[3].epoch = 8;
	expect(v, 4, 0);
	v[3].reporter = -1;
	expect(v, 4, 0);
	v[3].reporter = 3;
	v[0] = make(FERRY_TIMEOUT, -1, 0);
	v[1] = make(FERRY_TIMEOUT, -1, 1);
	v[2] = make(FERRY_PEER, 3, 2);
	v[2].epoch = 9;
	expect(v, 4, 3);
	/* A rank that has closed has told all that it had to tell. */
	v[2].flags = FERRY_VERDICT_CLOSED;
	v[3] = make(FERRY_PEER, 1, 3);
	expect(v, 4, 3);
	/* So has one with whom only a connection broke. */
	v[2].flags = FERRY_VERDICT_CUT;
	expect(v, 4, 3);
}

static void test_nothing_to_choose(void **state)
{
	const struct ferry_verdict v[] = {make(FERRY_OK, -1, 0),
	                                  make(FERRY_PEER, 0, -1)};

	(void)state;
	expect(v, 2, -1);
}

/* A rank on its way to a decision. */
struct learner {
	bool here[MOST];
	int32_t told; /* decision of another that it knows of, -1 */
	int32_t decided;
};

struct model {
	const struct ferry_verdict *verdicts;
	int32_t n;
	struct learner ranks[MOST];
	int64_t n_ends;
};

static bool knows_all(const struct model *m, int32_t r)
{
	for (int32_t i = 0; i < m->n; i++)
		if (m->verdicts[i].reporter >= 0 && !m->ranks[r].here[i])
			return false;
	return true;
}

static void explore(struct model *m);

/* Rank r decides: by the rule when it knows all, or by following another. */
static void step_decide(struct model *m, int32_t r)
{
	struct learner *l = &m->ranks[r];
	const struct learner before = *l;

	if (l->decided >= 0)
		return;
	if (l->told >= 0 && l->here[l->told])
		l->decided = l->told;
	else if (knows_all(m, r))
		l->decided = ferry_verdict_choose(m->verdicts, l->here, m->n);
	if (l->decided >= 0)
		explore(m);
	*l = before;
}

static void step_deliver(struct model *m, int32_t r)
{
	struct learner *l = &m->ranks[r];
	const struct learner before = *l;

	for (int32_t i = 0; i < m->n; i++) {
		if (m->verdicts[i].reporter >= 0 && !l->here[i]) {
			l->here[i] = true;
			explore(m);
		}
		*l = before;
		if (l->told < 0 && m->ranks[i].decided >= 0) {
			l->told = m->ranks[i].decided;
			explore(m);
		}
		*l = before;
	}
}

/* All orders of: a verdict arrives, a decision arrives, somebody decides. */
static void explore(struct model *m)
{
	bool is_end = true;

	for (int32_t r = 0; r < m->n; r++) {
		if (m->verdicts[r].reporter < 0 || m->ranks[r].decided >= 0)
			continue;
		is_end = false;
		step_decide(m, r);
		step_deliver(m, r);
	}
	if (!is_end)
		return;
	m->n_ends++;
	for (int32_t r = 0; r < m->n; r++)
		for (int32_t q = 0; q < m->n; q++)
			if (m->verdicts[r].reporter >= 0 &&
			    m->verdicts[q].reporter >= 0)
				assert_int_equal(m->ranks[r].decided,
				                 m->ranks[q].decided);
}

static void test_every_order(void **state)
{
	static const enum ferry_status statuses[] = {
		FERRY_PEER, FERRY_RANGE, FERRY_ABORTED, FERRY_TIMEOUT};
	uint64_t seed = ranks_seed();

	(void)state;
	for (int round = 0; round < 10; round++) {
		struct ferry_verdict v[3];
		struct model m = {.verdicts = v, .n = 3};
		const int32_t silent = (int32_t)(rng_next(&seed) % 6);

		for (int32_t r = 0; r < 3; r++) {
			v[r] = make(statuses[rng_next(&seed) % 4],
			            (int32_t)(rng_next(&seed) % 3),
			            r == silent ? -1 : r);
			v[r].flags = (uint32_t)(rng_next(&seed) % 2);
			v[r].epoch = rng_next(&seed) % 2;
			m.ranks[r].told = m.ranks[r].decided = -1;
			m.ranks[r].here[r] = true;
		}
		explore(&m);
		assert_true(m.n_ends > 0);
	}
}

static void test_texts(void **state)
{
	struct ferry_verdict v = make(FERRY_PEER, 2, 1);
	char text[200];
	char tiny[8];

	(void)state;
	v.phase = FERRY_PHASE_COMBINE_RECV;
	v.slot = 1;
	v.epoch = 17;
	ferry_verdict_text(&v, NULL, text, sizeof(text));
	assert_string_equal(text, "combine_recv: slot 1, dispatch 17: rank 2 "
	                          "died (noticed by rank 1)");
	v.flags = FERRY_VERDICT_CLOSED;
	ferry_verdict_text(&v, NULL, text, sizeof(text));
	assert_string_equal(text, "combine_recv: slot 1, dispatch 17: rank 2 "
	                          "closed its segment (noticed by rank 1)");
	v.flags = FERRY_VERDICT_CUT;
	ferry_verdict_text(&v, "verbs: no route", text, sizeof(text));
	assert_string_equal(text, "combine_recv: slot 1, dispatch 17: the "
	                          "connection between rank 1 and rank 2 broke: "
	                          "verbs: no route (noticed by rank 1)");
	v = make(FERRY_PEER, 0, 1);
	v.flags = FERRY_VERDICT_CUT;
	ferry_verdict_text(&v, NULL, text, sizeof(text));
	assert_string_equal(text, "the connection between rank 0 and rank 1 "
	                          "broke (noticed by rank 1)");
	v = make(FERRY_TIMEOUT, -1, 3);
	ferry_verdict_text(&v, NULL, text, sizeof(text));
	assert_string_equal(text, "gave up waiting, and no rank is known to be "
	                          "missing (noticed by rank 3)");
	ferry_verdict_text(&v, NULL, tiny, sizeof(tiny));
	assert_string_equal(tiny, "gave up");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_content_statuses),
		cmocka_unit_test(test_order_within_a_class),
		cmocka_unit_test(test_who_does_not_wait),
		cmocka_unit_test(test_asked),
		cmocka_unit_test(test_cut_short),
		cmocka_unit_test(test_nothing_to_choose),
		cmocka_unit_test(test_every_order),
		cmocka_unit_test(test_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
