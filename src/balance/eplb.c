/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek's Expert Parallelism Load Balancer in integers: groups of experts
 * are packed to hosts, experts replicated within a host, copies packed to its
 * ranks. The global form is that of one host and one group. docs/balance.md
 * has the formulas, and what differs from the published program.
 */
#include <ferry/eplb.h>

#include <stdlib.h>

#include "../core/range.h"
#include "../core/sized.h"
#include "eplb_inner.h"
#include "problem.h"

/*
 * Weights of copies have this many binary digits behind the point: with loads
 * of 2^40 in all, sums stay below 2^61.
 */
enum { FRACTION_BITS = 20 };

/* One layer at work: arrays for the largest step each. */
struct eplb {
	struct ferry_eplb_config config;
	const int64_t *loads;
	int32_t n_nodes; /* 1 in the global form */
	int32_t n_groups;
	int32_t *first_slot;      /* [n_ranks + 1] */
	int32_t *first_group;     /* [n_nodes + 1] places for groups, by node */
	int32_t *group;           /* [n_groups] groups node by node */
	int32_t *copies;          /* [n_experts] of each expert */
	int32_t *copied;          /* [n_slots] expert of each copy, of a node */
	int32_t *place;           /* [n_slots] copy in each place, of a node */
	int32_t *first_place;     /* [n_ranks + 1] of a node */
	int32_t *n_filled;        /* [n_ranks + n_nodes] */
	int64_t *weight;          /* [n_ranks + n_nodes] */
	int64_t *item_weight;     /* [n_slots + n_groups] */
	struct eplb_order *order; /* [n_slots + n_groups] */
};

static enum ferry_status divides(const char *a, int32_t n, const char *b,
                                 int32_t by)
{
	if (n % by == 0)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "eplb: %s is %d, which %s, %d, does not divide", a, n,
	                  b, by);
}

static enum ferry_status take_config(struct ferry_eplb_config *c,
                                     const struct ferry_eplb_config *given)
{
	FERRY_TRY(ferry_sized_copy(c, sizeof(*c), given, "eplb: config"));
	FERRY_TRY(check_range(NULL, "eplb", "n_experts", c->n_experts, 1,
	                      FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(NULL, "eplb", "n_ranks", c->n_ranks, 1,
	                      FERRY_MAX_RANKS));
	if (c->n_slots == 0)
		c->n_slots = c->n_experts;
	if (c->n_groups == 0)
		c->n_groups = 1;
	if (c->n_nodes == 0)
		c->n_nodes = 1;
	FERRY_TRY(check_range(NULL, "eplb", "n_slots", c->n_slots, c->n_experts,
	                      FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(NULL, "eplb", "n_groups", c->n_groups, 1,
	                      c->n_experts));
	FERRY_TRY(check_range(NULL, "eplb", "n_nodes", c->n_nodes, 1,
	                      c->n_ranks));
	FERRY_TRY(divides("n_experts", c->n_experts, "n_groups", c->n_groups));
	FERRY_TRY(divides("n_ranks", c->n_ranks, "n_nodes", c->n_nodes));
	if (c->as_published)
		return divides("n_slots", c->n_slots, "n_ranks", c->n_ranks);
	return FERRY_OK;
}

static void *numbers(size_t n, size_t more, size_t size)
{
	return calloc(n + more, size);
}

static enum ferry_status allocate(struct eplb *e)
{
	const size_t n_ranks = (size_t)e->config.n_ranks;
	const size_t n_nodes = (size_t)e->config.n_nodes;
	const size_t n_slots = (size_t)e->config.n_slots;
	const size_t n_groups = (size_t)e->config.n_groups;

	e->first_slot = numbers(n_ranks, 1, sizeof(int32_t));
	e->first_place = numbers(n_ranks, 1, sizeof(int32_t));
	e->first_group = numbers(n_nodes, 1, sizeof(int32_t));
	e->group = numbers(n_groups, 0, sizeof(int32_t));
	e->copies = numbers((size_t)e->config.n_experts, 0, sizeof(int32_t));
	e->copied = numbers(n_slots, 0, sizeof(int32_t));
	e->place = numbers(n_slots, 0, sizeof(int32_t));
	e->n_filled = numbers(n_ranks, n_nodes, sizeof(int32_t));
	e->weight = numbers(n_ranks, n_nodes, sizeof(int64_t));
	e->item_weight = numbers(n_slots, n_groups, sizeof(int64_t));
	e->order = numbers(n_slots, n_groups, sizeof(*e->order));
	if (e->first_slot && e->first_place && e->first_group && e->group &&
	    e->copies && e->copied && e->place && e->n_filled && e->weight &&
	    e->item_weight && e->order)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_NOMEM, "eplb: %d experts in %d slots",
	                  e->config.n_experts, e->config.n_slots);
}

static void release(struct eplb *e)
{
	free(e->first_slot);
	free(e->first_place);
	free(e->first_group);
	free(e->group);
	free(e->copies);
	free(e->copied);
	free(e->place);
	free(e->n_filled);
	free(e->weight);
	free(e->item_weight);
	free(e->order);
}

static void number_slots(struct eplb *e)
{
	const int32_t n = e->config.n_slots, by = e->config.n_ranks;

	for (int32_t r = 0; r < by; r++)
		e->first_slot[r + 1] = e->first_slot[r] + n / by + (r < n % by);
}

static int32_t ranks_per_node(const struct eplb *e)
{
	return e->config.n_ranks / e->n_nodes;
}

static int32_t slots_of_node(const struct eplb *e, int32_t node)
{
	const int32_t first = node * ranks_per_node(e);

	return e->first_slot[first + ranks_per_node(e)] - e->first_slot[first];
}

/* Hosts and groups count where groups divide, and every host can hold its. */
static void choose_form(struct eplb *e)
{
	e->n_nodes = e->config.n_nodes;
	e->n_groups = e->config.n_groups;
	/* The last host has the fewest slots. */
	if (e->n_groups % e->n_nodes == 0 &&
	    slots_of_node(e, e->n_nodes - 1) >=
	            e->config.n_experts / e->n_nodes)
		return;
	e->n_nodes = 1;
	e->n_groups = 1;
}

static void pack_groups(struct eplb *e)
{
	const int32_t size = e->config.n_experts / e->n_groups;

	for (int32_t g = 0; g < e->n_groups; g++) {
		e->item_weight[g] = 0;
		for (int32_t i = g * size; i < (g + 1) * size; i++)
			e->item_weight[g] += e->loads[i];
	}
	for (int32_t n = 0; n <= e->n_nodes; n++)
		e->first_group[n] = n * (e->n_groups / e->n_nodes);
	ferry_eplb_pack(&(struct eplb_packing){
		.n_items = e->n_groups,
		.item_weight = e->item_weight,
		.n_packs = e->n_nodes,
		.first = e->first_group,
		.order = e->order,
		.weight = e->weight,
		.n_filled = e->n_filled,
		.place = e->group,
	});
}

/* A node's experts, once each, by its groups. */
static int32_t list_experts(struct eplb *e, int32_t node)
{
	const int32_t size = e->config.n_experts / e->n_groups;
	int32_t n = 0;

	for (int32_t i = e->first_group[node]; i < e->first_group[node + 1];
	     i++)
		for (int32_t j = 0; j < size; j++) {
			const int32_t expert = e->group[i] * size + j;

			e->copies[expert] = 1;
			e->copied[n++] = expert;
		}
	return n;
}

/* Is the load of a copy of `a` larger than that of a copy of `b`? */
static bool weighs_more(const struct eplb *e, int32_t a, int32_t b)
{
	return (__uint128_t)e->loads[a] * (uint32_t)e->copies[b] >
	       (__uint128_t)e->loads[b] * (uint32_t)e->copies[a];
}

/* The expert of a node that gets the next copy; -1: there are enough of all. */
static int32_t next_to_copy(const struct eplb *e, int32_t n_experts,
                            int32_t most)
{
	int32_t best = -1;

	for (int32_t i = 0; i < n_experts; i++) {
		const int32_t expert = e->copied[i];

		if (e->copies[expert] < most &&
		    (best < 0 || weighs_more(e, expert, best)))
			best = expert;
	}
	return best;
}

/* Copies until the node's slots are full; returns how many there are. */
static int32_t replicate(struct eplb *e, int32_t node)
{
	const int32_t n_slots = slots_of_node(e, node);
	const int32_t n_experts = list_experts(e, node);
	const int32_t most =
		e->config.as_published ? INT32_MAX : ranks_per_node(e);
	int32_t n = n_experts;

	while (n < n_slots) {
		const int32_t expert = next_to_copy(e, n_experts, most);

		if (expert < 0)
			break;
		e->copies[expert]++;
		e->copied[n++] = expert;
	}
	for (int32_t i = 0; i < n; i++) {
		const int32_t expert = e->copied[i];

		e->item_weight[i] =
			(e->loads[expert] << FRACTION_BITS) / e->copies[expert];
	}
	return n;
}

static void fill_node(struct eplb *e, int32_t node, int32_t *slot_expert)
{
	const int32_t *const first =
		e->first_slot + (ptrdiff_t)node * ranks_per_node(e);
	const int32_t n_slots = slots_of_node(e, node);

	for (int32_t r = 0; r <= ranks_per_node(e); r++)
		e->first_place[r] = first[r] - first[0];
	ferry_eplb_pack(&(struct eplb_packing){
		.n_items = replicate(e, node),
		.item_weight = e->item_weight,
		.kind = e->config.as_published ? NULL : e->copied,
		.n_packs = ranks_per_node(e),
		.first = e->first_place,
		.order = e->order,
		.weight = e->weight,
		.n_filled = e->n_filled,
		.place = e->place,
	});
	for (int32_t i = 0; i < n_slots; i++)
		slot_expert[first[0] + i] =
			e->place[i] < 0 ? -1 : e->copied[e->place[i]];
}

enum ferry_status ferry_eplb(const struct ferry_eplb_config *config,
                             const int64_t *loads, int32_t *slot_expert)
{
	struct eplb e = {.loads = loads};
	int64_t total;

	FERRY_TRY(take_config(&e.config, config));
	if (!slot_expert)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "eplb: slot_expert is NULL");
	FERRY_TRY(ferry_check_loads("eplb", loads, e.config.n_experts, &total));
	const enum ferry_status status = allocate(&e);

	if (status == FERRY_OK) {
		number_slots(&e);
		choose_form(&e);
		pack_groups(&e);
		for (int32_t node = 0; node < e.n_nodes; node++)
			fill_node(&e, node, slot_expert);
	}
	release(&e);
	return status;
}
