/* SPDX-License-Identifier: Apache-2.0 */
/* How fast this machine copies memory: the yardstick of floor_us. */
#include "bench_copy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "alloc.h"
#include "bench_result.h"
#include "core/bits.h"
#include "core/clock.h"
#include "cpu/kernels.h"
#include "machine.h"
#include "opt.h"

enum { PASSES = 4, ALIGN = 4096, LEAST_BLOCK = 4 << 20 };

const char *const bench_copy_names[BENCH_COPY_WAYS] = {"memcpy", "streaming",
                                                       "kernel"};

struct span {
	uint64_t start, end;
};

struct copy_work {
	size_t block;
	struct span *spans; /* [ways][PASSES][n_ranks], shared */
};

/*
 * Block of a rank: all sources together are 4 times the last-level caches. Not
 * less, since virtual machines do not show all of them, and stores that bypass
 * the caches leave them to the sources.
 */
static size_t block_of(int32_t n_ranks)
{
	struct machine machine;

	machine_read(&machine);
	const size_t each =
		4 * machine_last_level_bytes(&machine) / (size_t)n_ranks;

	return round_up(each > LEAST_BLOCK ? each : LEAST_BLOCK, ALIGN);
}

/* bytes is a multiple of 64, both are page aligned. */
static void copy_stream(void *to, const void *from, size_t bytes)
{
#if defined(__SSE2__)
	__m128i *d = to;
	const __m128i *s = from;

	for (size_t i = 0; i < bytes / sizeof(*s); i += 4) {
		const __m128i a = s[i], b = s[i + 1];
		const __m128i e = s[i + 2], f = s[i + 3];

		_mm_stream_si128(d + i, a);
		_mm_stream_si128(d + i + 1, b);
		_mm_stream_si128(d + i + 2, e);
		_mm_stream_si128(d + i + 3, f);
	}
	_mm_sfence();
#else
	memcpy(to, from, bytes);
#endif
}

static void copy_block(enum bench_copy_way way, void *to, const void *from,
                       size_t bytes)
{
	switch (way) {
	case BENCH_COPY_STREAM:
		copy_stream(to, from, bytes);
		break;
	case BENCH_COPY_KERNEL:
		ferry_kernels_at(0)->copy(&to, 1, from, bytes, true);
		break;
	default:
		memcpy(to, from, bytes);
		break;
	}
}

static int copy_body(const struct crew_member *me, void *arg)
{
	const struct copy_work *work = arg;
	const size_t n = (size_t)me->crew->n_ranks;
	struct span *span = work->spans + me->rank;
	uint8_t *const memory = alloc_or_exit(2, work->block);

	memset(memory, me->rank + 1, 2 * work->block);
	for (int way = 0; way < BENCH_COPY_WAYS; way++)
		for (int pass = 0; pass < PASSES; pass++, span += n) {
			crew_barrier(me);
			span->start = ferry_now_ns();
			copy_block((enum bench_copy_way)way,
			           memory + work->block, memory, work->block);
			span->end = ferry_now_ns();
		}
	free(memory);
	return EXIT_GOOD;
}

/* First start to last end of a pass, whatever the scheduler did. */
static double pass_rate(const struct span *spans, size_t n_ranks, size_t block)
{
	uint64_t start = UINT64_MAX, end = 0;

	for (size_t r = 0; r < n_ranks; r++) {
		start = spans[r].start < start ? spans[r].start : start;
		end = spans[r].end > end ? spans[r].end : end;
	}
	return 2e9 * (double)(n_ranks * block) / (double)(end - start);
}

bool bench_copy_run(const struct crew *crew, int64_t mib,
                    struct bench_copy *copy)
{
	const size_t n = (size_t)crew->n_ranks;
	const size_t bytes = BENCH_COPY_WAYS * PASSES * n * sizeof(struct span);
	struct copy_work work = {mib ? (size_t)mib << 20
	                             : block_of(crew->n_ranks),
	                         alloc_shared(bytes)};

	const bool good = crew_run(crew, copy_body, &work) == EXIT_GOOD;

	*copy = (struct bench_copy){.block_bytes = work.block};
	for (size_t i = 0; good && i < BENCH_COPY_WAYS * PASSES; i++) {
		double *const best = &copy->bytes_per_s[i / PASSES];
		const double rate =
			pass_rate(work.spans + i * n, n, work.block);

		*best = rate > *best ? rate : *best;
	}
	alloc_shared_free(work.spans, bytes);
	*copy = bench_copy_merge(copy, 1);
	return good;
}

struct bench_copy bench_copy_merge(const struct bench_copy *runs, int n)
{
	struct bench_copy all = {.block_bytes = runs[0].block_bytes};
	double *rates = alloc_or_exit((size_t)n, sizeof(*rates));

	for (int way = 0; way < BENCH_COPY_WAYS; way++) {
		for (int i = 0; i < n; i++)
			rates[i] = runs[i].bytes_per_s[way];
		all.bytes_per_s[way] = bench_percentile(rates, n, 0.5);
		if (all.bytes_per_s[way] > all.best)
			all.best = all.bytes_per_s[way];
	}
	free(rates);
	return all;
}
