/* SPDX-License-Identifier: Apache-2.0 */
/* The small model of experts_lab.h: its shapes, weights, plans, checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "experts_lab.h"

#ifdef FAKE_GPU
const struct lab_setting lab_settings[] = {
	{"p2p", "p2p", RANKS_THREADS, "", 2},
	{"p2p processes", "p2p", RANKS_PROCESSES, "", 2},
	{NULL, NULL, RANKS_THREADS, NULL, 0},
};
#else
const struct lab_setting lab_settings[] = {
	{"local", "local", RANKS_THREADS, "", 0},
	{"shm", "shm", RANKS_PROCESSES, "", 0},
	{"hosts of 2", "shm+wire", RANKS_THREADS, "RANKS_PER_HOST=2", 0},
	{"wire processes", "wire", RANKS_PROCESSES, "WIRE_DELAY_US=200", 0},
	{"reorder", "shm", RANKS_PROCESSES, "FAULT=reorder", 0},
	{NULL, NULL, RANKS_THREADS, NULL, 0},
};
#endif

struct lab_shape lab_small(uint64_t seed, enum ferry_experts_mode mode)
{
	return (struct lab_shape){
		.seed = seed,
		.n_layers = 3,
		.n_experts = 13,
		.spare = 1,
		.uneven = true,
		.n_staging = 6,
		.mode = mode,
		.n_tensors = 4,
		.tensor_bytes = {4099, 7, 1, 1000},
	};
}

static int32_t between(uint64_t *seed, int32_t low, int32_t high)
{
	return low + (int32_t)(rng_next(seed) % (uint64_t)(high - low + 1));
}

static void shuffle(uint64_t *seed, int32_t *values, int32_t n)
{
	for (int32_t i = n - 1; i > 0; i--) {
		const int32_t j = between(seed, 0, i);
		const int32_t v = values[i];

		values[i] = values[j];
		values[j] = v;
	}
}

/* Every expert once, in any order; the rest is empty. */
static struct ferry_placement *placement_of(const struct lab_shape *shape,
                                            int32_t n_ranks, int32_t layer)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	uint64_t seed = hash_u64(shape->seed, (uint64_t)layer);
	const int32_t most = shape->n_experts + n_ranks * (shape->spare + 1);
	int32_t *slots = calloc((size_t)most, sizeof(*slots));
	int64_t *quota = calloc((size_t)most, sizeof(*quota)); /* alike */
	int32_t per_rank[RANKS_MAX], n_slots = 0;
	struct ferry_placement *placement;

	for (int32_t r = 0; r < n_ranks; r++)
		per_rank[r] = shape->n_experts / n_ranks +
		              (r < shape->n_experts % n_ranks) + shape->spare;
	for (int32_t r = 0; shape->uneven && r + 1 < n_ranks; r++) {
		const int32_t n = between(&seed, 0, per_rank[r] / 2);

		per_rank[r] -= n;
		per_rank[r + 1] += n;
	}
	for (int32_t r = 0; r < n_ranks; r++)
		n_slots += per_rank[r];
	for (int32_t s = 0; s < n_slots; s++)
		slots[s] = s < shape->n_experts ? s : -1;
	shuffle(&seed, slots, n_slots);
	config.n_experts = shape->n_experts;
	config.n_ranks = n_ranks;
	config.expert_slots = per_rank;
	config.slot_expert = slots;
	config.split = shape->split;
	config.quota = shape->split == FERRY_SPLIT_QUOTA ? quota : NULL;
	config.version = (uint64_t)layer * 1000;
	RANKS_OK(ferry_placement_create(&config, &placement));
	free(slots);
	free(quota);
	return placement;
}

static int32_t first_slot(const struct ferry_placement *placement, int32_t rank)
{
	int32_t s = 0;

	while (s < ferry_placement_n_slots(placement) &&
	       ferry_placement_rank(placement, s) < rank)
		s++;
	return s;
}

static int32_t n_slots_of(const struct ferry_placement *placement, int32_t rank)
{
	return first_slot(placement, rank + 1) - first_slot(placement, rank);
}

/* The caller's tensors, at odd addresses. */
static void make_tensors(struct lab *lab)
{
	const struct lab_shape *shape = &lab->shape;
	size_t n_own = 0, bytes = 0, at = 0;

	for (int32_t l = 0; l < shape->n_layers; l++)
		n_own += (size_t)lab->n_own[l];
	for (int32_t t = 0; t < shape->n_tensors; t++)
		bytes += shape->tensor_bytes[t] + 3;
	if (lab->gpu) {
		lab->mirror = mirror_make(lab->gpu, (n_own + 1) * bytes, 1);
		lab->memory = lab->mirror.device;
	} else {
		lab->memory = calloc(n_own ? n_own : 1, bytes);
	}
	lab->tensors = calloc(n_own * (size_t)shape->n_tensors + 1,
	                      sizeof(*lab->tensors));
	for (size_t i = 0; i < n_own * (size_t)shape->n_tensors; i++) {
		lab->tensors[i] = lab->memory + at;
		at += shape->tensor_bytes[i % (size_t)shape->n_tensors] + 3;
	}
}

void lab_make(struct lab *lab, struct rank *rank, const struct lab_shape *shape)
{
	memset(lab, 0, sizeof(*lab));
	lab->rank = rank;
	lab->shape = *shape;
#ifndef FAKE_GPU
	if (ferry_world_device(rank->world) == FERRY_DEVICE_CUDA)
		lab->gpu = rank_memory_of(rank, 1);
#endif
	for (int32_t l = 0; l < shape->n_layers; l++) {
		lab->first[l] = placement_of(shape, rank->n_ranks, l);
		lab->n_own[l] = n_slots_of(lab->first[l], rank->rank);
	}
	if (shape->mode == FERRY_EXPERTS_COPY)
		make_tensors(lab);
}

enum ferry_status lab_try(struct lab *lab)
{
	const struct lab_shape *shape = &lab->shape;
	struct ferry_experts_config config = FERRY_EXPERTS_CONFIG_INIT;

	config.n_layers = shape->n_layers;
	config.placements = (const struct ferry_placement *const *)lab->first;
	config.n_tensors = shape->n_tensors;
	config.tensor_bytes = shape->tensor_bytes;
	config.n_staging = shape->n_staging;
	config.mode = shape->mode;
	config.tensors = lab->tensors;
	return ferry_experts_open(lab->rank->world, &config, &lab->experts);
}

unsigned char lab_byte(const struct lab *lab, int32_t layer, int32_t expert,
                       int32_t tensor, size_t at)
{
	uint64_t h = hash_u64(lab->shape.seed, (uint64_t)layer);

	h = hash_u64(h, (uint64_t)expert);
	h = hash_u64(h, (uint64_t)tensor);
	return (unsigned char)(h >> (8 * (at % 7))) ^
	       (unsigned char)(at * 131 >> 3);
}

static unsigned char *tensor_of(const struct lab *lab, int32_t layer,
                                const struct ferry_placement *placement,
                                int32_t own, int32_t t)
{
	unsigned char *address =
		ferry_experts_tensor(lab->experts, layer, placement, own, t);

	RANKS_CHECK(address != NULL);
	return address;
}

static void fill_tensor(struct lab *lab, int32_t layer, int32_t expert,
                        int32_t t, unsigned char *to)
{
	const size_t bytes = lab->shape.tensor_bytes[t];
	unsigned char *host = lab->gpu ? malloc(bytes) : to;

	for (size_t at = 0; at < bytes; at++)
		host[at] = lab_byte(lab, layer, expert, t, at);
	if (!lab->gpu)
		return;
	rank_memory_write(lab->gpu, to, host, bytes);
	free(host);
}

void lab_fill(struct lab *lab)
{
	for (int32_t l = 0; l < lab->shape.n_layers; l++)
		for (int32_t i = 0; i < lab->n_own[l]; i++) {
			const int32_t e = ferry_placement_expert(
				lab->first[l],
				first_slot(lab->first[l], lab->rank->rank) + i);

			for (int32_t t = 0; t < lab->shape.n_tensors; t++)
				fill_tensor(lab, l, e, t,
				            tensor_of(lab, l, NULL, i, t));
		}
}

void lab_close(struct lab *lab)
{
	ferry_experts_close(lab->experts);
	lab->experts = NULL;
	for (int32_t l = 0; l < LAB_LAYERS; l++) {
		ferry_placement_destroy(lab->first[l]);
		lab->first[l] = NULL;
	}
	free(lab->tensors);
	if (lab->gpu && lab->memory)
		mirror_drop(lab->gpu, &lab->mirror);
	else
		free(lab->memory);
	lab->tensors = NULL;
	lab->memory = NULL;
}

static void close_and_free(void *arg)
{
	lab_close(arg);
	free(arg);
}

struct lab *lab_open(struct rank *rank, const struct lab_shape *shape)
{
	struct lab *lab = malloc(sizeof(*lab));

	lab_make(lab, rank, shape);
	ranks_defer(close_and_free, lab);
	RANKS_OK(lab_try(lab));
	lab_fill(lab);
	return lab;
}

/* What a plan has used so far. */
struct planning {
	const struct ferry_placement *placement;
	uint8_t *taken;  /* by slot */
	uint8_t *moving; /* by expert */
	int32_t in[RANKS_MAX];
	int32_t max_in;
};

/* Is an expert on a rank, in any slot? */
static bool is_on(const struct ferry_placement *p, int32_t expert, int32_t rank)
{
	const int32_t *slots;
	int32_t n;

	RANKS_OK(ferry_placement_replicas(p, expert, &slots, &n));
	for (int32_t i = 0; i < n; i++)
		if (ferry_placement_rank(p, slots[i]) == rank)
			return true;
	return false;
}

/* Fills in a move between two slots; false when it may not be. */
static bool make_move(struct planning *g, int32_t a, int32_t b, bool copies,
                      struct ferry_move *move)
{
	const struct ferry_placement *p = g->placement;
	const int32_t e = ferry_placement_expert(p, a);
	const int32_t other = ferry_placement_expert(p, b);
	const int32_t ra = ferry_placement_rank(p, a);
	const int32_t rb = ferry_placement_rank(p, b);

	if (e < 0 || ra == rb || g->taken[a] || g->taken[b] || g->moving[e] ||
	    is_on(p, e, rb) || g->in[rb] >= g->max_in)
		return false;
	if (other < 0 && !copies)
		return false;
	if (other >= 0 &&
	    (g->moving[other] || is_on(p, other, ra) || g->in[ra] >= g->max_in))
		return false;
	*move = (struct ferry_move){
		.kind = other < 0 ? FERRY_MOVE_COPY : FERRY_MOVE_SWAP,
		.expert = e,
		.other = other,
		.from_slot = a,
		.to_slot = b,
		.from_rank = ra,
		.to_rank = rb,
	};
	g->taken[a] = g->taken[b] = g->moving[e] = 1;
	g->in[rb]++;
	if (other >= 0) {
		g->moving[other] = 1;
		g->in[ra]++;
	}
	return true;
}

void lab_plan(const struct ferry_placement *placement, int32_t layer,
              uint64_t *seed, int32_t max_moves, bool copies, int32_t max_in,
              struct ferry_plan *plan)
{
	const int32_t n_slots = ferry_placement_n_slots(placement);
	struct planning g = {
		.placement = placement,
		.taken = calloc((size_t)n_slots, 1),
		.moving =
			calloc((size_t)ferry_placement_n_experts(placement), 1),
		.max_in = max_in,
	};

	memset(plan, 0, sizeof(*plan));
	plan->size = sizeof(*plan);
	plan->layer = layer;
	for (int i = 0; i < 20 && plan->n_moves < max_moves; i++) {
		const int32_t a = between(seed, 0, n_slots - 1);
		const int32_t b = between(seed, 0, n_slots - 1);

		plan->n_moves += make_move(&g, a, b, copies,
		                           &plan->moves[plan->n_moves]);
	}
	plan->hash = rng_next(seed);
	free(g.taken);
	free(g.moving);
}

static bool tensor_is(const struct lab *lab, int32_t layer, int32_t expert,
                      int32_t t, const unsigned char *bytes)
{
	const size_t n = lab->shape.tensor_bytes[t];
	unsigned char *const copy = lab->gpu ? malloc(n) : NULL;
	size_t at = 0;

	if (lab->gpu) {
		rank_memory_read(lab->gpu, copy, bytes, n);
		bytes = copy;
	}
	while (at < n && bytes[at] == lab_byte(lab, layer, expert, t, at))
		at++;
	free(copy);
	return at == n;
}

int32_t lab_wrong(const struct lab *lab, int32_t layer,
                  const struct ferry_placement *placement)
{
	const int32_t first = first_slot(placement, lab->rank->rank);

	for (int32_t i = 0; i < lab->n_own[layer]; i++) {
		const int32_t e = ferry_placement_expert(placement, first + i);

		for (int32_t t = 0; e >= 0 && t < lab->shape.n_tensors; t++) {
			const unsigned char *bytes = ferry_experts_tensor(
				lab->experts, layer, placement, i, t);

			if (!bytes || !tensor_is(lab, layer, e, t, bytes))
				return 1 + first + i;
		}
	}
	return 0;
}

void lab_check(const struct lab *lab, int32_t layer,
               const struct ferry_placement *placement)
{
	const int32_t wrong = lab_wrong(lab, layer, placement);

	if (wrong)
		RANKS_FAIL(
			"layer %d, version %llu: slot %d has not expert %d",
			layer,
			(unsigned long long)ferry_placement_version(placement),
			wrong - 1,
			ferry_placement_expert(placement, wrong - 1));
}

struct ferry_experts_stats lab_stats(const struct lab *lab)
{
	struct ferry_experts_stats stats = FERRY_EXPERTS_STATS_INIT;

	RANKS_OK(ferry_experts_get_stats(lab->experts, &stats));
	return stats;
}

/* One change of a map; the caller looks whether it is still a placement. */
static void change(uint64_t *seed, int32_t *slots, int32_t n_slots,
                   int32_t n_experts)
{
	const int32_t a = between(seed, 0, n_slots - 1);
	const int32_t b = between(seed, 0, n_slots - 1);
	const int32_t e = slots[a];

	switch (between(seed, 0, 3)) {
	case 0:
		slots[a] = between(seed, -1, n_experts - 1);
		break;
	default:
		slots[a] = slots[b];
		slots[b] = e;
	}
}

struct ferry_placement *lab_other(const struct ferry_placement *placement,
                                  uint64_t *seed)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;
	const int32_t n_slots = ferry_placement_n_slots(placement);
	int32_t *slots = calloc((size_t)n_slots, sizeof(*slots));
	struct ferry_placement *other = NULL;
	int32_t per_rank[RANKS_MAX] = {0};

	for (int32_t s = 0; s < n_slots; s++) {
		const int32_t r = ferry_placement_rank(placement, s);

		per_rank[r]++;
		config.n_ranks = r + 1;
	}
	config.n_experts = ferry_placement_n_experts(placement);
	config.expert_slots = per_rank;
	config.slot_expert = slots;
	while (!other) {
		for (int32_t s = 0; s < n_slots; s++)
			slots[s] = ferry_placement_expert(placement, s);
		for (int32_t i = between(seed, 0, 3); i > 0; i--)
			change(seed, slots, n_slots, config.n_experts);
		if (ferry_placement_create(&config, &other) != FERRY_OK)
			other = NULL;
	}
	free(slots);
	return other;
}

struct ferry_plan lab_one_swap(const struct ferry_placement *placement,
                               int32_t layer)
{
	struct ferry_plan plan = {.size = sizeof(plan), .layer = layer};

	for (uint64_t s = 0; plan.n_moves < 1; s++) {
		uint64_t rng = s;

		lab_plan(placement, layer, &rng, 1, false, 1, &plan);
	}
	return plan;
}

void lab_run(const struct lab_setting *setting, int32_t n_ranks,
             ranks_body *body, const void *arg)
{
	const struct ranks how = {
		.kind = setting->kind,
		.n_ranks = n_ranks,
		.device =
			setting->n_gpus ? FERRY_DEVICE_CUDA : FERRY_DEVICE_CPU,
		.n_gpus = setting->n_gpus,
		.fabric = setting->fabric,
		.options = setting->options,
		.arg = (void *)(uintptr_t)arg,
	};

	ranks_run(&how, body);
}

int lab_main(const struct CMUnitTest *tests, size_t n)
{
	struct CMUnitTest runs[LAB_TESTS];
	int failed = 0;

	for (const struct lab_setting *s = lab_settings; s->name; s++) {
		if (!ranks_worth(s->kind))
			continue;
		for (size_t i = 0; i < n; i++) {
			runs[i] = tests[i];
			runs[i].initial_state = (void *)(uintptr_t)s;
		}
		failed += _cmocka_run_group_tests(s->name, runs, n, NULL, NULL);
	}
	return failed;
}
