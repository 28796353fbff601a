/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages in several threads of a rank, and in ranks forked from one
 * process: the same bits as alone.
 */
#include <cblas.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc.h"
#include "lm_blas.h"
#include "lm_layer.h"
#include "lm_made.h"
#include "support/test_seed.h"

enum { LENGTH = 45, N_THREADS = 3, ROUNDS = 6, N_PROCESSES = 4 };

static uint64_t seed;

static const struct lm_config config = {
	.n_layers = 2,
	.hidden = 64,
	.n_heads = 4,
	.n_kv_heads = 2,
	.head_dim = 16,
	.n_experts = 8,
	.topk = 2,
	.expert_hidden = 32,
	.vocab = 99,
	.max_length = LENGTH,
	.norm_eps = 1e-6f,
	.rope_theta = 10000,
	.norm_topk = true,
};

/* One model and batch, and what comes out when nothing runs beside it. */
struct shared {
	struct lm_model model;
	int32_t *tokens;
	float *right; /* [LENGTH][hidden] */
};

/* h of the batch, which the caller frees; NULL where something failed. */
static float *forward(const struct shared *s)
{
	const int32_t length = LENGTH;
	const struct lm_batch batch = {1, &length, s->tokens};
	float *const h =
		alloc_or_exit((size_t)(LENGTH * config.hidden), sizeof(*h));
	struct lm_work *work;
	struct fault fault;

	if (!lm_work_open(&s->model, LENGTH, LENGTH, &work, &fault) ||
	    !lm_forward(&s->model, work, &batch, h, NULL, NULL, &fault)) {
		fprintf(stderr, "%s\n", fault.text);
		exit(1);
	}
	lm_work_close(work);
	return h;
}

/* Rounds that were right. */
static int32_t rounds(const struct shared *s)
{
	int32_t n = 0;

	for (int32_t i = 0; i < ROUNDS; i++) {
		float *const h = forward(s);

		n += memcmp(h, s->right,
		            (size_t)(LENGTH * config.hidden) * sizeof(*h)) == 0;
		free(h);
	}
	return n;
}

static void shared_open(struct shared *s)
{
	lm_made_open(&s->model, &config, LM_BF16, seed);
	s->tokens = lm_made_tokens(&seed, LENGTH, config.vocab);
	s->right = forward(s);
}

static void shared_close(struct shared *s)
{
	lm_made_close(&s->model);
	free(s->tokens);
	free(s->right);
}

static void test_one_thread(void **state)
{
	struct fault fault;

	(void)state;
	assert_true(lm_blas_open(&fault));
	assert_int_equal(openblas_get_num_threads(), 1);
}

static void *thread(void *arg)
{
	return (void *)(intptr_t)rounds(arg);
}

static void run_threads(struct shared *s)
{
	pthread_t threads[N_THREADS];

	for (int32_t i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, thread, s),
		                 0);
	for (int32_t i = 0; i < N_THREADS; i++) {
		void *n;

		pthread_join(threads[i], &n);
		assert_int_equal((intptr_t)n, ROUNDS);
	}
}

static void test_threads(void **state)
{
	struct shared s;

	(void)state;
	shared_open(&s);
	run_threads(&s);
	shared_close(&s);
}

/* A rank: computes with its threads; status 0 when all was right. */
static void run_rank(struct shared *s)
{
	struct fault fault;

	if (!lm_blas_open(&fault) || openblas_get_num_threads() != 1)
		_exit(2);
	run_threads(s);
	_exit(rounds(s) == ROUNDS ? 0 : 1);
}

/* Forked after the parent has computed, and compute at the same time. */
static void test_forks(void **state)
{
	struct shared s;
	pid_t pids[N_PROCESSES];

	(void)state;
	shared_open(&s);
	for (int32_t i = 0; i < N_PROCESSES; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			run_rank(&s);
	}
	assert_int_equal(rounds(&s), ROUNDS);
	for (int32_t i = 0; i < N_PROCESSES; i++) {
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	shared_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_forks),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
