/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Balanced packing; see eplb_inner.h. Heaviest first, as DeepSeek published
 * it, with two differences: ties are defined, and copies of one expert are
 * kept apart, for which an item that was packed before may have to move.
 */
#include "eplb_inner.h"

#include <stdbool.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	const struct eplb_order *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight < y->weight ? 1 : -1;
	return (x->item > y->item) - (x->item < y->item);
}

static void sort(struct eplb_packing *p)
{
	for (int32_t i = 0; i < p->n_items; i++)
		p->order[i] = (struct eplb_order){p->item_weight[i], i};
	qsort(p->order, (size_t)p->n_items, sizeof(*p->order), compare);
}

static bool has_room(const struct eplb_packing *p, int32_t pack)
{
	return p->n_filled[pack] < p->first[pack + 1] - p->first[pack];
}

/* Is an item of that kind in the pack? */
static bool clashes(const struct eplb_packing *p, int32_t pack, int32_t item)
{
	const int32_t *const place = p->place + p->first[pack];

	for (int32_t i = 0; p->kind && i < p->n_filled[pack]; i++)
		if (p->kind[place[i]] == p->kind[item])
			return true;
	return false;
}

static void put(struct eplb_packing *p, int32_t pack, int32_t item)
{
	p->place[p->first[pack] + p->n_filled[pack]++] = item;
	p->weight[pack] += p->item_weight[item];
}

/* The lightest pack that can take the item; -1: none. */
static int32_t lightest(const struct eplb_packing *p, int32_t item)
{
	int32_t best = -1;

	for (int32_t i = 0; i < p->n_packs; i++)
		if (has_room(p, i) &&
		    (best < 0 || p->weight[i] < p->weight[best]) &&
		    !clashes(p, i, item))
			best = i;
	return best;
}

/* Another item gives its place to one that fits nowhere else. */
struct detour {
	int32_t place;   /* of the other item; -1: none found */
	int32_t from;    /* its pack, which the new item goes to */
	int32_t to;      /* the pack that it goes to */
	int64_t heavier; /* weight of the heavier of the two afterwards */
};

/* Looks through the items of `from`; the first of the best stays. */
static void seek(const struct eplb_packing *p, int32_t item, int32_t from,
                 int32_t to, struct detour *best)
{
	const int32_t begin = p->first[from];

	for (int32_t i = begin; i < begin + p->n_filled[from]; i++) {
		const int64_t moved = p->item_weight[p->place[i]];
		const int64_t a =
			p->weight[from] - moved + p->item_weight[item];
		const int64_t b = p->weight[to] + moved;
		const int64_t heavier = a > b ? a : b;

		if (best->place >= 0 && heavier >= best->heavier)
			continue;
		if (!clashes(p, to, p->place[i]))
			*best = (struct detour){i, from, to, heavier};
	}
}

/*
 * All packs with room have one of the item's kind. A pack without that kind is
 * full; it has at most one item less than there is room in a pack with room,
 * and that has the item's kind: so one of its items is not there.
 */
static void put_by_detour(struct eplb_packing *p, int32_t item)
{
	struct detour way = {.place = -1};

	for (int32_t to = 0; to < p->n_packs; to++) {
		if (!has_room(p, to))
			continue;
		for (int32_t from = 0; from < p->n_packs; from++)
			if (!clashes(p, from, item))
				seek(p, item, from, to, &way);
	}
	if (way.place < 0) /* against the contract of kind */
		return;
	const int32_t other = p->place[way.place];

	put(p, way.to, other);
	p->weight[way.from] += p->item_weight[item] - p->item_weight[other];
	p->place[way.place] = item;
}

void ferry_eplb_pack(struct eplb_packing *p)
{
	const int32_t n_places = p->first[p->n_packs];

	for (int32_t i = 0; i < n_places; i++)
		p->place[i] = -1;
	for (int32_t i = 0; i < p->n_packs; i++) {
		p->n_filled[i] = 0;
		p->weight[i] = 0;
	}
	if (p->n_items == p->n_packs && n_places == p->n_packs) {
		for (int32_t i = 0; i < p->n_packs; i++)
			put(p, i, i);
		return;
	}
	sort(p);
	for (int32_t i = 0; i < p->n_items; i++) {
		const int32_t item = p->order[i].item;
		const int32_t pack = lightest(p, item);

		if (pack >= 0)
			put(p, pack, item);
		else
			put_by_detour(p, item);
	}
}
