/* SPDX-License-Identifier: Apache-2.0 */
/* A run of one body on all ranks, and the verdict for cmocka. */
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/order.h"
#include "fabrics.h"
#include "ranks_inner.h"

#ifdef __SANITIZE_THREAD__
/*
 * libfabric is not built for ThreadSanitizer: of what its own thread and a
 * caller do under its locks, not all is seen.
 */
const char *__tsan_default_suppressions(void);

__attribute__((visibility("default"))) const char *
__tsan_default_suppressions(void)
{
	return "race:libfabric.so\n";
}
#endif

static void *map_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	               MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

/*
 * libfabric takes 0.3 s of a process to load and to look round: once here, so
 * that it takes no time of the first world that is tested. A test of a fabric
 * that needs it is skipped where it is missing.
 */
static void load_libfabric(const char *fabric)
{
	static struct ferry_fabric_info info = FERRY_FABRIC_INFO_INIT;
	const char *last = fabric ? strrchr(fabric, ':') : NULL;
	const char *name = last ? last + 1 : fabric;

	if (!fabric || !strstr(fabric, "ofi"))
		return;
	if (!info.name || strcmp(info.name, name) != 0)
		info = fabrics_get(name);
	if (info.score > 0)
		return;
	printf("skipped: fabric %s: %s\n", name, info.reason);
	skip();
}

/* Why this rank did not end as it should; NULL when it did. */
static const char *objection(const struct ranks *how,
                             const struct ranks_board *board, int32_t rank)
{
	const struct ranks_verdict *v = &board->verdicts[rank];
	const uint32_t state = load_acquire_u32(&v->state);
	const bool killed = how->killed & RANKS_BIT(rank);

	if (killed && how->kind == RANKS_THREADS)
		return NULL;
	if (killed)
		return state == RANK_DEAD ? NULL : "is alive, not killed";
	if (state == RANK_FAILED)
		return v->text;
	if (state == RANK_DEAD)
		return "died, which was not expected (struct ranks, killed)";
	return state == RANK_DONE ? NULL : "did not reach its end";
}

/* Prints every objection, earliest first, and counts them. */
static int report(const struct ranks *how, const struct ranks_board *board)
{
	bool told[RANKS_MAX] = {false};

	for (int n = 0;; n++) {
		int32_t next = -1;

		for (int32_t r = 0; r < how->n_ranks; r++)
			if (!told[r] && objection(how, board, r) &&
			    (next < 0 || board->verdicts[r].when_ns <
			                         board->verdicts[next].when_ns))
				next = r;
		if (next < 0)
			return n;
		told[next] = true;
		print_error("rank %d of %d (%s): %s\n", next, how->n_ranks,
		            how->kind == RANKS_THREADS ? "threads"
		                                       : "processes",
		            objection(how, board, next));
	}
}

void ranks_run_at(const char *file, int line, const struct ranks *how,
                  ranks_body *body)
{
	const int32_t limit_ms = how->limit_ms ? how->limit_ms : 30000;

	load_libfabric(how->fabric);
	struct ranks_course course = {
		.how = how,
		.body = body,
		.board = map_shared(sizeof(struct ranks_board)),
		.shared = how->shared_bytes ? map_shared(how->shared_bytes)
	                                    : NULL,
		.meet_ns = ferry_deadline_ns(limit_ms - limit_ms / 4),
		.limit_ns = ferry_deadline_ns(limit_ms),
	};

	if (how->n_ranks < 1 || how->n_ranks > RANKS_MAX)
		abort();
	if (how->kind == RANKS_THREADS)
		ranks_run_threads(&course);
	else
		ranks_run_processes(&course);
	const int n_failed = report(how, course.board);
	munmap(course.board, sizeof(*course.board));
	if (how->shared)
		*how->shared = course.shared;
	else if (course.shared)
		munmap(course.shared, how->shared_bytes);
	if (n_failed)
		_fail(file, line);
}

void ranks_free_shared(const struct ranks *how)
{
	munmap(*how->shared, how->shared_bytes);
}
