/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout function: from the tables alone, where every arriving row goes.
 * Pure; the order is (own expert slot, source group, token, choice), on every
 * engine and every run.
 */
#ifndef FERRY_LAYOUT_H
#define FERRY_LAYOUT_H

#include "table.h"
#include "window.h"

/* A token that has at least one expert here. */
struct ferry_arrival {
	int32_t group; /* source group; its ferry_shape_carrier sends it */
	int32_t token; /* in the group's batch */
	int64_t first_copy;
	int32_t n_copies; /* at least 1: dropped ones are not counted */
	int32_t ordinal;  /* of its row among those that the carrier sends
	                   * to where it lands, dropped ones counted */
	int32_t landing;  /* place of that rank on its host, where the carrier
	                   * is on another one */
};

/* One (token, choice) that is served here. */
struct ferry_copy {
	int32_t slot; /* own expert slot, 0-based on this rank */
	int32_t choice;
	int64_t index; /* row within the slot */
};

/* Arrays are allocated once for the maxima of the shape. */
struct ferry_route {
	int64_t n_arrivals;
	int64_t n_copies;
	int64_t n_dropped;
	int64_t max_count; /* largest of counts: FROM_PADDED needs it to be at
	                    * most padded_rows */
	struct ferry_arrival *arrivals; /* by (group, token) */
	struct ferry_copy *copies;      /* by (group, token, choice) */
	int64_t *group_first; /* [n_groups + 1] first arrival of each group */
	int64_t *rows_from;   /* [n_ranks] rows that each carrier sends here,
	                       * dropped ones too; a mate's never travel */
	int64_t *counts;      /* [own slots] after drops */
	int64_t *wanted;      /* [own slots] before drops */
	int64_t *offsets;     /* [own slots + 1] of EXPERT_PACKED and of TOKEN's
	                       * lists, aligned */
	int64_t *before;      /* scratch of drops, [n_expert_slots] */
	int64_t *keep;        /* scratch of drops, [n_expert_slots] */
};

enum ferry_status ferry_route_init(struct ferry_route *route,
                                   const struct ferry_shape *shape);
void ferry_route_destroy(struct ferry_route *route);
size_t ferry_route_heap_bytes(const struct ferry_shape *shape);

/*
 * tables[g] is the table of a rank of group g (all of a group are equal).
 * `rank` is the rank whose arrivals are wanted. Returns OVERFLOW, with
 * route->wanted and n_copies as needed and everything else undefined, when
 * the capacity is exceeded and the policy is an error; the caller words it.
 * PROTO: a table exceeds the maxima of the shape.
 */
enum ferry_status ferry_route_build(struct ferry_route *route,
                                    const struct ferry_shape *shape,
                                    const struct ferry_table *const *tables,
                                    int32_t rank);

/* Output row of a copy under a layout; TOKEN: its entry in the lists. */
static inline int64_t ferry_route_row(const struct ferry_route *route,
                                      const struct ferry_shape *shape,
                                      enum ferry_layout layout,
                                      const struct ferry_copy *copy)
{
	if (layout == FERRY_EXPERT_PADDED)
		return copy->slot * shape->padded_rows + copy->index;
	return route->offsets[copy->slot] + copy->index;
}

/* Bytes of an entry where scales come in columns. */
static inline size_t ferry_scale_entry_bytes(const struct ferry_shape *shape,
                                             enum ferry_scale_form form)
{
	if (form == FERRY_SCALES_PACKED_UE8M0 ||
	    shape->scale_type == FERRY_SCALE_FP32)
		return 4;
	return 1;
}

/* Row of the TOKEN view: token of a group in a half. */
static inline int64_t ferry_view_row(const struct ferry_shape *shape,
                                     uint32_t half, int32_t group,
                                     int32_t token)
{
	const int64_t carrier = ferry_shape_carrier(shape, group, token);

	return ((int64_t)half * shape->n_ranks + carrier) * shape->cap +
	       token / shape->group_size;
}

/* Rows that land on this rank's host, of a channel with a hierarchy. */
struct ferry_landings {
	/* [n_groups * max_tokens] ranks of this host that want the row of a
	 * token from another one, as bits of their places; others: 0 */
	uint64_t *wanted;
	int64_t *
		rows; /* [n_ranks * most_ranks] of each carrier at each place */
};

/*
 * Counts them, for all ranks of the host alike, and tells every arrival of a
 * route that was built where it lands. Without drops and with them: what
 * travels does not depend on room.
 */
void ferry_route_land(struct ferry_route *route,
                      const struct ferry_shape *shape,
                      const struct ferry_table *const *tables,
                      struct ferry_landings *landings);

/*
 * Which of the own choices a channel that is bounded and drops leaves out at
 * their ranks: sets dropped[token * topk + choice] to 1 or 0 for all own
 * tokens, topk that of the own table. Needs all tables, as above; only the
 * scratch of the route is used. PROTO as above.
 */
enum ferry_status ferry_route_drops(struct ferry_route *scratch,
                                    const struct ferry_shape *shape,
                                    const struct ferry_table *const *tables,
                                    int32_t own_group, uint8_t *dropped);

#endif
