/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of bench_verify.h by several threads. */
#include "bench_shares.h"

#include <pthread.h>
#include <stdlib.h>

#include "alloc.h"

struct share_thread {
	pthread_t thread;
	bool started;
	bench_share_fn *fn;
	void *arg;
	struct bench_share share;
	int64_t answer;
};

static void *share_body(void *arg)
{
	struct share_thread *t = arg;

	t->answer = t->fn(t->arg, t->share);
	return NULL;
}

int64_t bench_share_out(int32_t n, bench_share_fn *fn, void *arg)
{
	struct share_thread *threads =
		alloc_or_exit((size_t)n, sizeof(*threads));
	int64_t sum = 0;

	for (int32_t i = 0; i < n; i++) {
		struct share_thread *t = &threads[i];

		*t = (struct share_thread){
			.fn = fn, .arg = arg, .share = {i, n}};
		/* The last share is this thread's, as is any without one. */
		t->started = i < n - 1 &&
		             !pthread_create(&t->thread, NULL, share_body, t);
		if (!t->started)
			share_body(t);
	}
	for (int32_t i = 0; i < n; i++) {
		if (threads[i].started)
			pthread_join(threads[i].thread, NULL);
		sum += threads[i].answer;
	}
	free(threads);
	return sum;
}
