/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank of a new map should be which rank of the old one, so that as few
 * experts as possible have to travel. Ranks of one host stay together: for
 * every pair of a new and an old host the best way to match their ranks is
 * found, and then the best way to match hosts. With one host that is all.
 */
#include <stdlib.h>
#include <string.h>

#include "assign.h"
#include "ctx.h"
#include "placement_inner.h"

struct align {
	const struct ferry_placement *from;
	int32_t n_nodes;
	int32_t per_node;   /* ranks */
	int32_t *target;    /* [n_slots] own copy */
	int32_t *common;    /* [n_ranks][n_ranks] experts of new and old rank */
	int32_t *seen_by;   /* [n_experts] last new rank that had it, + 1 */
	int32_t *becomes;   /* [n_ranks] the old rank that a new one becomes */
	int32_t *new_rank;  /* [per_node] with equally many slots */
	int32_t *old_rank;  /* [per_node] */
	int64_t *gain;      /* [per_node][per_node] of those */
	int64_t *node_gain; /* [n_nodes][n_nodes] of a new and an old host */
	int32_t *column;    /* [per_node + n_nodes] */
	struct assign_work work;
};

static int32_t n_slots_of(const struct ferry_placement *p, int32_t rank)
{
	return p->map.first_slot[rank + 1] - p->map.first_slot[rank];
}

static bool allocate_work(struct assign_work *w, size_t n)
{
	w->row_price = calloc(n, sizeof(int64_t));
	w->column_price = calloc(n, sizeof(int64_t));
	w->slack = calloc(n, sizeof(int64_t));
	w->row_of = calloc(n, sizeof(int32_t));
	w->before = calloc(n, sizeof(int32_t));
	w->seen = calloc(n, 1);
	return w->row_price && w->column_price && w->slack && w->row_of &&
	       w->before && w->seen;
}

static bool allocate(struct align *a)
{
	const size_t n_ranks = (size_t)a->from->map.n_ranks;
	const size_t n_nodes = (size_t)a->n_nodes;
	const size_t m = (size_t)a->per_node;

	a->target = calloc((size_t)a->from->map.n_slots, sizeof(int32_t));
	a->common = calloc(n_ranks, n_ranks * sizeof(int32_t));
	a->seen_by = calloc((size_t)a->from->n_experts, sizeof(int32_t));
	a->becomes = calloc(n_ranks, sizeof(int32_t));
	a->new_rank = calloc(m, sizeof(int32_t));
	a->old_rank = calloc(m, sizeof(int32_t));
	a->gain = calloc(m, m * sizeof(int64_t));
	a->node_gain = calloc(n_nodes, n_nodes * sizeof(int64_t));
	a->column = calloc(m + n_nodes, sizeof(int32_t));
	return allocate_work(&a->work, m + n_nodes + 1) && a->target &&
	       a->common && a->seen_by && a->becomes && a->new_rank &&
	       a->old_rank && a->gain && a->node_gain && a->column;
}

static void release(struct align *a)
{
	free(a->target);
	free(a->common);
	free(a->seen_by);
	free(a->becomes);
	free(a->new_rank);
	free(a->old_rank);
	free(a->gain);
	free(a->node_gain);
	free(a->column);
	free(a->work.row_price);
	free(a->work.column_price);
	free(a->work.slack);
	free(a->work.row_of);
	free(a->work.before);
	free(a->work.seen);
}

/* Experts that a new rank has, on each old rank. */
static void count_common(struct align *a, int32_t rank)
{
	const struct ferry_placement *const p = a->from;
	int32_t *const common =
		a->common + (size_t)rank * (size_t)p->map.n_ranks;

	for (int32_t s = p->map.first_slot[rank];
	     s < p->map.first_slot[rank + 1]; s++) {
		const int32_t e = a->target[s];

		if (e < 0 || a->seen_by[e] == rank + 1)
			continue;
		a->seen_by[e] = rank + 1;
		for (int32_t k = p->first_replica[e];
		     k < p->first_replica[e + 1]; k++)
			common[p->map.slot_rank[p->replicas[k]]]++;
	}
}

/*
 * What is gained when a new rank becomes an old one. Between equals ranks stay
 * where they are, which for all of them is worth less than one expert.
 */
static int64_t gain_of(const struct align *a, int32_t new_rank,
                       int32_t old_rank)
{
	const size_t n = (size_t)a->from->map.n_ranks;

	return a->common[(size_t)new_rank * n + (size_t)old_rank] *
	               ((int64_t)n + 1) +
	       (new_rank == old_rank);
}

/* The ranks of a host that have so many slots. */
static int32_t list_ranks(const struct align *a, int32_t node, int32_t n_slots,
                          int32_t *list)
{
	const int32_t first = node * a->per_node;
	int32_t n = 0;

	for (int32_t r = first; r < first + a->per_node; r++)
		if (n_slots_of(a->from, r) == n_slots)
			list[n++] = r;
	return n;
}

/* Matches n listed ranks; returns what is gained. */
static int64_t match_ranks(struct align *a, int32_t n, bool keep)
{
	int64_t sum = 0;

	for (int32_t i = 0; i < n; i++)
		for (int32_t j = 0; j < n; j++)
			a->gain[(size_t)i * (size_t)n + (size_t)j] =
				gain_of(a, a->new_rank[i], a->old_rank[j]);
	ferry_assign(&a->work, a->gain, n, a->column);
	for (int32_t i = 0; i < n; i++) {
		const int32_t old_rank = a->old_rank[a->column[i]];

		sum += gain_of(a, a->new_rank[i], old_rank);
		if (keep)
			a->becomes[a->new_rank[i]] = old_rank;
	}
	return sum;
}

/*
 * Matches the ranks of a new and an old host, those with equally many slots;
 * returns what is gained, very little where they do not have the same sizes.
 */
static int64_t match_node(struct align *a, int32_t new_node, int32_t old_node,
                          bool keep)
{
	const int32_t first = new_node * a->per_node;
	int64_t sum = 0;

	for (int32_t r = first; r < first + a->per_node; r++) {
		const int32_t size = n_slots_of(a->from, r);
		const int32_t n = list_ranks(a, new_node, size, a->new_rank);

		if (a->new_rank[0] != r) /* that size was matched before */
			continue;
		if (list_ranks(a, old_node, size, a->old_rank) != n)
			return -((int64_t)1 << 48);
		sum += match_ranks(a, n, keep);
	}
	return sum;
}

static void match_nodes(struct align *a)
{
	const size_t n = (size_t)a->n_nodes;
	int32_t *const column = a->column + a->per_node;

	for (int32_t r = 0; r < a->from->map.n_ranks; r++)
		count_common(a, r);
	for (int32_t i = 0; n > 1 && i < a->n_nodes; i++)
		for (int32_t j = 0; j < a->n_nodes; j++)
			a->node_gain[(size_t)i * n + (size_t)j] =
				match_node(a, i, j, false);
	ferry_assign(&a->work, a->node_gain, a->n_nodes, column);
	for (int32_t i = 0; i < a->n_nodes; i++)
		match_node(a, i, column[i], true);
}

/* Takes an expert out of a rank's list; false where it is not in there. */
static bool take(int32_t *list, int32_t n, int32_t expert)
{
	for (int32_t i = 0; i < n; i++)
		if (list[i] == expert) {
			list[i] = -1;
			return true;
		}
	return false;
}

static bool is_on_rank(const struct ferry_placement *p, int32_t expert,
                       int32_t rank)
{
	for (int32_t s = p->map.first_slot[rank];
	     s < p->map.first_slot[rank + 1]; s++)
		if (p->slot_expert[s] == expert)
			return true;
	return false;
}

/*
 * Lays a rank's new experts into its slots: who was there stays in its slot,
 * the others fill the rest in order. Returns how many must be fetched.
 */
static int32_t lay_out(struct align *a, int32_t rank, int32_t *aligned)
{
	const struct ferry_placement *const p = a->from;
	const int32_t to = a->becomes[rank];
	const int32_t *const old = p->slot_expert + p->map.first_slot[to];
	int32_t *const list = a->target + p->map.first_slot[rank];
	int32_t *const out = aligned + p->map.first_slot[to];
	const int32_t n = n_slots_of(p, rank);
	int32_t n_moved = 0;
	int32_t next = 0;

	for (int32_t i = 0; i < n; i++)
		out[i] = old[i] >= 0 && take(list, n, old[i]) ? old[i] : -1;
	for (int32_t i = 0; i < n; i++) {
		if (list[i] < 0)
			continue;
		while (out[next] >= 0)
			next++;
		out[next] = list[i];
		n_moved += !is_on_rank(p, list[i], to);
	}
	return n_moved;
}

static enum ferry_status check(const struct ferry_placement *from,
                               const int32_t *target, int32_t n_nodes,
                               const int32_t *aligned)
{
	if (!from || !target || !aligned)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_align: %s is NULL",
		                  !from     ? "from"
		                  : !target ? "target"
		                            : "aligned");
	if (n_nodes < 1 || from->map.n_ranks % n_nodes)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_align: n_nodes is %d, which must "
		                  "divide n_ranks, %d",
		                  n_nodes, from->map.n_ranks);
	for (int32_t s = 0; s < from->map.n_slots; s++)
		if (target[s] < -1 || target[s] >= from->n_experts)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "placement_align: target[%d] is %d, "
			                  "experts are 0..%d, -1 is an empty "
			                  "slot",
			                  s, target[s], from->n_experts - 1);
	return FERRY_OK;
}

enum ferry_status
ferry_placement_align_nodes(const struct ferry_placement *from,
                            const int32_t *target, int32_t n_nodes,
                            int32_t *aligned, int32_t *n_moved)
{
	struct align a = {.from = from, .n_nodes = n_nodes};
	int32_t moved = 0;

	FERRY_TRY(check(from, target, n_nodes, aligned));
	a.per_node = from->map.n_ranks / n_nodes;
	const bool ok = allocate(&a);

	if (ok) {
		memcpy(a.target, target,
		       (size_t)from->map.n_slots * sizeof(*target));
		match_nodes(&a);
		for (int32_t r = 0; r < from->map.n_ranks; r++)
			moved += lay_out(&a, r, aligned);
		if (n_moved)
			*n_moved = moved;
	}
	release(&a);
	if (ok)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_NOMEM,
	                  "placement_align: %d slots of %d ranks",
	                  from->map.n_slots, from->map.n_ranks);
}

enum ferry_status ferry_placement_align(const struct ferry_placement *from,
                                        const int32_t *target, int32_t *aligned,
                                        int32_t *n_moved)
{
	return ferry_placement_align_nodes(from, target, 1, aligned, n_moved);
}
