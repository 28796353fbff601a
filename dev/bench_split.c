/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the exact split costs: its pure parts on one core, and the whole call
 * on ranks that are threads. Log-normal routing, every rank with two copies
 * of hot experts of other ranks.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/split.h>

#include "balance/exact.h"
#include "core/bits.h"
#include "core/clock.h"

enum { RANKS = 8, TOKENS = 4096, TOPK = 8, REPEAT = 300, COPIES = 2 };

struct shape {
	int32_t n_experts;
	int32_t n_ranks;
	int32_t n_tokens;
};

/* The routing of one layer: ids of all ranks, and where the experts are. */
struct layer {
	struct shape shape;
	double *weight; /* [n_experts] */
	int32_t *ids;   /* [n_ranks][n_tokens][TOPK] */
	struct ferry_placement *placement;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_split: %s\n", what);
	exit(1);
}

static void *allocate(size_t n, size_t bytes)
{
	void *const p = calloc(n, bytes);

	if (!p)
		die("no memory");
	return p;
}

static double uniform(uint64_t *seed)
{
	return ((double)(rng_next(seed) >> 11) + 0.5) / 9007199254740992.0;
}

static double gauss(uint64_t *seed)
{
	return sqrt(-2 * log(uniform(seed))) *
	       cos(6.283185307179586 * uniform(seed));
}

static void fill_ids(struct layer *layer, uint64_t *seed)
{
	const struct shape *const s = &layer->shape;
	const int64_t n = (int64_t)s->n_ranks * s->n_tokens * TOPK;
	double sum = 0;

	for (int32_t e = 0; e < s->n_experts; e++)
		sum += layer->weight[e] = exp(1.2 * gauss(seed));
	for (int64_t i = 0; i < n; i++) {
		double at = uniform(seed) * sum;
		int32_t e = 0;

		while (e < s->n_experts - 1 && at >= layer->weight[e])
			at -= layer->weight[e++];
		layer->ids[i] = e;
	}
}

static int32_t hottest(const struct layer *layer, const bool *taken)
{
	int32_t best = -1;

	for (int32_t e = 0; e < layer->shape.n_experts; e++)
		if (!taken[e] &&
		    (best < 0 || layer->weight[e] > layer->weight[best]))
			best = e;
	return best;
}

/* The hottest experts, two copies each, on the ranks behind their own. */
static void place_copies(const struct layer *layer, int32_t *map)
{
	const struct shape *const s = &layer->shape;
	const int32_t own = s->n_experts / s->n_ranks, n = own + COPIES;
	bool *const taken = allocate((size_t)s->n_experts, sizeof(*taken));
	int32_t *const used = allocate((size_t)s->n_ranks, sizeof(*used));

	for (int32_t i = 0; i < s->n_ranks; i++) {
		const int32_t e = hottest(layer, taken);
		int32_t left = 2;

		taken[e] = true;
		for (int32_t d = 1; d < s->n_ranks && left > 0; d++) {
			const int32_t r = (e / own + d + i) % s->n_ranks;

			if (r == e / own || used[r] == COPIES)
				continue;
			map[r * n + own + used[r]++] = e;
			left--;
		}
	}
	free(taken);
	free(used);
}

static void place(struct layer *layer)
{
	const struct shape *const s = &layer->shape;
	const int32_t own = s->n_experts / s->n_ranks, n = own + COPIES;
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	int32_t *const map = allocate((size_t)(n * s->n_ranks), sizeof(*map));
	int32_t *const slots = allocate((size_t)s->n_ranks, sizeof(*slots));

	for (int32_t r = 0; r < s->n_ranks; r++) {
		slots[r] = n;
		for (int32_t i = 0; i < n; i++)
			map[r * n + i] = i < own ? r * own + i : -1;
	}
	place_copies(layer, map);
	c.n_experts = s->n_experts;
	c.n_ranks = s->n_ranks;
	c.expert_slots = slots;
	c.slot_expert = map;
	c.split = FERRY_SPLIT_EXACT;
	if (ferry_placement_create(&c, &layer->placement))
		die(ferry_last_error());
	free(map);
	free(slots);
}

static struct layer make_layer(struct shape shape)
{
	struct layer layer = {.shape = shape};
	uint64_t seed = 1;
	const size_t n = (size_t)shape.n_ranks * (size_t)shape.n_tokens;

	layer.weight = allocate((size_t)shape.n_experts, sizeof(double));
	layer.ids = allocate(n * TOPK, sizeof(int32_t));
	fill_ids(&layer, &seed);
	place(&layer);
	return layer;
}

static void free_layer(struct layer *layer)
{
	free(layer->weight);
	free(layer->ids);
	ferry_placement_destroy(layer->placement);
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void sort(double us[REPEAT])
{
	qsort(us, REPEAT, sizeof(us[0]), by_value);
}

static double us_since(uint64_t begin_ns)
{
	return (double)(ferry_now_ns() - begin_ns) / 1000;
}

/* Memory of the pure parts. */
struct pure {
	struct ferry_sharing sharing;
	struct ferry_exact_runs runs;
	int32_t *code_of;
	struct ferry_exact_codes *codes; /* [n_ranks] */
	int32_t *counts;                 /* [n_ranks][n_experts] */
	int32_t *fixed;                  /* [n_ranks][n_ranks] */
	int32_t *choice;                 /* [n_ranks][n_experts] */
	double encode_us[REPEAT];
	double quotas_us[REPEAT];
	double resolve_us[REPEAT];
};

static const int32_t *ids_of(const struct layer *layer, int32_t rank)
{
	return layer->ids + (size_t)rank * (size_t)layer->shape.n_tokens * TOPK;
}

static void encode(const struct layer *layer, struct pure *p, int32_t rank)
{
	const struct shape *const s = &layer->shape;
	const size_t row = (size_t)rank * (size_t)s->n_experts;
	const struct ferry_exact_ids ids = {s->n_tokens,
	                                    TOPK,
	                                    ids_of(layer, rank),
	                                    TOPK * sizeof(int32_t),
	                                    FERRY_ID_INT32,
	                                    s->n_experts,
	                                    false};
	struct ferry_exact_bad bad;

	ferry_exact_code_of(layer->placement, p->code_of);
	memset(p->counts + row, 0, (size_t)s->n_experts * sizeof(int32_t));
	memset(p->fixed + rank * s->n_ranks, 0,
	       (size_t)s->n_ranks * sizeof(int32_t));
	if (!ferry_exact_encode(&ids, p->code_of, &p->codes[rank],
	                        p->counts + row, &bad))
		die("bad id");
	(void)ferry_exact_tally(layer->placement, p->counts + row,
	                        p->fixed + rank * s->n_ranks, p->choice + row);
}

/* From the counts of all ranks to the runs of one. */
static void find_quotas(const struct layer *layer, struct pure *p, int32_t rank)
{
	const struct shape *const s = &layer->shape;
	struct ferry_sharing *const sharing = &p->sharing;
	int32_t count[64];

	ferry_sharing_map(sharing, layer->placement, NULL);
	for (int32_t r = 0; r < s->n_ranks; r++) {
		sharing->fixed[r] = 0;
		for (int32_t i = 0; i < s->n_ranks; i++)
			sharing->fixed[r] += p->fixed[i * s->n_ranks + r];
	}
	for (int32_t e = 0; e < sharing->in.n_experts; e++) {
		sharing->load[e] = 0;
		for (int32_t i = 0; i < s->n_ranks; i++)
			sharing->load[e] += p->choice[i * s->n_experts + e];
	}
	(void)ferry_sharing_answer(sharing);
	for (int32_t e = 0; e < sharing->in.n_experts; e++) {
		for (int32_t i = 0; i < s->n_ranks; i++)
			count[i] = p->choice[i * s->n_experts + e];
		ferry_exact_serve(sharing, layer->placement, e, count, 1, rank,
		                  &p->runs);
	}
}

static struct pure *make_pure(const struct layer *layer)
{
	const size_t n_ranks = (size_t)layer->shape.n_ranks;
	const size_t n_experts = (size_t)layer->shape.n_experts;
	const size_t n_choices = (size_t)layer->shape.n_tokens * TOPK;
	const int32_t n_slots = ferry_placement_n_slots(layer->placement);
	struct pure *const p = allocate(1, sizeof(*p));

	if (ferry_sharing_init(&p->sharing, layer->shape.n_experts, n_slots,
	                       layer->shape.n_ranks))
		die(ferry_last_error());
	p->runs.slot = allocate((size_t)n_slots, sizeof(int32_t));
	p->runs.left = allocate((size_t)n_slots, sizeof(int32_t));
	p->runs.at = allocate(n_experts, sizeof(int32_t));
	p->code_of = allocate(n_experts, sizeof(int32_t));
	p->codes = allocate(n_ranks, sizeof(*p->codes));
	for (size_t r = 0; r < n_ranks; r++) {
		p->codes[r].code = allocate(n_choices, sizeof(int32_t));
		p->codes[r].where = allocate(n_choices, sizeof(int32_t));
	}
	p->counts = allocate(n_ranks * n_experts, sizeof(int32_t));
	p->fixed = allocate(n_ranks * n_ranks, sizeof(int32_t));
	p->choice = allocate(n_ranks * n_experts, sizeof(int32_t));
	return p;
}

static void free_pure(struct pure *p, int32_t n_ranks)
{
	for (int32_t r = 0; r < n_ranks; r++) {
		free(p->codes[r].code);
		free(p->codes[r].where);
	}

	ferry_sharing_destroy(&p->sharing);
	free(p->runs.slot);
	free(p->runs.left);
	free(p->runs.at);
	free(p->code_of);
	free(p->codes);
	free(p->counts);
	free(p->fixed);
	free(p->choice);
	free(p);
}

static void time_pure(const struct layer *layer)
{
	struct pure *const p = make_pure(layer);

	for (int i = 0; i < REPEAT; i++) {
		/* In turn: nobody learns the branches of one batch by heart. */
		const int32_t rank = i % layer->shape.n_ranks;

		for (int32_t r = 0; r < layer->shape.n_ranks; r++) {
			const uint64_t begin = ferry_now_ns();

			encode(layer, p, r);
			p->encode_us[i] = us_since(begin);
		}
		const uint64_t quotas = ferry_now_ns();

		find_quotas(layer, p, rank);
		p->quotas_us[i] = us_since(quotas);
		const uint64_t last = ferry_now_ns();

		ferry_exact_resolve(&p->codes[rank], &p->runs);
		p->resolve_us[i] = us_since(last);
	}
	sort(p->encode_us);
	sort(p->quotas_us);
	sort(p->resolve_us);
	printf("pure %4d %5d %6d   %7.2f %7.2f %7.2f\n", layer->shape.n_experts,
	       layer->shape.n_ranks, layer->shape.n_tokens,
	       p->encode_us[REPEAT / 2], p->quotas_us[REPEAT / 2],
	       p->resolve_us[REPEAT / 2]);
	free_pure(p, layer->shape.n_ranks);
}

/* One rank of the whole call. */
struct rank {
	pthread_t thread;
	int32_t rank;
	struct ferry_team *team;
	const struct layer *layer;
	double us[REPEAT];
};

static void *run_rank(void *arg)
{
	struct rank *const rank = arg;
	const struct shape *const s = &rank->layer->shape;
	struct ferry_world_config world_config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_splitter_config c = FERRY_SPLITTER_CONFIG_INIT;
	struct ferry_split_in in = FERRY_SPLIT_IN_INIT;
	struct ferry_split_out out = FERRY_SPLIT_OUT_INIT;
	struct ferry_world *world;
	struct ferry_splitter *splitter;

	world_config.rank = rank->rank;
	world_config.team = rank->team;
	c.max_tokens = s->n_tokens;
	c.topk = TOPK;
	c.max_experts = s->n_experts;
	c.max_expert_slots = ferry_placement_n_slots(rank->layer->placement);
	in.n_tokens = s->n_tokens;
	in.ids = ids_of(rank->layer, rank->rank);
	in.placement = rank->layer->placement;
	out.slots = allocate((size_t)s->n_tokens * TOPK, sizeof(int32_t));
	if (ferry_world_open(&world_config, &world) ||
	    ferry_splitter_open(world, &c, &splitter))
		die(ferry_last_error());
	for (int i = 0; i < REPEAT; i++) {
		const uint64_t begin = ferry_now_ns();

		if (ferry_split(splitter, 0, &in, &out))
			die(ferry_last_error());
		rank->us[i] = us_since(begin);
	}
	if (ferry_world_barrier(world))
		die(ferry_last_error());
	ferry_splitter_close(splitter);
	ferry_world_close(world);
	free(out.slots);
	return NULL;
}

static void time_call(const struct layer *layer)
{
	static struct rank ranks[RANKS];
	struct ferry_team *team;

	if (ferry_team_create(layer->shape.n_ranks, &team))
		die(ferry_last_error());
	for (int32_t r = 0; r < layer->shape.n_ranks; r++) {
		ranks[r].rank = r;
		ranks[r].team = team;
		ranks[r].layer = layer;
		if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]))
			die("pthread_create");
	}
	for (int32_t r = 0; r < layer->shape.n_ranks; r++)
		pthread_join(ranks[r].thread, NULL);
	ferry_team_destroy(team);
	sort(ranks[0].us);
	printf("call %4d %5d %6d   %7.2f %7.2f %7.2f\n", layer->shape.n_experts,
	       layer->shape.n_ranks, layer->shape.n_tokens, ranks[0].us[0],
	       ranks[0].us[REPEAT / 2], ranks[0].us[REPEAT * 9 / 10]);
}

int main(void)
{
	static const struct shape shapes[] = {
		{128, 8, 4096}, {128, 8, 128}, {256, 64, 128},
		{128, 2, 4096}, {128, 2, 128},
	};

	printf("# %s\n", ferry_version_text());
	printf("# pure: us of encode, quotas, resolve; call: us least, p50, "
	       "p90\n");
	printf("#    experts ranks tokens\n");
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct layer layer = make_layer(shapes[i]);

		time_pure(&layer);
		if (layer.shape.n_ranks <= RANKS)
			time_call(&layer);
		free_layer(&layer);
	}
	return 0;
}
