/* SPDX-License-Identifier: Apache-2.0 */
/* The link, the base and the memory of this machine, for ferry model. */
#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "bench_copy.h"
#include "bench_ferry.h"
#include "fabric_choice.h"
#include "model_run.h"
#include "raw_link.h"

enum { N_RANKS = 2, ITERS = 200, WARMUP = 20 };

/* In memory that both ranks share; each writes its own. */
struct found {
	struct raw_link link;
	size_t max_put;
	bool shared; /* peers load and store */
	char fabric[32];
};

static int body(const struct crew_member *me, void *arg)
{
	struct found *const found = (struct found *)arg + me->rank;
	struct ferry_world *world;
	struct raw_ground ground = {0};

	if (!crew_open(me, 0, &world))
		return EXIT_FAILED;
	bool good =
		crew_good(me, raw_ground_open(world, &ground),
	                  "opening a segment") &&
		crew_good(me,
	                  raw_link_measure(&ground, 1 - me->rank, &found->link),
	                  "measuring");

	if (good) {
		found->max_put = ferry_segment_max_put(ground.pairs.segment);
		found->shared =
			ferry_segment_caps(ground.pairs.segment, 1 - me->rank) &
			FERRY_CAP_LDST;
		snprintf(found->fabric, sizeof(found->fabric), "%s",
		         ferry_world_fabric(world));
		/* Nobody closes what the other still puts to. */
		good = crew_good(me, ferry_world_barrier(world), "barrier");
	}
	raw_ground_close(&ground);
	ferry_world_close(world);
	return good ? EXIT_GOOD : EXIT_FAILED;
}

static void take_link(const struct found found[N_RANKS], double row_bytes,
                      struct model_link *link)
{
	const struct raw_link *a = &found[0].link, *b = &found[1].link;

	*link = (struct model_link){
		.alpha_us = a->flag_p50_us,
		.gap_us = a->gap_us > b->gap_us ? a->gap_us : b->gap_us,
		.bytes_per_us =
			(a->bytes_per_s < b->bytes_per_s ? a->bytes_per_s
	                                                 : b->bytes_per_s) /
			1e6,
	};
	if ((double)found[0].max_put < row_bytes)
		link->piece_bytes = (double)found[0].max_put;
	snprintf(link->name, sizeof(link->name), "%s", found[0].fabric);
	snprintf(link->source, sizeof(link->source),
	         "measured now, both ranks put at once");
}

/* What calls take when there is nothing to carry, less the flight. */
static bool measure_base(const struct crew *crew, struct model_machine *m,
                         double alpha_us)
{
	const struct bench_case c = {
		.n_ranks = N_RANKS,
		.hidden = 16,
		.topk = 1,
		.experts = N_RANKS,
		.layout = FERRY_EXPERT_PACKED,
		.combine = FERRY_EXACT,
	};
	struct bench_result result;
	char fabric[32];

	if (!bench_ferry_run(crew, &c, ITERS, WARMUP, &result, fabric))
		return false;
	for (int p = 0; p < MODEL_N_PHASES; p++) {
		/* Combine of nothing waits for nobody. */
		const double flight = p == MODEL_DISPATCH ? alpha_us : 0;
		const double rest = result.phase[p].p50_us - flight;

		m->base_us[p] = rest > 0 ? rest : 0;
	}
	return true;
}

int model_measure(struct model_run *run)
{
	const struct model_options *o = run->options;
	struct crew crew = {
		.name = model_command.name, .n_ranks = N_RANKS, .bind = true};
	struct found *found = alloc_shared(N_RANKS * sizeof(*found));
	struct model_machine *const m = &run->machine;
	struct bench_copy copy;
	int status = fabric_choose(&model_command, o->fabric, &crew);

	if (status == OPT_GO_ON &&
	    (crew_run(&crew, body, found) || !bench_copy_run(&crew, 0, &copy)))
		status = EXIT_FAILED;
	if (status == OPT_GO_ON) {
		struct model_link *link =
			found[0].shared ? &m->inside : &m->between;

		take_link(found, (double)o->hidden * 2, link);
		m->memory_bytes_per_us = copy.best / 1e6 / N_RANKS;
		snprintf(run->measured, sizeof(run->measured), "%s",
		         found[0].fabric);
		if (!measure_base(&crew, m, link->alpha_us))
			status = EXIT_FAILED;
	}
	alloc_shared_free(found, N_RANKS * sizeof(*found));
	return status;
}
