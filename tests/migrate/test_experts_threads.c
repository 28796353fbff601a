/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered experts used by two threads of a rank: one starts plans, or starts
 * and ends them, while the other reads weights.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/order.h"
#include "experts_lab.h"

enum { STEPS = 24 };

static uint64_t seed;

/* Started by a second thread, while this one reads weights. */
struct starter {
	struct lab *lab;
	const struct ferry_plan *plan;
	enum ferry_status status;
};

static void *start_it(void *arg)
{
	struct starter *s = arg;

	s->status =
		ferry_experts_start(s->lab->experts, 0, s->plan, NULL, NULL);
	return NULL;
}

static void second_thread(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	uint64_t rng = lab->shape.seed;

	for (int i = 0; i < STEPS; i++) {
		const struct ferry_placement *p =
			ferry_experts_placement(lab->experts, 0);
		struct ferry_plan plan;
		struct starter s = {lab, &plan, FERRY_INTERNAL};
		bool staged = false;
		pthread_t thread;

		lab_plan(p, 0, &rng, 2, false, 2, &plan);
		RANKS_EQ(pthread_create(&thread, NULL, start_it, &s), 0);
		const int32_t wrong = lab_wrong(lab, 0, p);

		pthread_join(thread, NULL);
		RANKS_EQ(wrong, 0);
		RANKS_OK(s.status);
		while (!staged)
			RANKS_OK(ferry_experts_poll(lab->experts, 0, &staged));
		RANKS_OK(ferry_experts_commit(lab->experts, 0, NULL, &p, NULL));
		lab_check(lab, 0, p);
	}
}

static void test_second_thread(void **state)
{
	struct lab_shape shape = lab_small(seed + 7, FERRY_EXPERTS_REMAP);

	lab_run(*state, 3, second_thread, &shape);
}

/* Reads the newest weights of all layers, again and again. */
struct reader {
	struct lab *lab;
	uint32_t stop;
	uint32_t n_read;
	int32_t wrong;
};

static void *read_on(void *arg)
{
	struct reader *r = arg;
	struct ferry_experts *x = r->lab->experts;

	for (int32_t i = 0; !load_acquire_u32(&r->stop) && !r->wrong; i++) {
		const int32_t layer = i % r->lab->shape.n_layers;
		const struct ferry_placement *p =
			ferry_experts_acquire(x, layer);

		sched_yield(); /* so that commits come in between */
		r->wrong = lab_wrong(r->lab, layer, p);
		ferry_experts_release(x, layer, p);
		add_seq_u32(&r->n_read, 1);
	}
	return NULL;
}

/* COPY does not overwrite what the reader holds: it is asked again. */
static enum ferry_status commit(struct lab *lab, int32_t layer)
{
	enum ferry_status status;

	do {
		status = ferry_experts_commit(lab->experts, layer, NULL, NULL,
		                              NULL);
		sched_yield();
	} while (status == FERRY_STATE &&
	         lab->shape.mode == FERRY_EXPERTS_COPY);
	return status;
}

static void readers(struct rank *rank)
{
	struct lab *lab = lab_open(rank, rank->arg);
	struct reader reader = {.lab = lab};
	uint64_t rng = lab->shape.seed;
	enum ferry_status status = FERRY_OK;
	pthread_t thread;

	RANKS_EQ(pthread_create(&thread, NULL, read_on, &reader), 0);
	while (!load_acquire_u32(&reader.n_read))
		sched_yield();
	for (int i = 0; status == FERRY_OK && i < 4 * STEPS; i++) {
		const int32_t layer = i % lab->shape.n_layers;
		struct ferry_plan plan;

		lab_plan(ferry_experts_placement(lab->experts, layer), layer,
		         &rng, 2, true, 2, &plan);
		status = ferry_experts_start(lab->experts, layer, &plan, NULL,
		                             NULL);
		if (status == FERRY_OK && i % 7 == 3)
			status = ferry_experts_abandon(lab->experts, layer);
		else if (status == FERRY_OK)
			status = commit(lab, layer);
	}
	store_release_u32(&reader.stop, 1);
	pthread_join(thread, NULL);
	RANKS_OK(status);
	RANKS_EQ(reader.wrong, 0);
}

static void test_readers(void **state)
{
	struct lab_shape shape = lab_small(seed + 16, FERRY_EXPERTS_REMAP);

	shape.n_staging = 12;
	lab_run(*state, 3, readers, &shape);
	shape.mode = FERRY_EXPERTS_COPY;
	lab_run(*state, 3, readers, &shape);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_second_thread),
	cmocka_unit_test(test_readers),
};

int main(void)
{
	seed = ranks_seed();
	return lab_main(tests, sizeof(tests) / sizeof(*tests));
}
