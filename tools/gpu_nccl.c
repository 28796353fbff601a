/* SPDX-License-Identifier: Apache-2.0 */
/* All-to-all by NCCL, timed and checked; see gpu_nccl.h. */
#include "gpu_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "gpu_bytes.h"
#include "gpu_marks.h"

/* An exchange: bytes to and from each rank, parts one behind the other. */
struct exchange {
	struct gpu_nccl *nccl;
	int32_t n_ranks;
	size_t *to, *from; /* [n_ranks] bytes */
	char *send, *recv; /* device */
};

/* What the timed operations are given. */
struct both {
	struct exchange dispatch, combine;
};

enum { CHECKED_BYTES = 1 << 20 }; /* at either end of a part */

static bool nccl_good(const struct gpu_nccl *n, int result, const char *what)
{
	if (result == NCCL_SUCCESS)
		return true;
	fprintf(stderr, "%s: rank %d: nccl: %s: %s\n", n->seat->me->crew->name,
	        n->seat->me->rank, what, n->api.error(result));
	return false;
}

bool gpu_nccl_open(struct gpu_nccl *nccl, struct gpu_seat *seat,
                   struct nccl_id *id)
{
	*nccl = (struct gpu_nccl){.seat = seat};
	const char *why = nccl_open(&nccl->api);

	if (why)
		fprintf(stderr, "%s: rank %d: %s\n", seat->me->crew->name,
		        seat->me->rank, why);
	const bool good =
		!why && (seat->me->rank > 0 ||
	                 nccl_good(nccl, nccl->api.unique_id(id), "id"));

	crew_barrier(seat->me);
	return good && nccl_good(nccl,
	                         nccl->api.comm_init(&nccl->comm,
	                                             seat->me->crew->n_ranks,
	                                             *id, seat->me->rank),
	                         "init");
}

void gpu_nccl_close(struct gpu_nccl *nccl)
{
	if (nccl->comm)
		nccl->api.comm_destroy(nccl->comm);
}

static int32_t n_experts(const struct bench_case *c, int32_t rank)
{
	return bench_first_expert(c, rank + 1) - bench_first_expert(c, rank);
}

/* Rows from `source` to `owner`. */
static uint64_t rows_of(const struct bench_case *c, const uint64_t *choices,
                        int32_t source, int32_t owner)
{
	if (!choices) /* dense */
		return (uint64_t)n_experts(c, owner) * (uint64_t)c->tokens;
	return choices[source * c->n_ranks + owner];
}

static size_t sum_of(const size_t *bytes, int32_t n)
{
	size_t sum = 0;

	for (int32_t i = 0; i < n; i++)
		sum += bytes[i];
	return sum;
}

static void both_make(struct both *b, struct gpu_nccl *nccl,
                      const struct bench_case *c, const uint64_t *choices)
{
	const size_t n = (size_t)c->n_ranks;
	const int32_t me = nccl->seat->me->rank;
	const size_t row = bench_row_bytes(c) + (size_t)bench_scales(c) * 4;
	const size_t raw = (size_t)c->hidden * 2;
	struct exchange *const exchanges[2] = {&b->dispatch, &b->combine};

	for (int i = 0; i < 2; i++)
		*exchanges[i] = (struct exchange){
			.nccl = nccl,
			.n_ranks = c->n_ranks,
			.to = alloc_or_exit(n, sizeof(size_t)),
			.from = alloc_or_exit(n, sizeof(size_t)),
		};
	for (int32_t r = 0; r < c->n_ranks; r++) {
		const uint64_t out = rows_of(c, choices, me, r);
		const uint64_t in = rows_of(c, choices, r, me);

		b->dispatch.to[r] = out * row;
		b->dispatch.from[r] = in * row;
		b->combine.to[r] = in * raw;
		b->combine.from[r] = out * raw;
	}
}

static void both_free(struct both *b)
{
	free(b->dispatch.to);
	free(b->dispatch.from);
	free(b->combine.to);
	free(b->combine.from);
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

static bool take_memory(struct both *b, struct gpu_seat *seat)
{
	const int32_t n = b->dispatch.n_ranks;
	char *send = gpu_device_memory(
		seat, GPU_Y,
		larger(sum_of(b->dispatch.to, n), sum_of(b->combine.to, n)));
	char *recv = gpu_device_memory(seat, GPU_ROWS,
	                               larger(sum_of(b->dispatch.from, n),
	                                      sum_of(b->combine.from, n)));

	b->dispatch.send = b->combine.send = send;
	b->dispatch.recv = b->combine.recv = recv;
	return send && recv;
}

static bool run(const struct exchange *e)
{
	const struct gpu_nccl *n = e->nccl;
	const char *from = e->send;
	char *to = e->recv;
	int result = n->api.group_start();

	for (int32_t r = 0; r < e->n_ranks && !result; r++) {
		result = n->api.send(from, e->to[r], NCCL_UINT8, r, n->comm,
		                     n->seat->stream);
		from += e->to[r];
		if (!result)
			result = n->api.recv(to, e->from[r], NCCL_UINT8, r,
			                     n->comm, n->seat->stream);
		to += e->from[r];
	}
	const int ended = n->api.group_end();

	return nccl_good(n, result ? result : ended, "all-to-all");
}

static bool one_dispatch(void *arg, int32_t i)
{
	(void)i;
	return run(&((struct both *)arg)->dispatch);
}

static bool one_pair(void *arg, int32_t i)
{
	return one_dispatch(arg, i) && run(&((struct both *)arg)->combine);
}

static bool fill(const struct exchange *e)
{
	const struct gpu_seat *s = e->nccl->seat;
	char *at = e->send;

	for (int32_t r = 0; r < e->n_ranks; at += e->to[r++])
		if (e->to[r] &&
		    !gpu_good(s->me,
		              cudaMemsetAsync(at, gpu_mark(s->me->rank, r),
		                              e->to[r], s->stream),
		              "filling"))
			return false;
	return gpu_good(s->me,
	                cudaMemsetAsync(e->recv, 0, sum_of(e->from, e->n_ranks),
	                                s->stream),
	                "filling");
}

/* Both ends of every part. */
static bool check(const struct exchange *e, int64_t *wrong)
{
	const struct gpu_seat *s = e->nccl->seat;
	const char *at = e->recv;
	bool good = fill(e) && run(e) &&
	            gpu_good(s->me, cudaStreamSynchronize(s->stream), "check");

	for (int32_t r = 0; good && r < e->n_ranks; at += e->from[r++]) {
		const size_t part =
			e->from[r] < CHECKED_BYTES ? e->from[r] : CHECKED_BYTES;

		good = gpu_compare(s, at, part, r, wrong) &&
		       gpu_compare(s, at + e->from[r] - part, part, r, wrong);
	}
	return good;
}

bool gpu_nccl_run(struct gpu_nccl *nccl, const struct bench_case *c, bool dense,
                  const struct gpu_timing *timing, int64_t *wrong)
{
	const size_t n = (size_t)c->n_ranks;
	uint64_t *tokens = alloc_or_exit(n * n, sizeof(*tokens));
	uint64_t *choices = alloc_or_exit(n * n, sizeof(*choices));
	struct both b;

	gpu_count_flow(c, tokens, choices);
	both_make(&b, nccl, c, dense ? NULL : choices);
	const bool good =
		take_memory(&b, nccl->seat) &&
		check(&b.dispatch, &wrong[BENCH_DISPATCH]) &&
		check(&b.combine, &wrong[BENCH_COMBINE]) &&
		gpu_time_ops(nccl->seat, one_dispatch, one_pair, &b, timing);

	both_free(&b);
	free(tokens);
	free(choices);
	return good;
}
