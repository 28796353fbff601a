/* SPDX-License-Identifier: Apache-2.0 */
/* The self-test of one fabric: primitives, then shapes drawn at random. */
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "bench_rank.h"
#include "check.h"
#include "core/bits.h"
#include "core/clock.h"
#include "opt.h"

enum { STEPS = 3 };

static int32_t between(uint64_t *state, int32_t low, int32_t high)
{
	return low + (int32_t)(rng_next(state) % (uint64_t)(high - low + 1));
}

struct bench_case check_draw(uint64_t seed, int32_t n_ranks, uint64_t i)
{
	uint64_t state = hash_u64(seed, i);
	struct bench_case c = {
		.n_ranks = n_ranks,
		.tokens = between(&state, 0, 48),
		.hidden = between(&state, 1, 700),
		.topk = between(&state, 1, 12),
		.experts = between(&state, 1, 96),
		.fp8 = between(&state, 0, 3) == 0,
		.wild = between(&state, 0, 1),
		.uneven = between(&state, 0, 1),
		.combine = (enum ferry_combine_mode)between(&state, 0, 1),
		.layout = (enum ferry_layout)between(&state, 0, 2),
		.routing = (enum bench_routing)between(&state, 0, 3),
		.seed = rng_next(&state),
	};

	if (c.experts < c.topk)
		c.routing = BENCH_MESSY;
	return c;
}

void check_complain(const struct crew_member *me, const struct bench_case *c,
                    int64_t wrong, uint64_t shape)
{
	fprintf(stderr,
	        "%s: rank %d: %lld wrong values in shape %llu: tokens %d, "
	        "hidden %d, top-%d of %d, %s, layout %d, combine %d, routing "
	        "%d, path %d%s%s\n",
	        me->crew->name, me->rank, (long long)wrong,
	        (unsigned long long)shape, c->tokens, c->hidden, c->topk,
	        c->experts, c->fp8 ? "fp8" : "bf16", c->layout, c->combine,
	        c->routing, c->path, c->wild ? ", any bits" : "",
	        c->uneven ? ", uneven" : "");
}

static bool try_shape(const struct crew_member *me, struct ferry_world *world,
                      const struct check_work *work, uint64_t i)
{
	struct check_tally *const tally = &work->tallies[me->rank];
	const struct bench_case c =
		check_draw(work->seed, me->crew->n_ranks, i);
	int64_t wrong[2] = {0};
	struct bench_rank rank;
	bool good = bench_rank_open(&rank, me, &c, world);

	for (uint64_t step = 0; good && step < STEPS; step++)
		good = bench_rank_step(&rank, step, wrong);
	bench_rank_close(&rank);
	if (wrong[0] + wrong[1] > 0)
		check_complain(me, &c, wrong[0] + wrong[1], i);
	tally->wrong_values += wrong[0] + wrong[1];
	tally->n_shapes++;
	return good;
}

bool check_ask_clock(const struct crew_member *me, struct ferry_world *world,
                     uint64_t deadline, bool *over)
{
	bool *all = alloc_or_exit((size_t)me->crew->n_ranks, sizeof(*all));
	const bool mine = ferry_now_ns() >= deadline;
	const bool good = crew_good(
		me, ferry_world_allgather(world, &mine, all, sizeof(mine)),
		"allgather");

	*over = all[0];
	free(all);
	return good;
}

static bool try_shapes(const struct crew_member *me, struct ferry_world *world,
                       const struct check_work *work)
{
	const uint64_t deadline = ferry_deadline_ns(work->shapes_ms);
	bool over = false;

	for (uint64_t i = 0; !over; i++)
		if (!try_shape(me, world, work, i) ||
		    !check_ask_clock(me, world, deadline, &over))
			return false;
	return true;
}

int check_body(const struct crew_member *me, void *arg)
{
	const struct check_work *work = arg;
	struct ferry_world *world;

	if (!crew_open(me, 0, &world))
		return EXIT_FAILED;
	snprintf(work->tallies[me->rank].fabric, sizeof(work->tallies->fabric),
	         "%s", ferry_world_fabric(world));
	const bool good = check_primitives(me, world, work) &&
	                  try_shapes(me, world, work);

	ferry_world_close(world);
	return good ? EXIT_GOOD : EXIT_FAILED;
}
