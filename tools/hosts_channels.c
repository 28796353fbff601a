/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A short dispatch and combine in every mode, checked to the bit: first all
 * tokens of a rank to one other rank, so that what is wrong has two names, then
 * to all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_options.h"
#include "bench_rank.h"
#include "fabric/world.h"
#include "hosts.h"

enum { TOKENS = 12, HIDDEN = 1200, TOPK = 4 };

static struct bench_case shape_of(const struct hosts *h, int mode)
{
	return (struct bench_case){
		.n_ranks = h->n_ranks,
		.tokens = TOKENS,
		.hidden = HIDDEN,
		.topk = TOPK,
		.experts = TOPK * h->n_ranks,
		.layout = FERRY_EXPERT_PACKED,
		.combine = (enum ferry_combine_mode)mode,
		.wild = true,
		.seed = 20261130,
	};
}

/* All tokens of rank r to rank r + shift. */
static bool try_shift(struct hosts *h, struct bench_rank *rank,
                      struct bench_case *c, int32_t shift)
{
	const int32_t n = h->n_ranks;
	int64_t wrong[2] = {0};

	c->routing = BENCH_SHIFT;
	c->shift = shift;
	if (!bench_rank_step(rank, (uint64_t)shift + 2, wrong))
		return false;
	h->pairs[(h->me->rank + n - shift) % n].wrong_rows += wrong[0];
	h->pairs[(h->me->rank + shift) % n].wrong_sums += wrong[1];
	return true;
}

static bool try_all(struct bench_rank *rank, struct bench_case *c,
                    struct hosts_mode *mode)
{
	int64_t wrong[2] = {0};

	c->routing = BENCH_UNIFORM;
	if (!bench_rank_step(rank, BENCH_CHECKED_STEP, wrong))
		return false;
	mode->wrong = wrong[0] + wrong[1];
	return true;
}

static void say_why(struct hosts_mode *mode)
{
	snprintf(mode->text, sizeof(mode->text), "%s", ferry_last_error());
}

/* Can hosts add up what they send? As ferry_moe_open will say. */
static bool adds(const struct ferry_world *world)
{
	return world->n_nodes == 1 ||
	       (strchr(ferry_world_fabric(world), '+') &&
	        strcmp(world->ctx.opt.hierarchy, "off") != 0);
}

/* Is it legal in this world? Asked without peers, the same on all ranks. */
static bool is_legal(const struct hosts *h, const struct bench_case *c,
                     struct hosts_mode *mode)
{
	struct ferry_moe_config config;
	struct ferry_moe_need need = FERRY_MOE_NEED_INIT;

	if (c->combine == FERRY_PER_HOST && !adds(h->world)) {
		snprintf(mode->text, sizeof(mode->text),
		         "needs a fabric with stores within hosts: shm+...");
		return false;
	}
	bench_configure(c, &config);
	if (ferry_moe_query(&config, &need) == FERRY_OK)
		return true;
	say_why(mode);
	return false;
}

static bool try_mode(struct hosts *h, int number, struct hosts_mode *mode)
{
	struct bench_case c = shape_of(h, number);
	struct bench_rank rank;

	if (!is_legal(h, &c, mode))
		return true;
	int32_t *host = bench_hosts_of(h->world);

	c.host = host;
	bool good = bench_rank_open(&rank, h->me, &c, h->world);

	for (int32_t shift = 0; good && shift < h->n_ranks; shift++)
		good = try_shift(h, &rank, &c, shift);
	good = good && try_all(&rank, &c, mode);
	mode->state = good ? HOSTS_TESTED : HOSTS_FAILED;
	if (!good)
		say_why(mode);
	bench_rank_close(&rank);
	free(host);
	return good;
}

bool hosts_try_channels(struct hosts *h)
{
	bool good = true;

	for (int i = 0; good && bench_combine_names[i] && i < HOSTS_MODES;
	     i++) {
		struct hosts_mode *const mode = &h->modes[i];

		snprintf(mode->name, sizeof(mode->name), "%s",
		         bench_combine_names[i]);
		good = try_mode(h, i, mode);
		/* Nobody opens the next before all have closed this one. */
		if (good && ferry_world_barrier(h->world)) {
			mode->state = HOSTS_FAILED;
			say_why(mode);
			good = false;
		}
	}
	return good;
}
