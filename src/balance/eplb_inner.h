/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Balanced packing: items of some weight into packs that have a fixed number
 * of places each. EPLB packs groups of experts to hosts with it, and copies of
 * experts to ranks.
 */
#ifndef FERRY_EPLB_INNER_H
#define FERRY_EPLB_INNER_H

#include <stdint.h>

struct eplb_order {
	int64_t weight;
	int32_t item;
};

struct eplb_packing {
	int32_t n_items;
	const int64_t *item_weight; /* [n_items] */
	/*
	 * [n_items] two items of one kind never come into one pack. NULL: they
	 * may. Needs capacities that differ by 1 at most, and no more items of
	 * a kind than packs.
	 */
	const int32_t *kind;
	int32_t n_packs;
	const int32_t *first; /* [n_packs + 1] places of pack p: first[p].. */
	struct eplb_order *order; /* [n_items] scratch */
	int64_t *weight;          /* [n_packs] scratch: weight of each */
	int32_t *n_filled;        /* [n_packs] items of each */
	int32_t *place;           /* [first[n_packs]] the result: -1: empty */
};

/*
 * Packs n_items items into at least as many places: the heaviest first, ties
 * to the lower item, each into the lightest pack with room, ties to the lower
 * pack. With as many packs as items and places item i goes to pack i.
 */
void ferry_eplb_pack(struct eplb_packing *p);

#endif
