/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a balancer: checks, the comparison of ranks, memory. */
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/sized.h"
#include "agree_numbers.h"
#include "balancer_inner.h"

enum { DEFAULT_RECHECK = 8, DEFAULT_EVERY = 64 };

static int64_t hash_of(const void *numbers, size_t bytes, int64_t from)
{
	const unsigned char *at = numbers;
	uint64_t h = (uint64_t)from;

	for (size_t i = 0; i < bytes; i++)
		h = hash_u64(h, at[i]);
	return (int64_t)h;
}

static int64_t hash_of_cost(const struct ferry_balancer *b)
{
	const size_t bytes =
		(size_t)b->n_ranks * (size_t)b->n_ranks * sizeof(int64_t);

	return hash_of(b->ps_per_byte, bytes, hash_of(b->alpha_ns, bytes, 1));
}

/* What must be equal on all ranks. There are no arrays where `mine` failed. */
static enum ferry_status compare(struct ferry_balancer *b,
                                 enum ferry_status mine)
{
	const struct ferry_balancer_config *c = &b->config;
	const bool whole = mine == FERRY_OK;
	const size_t speed_bytes = (size_t)b->n_ranks * sizeof(int32_t);
	const struct ferry_agreed own[] = {
		{"policy", c->policy},
		{"rule", c->rule},
		{"gamma_milli", c->gamma_milli},
		{"max_swaps", c->max_swaps},
		{"max_copies", c->max_copies},
		{"threshold_ppm", c->threshold_ppm},
		{"recheck", c->recheck_steps},
		{"cost (its hash)", whole && c->cost ? hash_of_cost(b) : 0},
		{"half_duplex", b->cost.half_duplex},
		{"speed (its hash)",
	         whole ? hash_of(b->speed, speed_bytes, 0) : 0},
		{"eplb_every", c->eplb_every},
		{"eplb_groups", c->eplb_groups},
		{"n_nodes", c->n_nodes},
		{"history_window", c->history_window},
		{"history_decay_ppm", c->history_decay_ppm},
		{"thorough", c->thorough},
		{"spare_copies", c->spare_copies},
		{"calibrate", c->calibrate},
		{"margin_ppm", c->margin_ppm},
	};

	return ferry_agree_numbers(b->world, "balancer_open", mine, own,
	                           sizeof(own) / sizeof(*own));
}

static enum ferry_status refuse(struct ferry_balancer *b, const char *name,
                                int64_t value, const char *allowed)
{
	return ferry_fail(&b->world->ctx, FERRY_INVAL,
	                  "balancer_open: %s is %lld, allowed are %s", name,
	                  (long long)value, allowed);
}

static enum ferry_status check_rule(struct ferry_balancer *b)
{
	struct ferry_balancer_config *c = &b->config;

	if (c->policy > FERRY_BALANCE_EPLB_FERRY)
		return refuse(b, "policy", c->policy, "0..5");
	if (c->policy & FERRY_BALANCE_FREEBALANCE) {
		if (c->rule == FERRY_RULE_PORTFOLIO)
			c->rule = FERRY_RULE_RESELECT;
		if (c->rule != FERRY_RULE_SORTED &&
		    c->rule != FERRY_RULE_RESELECT)
			return refuse(b, "rule", c->rule,
			              "0..2 for FREEBALANCE");
	} else if (c->rule != FERRY_RULE_PORTFOLIO) {
		return refuse(b, "rule", c->rule, "0 but for FREEBALANCE");
	}
	return FERRY_OK;
}

static enum ferry_status check_numbers(struct ferry_balancer *b)
{
	struct ferry_balancer_config *c = &b->config;

	if (c->max_swaps < -1 || c->max_swaps > FERRY_PLAN_MOVES)
		return refuse(b, "max_swaps", c->max_swaps, "-1..256");
	if (c->max_copies < -1 || c->max_copies > FERRY_PLAN_MOVES)
		return refuse(b, "max_copies", c->max_copies, "-1..256");
	if (c->gamma_milli < -1)
		return refuse(b, "gamma_milli", c->gamma_milli, "-1..");
	if (c->threshold_ppm < 0)
		return refuse(b, "threshold_ppm", c->threshold_ppm, "0..");
	if (c->margin_ppm < 0 || c->margin_ppm > MARGIN_MOST_PPM)
		return refuse(b, "margin_ppm", c->margin_ppm, "0..1000000000");
	if (c->recheck_steps < 0)
		return refuse(b, "recheck_steps", c->recheck_steps, "0..");
	if (c->eplb_every < 0)
		return refuse(b, "eplb_every", c->eplb_every, "0..");
	if (c->n_nodes < 0 || b->n_ranks % (c->n_nodes ? c->n_nodes : 1))
		return refuse(b, "n_nodes", c->n_nodes,
		              "divisors of the number of ranks");
	if (!c->recheck_steps)
		c->recheck_steps = DEFAULT_RECHECK;
	if (!c->eplb_every)
		c->eplb_every = DEFAULT_EVERY;
	return FERRY_OK;
}

static enum ferry_status no_memory(struct ferry_balancer *b)
{
	return ferry_fail(&b->world->ctx, FERRY_NOMEM,
	                  "balancer_open: %d layers on %d ranks",
	                  b->experts->n_layers, b->n_ranks);
}

enum ferry_status ferry_balancer_set_speed(struct ferry_balancer *balancer,
                                           const int32_t *speed)
{
	struct ferry_balancer *b = balancer;

	if (!b || !speed)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "balancer_set_speed: %s is NULL",
		                  b ? "speed" : "balancer");
	for (int32_t r = 0; r < b->n_ranks; r++)
		if (speed[r] < 1 || speed[r] > 1000000)
			return ferry_fail(&b->world->ctx, FERRY_RANGE,
			                  "balancer_set_speed: speed[%d] is "
			                  "%d, allowed are 1..1000000",
			                  r, speed[r]);
	memcpy(b->speed, speed, (size_t)b->n_ranks * sizeof(*speed));
	return FERRY_OK;
}

static enum ferry_status take_speed(struct ferry_balancer *b)
{
	b->speed = calloc((size_t)b->n_ranks, sizeof(*b->speed));
	if (!b->speed)
		return no_memory(b);
	for (int32_t r = 0; r < b->n_ranks; r++)
		b->speed[r] = FERRY_SPEED_NORMAL;
	if (b->config.speed)
		FERRY_TRY(ferry_balancer_set_speed(b, b->config.speed));
	b->config.speed = NULL;
	return FERRY_OK;
}

static enum ferry_status take_cost(struct ferry_balancer *b)
{
	const size_t n = (size_t)b->n_ranks * (size_t)b->n_ranks;
	struct ferry_cost given;

	b->alpha_ns = calloc(n, sizeof(*b->alpha_ns));
	b->ps_per_byte = calloc(n, sizeof(*b->ps_per_byte));
	if (!b->alpha_ns || !b->ps_per_byte)
		return no_memory(b);
	b->cost = (struct ferry_cost)FERRY_COST_INIT;
	b->cost.n_ranks = b->n_ranks;
	b->cost.alpha_ns = b->alpha_ns;
	b->cost.ps_per_byte = b->ps_per_byte;
	b->cost.all_bytes = (int64_t)b->experts->expert_bytes;
	if (!b->config.cost)
		return FERRY_OK;
	FERRY_TRY(ferry_sized_copy(&given, sizeof(given), b->config.cost,
	                           "balancer_open: cost"));
	if (given.n_ranks != b->n_ranks || !given.alpha_ns ||
	    !given.ps_per_byte)
		return refuse(b, "cost->n_ranks", given.n_ranks,
		              "that of the world, with both tables");
	for (size_t i = 0; i < n; i++)
		if (given.alpha_ns[i] < 0 || given.ps_per_byte[i] < 0)
			return refuse(b, "a number of cost", -1, "0..");
	memcpy(b->alpha_ns, given.alpha_ns, n * sizeof(*b->alpha_ns));
	memcpy(b->ps_per_byte, given.ps_per_byte, n * sizeof(*b->ps_per_byte));
	b->cost.half_duplex = given.half_duplex;
	return FERRY_OK;
}

static bool make_layer(const struct ferry_balancer *b, struct balancer_layer *l,
                       const struct ferry_placement *p)
{
	const size_t n_slots = (size_t)p->map.n_slots;
	const size_t n_experts = (size_t)p->n_experts;

	l->n_experts = p->n_experts;
	l->n_slots = p->map.n_slots;
	l->split = p->split;
	l->first = ferry_balancer_copy(p);
	l->base = calloc(n_slots, 3 * sizeof(*l->base));
	l->foreseen = calloc(n_experts, 2 * sizeof(*l->foreseen));
	l->seen = calloc(n_experts, sizeof(*l->seen));
	if (!l->first || !l->base || !l->foreseen || !l->seen)
		return false;
	if (balancer_calibrates(b) &&
	    !ferry_calibration_init(&l->calibration, p->n_experts))
		return false;
	l->next = l->base + n_slots;
	l->goal = l->next + n_slots;
	l->loads = l->foreseen + n_experts;
	memcpy(l->base, p->slot_expert, n_slots * sizeof(*l->base));
	return true;
}

/* Scratch for the largest layer, which has one expert at least. */
static bool make_scratch(struct ferry_balancer *b, size_t n_experts,
                         size_t n_slots)
{
	const size_t n_ranks = (size_t)b->n_ranks;

	if (!n_experts || !n_slots)
		return false;
	b->counts = calloc(2 * n_experts + 1, sizeof(*b->counts));
	b->sums = calloc(2 * n_experts + 1, sizeof(*b->sums));
	b->past = calloc(n_experts, sizeof(*b->past));
	b->slots = calloc(n_ranks, sizeof(*b->slots));
	b->coming = calloc(n_ranks, sizeof(*b->coming));
	b->change = calloc(n_slots, sizeof(*b->change));
	b->sources = calloc(n_slots, 2 * sizeof(*b->sources));
	b->quota = calloc(n_slots, sizeof(*b->quota));
	return b->counts && b->sums && b->past && b->slots && b->coming &&
	       b->change && b->sources && b->quota;
}

static enum ferry_status make_parts(struct ferry_balancer *b)
{
	struct ferry_history_config h = FERRY_HISTORY_CONFIG_INIT;
	int32_t n_slots = 0;

	b->layers = calloc((size_t)b->experts->n_layers, sizeof(*b->layers));
	h.n_layers = b->experts->n_layers;
	for (int32_t i = 0; b->layers && i < h.n_layers; i++) {
		struct balancer_layer *l = &b->layers[i];

		if (!make_layer(b, l, ferry_experts_placement(b->experts, i)))
			return no_memory(b);
		ferry_balancer_want(b, l);
		n_slots = l->n_slots > n_slots ? l->n_slots : n_slots;
		h.n_experts =
			l->n_experts > h.n_experts ? l->n_experts : h.n_experts;
	}
	if (!b->layers ||
	    !make_scratch(b, (size_t)h.n_experts, (size_t)n_slots))
		return no_memory(b);
	b->most_experts = h.n_experts;
	h.window = b->config.history_window;
	h.decay_ppm = b->config.history_decay_ppm;
	FERRY_TRY(ferry_planner_create(h.n_experts, n_slots, b->n_ranks,
	                               &b->planner));
	if (balancer_has_history(b))
		FERRY_TRY(ferry_history_create(&h, &b->history));
	for (int32_t i = 0; balancer_has_history(b) && i < h.n_layers; i++)
		FERRY_TRY(ferry_balancer_fits_eplb(b, i));
	return FERRY_OK;
}

static enum ferry_status prepare(struct ferry_balancer *b,
                                 const struct ferry_balancer_config *config)
{
	FERRY_TRY(ferry_sized_copy(&b->config, sizeof(b->config), config,
	                           "balancer_config"));
	b->experts = b->config.experts;
	if (!b->experts || b->experts->world != b->world)
		return ferry_fail(&b->world->ctx, FERRY_INVAL,
		                  "balancer_open: experts is %s",
		                  b->experts ? "of another world" : "NULL");
	/* Twice what a plan brings keeps every plan going. */
	b->most_in = b->experts->n_staging / 2;
	if (b->most_in < 2)
		b->most_in = b->experts->n_staging;
	FERRY_TRY(check_rule(b));
	FERRY_TRY(check_numbers(b));
	FERRY_TRY(take_speed(b));
	FERRY_TRY(take_cost(b));
	return make_parts(b);
}

static enum ferry_status measure(struct ferry_balancer *b)
{
	struct ferry_cost_config c = FERRY_COST_CONFIG_INIT;

	if (b->config.cost || !balancer_plans(b) || b->n_ranks == 1)
		return FERRY_OK;
	c.max_bytes = min_i64(max_i64(b->cost.all_bytes, 4096), 1 << 30);
	return ferry_cost_measure(b->world, &c, b->alpha_ns, b->ps_per_byte);
}

static enum ferry_status open_steps(struct ferry_balancer *b,
                                    const struct ferry_balancer_config *config)
{
	FERRY_TRY(compare(b, prepare(b, config)));
	if (b->config.policy == FERRY_BALANCE_OFF)
		return FERRY_OK;
	FERRY_TRY(ferry_totals_open(b->world, 2 * b->most_experts + 1,
	                            &b->totals));
	return measure(b);
}

enum ferry_status
ferry_balancer_open(struct ferry_world *world,
                    const struct ferry_balancer_config *config,
                    struct ferry_balancer **balancer)
{
	if (!world || !balancer)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "balancer_open: %s is NULL",
		                  world ? "balancer" : "world");
	struct ferry_balancer *const b = calloc(1, sizeof(*b));

	if (!b)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "balancer_open: %zu bytes", sizeof(*b));
	b->world = world;
	b->n_ranks = world->n_ranks;
	b->sent = -1;
	pthread_mutex_init(&b->lock, NULL);
	const enum ferry_status status = open_steps(b, config);

	if (status != FERRY_OK) {
		ferry_balancer_close(b);
		return status;
	}
	*balancer = b;
	return FERRY_OK;
}

static void free_layers(struct ferry_balancer *b)
{
	for (int32_t i = 0; b->layers && i < b->experts->n_layers; i++) {
		struct balancer_layer *l = &b->layers[i];

		ferry_placement_destroy(l->first);
		ferry_calibration_destroy(&l->calibration);
		ferry_balancer_forget(l);
		free(l->base);     /* and next, and goal */
		free(l->foreseen); /* and loads */
		free(l->seen);
	}
	free(b->layers);
}

void ferry_balancer_close(struct ferry_balancer *balancer)
{
	struct ferry_balancer *b = balancer;

	if (!b)
		return;
	ferry_totals_close(b->totals);
	ferry_planner_destroy(b->planner);
	ferry_history_destroy(b->history);
	free_layers(b);
	free(b->alpha_ns);
	free(b->ps_per_byte);
	free(b->speed);
	free(b->counts);
	free(b->sums);
	free(b->past);
	free(b->slots);
	free(b->coming);
	free(b->change);
	free(b->sources);
	free(b->quota);
	pthread_mutex_destroy(&b->lock);
	free(b);
}
