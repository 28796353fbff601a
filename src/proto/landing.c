/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where rows from other hosts land, once for all ranks of this host that want
 * them. A pure function of the tables: the sender comes to the same from its
 * own.
 */
#include <string.h>

#include "layout.h"

/* Ranks of this host outside the group of a token that serve it. */
static uint64_t ranks_that_want(const struct ferry_shape *shape, int32_t group,
                                const int32_t *slots, int32_t topk)
{
	const struct ferry_hosts *hosts = &shape->hosts;
	uint64_t mask = 0;

	for (int32_t k = 0; k < topk; k++) {
		if (slots[k] < 0)
			continue;
		const int32_t rank = shape->slot_rank[slots[k]];

		if (hosts->of[rank] == hosts->own &&
		    ferry_shape_group(shape, rank) != group)
			mask |= ferry_hosts_bit(hosts, rank);
	}
	return mask;
}

/* The arrivals of one group, in step with its tokens. */
struct cursor {
	struct ferry_arrival *next, *end;
};

static void tell_arrival(struct cursor *c, int32_t token, int32_t landing,
                         int64_t ordinal)
{
	if (c->next == c->end || c->next->token != token)
		return;
	c->next->landing = landing;
	c->next->ordinal = (int32_t)ordinal;
	c->next++;
}

static void land_group(struct ferry_route *route,
                       const struct ferry_shape *shape,
                       const struct ferry_table *table, int32_t group,
                       struct ferry_landings *landings)
{
	const struct ferry_hosts *hosts = &shape->hosts;
	uint64_t *wanted =
		landings->wanted + (size_t)group * (size_t)shape->max_tokens;
	struct cursor c = {route->arrivals + route->group_first[group],
	                   route->arrivals + route->group_first[group + 1]};

	for (int32_t t = 0; t < table->n_tokens; t++) {
		const int32_t carrier = ferry_shape_carrier(shape, group, t);

		wanted[t] = 0;
		if (ferry_hosts_far(hosts, carrier))
			wanted[t] = ranks_that_want(
				shape, group, ferry_table_token_slots(table, t),
				table->topk);
		if (!wanted[t]) {
			/* What comes from near has its place already. */
			if (c.next != c.end && c.next->token == t)
				c.next++;
			continue;
		}
		const int32_t place =
			ferry_hosts_landing(wanted[t], t / shape->group_size);
		int64_t *rows =
			&landings->rows[(int64_t)carrier * hosts->most_ranks +
		                        place];

		tell_arrival(&c, t, place, (*rows)++);
	}
}

void ferry_route_land(struct ferry_route *route,
                      const struct ferry_shape *shape,
                      const struct ferry_table *const *tables,
                      struct ferry_landings *landings)
{
	const size_t n =
		(size_t)shape->n_ranks * (size_t)shape->hosts.most_ranks;

	memset(landings->rows, 0, n * sizeof(*landings->rows));
	for (int32_t g = 0; g < shape->n_groups; g++)
		land_group(route, shape, tables[g], g, landings);
}
