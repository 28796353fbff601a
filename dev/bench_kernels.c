/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the kernel tables by themselves: no window, no peers. Rows of 7168
 * bf16 lie in pools of several sizes, so that they come from L2, L3 or memory.
 * Figures and what was decided by them: dev/kernels.md.
 *
 * bench_kernels sum|copy|quantize [table]
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/bits.h"
#include "cpu/kernels.h"

enum { HIDDEN = 7168, ROW_BYTES = 2 * HIDDEN, N_ROWS = 8, N_REPEATS = 15 };

static const size_t pool_bytes[] = {256u << 10, 4u << 20, 16u << 20, 64u << 20,
                                    256u << 20};
enum { N_POOLS = sizeof(pool_bytes) / sizeof(pool_bytes[0]) };

/* Rows of numbers around 1, page aligned and touched. */
static char *make_pool(size_t bytes)
{
	char *pool = aligned_alloc(4096, round_up(bytes, 4096));

	if (pool == NULL)
		exit(1);
	for (size_t i = 0; i < bytes / 2; i++)
		((uint16_t *)(void *)pool)[i] =
			(uint16_t)(0x3f00 + (i * 2654435761u >> 16) % 256);
	return pool;
}

/* Time that this thread has had a core for: others may use the machine, too. */
static double thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- one thread: sum and quantize ---- */

/* One pass over the pool; returns the bytes that were read and written. */
typedef size_t pass_fn(const struct ferry_kernels *k, char *pool, size_t bytes,
                       int arg);

static size_t pass_memcpy(const struct ferry_kernels *k, char *pool,
                          size_t bytes, int arg)
{
	(void)k;
	(void)arg;
	memcpy(pool, pool + bytes / 2, bytes / 2);
	return bytes / 2 * 2;
}

/* n rows of the pool make one row, which goes to the same place each time. */
static size_t pass_sum(const struct ferry_kernels *k, char *pool, size_t bytes,
                       int n)
{
	static const float weights[FERRY_SUM_MAX] = {0.5f, 0.25f, 0.1f, 0.3f,
	                                             0.7f, 0.2f,  0.6f, 0.4f};
	static uint16_t out[HIDDEN];
	const void *rows[FERRY_SUM_MAX];
	const size_t set_bytes = (size_t)n * ROW_BYTES;
	size_t at = 0;

	for (; at + set_bytes <= bytes; at += set_bytes) {
		for (int j = 0; j < n; j++)
			rows[j] = pool + at + (size_t)j * ROW_BYTES;
		k->sum(out, FERRY_BF16, rows, FERRY_BF16,
		       n == 1 ? NULL : weights, n, NULL, HIDDEN);
	}
	return at + at / (size_t)n;
}

static size_t pass_quantize(const struct ferry_kernels *k, char *pool,
                            size_t bytes, int arg)
{
	static uint8_t out[HIDDEN];
	static float scales[HIDDEN / 128];
	size_t at = 0;

	(void)arg;
	for (; at + ROW_BYTES <= bytes; at += ROW_BYTES)
		k->quantize(out, scales, FERRY_SCALE_FP32,
		            (const void *)(pool + at), HIDDEN);
	return at + at / 2;
}

static void time_pass(const char *what, const struct ferry_kernels *k,
                      pass_fn *pass, int arg)
{
	printf("%-10s %-8s %3d", what, k->name, arg);
	for (int p = 0; p < N_POOLS; p++) {
		char *pool = make_pool(pool_bytes[p]);
		const int n_passes = (int)((64u << 20) / pool_bytes[p]) + 1;
		double best = 0;

		for (int r = 0; r < N_REPEATS; r++) {
			const double start = thread_ns();
			size_t bytes = 0;

			for (int i = 0; i < n_passes; i++)
				bytes += pass(k, pool, pool_bytes[p], arg);
			best = fmax(best,
			            (double)bytes / (thread_ns() - start));
		}
		printf(" %8.1f", best);
		free(pool);
	}
	printf("\n");
}

/* ---- one or two threads: copy, then the peer reads ---- */

struct copier {
	const struct ferry_kernels *k;
	pthread_barrier_t *barrier;
	char *from;
	char *to;           /* written by this thread */
	const char *theirs; /* written by the peer, read by this thread */
	size_t bytes;
	int n;
	bool far;
	double write_ns, read_ns;
	uint64_t sink;
};

static void write_pool(struct copier *c)
{
	const size_t step = (size_t)c->n * ROW_BYTES;
	size_t from = 0;

	for (size_t at = 0; at + step <= c->bytes; at += step) {
		void *to[FERRY_SUM_MAX];

		for (int j = 0; j < c->n; j++)
			to[j] = c->to + at + (size_t)j * ROW_BYTES;
		c->k->copy(to, c->n, c->from + from, ROW_BYTES, c->far);
		from = (from + ROW_BYTES) % (128 * ROW_BYTES);
	}
}

static void read_pool(struct copier *c)
{
	static _Thread_local uint16_t out[HIDDEN];
	const void *rows[N_ROWS];

	for (size_t at = 0; at + N_ROWS * ROW_BYTES <= c->bytes;
	     at += N_ROWS * ROW_BYTES) {
		for (int j = 0; j < N_ROWS; j++)
			rows[j] = c->theirs + at + (size_t)j * ROW_BYTES;
		c->k->sum(out, FERRY_BF16, rows, FERRY_BF16, NULL, N_ROWS, NULL,
		          HIDDEN);
	}
	c->sink += out[0];
}

static void *copier_main(void *arg)
{
	struct copier *c = arg;

	c->write_ns = c->read_ns = INFINITY;
	for (int r = 0; r < N_REPEATS; r++) {
		double start;

		pthread_barrier_wait(c->barrier);
		start = thread_ns();
		write_pool(c);
		c->write_ns = fmin(c->write_ns, thread_ns() - start);
		pthread_barrier_wait(c->barrier);
		start = thread_ns();
		read_pool(c);
		c->read_ns = fmin(c->read_ns, thread_ns() - start);
	}
	return NULL;
}

static void time_copy(const struct ferry_kernels *k, int n_threads, int n,
                      size_t bytes, bool far)
{
	pthread_barrier_t barrier;
	struct copier c[2];
	pthread_t thread[2];

	pthread_barrier_init(&barrier, NULL, (unsigned)n_threads);
	for (int t = 0; t < n_threads; t++)
		c[t] = (struct copier){.k = k,
		                       .barrier = &barrier,
		                       .from = make_pool(128 * ROW_BYTES),
		                       .to = make_pool(bytes),
		                       .bytes = bytes,
		                       .n = n,
		                       .far = far};
	for (int t = 0; t < n_threads; t++) {
		c[t].theirs = c[n_threads - 1 - t].to;
		pthread_create(&thread[t], NULL, copier_main, &c[t]);
	}
	for (int t = 0; t < n_threads; t++)
		pthread_join(thread[t], NULL);
	printf("%-8s %d %d %6.1f %-4s %8.1f %8.1f %8.1f\n", k->name, n_threads,
	       n, (double)bytes / (1 << 20), far ? "far" : "near",
	       (double)bytes / c[0].write_ns, (double)bytes / c[0].read_ns,
	       (double)bytes / (c[0].write_ns + c[0].read_ns));
	for (int t = 0; t < n_threads; t++) {
		free(c[t].from);
		free(c[t].to);
	}
	pthread_barrier_destroy(&barrier);
}

static void bench_copy(const struct ferry_kernels *k)
{
	static const int n_to[] = {1, 4, 8};

	printf("# bytes written / ns, then read by the peer / ns, then both; "
	       "best of 15\n"
	       "# table threads n_to MiB mode write read both\n");
	for (int threads = 1; threads <= 2; threads++)
		for (int i = 0; i < 3; i++)
			for (int p = 0; p < N_POOLS; p++)
				for (int far = 0; far <= 1; far++)
					time_copy(k, threads, n_to[i],
					          pool_bytes[p], far);
}

int main(int argc, char **argv)
{
	const struct ferry_kernels *k =
		ferry_kernels_get(argc > 2 ? argv[2] : "auto");
	const char *what = argc > 1 ? argv[1] : "";

	if (k == NULL)
		return 77;
	if (strcmp(what, "copy") == 0) {
		bench_copy(k);
		return 0;
	}
	printf("# (read + written bytes) / ns, best of 15; pools of 0.25 4 16 "
	       "64 256 "
	       "MiB\n");
	time_pass("memcpy", k, pass_memcpy, 1);
	if (strcmp(what, "sum") == 0)
		for (int n = 1; n <= FERRY_SUM_MAX; n *= 2)
			time_pass("sum", k, pass_sum, n);
	else if (strcmp(what, "quantize") == 0)
		time_pass("quantize", k, pass_quantize, 1);
	else
		return 2;
	return 0;
}
