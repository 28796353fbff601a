/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts and landings: every rank of a host must come to the same, and to what
 * the sender does, from a naive reading of the tables.
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

enum { MAX_RANKS = 12 };

static uint64_t seed;

static int32_t from_to(int32_t low, int32_t high)
{
	return low + (int32_t)(rng_next(&seed) % (uint64_t)(high - low + 1));
}

static void hosts_are_numbered(void **state)
{
	static const uint64_t ids[] = {9, 4, 9, 7, 4, 9};
	static const int32_t of[] = {0, 1, 0, 2, 1, 0};
	static const int32_t place[] = {0, 0, 1, 0, 1, 2};
	static const int32_t ranks[] = {0, 2, 5, 1, 4, 3};
	struct ferry_hosts h;

	(void)state;
	assert_int_equal(ferry_hosts_init(&h, ids, 6, 4), FERRY_OK);
	assert_int_equal(h.n, 3);
	assert_int_equal(h.own, 1);
	assert_int_equal(h.most_ranks, 3);
	assert_int_equal(h.fewest_ranks, 1);
	assert_memory_equal(h.of, of, sizeof(of));
	assert_memory_equal(h.place, place, sizeof(place));
	assert_memory_equal(h.ranks, ranks, sizeof(ranks));
	assert_int_equal(ferry_hosts_size(&h, 0), 3);
	assert_int_equal(ferry_hosts_rank(&h, 0, 2), 5);
	assert_true(ferry_hosts_far(&h, 0));
	assert_false(ferry_hosts_far(&h, 1));
	ferry_hosts_destroy(&h);
	assert_false(ferry_hosts_far(&h, 0)); /* no hierarchy, nobody is */
}

static void large_hosts_are_refused(void **state)
{
	uint64_t ids[FERRY_MAX_HOST_RANKS + 2] = {0};
	struct ferry_hosts h;

	(void)state;
	assert_int_equal(ferry_hosts_init(&h, ids, FERRY_MAX_HOST_RANKS + 1, 0),
	                 FERRY_UNSUPPORTED);
	assert_non_null(strstr(ferry_last_error(), "65 ranks"));
	ids[0] = 1;
	assert_int_equal(ferry_hosts_init(&h, ids, FERRY_MAX_HOST_RANKS + 1, 0),
	                 FERRY_OK);
	assert_int_equal(h.most_ranks, FERRY_MAX_HOST_RANKS);
	ferry_hosts_destroy(&h);
}

static void landings_take_turns(void **state)
{
	const uint64_t mask = UINT64_C(1) << 63 | 1 << 5 | 1;

	(void)state;
	assert_int_equal(ferry_hosts_landing(mask, 0), 0);
	assert_int_equal(ferry_hosts_landing(mask, 1), 5);
	assert_int_equal(ferry_hosts_landing(mask, 2), 63);
	assert_int_equal(ferry_hosts_landing(mask, 3), 0);
	assert_int_equal(ferry_hosts_landing(4, INT32_MAX), 2);
}

/* Random tables of a random world, seen from one rank. */
struct world {
	struct ferry_moe_config config;
	uint64_t ids[MAX_RANKS];
	int32_t n_ranks;
	struct ferry_shape shape;
	struct ferry_table *tables[MAX_RANKS];
};

static void make_world(struct world *w)
{
	struct ferry_moe_config *c = &w->config;

	*c = (struct ferry_moe_config)FERRY_MOE_CONFIG_INIT;
	c->group_size = from_to(0, 2) ? 1 : from_to(1, 4);
	w->n_ranks = c->group_size * from_to(1, MAX_RANKS / c->group_size);
	c->max_tokens = from_to(1, 30);
	c->hidden = 8;
	c->topk = from_to(1, 10);
	c->n_experts = from_to(1, 40);
	c->layout = (enum ferry_layout)from_to(0, 2);
	c->overflow = FERRY_OVERFLOW_DROP;
	if (from_to(0, 1))
		c->max_recv_rows = from_to(1, 20);
	const int32_t n_hosts = from_to(1, 4);

	for (int32_t r = 0; r < w->n_ranks; r++)
		w->ids[r] = (uint64_t)from_to(1, n_hosts);
	for (int32_t g = 0; g < w->n_ranks / c->group_size; g++) {
		const int32_t n = from_to(0, c->max_tokens);
		struct ferry_table *t =
			calloc(1, ferry_table_bytes(n, c->topk, 0));

		assert_non_null(t);
		t->n_tokens = n;
		t->topk = c->topk;
		for (int32_t i = 0; i < n * c->topk; i++)
			ferry_table_slots(t)[i] = from_to(-1, c->n_experts - 1);
		w->tables[g] = t;
	}
}

static void see_from(struct world *w, int32_t rank)
{
	struct ferry_hosts hosts;

	if (ferry_shape_init(&w->shape, &w->config, w->n_ranks, rank))
		fail_msg("%s", ferry_last_error());
	assert_int_equal(ferry_hosts_init(&hosts, w->ids, w->n_ranks, rank),
	                 FERRY_OK);
	ferry_shape_use_hosts(&w->shape, &hosts);
}

/* Does the rank want a row of this token? */
static bool wants(const struct world *w, int32_t group, int32_t token,
                  int32_t rank)
{
	const struct ferry_table *t = w->tables[group];
	const int32_t *slots = ferry_table_token_slots(t, token);

	for (int32_t k = 0; k < t->topk; k++)
		if (slots[k] >= 0 && w->shape.slot_rank[slots[k]] == rank &&
		    rank / w->config.group_size != group)
			return true;
	return false;
}

/* The rank of the own host where a far row lands, -1: on none. */
static int32_t naive_landing(const struct world *w, int32_t group,
                             int32_t token, int32_t self)
{
	int32_t wanting[MAX_RANKS], n = 0;

	for (int32_t r = 0; r < w->n_ranks; r++)
		if (w->ids[r] == w->ids[self] && wants(w, group, token, r))
			wanting[n++] = r;
	return n ? wanting[token / w->config.group_size % n] : -1;
}

static void check_arrivals(const struct world *w,
                           const struct ferry_route *route, int32_t self,
                           int64_t ordinals[MAX_RANKS][30])
{
	const struct ferry_hosts *h = &w->shape.hosts;

	for (int64_t i = 0; i < route->n_arrivals; i++) {
		const struct ferry_arrival *a = &route->arrivals[i];
		const int32_t carrier =
			ferry_shape_carrier(&w->shape, a->group, a->token);

		if (w->ids[carrier] == w->ids[self] ||
		    a->group == self / w->config.group_size)
			continue;
		assert_int_equal(ferry_hosts_rank(h, h->own, a->landing),
		                 naive_landing(w, a->group, a->token, self));
		assert_int_equal(a->ordinal, ordinals[a->group][a->token]);
	}
}

static void check_rank(struct world *w, int32_t self)
{
	int64_t rows[MAX_RANKS][MAX_RANKS] = {{0}}; /* [carrier][landing] */
	int64_t ordinals[MAX_RANKS][30] = {{0}};
	struct ferry_landings l;
	struct ferry_route route;

	see_from(w, self);
	const struct ferry_hosts *h = &w->shape.hosts;

	l.wanted =
		calloc((size_t)w->shape.n_groups * (size_t)w->shape.max_tokens,
	               sizeof(*l.wanted));
	l.rows = calloc((size_t)w->n_ranks * (size_t)h->most_ranks,
	                sizeof(*l.rows));
	assert_true(l.wanted && l.rows);
	assert_int_equal(ferry_route_init(&route, &w->shape), FERRY_OK);
	const struct ferry_table *const *tables =
		(const struct ferry_table *const *)w->tables;

	assert_int_equal(ferry_route_build(&route, &w->shape, tables, self),
	                 FERRY_OK);
	ferry_route_land(&route, &w->shape, tables, &l);
	for (int32_t g = 0; g < w->shape.n_groups; g++)
		for (int32_t t = 0; t < w->tables[g]->n_tokens; t++) {
			const int32_t carrier =
				ferry_shape_carrier(&w->shape, g, t);
			const int32_t at = naive_landing(w, g, t, self);

			if (at >= 0 && w->ids[carrier] != w->ids[self])
				ordinals[g][t] = rows[carrier][at]++;
		}
	check_arrivals(w, &route, self, ordinals);
	for (int32_t r = 0; r < w->n_ranks; r++)
		for (int32_t p = 0; p < ferry_hosts_size(h, h->own); p++)
			assert_int_equal(
				l.rows[r * h->most_ranks + p],
				rows[r][ferry_hosts_rank(h, h->own, p)]);
	ferry_route_destroy(&route);
	free(l.wanted);
	free(l.rows);
	ferry_shape_destroy(&w->shape);
}

static void all_come_to_the_same(void **state)
{
	(void)state;
	for (int round = 0; round < 300; round++) {
		struct world w;

		make_world(&w);
		for (int32_t r = 0; r < w.n_ranks; r++)
			check_rank(&w, r);
		for (int32_t g = 0; g < w.n_ranks / w.config.group_size; g++)
			free(w.tables[g]);
	}
}

/* Those of PER_HOST sums: of a host, or of a host and where they land. */
static uint32_t count_sums(const struct ferry_shape *s, uint32_t next)
{
	const int32_t n_places = s->group_size > 1 ? s->hosts.most_ranks : 1;

	for (int32_t slot = 0; slot < s->n_slots; slot++)
		for (uint64_t e = 4; e < 8; e++)
			for (int32_t h = 0; h < s->hosts.n; h++)
				for (int32_t p = 0; p < n_places; p++)
					assert_int_equal(
						ferry_window_sum(s, slot, e, h,
					                         p),
						next++);
	return next;
}

/* Numbers of counters: no two are the same, those of fans are the last. */
static void fans_are_the_last(void **state)
{
	(void)state;
	for (int round = 0; round < 30; round++) {
		struct world w;

		make_world(&w);
		w.config.n_slots = from_to(1, 3);
		if (round % 2)
			w.config.combine = FERRY_PER_HOST;
		see_from(&w, 0);
		const struct ferry_shape *s = &w.shape;
		const uint32_t n = ferry_window_n_signals(s);
		uint32_t next = ferry_window_signal(s, s->n_slots, 0,
		                                    FERRY_COUNT_TABLE, 0);
		uint32_t first_fan = next;

		if (ferry_shape_adds(s))
			next = count_sums(s, next);
		if (s->group_size == 1)
			first_fan = next;
		assert_int_equal(n - ferry_window_n_fan(s), first_fan);
		for (int32_t slot = 0; slot < s->n_slots; slot++)
			for (uint64_t e = 4; e < 8; e++)
				for (int32_t r = 0; r < w.n_ranks; r++)
					for (int32_t p = 0;
					     p < s->hosts.most_ranks; p++)
						assert_int_equal(
							ferry_window_fan(
								s, slot, e, r,
								p),
							next++);
		assert_int_equal(next, n);
		ferry_shape_destroy(&w.shape);
		for (int32_t g = 0; g < w.n_ranks / w.config.group_size; g++)
			free(w.tables[g]);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hosts_are_numbered),
		cmocka_unit_test(large_hosts_are_refused),
		cmocka_unit_test(landings_take_turns),
		cmocka_unit_test(all_come_to_the_same),
		cmocka_unit_test(fans_are_the_last),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
