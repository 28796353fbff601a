/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of migration between two ranks: swaps are pushed, both ways at once, in
 * turn with plain memcpy of as many bytes between segments of the same size,
 * by the time that the thread had a core; by the clock, until this rank knows
 * that all is staged; and the commit when both have come. dev/migrate.md has
 * figures.
 *
 *     ferry run -n 2 -- bench_experts
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ferry/ferry.h>

#include "core/bits.h"
#include "core/clock.h"

enum {
	SLOTS = 16, /* of a rank; experts too */
	STAGING = 8,
	BUFFERS = SLOTS + STAGING,
	STEPS = 60,
};

struct bench {
	struct ferry_world *world;
	int32_t rank;
	struct ferry_segment *segment; /* of the comparison */
	uint64_t n_meetings;
	struct ferry_placement *first;
	struct ferry_experts *experts;
	void **tensors;
	size_t tensor_bytes[3];
	size_t expert_bytes;
	int32_t n_swaps;
	enum ferry_experts_mode mode;
};

/* All times in ns, of one rank; then the slower rank of each step. */
struct figures {
	uint64_t copy[STEPS];   /* of the core */
	uint64_t push[STEPS];   /* likewise, in ferry_experts_start */
	uint64_t clock[STEPS];  /* of both copies, by the clock */
	uint64_t staged[STEPS]; /* until staged, by the clock */
	uint64_t commit[STEPS]; /* all of the call */
	uint64_t change[STEPS]; /* without waiting for the other rank */
};

static void must(enum ferry_status status)
{
	if (status == FERRY_OK)
		return;
	fprintf(stderr, "%s: %s\n", ferry_status_name(status),
	        ferry_last_error());
	exit(1);
}

/* Both are here, within a fraction of a microsecond. */
static void meet(struct bench *b)
{
	must(ferry_segment_signal(b->segment, !b->rank, 0));
	b->n_meetings++;
	while (ferry_segment_read(b->segment, 0) < b->n_meetings)
		sched_yield();
}

static uint64_t core_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void open_all(struct bench *b)
{
	struct ferry_placement_config p = FERRY_PLACEMENT_CONFIG_INIT;
	struct ferry_experts_config c = FERRY_EXPERTS_CONFIG_INIT;
	const struct ferry_placement *const *placements =
		(const struct ferry_placement *const *)&b->first;

	p.n_experts = 2 * SLOTS;
	p.n_ranks = 2;
	must(ferry_placement_create(&p, &b->first));
	b->tensors = calloc((size_t)3 * SLOTS, sizeof(*b->tensors));
	for (int i = 0; i < 3 * SLOTS; i++) {
		b->tensors[i] = malloc(b->tensor_bytes[i % 3]);
		memset(b->tensors[i], i, b->tensor_bytes[i % 3]);
	}
	c.n_layers = 1;
	c.placements = placements;
	c.n_tensors = 3;
	c.tensor_bytes = b->tensor_bytes;
	c.n_staging = STAGING;
	c.mode = b->mode;
	c.tensors = b->mode == FERRY_EXPERTS_COPY ? b->tensors : NULL;
	must(ferry_experts_open(b->world, &c, &b->experts));
	for (int i = 0; i < SLOTS; i++)
		for (int t = 0; t < 3; t++)
			memset(ferry_experts_tensor(b->experts, 0, NULL, i, t),
			       i, b->tensor_bytes[t]);
	must(ferry_segment_open(b->world, BUFFERS * b->expert_bytes, 1,
	                        &b->segment));
	memset(ferry_segment_base(b->segment), 1, BUFFERS * b->expert_bytes);
}

static void close_all(struct bench *b)
{
	ferry_experts_close(b->experts);
	ferry_segment_close(b->segment);
	ferry_placement_destroy(b->first);
	for (int i = 0; i < 3 * SLOTS; i++)
		free(b->tensors[i]);
	free(b->tensors);
	b->n_meetings = 0;
}

/* Own experts to the other's staging by memcpy, in turn as migration does. */
static void copy_plainly(struct bench *b, struct figures *f, int step)
{
	unsigned char *own = ferry_segment_base(b->segment);
	unsigned char *peer = ferry_segment_ptr(b->segment, !b->rank);
	const size_t bytes = b->expert_bytes;

	meet(b);
	const uint64_t begin = ferry_now_ns(), begin_core = core_ns();

	for (int i = 0; i < b->n_swaps; i++) {
		const int k = step * b->n_swaps + i;

		/* All of the pool takes turns there, too. */
		memcpy(peer + (size_t)((7 * k + 3) % BUFFERS) * bytes,
		       own + (size_t)(5 * k % BUFFERS) * bytes, bytes);
	}
	f->copy[step] = core_ns() - begin_core;
	meet(b);
	f->clock[step] = ferry_now_ns() - begin;
}

static void swap_slots(const struct ferry_placement *p, int step, int n_swaps,
                       struct ferry_plan *plan)
{
	memset(plan, 0, sizeof(*plan));
	plan->size = sizeof(*plan);
	plan->hash = (uint64_t)step;
	for (int i = 0; i < n_swaps; i++) {
		const int32_t from = (step * n_swaps + i) * 5 % SLOTS;
		const int32_t to = SLOTS + (step * n_swaps + i) * 3 % SLOTS;

		plan->moves[plan->n_moves++] = (struct ferry_move){
			.kind = FERRY_MOVE_SWAP,
			.expert = ferry_placement_expert(p, from),
			.other = ferry_placement_expert(p, to),
			.from_slot = from,
			.to_slot = to,
			.to_rank = 1,
		};
	}
}

static void push(struct bench *b, struct figures *f, int step)
{
	struct ferry_plan plan;
	bool staged = false;

	swap_slots(ferry_experts_placement(b->experts, 0), step, b->n_swaps,
	           &plan);
	meet(b);
	const uint64_t begin = ferry_now_ns(), begin_core = core_ns();

	must(ferry_experts_start(b->experts, 0, &plan, NULL, NULL));
	f->push[step] = core_ns() - begin_core;
	while (!staged) {
		must(ferry_experts_poll(b->experts, 0, &staged));
		sched_yield();
	}
	f->staged[step] = ferry_now_ns() - begin;
}

static void commit(struct bench *b, struct figures *f, int step)
{
	struct ferry_experts_report report = FERRY_EXPERTS_REPORT_INIT;

	meet(b);
	must(ferry_experts_commit(b->experts, 0, NULL, NULL, &report));
	f->commit[step] = report.exposed_ns;
	f->change[step] = report.exposed_ns - report.wait_ns - report.meet_ns;
	if (report.held_back) {
		fprintf(stderr, "a plan was held back\n");
		exit(1);
	}
}

static int by_time(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The slower rank of each step, sorted; a tenth of them is to warm up. */
static void merge(uint64_t *own, const uint64_t *other)
{
	for (int i = 0; i < STEPS; i++)
		if (other[i] > own[i])
			own[i] = other[i];
	qsort(own + STEPS / 10, STEPS - STEPS / 10, sizeof(*own), by_time);
}

static uint64_t share(const uint64_t *sorted, int percent)
{
	const int n = STEPS - STEPS / 10;

	return sorted[STEPS / 10 + (n - 1) * percent / 100];
}

static void print(const struct bench *b, const struct figures *f)
{
	const double bytes = (double)b->expert_bytes * b->n_swaps;

	printf("%-5s %9zu %5d %8.2f %8.2f %5.0f %8.2f %8.2f %5.0f %8.1f %8.1f "
	       "%8.1f %8.1f\n",
	       b->mode ? "copy" : "remap", b->expert_bytes, b->n_swaps,
	       bytes / (double)share(f->push, 50),
	       bytes / (double)share(f->copy, 50),
	       100 * (double)share(f->copy, 50) / (double)share(f->push, 50),
	       bytes / (double)share(f->staged, 0),
	       bytes / (double)share(f->clock, 0),
	       100 * (double)share(f->clock, 0) / (double)share(f->staged, 0),
	       (double)share(f->commit, 0) / 1e3,
	       (double)share(f->commit, 50) / 1e3,
	       (double)share(f->commit, 90) / 1e3,
	       (double)share(f->change, 50) / 1e3);
	fflush(stdout);
}

static void measure(struct bench *b)
{
	static struct figures both[2];
	struct figures *own = &both[b->rank];
	static struct figures f;

	open_all(b);
	for (int i = 0; i < STEPS; i++) {
		copy_plainly(b, &f, i);
		push(b, &f, i);
		commit(b, &f, i);
	}
	must(ferry_world_allgather(b->world, &f, both, sizeof(f)));
	merge(own->copy, both[!b->rank].copy);
	merge(own->push, both[!b->rank].push);
	merge(own->clock, both[!b->rank].clock);
	merge(own->staged, both[!b->rank].staged);
	merge(own->commit, both[!b->rank].commit);
	merge(own->change, both[!b->rank].change);
	if (b->rank == 0)
		print(b, own);
	close_all(b);
}

int main(void)
{
	static const size_t sizes[] = {64, 1 << 14, 1 << 18, 1 << 20, 3145728};
	struct bench b = {0};

	must(ferry_world_open(NULL, &b.world));
	if (ferry_world_size(b.world) != 2) {
		fprintf(stderr, "bench_experts needs 2 ranks\n");
		return 2;
	}
	b.rank = ferry_world_rank(b.world);
	if (b.rank == 0)
		printf("# %s, fabric %s, %d plans of 2 ranks\n"
		       "# GB/s of a rank, each way: p50 by the time of the "
		       "core, best by the clock; commit in us\n"
		       "# %9s %5s %8s %8s %5s %8s %8s %5s %8s %8s %8s %8s\n",
		       ferry_version_text(), ferry_world_fabric(b.world), STEPS,
		       "bytes", "swaps", "push", "memcpy", "%", "staged",
		       "memcpy", "%", "best", "p50", "p90", "change");
	for (int m = 0; m < 2; m++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			for (int32_t n = 1; n <= 4; n *= 4) {
				b.mode = (enum ferry_experts_mode)m;
				b.n_swaps = n;
				for (int t = 0; t < 3; t++)
					b.tensor_bytes[t] = sizes[i];
				b.expert_bytes = 3 * sizes[i];
				measure(&b);
			}
	ferry_world_close(b.world);
	return 0;
}
