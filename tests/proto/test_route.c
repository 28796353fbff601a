/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout function against a naive one: list every choice that a rank
 * serves, sort by (slot, group, token, choice), hand out rows until there are
 * none. Shapes, groups, masks, duplicates, uneven slots, alignment and
 * capacities are random; the seed is printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/bits.h"
#include "proto/layout.h"
#include "test_seed.h"

static uint64_t seed;

static int32_t from_to(int32_t low, int32_t high)
{
	return low + (int32_t)(rng_next(&seed) % (uint64_t)(high - low + 1));
}

static void *allocate(size_t n, size_t stride)
{
	void *const p = calloc(n ? n : 1, stride);

	assert_non_null(p);
	return p;
}

enum { MAX_RANKS = 12 };

/* A shape and the tables of its groups. */
struct world {
	struct ferry_moe_config config;
	int32_t n_ranks;
	int32_t expert_slots[MAX_RANKS];
	struct ferry_shape shape;
	const struct ferry_table *tables[MAX_RANKS];
};

static void random_config(struct world *w)
{
	struct ferry_moe_config *const c = &w->config;

	*c = (struct ferry_moe_config)FERRY_MOE_CONFIG_INIT;
	c->group_size = from_to(0, 2) ? 1 : from_to(1, 4);
	w->n_ranks = c->group_size * from_to(1, MAX_RANKS / c->group_size);
	c->max_tokens = from_to(1, 40);
	c->hidden = 8;
	c->topk = from_to(0, 3) ? from_to(1, 12) : from_to(1, 64);
	c->n_experts = from_to(1, 60);
	c->layout = (enum ferry_layout)from_to(0, 2);
	c->alignment = 1 << from_to(0, 8);
	c->overflow = FERRY_OVERFLOW_DROP;
	if (from_to(0, 1))
		return;
	int32_t sum = 0;

	for (int32_t r = 0; r < w->n_ranks; r++)
		sum += w->expert_slots[r] = from_to(0, 9);
	w->expert_slots[0] += !sum;
	c->expert_slots = w->expert_slots;
}

/* Binding, loose or no capacity; a multiple of nothing in particular. */
static void random_capacity(struct world *w)
{
	struct ferry_moe_config *const c = &w->config;
	const int32_t tokens = w->n_ranks / c->group_size * c->max_tokens;

	switch (from_to(0, 3)) {
	case 0:
		c->max_recv_rows = 0;
		break;
	case 1:
		c->max_recv_rows = from_to(c->alignment, c->alignment + 20);
		break;
	default:
		c->max_recv_rows =
			c->alignment + from_to(0, tokens * c->topk * 2);
	}
}

/*
 * Ids of one group. `hot` in 8 choices go to one slot; masked and unknown
 * slots among them.
 */
static struct ferry_table *random_table(const struct ferry_shape *s)
{
	struct ferry_table *const t = allocate(1, s->table_bytes);
	const int32_t hot = from_to(0, 6), masked = from_to(0, 6);
	const int32_t hot_slot = from_to(0, s->n_expert_slots - 1);

	t->n_tokens = from_to(0, 3) ? from_to(0, s->max_tokens) : 0;
	t->topk = from_to(1, s->topk);
	for (int32_t i = 0; i < t->n_tokens * t->topk; i++) {
		int32_t id = from_to(0, s->n_expert_slots - 1);

		if (from_to(0, 7) < hot)
			id = hot_slot;
		if (from_to(0, 15) < masked)
			id = FERRY_NO_SLOT;
		ferry_table_slots(t)[i] = id;
	}
	return t;
}

static void random_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	random_config(w);
	random_capacity(w);
	if (ferry_shape_init(&w->shape, &w->config, w->n_ranks, 0))
		fail_msg("%s", ferry_last_error());
	for (int32_t g = 0; g < w->shape.n_groups; g++)
		w->tables[g] = random_table(&w->shape);
}

static void destroy_world(struct world *w)
{
	for (int32_t g = 0; g < w->shape.n_groups; g++)
		free((void *)(uintptr_t)w->tables[g]);
	ferry_shape_destroy(&w->shape);
}

/* One choice that a rank serves, and the row that it gets, -1: none. */
struct entry {
	int32_t slot, group, token, choice;
	int64_t index, row;
};

static int by_receive_order(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	if (x->token != y->token)
		return x->token < y->token ? -1 : 1;
	return x->choice < y->choice ? -1 : 1;
}

static int by_arrival(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	if (x->token != y->token)
		return x->token < y->token ? -1 : 1;
	return x->choice < y->choice ? -1 : 1;
}

static int64_t list_entries(const struct world *w, int32_t rank,
                            struct entry *list)
{
	int64_t n = 0;

	for (int32_t g = 0; g < w->shape.n_groups; g++) {
		const struct ferry_table *const t = w->tables[g];

		for (int32_t i = 0; i < t->n_tokens * t->topk; i++) {
			const int32_t slot = ferry_table_slots_const(t)[i];

			if (slot < 0 || w->shape.slot_rank[slot] != rank)
				continue;
			list[n++] = (struct entry){
				.slot = slot - w->shape.first_slot[rank],
				.group = g,
				.token = i / t->topk,
				.choice = i % t->topk,
			};
		}
	}
	return n;
}

static bool has_room(const struct ferry_shape *s, const struct entry *e)
{
	if (s->layout == FERRY_EXPERT_PADDED)
		return e->index < s->padded_rows;
	return e->row < s->recv_rows;
}

/* Rows in receive order; those without room get -1. */
static void place_entries(const struct ferry_shape *s, struct entry *list,
                          int64_t n)
{
	const int64_t to = s->layout == FERRY_EXPERT_PADDED ? 1 : s->alignment;
	int64_t start = 0, in_slot = 0;
	int32_t slot = 0;

	qsort(list, (size_t)n, sizeof(*list), by_receive_order);
	for (int64_t i = 0; i < n; i++) {
		for (; slot < list[i].slot; slot++) {
			start = (start + in_slot + to - 1) / to * to;
			in_slot = 0;
		}
		list[i].index = in_slot;
		list[i].row = s->layout == FERRY_EXPERT_PADDED
		                      ? slot * s->padded_rows + in_slot
		                      : start + in_slot;
		if (has_room(s, &list[i]))
			in_slot++;
		else
			list[i].row = -1;
	}
}

static void check_copies(const struct world *w, const struct ferry_route *r,
                         const struct entry *list, int64_t n)
{
	int64_t copy = 0;

	for (int64_t i = 0; i < n; i++) {
		if (list[i].row < 0)
			continue;
		const struct ferry_copy *const c = &r->copies[copy++];

		assert_int_equal(c->slot, list[i].slot);
		assert_int_equal(c->choice, list[i].choice);
		assert_int_equal(c->index, list[i].index);
		assert_int_equal(
			ferry_route_row(r, &w->shape, w->shape.layout, c),
			list[i].row);
	}
	assert_int_equal(r->n_copies, copy);
	assert_int_equal(r->n_dropped, n - copy);
}

/* Walks the kept entries by (group, token) beside the arrivals. */
static void check_arrivals(const struct ferry_route *r,
                           const struct entry *list, int64_t n)
{
	int64_t arrival = -1, copy = 0, end = 0;

	for (int64_t i = 0; i < n; i++) {
		if (list[i].row < 0)
			continue;
		if (copy == end)
			end += r->arrivals[++arrival].n_copies;
		assert_true(arrival < r->n_arrivals);
		const struct ferry_arrival *const a = &r->arrivals[arrival];

		assert_int_equal(a->group, list[i].group);
		assert_int_equal(a->token, list[i].token);
		assert_in_range(copy, a->first_copy,
		                a->first_copy + a->n_copies - 1);
		assert_in_range(arrival, r->group_first[a->group],
		                r->group_first[a->group + 1] - 1);
		copy++;
	}
	assert_int_equal(r->n_arrivals, arrival + 1);
}

/* The n-th token of a carrier that has a choice here, dropped or not. */
static void check_ordinals(const struct world *w, const struct ferry_route *r,
                           const struct entry *list, int64_t n)
{
	int64_t from[MAX_RANKS] = {0}, arrival = 0;

	for (int64_t i = 0; i < n; i++) {
		const struct entry *const e = &list[i];
		const int32_t carrier = e->group * w->shape.group_size +
		                        e->token % w->shape.group_size;

		if (i && list[i - 1].group == e->group &&
		    list[i - 1].token == e->token)
			continue;
		const struct ferry_arrival *const a = &r->arrivals[arrival];

		if (arrival < r->n_arrivals && a->group == e->group &&
		    a->token == e->token) {
			assert_int_equal(a->ordinal, from[carrier]);
			arrival++;
		}
		from[carrier]++;
	}
	assert_int_equal(arrival, r->n_arrivals);
	for (int32_t rank = 0; rank < w->n_ranks; rank++)
		assert_int_equal(r->rows_from[rank], from[rank]);
}

static void check_slots(const struct world *w, const struct ferry_route *r,
                        int32_t rank, const struct entry *list, int64_t n)
{
	const int32_t n_own =
		w->shape.first_slot[rank + 1] - w->shape.first_slot[rank];
	int64_t offset = 0, max = 0;

	for (int32_t s = 0; s < n_own; s++) {
		int64_t kept = 0, wanted = 0;

		for (int64_t i = 0; i < n; i++) {
			wanted += list[i].slot == s;
			kept += list[i].slot == s && list[i].row >= 0;
		}
		assert_int_equal(r->wanted[s], wanted);
		assert_int_equal(r->counts[s], kept);
		assert_int_equal(r->offsets[s], offset);
		offset = (offset + kept + w->shape.alignment - 1) /
		         w->shape.alignment * w->shape.alignment;
		max = kept > max ? kept : max;
	}
	assert_int_equal(r->offsets[n_own], offset);
	assert_int_equal(r->max_count, max);
	if (w->shape.layout != FERRY_EXPERT_PADDED)
		assert_true(offset <= w->shape.recv_rows);
}

static int64_t max_entries(const struct world *w)
{
	return (int64_t)w->shape.n_groups * w->shape.max_tokens * w->shape.topk;
}

static void check_rank(const struct world *w, struct ferry_route *r,
                       int32_t rank, struct entry *list)
{
	const int64_t n = list_entries(w, rank, list);

	place_entries(&w->shape, list, n);
	assert_int_equal(ferry_route_build(r, &w->shape, w->tables, rank), 0);
	check_slots(w, r, rank, list, n);
	qsort(list, (size_t)n, sizeof(*list), by_arrival);
	check_copies(w, r, list, n);
	check_arrivals(r, list, n);
	check_ordinals(w, r, list, n);
}

static void agrees_with_the_naive_one(void **state)
{
	struct world w;
	struct ferry_route r;
	int64_t dropped = 0, kept = 0;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		random_world(&w);
		struct entry *const list =
			allocate((size_t)max_entries(&w), sizeof(struct entry));

		assert_int_equal(ferry_route_init(&r, &w.shape), FERRY_OK);
		for (int32_t rank = 0; rank < w.n_ranks; rank++) {
			check_rank(&w, &r, rank, list);
			dropped += r.n_dropped;
			kept += r.n_copies;
		}
		ferry_route_destroy(&r);
		free(list);
		destroy_world(&w);
	}
	print_message("%lld rows kept, %lld dropped\n", (long long)kept,
	              (long long)dropped);
	assert_true(kept > 0 && dropped > 0);
}

/* Marks what is in a route of `rank`, over the own choices of all groups. */
static void mark_kept(const struct world *w, const struct ferry_route *r,
                      uint8_t *const *kept)
{
	for (int64_t i = 0; i < r->n_arrivals; i++) {
		const struct ferry_arrival *const a = &r->arrivals[i];
		const int32_t topk = w->tables[a->group]->topk;

		for (int32_t j = 0; j < a->n_copies; j++)
			kept[a->group][a->token * topk +
			               r->copies[a->first_copy + j].choice]++;
	}
}

static void check_drops(const struct world *w, struct ferry_route *r,
                        int32_t group, const uint8_t *kept)
{
	const struct ferry_table *const t = w->tables[group];
	const int32_t n = t->n_tokens * t->topk;
	uint8_t *const dropped = allocate((size_t)n, 1);

	memset(dropped, 7, (size_t)n);
	assert_int_equal(
		ferry_route_drops(r, &w->shape, w->tables, group, dropped), 0);
	for (int32_t i = 0; i < n; i++) {
		const bool served = ferry_table_slots_const(t)[i] >= 0;

		assert_int_equal(kept[i], served && !dropped[i]);
		assert_true(dropped[i] <= served);
	}
	free(dropped);
}

/* Both sides of a drop come to the same choices. */
static void drops_agree_with_the_destination(void **state)
{
	struct world w;
	struct ferry_route r;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		uint8_t *kept[MAX_RANKS];

		random_world(&w);
		assert_int_equal(ferry_route_init(&r, &w.shape), FERRY_OK);
		for (int32_t g = 0; g < w.shape.n_groups; g++)
			kept[g] = allocate((size_t)w.tables[g]->n_tokens,
			                   (size_t)w.tables[g]->topk);
		for (int32_t rank = 0; rank < w.n_ranks; rank++) {
			assert_int_equal(
				ferry_route_build(&r, &w.shape, w.tables, rank),
				FERRY_OK);
			mark_kept(&w, &r, kept);
		}
		for (int32_t g = 0; g < w.shape.n_groups; g++) {
			check_drops(&w, &r, g, kept[g]);
			free(kept[g]);
		}
		ferry_route_destroy(&r);
		destroy_world(&w);
	}
}

/* Under the error policy: OVERFLOW exactly where a row would be dropped. */
static void overflow_is_an_error(void **state)
{
	struct world w;
	struct ferry_route r;
	int n_overflows = 0;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		random_world(&w);
		struct entry *const list =
			allocate((size_t)max_entries(&w), sizeof(struct entry));

		w.shape.overflow = FERRY_OVERFLOW_ERROR;
		assert_int_equal(ferry_route_init(&r, &w.shape), FERRY_OK);
		const int64_t n = list_entries(&w, 0, list);
		bool over = false;

		place_entries(&w.shape, list, n);
		for (int64_t i = 0; i < n; i++)
			over |= list[i].row < 0;
		assert_int_equal(ferry_route_build(&r, &w.shape, w.tables, 0),
		                 over ? FERRY_OVERFLOW : FERRY_OK);
		assert_int_equal(r.n_copies, n);
		n_overflows += over;
		ferry_route_destroy(&r);
		free(list);
		destroy_world(&w);
	}
	assert_true(n_overflows > 0);
}

/* One expert gets everything, each token naming it topk times. */
static void worst_case_fits(void **state)
{
	struct world w;
	struct ferry_route r;

	(void)state;
	for (int layout = FERRY_EXPERT_PACKED; layout <= FERRY_TOKEN;
	     layout++) {
		memset(&w, 0, sizeof(w));
		random_config(&w);
		w.config.layout = (enum ferry_layout)layout;
		assert_int_equal(
			ferry_shape_init(&w.shape, &w.config, w.n_ranks, 0), 0);
		const int32_t slot = from_to(0, w.shape.n_expert_slots - 1);
		struct ferry_table *const t = allocate(1, w.shape.table_bytes);

		t->n_tokens = w.shape.max_tokens;
		t->topk = w.shape.topk;
		for (int32_t i = 0; i < t->n_tokens * t->topk; i++)
			ferry_table_slots(t)[i] = slot;
		for (int32_t g = 0; g < w.shape.n_groups; g++)
			w.tables[g] = t;
		assert_int_equal(ferry_route_init(&r, &w.shape), FERRY_OK);
		assert_int_equal(ferry_route_build(&r, &w.shape, w.tables,
		                                   w.shape.slot_rank[slot]),
		                 0);
		assert_int_equal(r.n_dropped, 0);
		assert_int_equal(r.n_copies, max_entries(&w));
		assert_int_equal(r.n_copies, r.max_count);
		ferry_route_destroy(&r);
		free(t);
		ferry_shape_destroy(&w.shape);
	}
}

static void tables_beyond_the_shape_are_refused(void **state)
{
	struct world w;
	struct ferry_route r;
	uint8_t dropped[1];

	(void)state;
	random_world(&w);
	assert_int_equal(ferry_route_init(&r, &w.shape), FERRY_OK);
	struct ferry_table bad = *w.tables[0];
	const struct ferry_table *const good = w.tables[0];

	w.tables[0] = &bad;
	bad.n_tokens = w.shape.max_tokens + 1;
	assert_int_equal(ferry_route_build(&r, &w.shape, w.tables, 0),
	                 FERRY_PROTO);
	bad.n_tokens = -1;
	assert_int_equal(ferry_route_drops(&r, &w.shape, w.tables, 0, dropped),
	                 FERRY_PROTO);
	bad.n_tokens = 1;
	bad.topk = w.shape.topk + 1;
	assert_int_equal(ferry_route_build(&r, &w.shape, w.tables, 0),
	                 FERRY_PROTO);
	w.tables[0] = good;
	ferry_route_destroy(&r);
	destroy_world(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_the_naive_one),
		cmocka_unit_test(drops_agree_with_the_destination),
		cmocka_unit_test(overflow_is_an_error),
		cmocka_unit_test(worst_case_fits),
		cmocka_unit_test(tables_beyond_the_shape_are_refused),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
