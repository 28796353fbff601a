/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A balancer end to end, on every fabric: each policy over drifting loads, with
 * outputs that are the same bits as without it and weights that are whole;
 * wrong predictions, budgets, thresholds, a second thread, two micro-batches.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "balancer_lab.h"

enum { STEPS = RANKS_STRIDE > 1 ? 6 : 12 };

/* What must hold of all that a policy did. */
static void check_policy(const struct bal *m, const struct bal_task *task,
                         const struct ferry_balancer_stats *s)
{
	const bool off = task->policy == FERRY_BALANCE_OFF;
	const bool plans = task->policy > FERRY_BALANCE_EPLB;

	RANKS_EQ(s->n_commits, STEPS * BAL_LAYERS);
	RANKS_EQ(s->n_predictions, off ? 0 : m->n_wanted);
	RANKS_EQ(s->n_moved > 0, !off);
	/* With plans, history may be no better than they are. */
	if (!plans)
		RANKS_EQ(s->n_by_history > 0, !off);
	RANKS_CHECK(!s->n_by_history || task->policy & FERRY_BALANCE_EPLB);
	RANKS_EQ(s->n_swaps + s->n_copies > 0, plans);
	RANKS_CHECK(!s->n_copies || task->policy >= FERRY_BALANCE_FERRY);
	if (!plans)
		return;
	RANKS_EQ(s->n_predictions, STEPS * BAL_LAYERS);
	RANKS_EQ(s->n_compared, (STEPS - 1) * BAL_LAYERS);
	RANKS_CHECK(s->after_ppm < s->before_ppm);
	if (!task->noise)
		RANKS_CHECK(s->true_ppm < s->true_first_ppm);
}

static void run_policy(struct rank *rank)
{
	struct bal *m = bal_open(rank);

	bal_run(m);
	const struct ferry_balancer_stats s = bal_stats(m);

	check_policy(m, m->task, &s);
	if (m->task->policy == FERRY_BALANCE_OFF)
		for (int32_t l = 0; l < BAL_LAYERS; l++)
			RANKS_CHECK(
				ferry_experts_placement(m->lab.experts, l) ==
				m->lab.first[l]);
}

static struct bal_task task_of(int i)
{
	return (struct bal_task){
		.policy = (enum ferry_balance_policy)(i % 6),
		.rule = i % 6 == FERRY_BALANCE_FREEBALANCE ? FERRY_RULE_SORTED
	                                                   : 0,
		.split = (enum ferry_split)(i % 3),
		.mode = (enum ferry_experts_mode)(i / 6 % 2),
		.spare = 1 + i / 3 % 2,
		.n_staging = 8,
		.max_copies = i % 6 == FERRY_BALANCE_EPLB_FERRY ? 1 : 0,
		.eplb_every = 4,
		.n_steps = STEPS,
	};
}

static void test_policies(void **state)
{
	for (int i = 0; i < 12; i++) {
		struct bal_task task = task_of(i);

		/* Every policy sees two of the splits. */
		task.split = (enum ferry_split)((i + i / 6) % 3);
		lab_run(*state, 4, run_policy, &task);
	}
}

static void test_worlds(void **state)
{
	static const int32_t worlds[] = {2, 3, 6, 8};

	for (int i = 0; i < 4; i++) {
		struct bal_task task = task_of(FERRY_BALANCE_EPLB_FERRY);

		task.split = (enum ferry_split)(i % 3);
		task.measured = i == 1;
		task.spare = 2;
		lab_run(*state, worlds[i], run_policy, &task);
	}
}

/* The balancer's distance is the one that this test has made. */
static void compare_truth(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	uint64_t before_last = 0;

	for (int32_t turn = 0; turn < STEPS; turn++) {
		before_last = m->wrong;
		bal_layer(m, 0, turn);
	}
	const struct ferry_balancer_stats s = bal_stats(m);

	RANKS_EQ(s.n_compared, STEPS - 1);
	RANKS_EQ(s.wrong_tokens, before_last);
	RANKS_CHECK(s.true_tokens > s.wrong_tokens);
	RANKS_EQ(s.wrong_tokens > 0, m->task->noise > 0);
}

static void test_truth(void **state)
{
	for (int noise = 0; noise <= 8; noise += 8) {
		struct bal_task task = task_of(FERRY_BALANCE_FERRY);

		task.noise = noise;
		lab_run(*state, 3, compare_truth, &task);
	}
}

/* Neither a window of nothing nor one that is too short moves anything. */
static void no_room(struct rank *rank)
{
	struct bal *m = bal_open(rank);

	bal_run(m);
	const struct ferry_balancer_stats s = bal_stats(m);

	RANKS_EQ(s.n_predictions, STEPS * BAL_LAYERS);
	RANKS_EQ(s.n_moved, 0);
	RANKS_EQ(s.bytes_in + s.bytes_out, 0);
	RANKS_EQ(s.before_ppm, s.after_ppm);
	RANKS_EQ(m->report.window_ns,
	         m->task->window_ns < 0 ? 0 : m->task->window_ns);
}

static void test_windows(void **state)
{
	static const int64_t windows[] = {-1, 1500};

	for (int i = 0; i < 4; i++) {
		struct bal_task task =
			task_of(i / 2 ? FERRY_BALANCE_FERRY
		                      : FERRY_BALANCE_FREEBALANCE);

		task.window_ns = windows[i % 2];
		lab_run(*state, 3, no_room, &task);
	}
}

/* Copies that gain nothing yet, for the exact split to repair with. */
static void fill_slots(struct rank *rank)
{
	struct bal *m = bal_open(rank);

	bal_run(m);
	for (int32_t l = 0; l < BAL_LAYERS; l++) {
		const struct ferry_placement *p =
			ferry_experts_placement(m->lab.experts, l);

		int32_t n_empty = 0;

		for (int32_t s = 0; s < ferry_placement_n_slots(p); s++)
			n_empty += ferry_placement_expert(p, s) < 0;
		/* The last step may have swapped what would have gone there. */
		RANKS_CHECK(n_empty <= 1);
	}
}

static void test_spare_copies(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	task.split = FERRY_SPLIT_EXACT;
	task.spare_copies = true;
	task.n_staging = 2 * BAL_EXPERTS; /* else it is what leaves some out */
	task.noise = 8;
	lab_run(*state, 3, fill_slots, &task);
}

/* A rank alone has nobody to move anything to. */
static void test_alone(void **state)
{
	for (int i = FERRY_BALANCE_FREEBALANCE; i < 6; i++) {
		struct bal_task task = task_of(i);

		task.window_ns = INT64_MAX;
		lab_run(*state, 1, no_room, &task);
	}
}

/* Below the threshold a layer is looked at now and then. */
static void left_alone(struct rank *rank)
{
	struct bal *m = bal_open(rank);

	for (int32_t turn = 0; turn < 20; turn++) {
		RANKS_EQ(ferry_balancer_wants(m->balancer, 1), turn % 8 == 0);
		bal_layer(m, 1, turn);
		RANKS_EQ(m->report.left_alone, turn % 8 == 0);
		RANKS_EQ(m->report.predicted, turn % 8 == 0);
	}
	const struct ferry_balancer_stats s = bal_stats(m);

	RANKS_EQ(s.n_predictions, 3);
	RANKS_EQ(s.n_left_alone, 3);
	RANKS_EQ(s.n_moved, 0);
}

static void test_threshold(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	task.threshold_ppm = 20000000;
	lab_run(*state, 3, left_alone, &task);
}

/* What the second thread of a rank does while the first computes. */
struct ahead {
	struct bal *bal;
	int32_t layer;
	int32_t turn;
	enum ferry_status status;
};

static void *predict_ahead(void *arg)
{
	struct ahead *a = arg;
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	int32_t counts[BAL_EXPERTS];

	bal_counts(a->bal, a->bal->rank->rank, a->turn, true, counts);
	in.counts = counts;
	a->status = ferry_balancer_predict(a->bal->balancer, a->layer, &in);
	return NULL;
}

/*
 * Two micro-batches: while A is in flight a second thread prepares the layer
 * for B, and B is dispatched before A has sent its combine.
 */
static void two_batches(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	struct bal_batch *a = &m->batches[0], *b = &m->batches[1];
	int32_t n_different = 0;

	a->flow->placement = bal_commit(m, 0);
	for (int32_t turn = 0; turn < STEPS; turn++) {
		struct ahead ahead = {m, 0, turn + 1, FERRY_INVAL};
		pthread_t thread;

		bal_batch(m, turn, a);
		bal_dispatch(m, a);
		RANKS_EQ(pthread_create(&thread, NULL, predict_ahead, &ahead),
		         0);
		RANKS_EQ(pthread_join(thread, NULL), 0);
		RANKS_OK(ahead.status);
		b->flow->placement = bal_commit(m, 0);
		n_different += a->flow->placement != b->flow->placement;
		bal_batch(m, turn + 1, b);
		bal_dispatch(m, b);
		bal_send_back(m, 0, a);
		bal_observe(m, 0, turn);
		bal_finish(m, 0, a);
		bal_send_back(m, 0, b);
		bal_finish(m, 0, b);
		a->flow->placement = b->flow->placement;
	}
	RANKS_CHECK(n_different > 0);
}

static void test_two_batches(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	task.n_staging = 16;
	task.spare = 2;
	lab_run(*state, 3, two_batches, &task);
}

/* Several layers are between predict and commit. */
static void run_ahead(struct rank *rank)
{
	struct bal *m = bal_open(rank);

	for (int32_t turn = 0; turn < 4; turn++) {
		for (int32_t l = 0; l < BAL_LAYERS; l++)
			bal_predict(m, l, turn);
		for (int32_t l = 0; l < BAL_LAYERS; l++) {
			m->batches[0].flow->placement = bal_commit(m, l);
			bal_batch(m, turn, &m->batches[0]);
			bal_dispatch(m, &m->batches[0]);
			bal_send_back(m, l, &m->batches[0]);
			bal_finish(m, l, &m->batches[0]);
		}
	}
	RANKS_CHECK(bal_stats(m).n_moved > 0);
}

static void test_ahead(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	task.n_staging = 3; /* some are held back */
	lab_run(*state, 4, run_ahead, &task);
}

static void destroy_windows(void *windows)
{
	ferry_windows_destroy(windows);
}

/* Ids instead of counts; a window from a profile, which rank 0 alone has. */
static void from_profile(struct rank *rank)
{
	struct bal *m = bal_make(rank);
	struct ferry_windows_config w = FERRY_WINDOWS_CONFIG_INIT;
	struct ferry_windows *windows;
	struct ferry_balancer_config config;
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	struct ferry_ids ids = FERRY_IDS_INIT;

	w.n_layers = BAL_LAYERS;
	RANKS_OK(ferry_windows_create(&w, &windows));
	ranks_defer(destroy_windows, windows);
	RANKS_OK(ferry_windows_add(windows, 0, 100, 10, 5000));
	bal_config(m, &config);
	config.windows = rank->rank == 0 ? windows : NULL;
	RANKS_OK(ferry_balancer_open(rank->world, &config, &m->balancer));
	bal_batch(m, 0, &m->batches[0]);
	ids.n_tokens = BAL_TOKENS;
	ids.topk = BAL_TOPK;
	ids.ids = m->batches[0].ids;
	in.ids = &ids;
	in.n_tokens = 100;
	in.seq_len = 10;
	RANKS_OK(ferry_balancer_predict(m->balancer, 0, &in));
	bal_commit(m, 0);
	RANKS_EQ(m->report.window_ns, 5000);
	bal_observe(m, 0, 0);
	bal_predict(m, 0, 1);
	bal_commit(m, 0);
	RANKS_EQ(m->report.window_ns, INT64_MAX);
	const struct ferry_balancer_stats s = bal_stats(m);

	RANKS_EQ(s.n_compared, 1);
	RANKS_EQ(s.wrong_tokens, 0);
	RANKS_CHECK(s.true_tokens > 0);
}

/* A rank at half speed gets less than the others. */
static void half_speed(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	const int32_t speed[3] = {500, 1000, 1000};
	int32_t counts[BAL_EXPERTS];
	int64_t loads[BAL_EXPERTS] = {0}, of_ranks[3];

	RANKS_OK(ferry_balancer_set_speed(m->balancer, speed));
	bal_predict(m, 0, 0);
	const struct ferry_placement *p = bal_commit(m, 0);

	for (int32_t r = 0; r < 3; r++) {
		bal_counts(m, r, 0, true, counts);
		for (int e = 0; e < BAL_EXPERTS; e++)
			loads[e] += counts[e];
	}
	RANKS_OK(ferry_rank_loads(p, loads, of_ranks));
	RANKS_CHECK(of_ranks[0] < of_ranks[1] && of_ranks[0] < of_ranks[2]);
}

static void test_inputs(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	lab_run(*state, 3, from_profile, &task);
	lab_run(*state, 3, half_speed, &task);
}

/* COPY: an operation that uses the old weights is waited for by the caller. */
static void copy_waits(struct rank *rank)
{
	struct bal *m = bal_open(rank);
	struct bal_batch *a = &m->batches[0];
	const struct ferry_placement *p = NULL;
	struct ferry_balancer_in in = FERRY_BALANCER_IN_INIT;
	int32_t counts[BAL_EXPERTS];

	a->flow->placement = bal_commit(m, 0);
	bal_batch(m, 0, a);
	bal_dispatch(m, a);
	bal_lopsided(m, 0, counts);
	in.counts = counts;
	RANKS_OK(ferry_balancer_predict(m->balancer, 0, &in));
	RANKS_STATUS(ferry_balancer_commit(m->balancer, 0, &p, NULL),
	             FERRY_STATE);
	RANKS_CHECK(p == NULL);
	bal_send_back(m, 0, a);
	bal_finish(m, 0, a);
	a->flow->placement = bal_commit(m, 0);
	RANKS_CHECK(m->report.n_swaps + m->report.n_copies > 0);
	bal_dispatch(m, a);
	bal_send_back(m, 0, a);
	bal_finish(m, 0, a);
}

static void test_copy_waits(void **state)
{
	struct bal_task task = task_of(FERRY_BALANCE_FERRY);

	task.mode = FERRY_EXPERTS_COPY;
	task.split = FERRY_SPLIT_EVEN;
	lab_run(*state, 2, copy_waits, &task);
}

/* What is pushed fits into the window, also where replicas are at hand. */
static void fits(struct rank *rank)
{
	struct bal *m = bal_open(rank);

	bal_run(m);
	const struct ferry_balancer_stats s = bal_stats(m);

	RANKS_CHECK(s.n_swaps + s.n_copies > 0);
	RANKS_EQ(s.n_held_back, 0);
}

static void test_fits(void **state)
{
	for (int i = 0; i < 6; i++) {
		struct bal_task task = task_of(i % 2 ? FERRY_BALANCE_EPLB_FERRY
		                                     : FERRY_BALANCE_FERRY);

		/* One or two transfers of 1577 ns for each rank. */
		task.window_ns = i < 4 ? 1600 : 3200;
		task.spare = 2;
		task.split = (enum ferry_split)(i % 3);
		lab_run(*state, 3 + i % 2, fits, &task);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_policies),     cmocka_unit_test(test_worlds),
	cmocka_unit_test(test_truth),        cmocka_unit_test(test_windows),
	cmocka_unit_test(test_spare_copies), cmocka_unit_test(test_threshold),
	cmocka_unit_test(test_alone),        cmocka_unit_test(test_two_batches),
	cmocka_unit_test(test_ahead),        cmocka_unit_test(test_inputs),
	cmocka_unit_test(test_fits),         cmocka_unit_test(test_copy_waits),
};

int main(void)
{
	bal_seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
