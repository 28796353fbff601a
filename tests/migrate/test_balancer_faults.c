/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a balancer refuses, what ends it, and that placements and weights stay
 * valid then; its counters as text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "balancer_lab.h"
#include "fabric/world.h"
#include "trace/events.h"

static const struct bal_task ferry_task = {
	.policy = FERRY_BALANCE_FERRY,
	.spare = 1,
	.n_staging = 8,
	.n_steps = 3,
};

static enum ferry_status try_open(struct bal *m,
                                  const struct ferry_balancer_config *config)
{
	return ferry_balancer_open(m->rank->world, config, &m->balancer);
}

/* A change of a good config, and what is said of it. */
struct refusal {
	size_t offset;
	int32_t value;
	const char *text;
};

#define FIELD(field) offsetof(struct ferry_balancer_config, field)

static const struct refusal refusals[] = {
	{FIELD(policy), 6, "policy is 6, allowed are 0..5"},
	{FIELD(rule), 1, "rule is 1, allowed are 0 but for FREEBALANCE"},
	{FIELD(gamma_milli), -2, "gamma_milli is -2"},
	{FIELD(max_swaps), 257, "max_swaps is 257, allowed are -1..256"},
	{FIELD(max_copies), -2, "max_copies is -2, allowed are -1..256"},
	{FIELD(recheck_steps), -1, "recheck_steps is -1"},
	{FIELD(eplb_every), -1, "eplb_every is -1"},
	{FIELD(n_nodes), 3, "n_nodes is 3, allowed are divisors"},
};

static void refuse_configs(struct rank *rank)
{
	struct bal *m = bal_make(rank);
	struct ferry_balancer_config config;
	const int32_t slow[2] = {1000, 0};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		bal_config(m, &config);
		memcpy((char *)&config + refusals[i].offset, &refusals[i].value,
		       sizeof(int32_t));
		RANKS_STATUS(try_open(m, &config), FERRY_INVAL);
		RANKS_TEXT(ferry_last_error(), refusals[i].text);
	}
	bal_config(m, &config);
	config.margin_ppm = -1;
	RANKS_STATUS(try_open(m, &config), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(),
	           "margin_ppm is -1, allowed are 0..1000000000");
	config.margin_ppm = 1000000001;
	RANKS_STATUS(try_open(m, &config), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "margin_ppm is 1000000001");
	bal_config(m, &config);
	config.experts = NULL;
	RANKS_STATUS(try_open(m, &config), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "experts is NULL");
	bal_config(m, &config);
	config.speed = slow;
	RANKS_STATUS(try_open(m, &config), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "speed[1] is 0");
	bal_config(m, &config);
	m->cost.n_ranks = 5;
	RANKS_STATUS(try_open(m, &config), FERRY_INVAL);
	RANKS_TEXT(ferry_last_error(), "cost->n_ranks is 5");
	RANKS_STATUS(ferry_balancer_open(NULL, &config, &m->balancer),
	             FERRY_INVAL);
	RANKS_STATUS(ferry_balancer_open(rank->world, NULL, &m->balancer),
	             FERRY_INVAL);
	ferry_balancer_close(NULL);
}

static void test_configs(void **state)
{
	lab_run(*state, 2, refuse_configs, &ferry_task);
}

static void differ(struct rank *rank)
{
	struct bal *m = bal_make(rank);
	struct ferry_balancer_config config;

	bal_config(m, &config);
	config.threshold_ppm = rank->rank == 1 ? 1100000 : 0;
	RANKS_STATUS(try_open(m, &config), FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(),
	           "threshold_ppm is 1100000 on rank 1, 0 on rank 0");
	bal_config(m, &config);
	config.calibrate = rank->rank == 2;
	RANKS_STATUS(try_open(m, &config), FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "calibrate is 1 on rank 2, 0 on rank 0");
	bal_config(m, &config);
	config.margin_ppm = 7 * rank->rank;
	RANKS_STATUS(try_open(m, &config), FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(),
	           "margin_ppm is 7 on rank 1, 0 on rank 0");
	bal_config(m, &config);
	m->beta[3] += (int64_t)rank->rank;
	RANKS_STATUS(try_open(m, &config), FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "cost (its hash)");
}

static void test_differ(void **state)
{
	lab_run(*state, 3, differ, &ferry_task);
}

/* Each refused call has done nothing: the step goes on. */
static void refuse_calls(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	struct ferry_balancer *b = m->balancer;
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	struct ferry_ids ids = {.size = sizeof(ids)};
	int32_t counts[BAL_EXPERTS] = {0};

	counts[2] = -1;
	in.counts = counts;
	RANKS_STATUS(ferry_balancer_predict(b, 0, &in), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "layer 0: counts[2] is -1");
	RANKS_STATUS(ferry_balancer_observe(b, 0, counts), FERRY_RANGE);
	counts[2] = INT32_MAX;
	RANKS_OK(ferry_balancer_observe(b, 1, counts));
	RANKS_STATUS(ferry_balancer_observe(b, 1, counts), FERRY_RANGE);
	RANKS_TEXT(ferry_last_error(), "since the last prediction more than");
	in.ids = &ids;
	RANKS_STATUS(ferry_balancer_predict(b, 0, &in), FERRY_INVAL);
	in.ids = NULL;
	in.seq_len = -1;
	RANKS_STATUS(ferry_balancer_predict(b, 0, &in), FERRY_RANGE);
	in.seq_len = 0;
	RANKS_STATUS(ferry_balancer_predict(b, BAL_LAYERS, &in), FERRY_RANGE);
	RANKS_STATUS(ferry_balancer_predict(b, 0, NULL), FERRY_INVAL);
	RANKS_STATUS(ferry_balancer_predict(NULL, 0, &in), FERRY_INVAL);
	RANKS_STATUS(ferry_balancer_predict_start(b, 0), FERRY_STATE);
	in.counts = NULL;
	RANKS_OK(ferry_balancer_predict_send(b, 0, &in));
	RANKS_STATUS(ferry_balancer_predict_send(b, 1, &in), FERRY_STATE);
	RANKS_STATUS(ferry_balancer_predict_start(b, 1), FERRY_STATE);
	RANKS_STATUS(ferry_balancer_commit(b, 0, NULL, NULL), FERRY_STATE);
	RANKS_OK(ferry_balancer_predict_start(b, 0));
	RANKS_STATUS(ferry_balancer_predict_send(b, 0, &in), FERRY_STATE);
	RANKS_TEXT(ferry_last_error(), "layer 0 was not committed");
	RANKS_OK(ferry_balancer_commit(b, 0, NULL, NULL));
	RANKS_STATUS(ferry_balancer_commit(b, -1, NULL, NULL), FERRY_RANGE);
	RANKS_CHECK(!ferry_balancer_wants(b, BAL_LAYERS));
	RANKS_CHECK(!ferry_balancer_wants(NULL, 0));
	RANKS_STATUS(ferry_balancer_set_speed(b, NULL), FERRY_INVAL);
	bal_run(m);
}

static void test_calls(void **state)
{
	lab_run(*state, 2, refuse_calls, &ferry_task);
}

/* After a failure: BROKEN with its text; what was committed still works. */
static void check_broken(struct bal *m)
{
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;

	RANKS_STATUS(ferry_balancer_predict(m->balancer, 0, &in), FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), "balancer_predict_send: after: ");
	RANKS_STATUS(ferry_balancer_commit(m->balancer, 0, NULL, NULL),
	             FERRY_BROKEN);
	for (int32_t l = 0; l < BAL_LAYERS; l++)
		lab_check(&m->lab, l,
		          ferry_experts_placement(m->lab.experts, l));
}

/* Ranks that speak of different layers, or have different speeds. */
static void other_layer(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;

	bal_run(m);
	RANKS_STATUS(ferry_balancer_predict(m->balancer, rank->rank == 1, &in),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 1 has tag");
	check_broken(m);
}

static void other_speed(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	const int32_t speed[3] = {1000, 500, 1000 + (rank->rank == 2)};

	RANKS_OK(ferry_balancer_set_speed(m->balancer, speed));
	RANKS_STATUS(ferry_balancer_predict(m->balancer, 0, &in),
	             FERRY_MISMATCH);
	RANKS_TEXT(ferry_last_error(), "rank 2 has tag");
	check_broken(m);
}

static void test_mismatch(void **state)
{
	lab_run(*state, 3, other_layer, &ferry_task);
	lab_run(*state, 3, other_speed, &ferry_task);
}

/* A rank dies between predict and commit, or instead of a prediction. */
struct death {
	struct bal_task task; /* first: the lab reads it */
	bool before_commit;
};

static void survive(struct rank *rank)
{
	const struct death *death = rank->arg;
	struct bal *m = bal_open(rank);
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	enum ferry_status status = FERRY_OK;

	bal_run(m);
	const struct ferry_placement *old =
		ferry_experts_placement(m->lab.experts, 0);

	if (death->before_commit) {
		bal_predict(m, 0, 77);
		ranks_meet(0, rank->n_ranks);
	}
	if (rank->rank == 1)
		ranks_die();
	if (!death->before_commit)
		status = ferry_balancer_predict(m->balancer, 0, &in);
	if (status == FERRY_OK)
		status = ferry_balancer_commit(m->balancer, 0, NULL, NULL);
	RANKS_CHECK(status == FERRY_PEER || status == FERRY_TIMEOUT);
	RANKS_TEXT(ferry_last_error(), "rank 1");
	RANKS_CHECK(ferry_experts_placement(m->lab.experts, 0) == old);
	check_broken(m);
}

static void test_death(void **state)
{
	const struct lab_setting *setting = *state;

	for (int i = 0; i < 2; i++) {
		struct death death = {ferry_task, i};

		ranks_run(
			&(struct ranks){
				.kind = setting->kind,
				.n_ranks = 3,
				.fabric = setting->fabric,
				.options = setting->options,
				.timeout_ms = 3000,
				.killed = RANKS_BIT(1),
				.arg = &death,
			},
			survive);
	}
}

static void read_metrics(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	char text[16384], want[128], cut[64];

	bal_run(m);
	const struct ferry_balancer_stats s = bal_stats(m);
	const size_t n =
		ferry_balancer_metrics(m->balancer, "moe", text, sizeof(text));

	RANKS_EQ(n, strlen(text));
	snprintf(want, sizeof(want),
	         "ferry_balancer_moves_total{balancer=\"moe\",rank=\"%d\","
	         "phase=\"swap\"} %llu\n",
	         rank->rank, (unsigned long long)s.n_swaps);
	RANKS_TEXT(text, want);
	snprintf(want, sizeof(want),
	         "imbalance_total{balancer=\"moe\",rank=\"%d\","
	         "phase=\"after\"} %llu.%06llu\n",
	         rank->rank, (unsigned long long)s.after_ppm / 1000000,
	         (unsigned long long)s.after_ppm % 1000000);
	RANKS_TEXT(text, want);
	snprintf(want, sizeof(want),
	         "ferry_balancer_wrong_planned_tokens_total{balancer=\"moe\","
	         "rank=\"%d\"} %llu\n",
	         rank->rank, (unsigned long long)s.wrong_planned_tokens);
	RANKS_TEXT(text, want);
	RANKS_EQ(ferry_balancer_metrics(m->balancer, "moe", cut, sizeof(cut)),
	         n);
	RANKS_BYTES(cut, text, sizeof(cut) - 1);
	RANKS_EQ(ferry_balancer_metrics(NULL, "moe", cut, sizeof(cut)), 0);
	RANKS_STATUS(ferry_balancer_get_stats(NULL, NULL), FERRY_INVAL);
}

static void test_metrics(void **state)
{
	lab_run(*state, 2, read_metrics, &ferry_task);
}

/* A plan is an event of the world's trace, between sums and migration. */
static void find_events(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	struct ferry_trace_event event;
	struct ferry_trace *trace = rank->world->trace;
	const char *const names[] = {"totals_recv", "balancer_plan",
	                             "experts_start", "experts_commit"};
	uint64_t n_found = 0;

	bal_predict(m, 0, 0);
	bal_commit(m, 0);
	for (uint64_t i = 0; i < ferry_trace_count(trace); i++)
		if (ferry_trace_at(trace, i, &event) && n_found < 4 &&
		    !strcmp(event.name, names[n_found]))
			n_found++;
	RANKS_EQ(n_found, 4);
}

static void test_events(void **state)
{
	const struct lab_setting *setting = *state;
	char options[256];

	snprintf(options, sizeof(options), "TRACE=/dev/null;%s",
	         setting->options);
	ranks_run(
		&(struct ranks){
			.kind = setting->kind,
			.n_ranks = 2,
			.fabric = setting->fabric,
			.options = options,
			.arg = (void *)(uintptr_t)&ferry_task,
		},
		find_events);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_configs), cmocka_unit_test(test_differ),
	cmocka_unit_test(test_calls),   cmocka_unit_test(test_mismatch),
	cmocka_unit_test(test_death),   cmocka_unit_test(test_metrics),
	cmocka_unit_test(test_events),
};

int main(void)
{
	bal_seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
