/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank of a new map should be which rank of the old one, so that as few
 * experts as possible have to travel.
 */
#include <stdlib.h>
#include <string.h>

#include "assign.h"
#include "ctx.h"
#include "placement_inner.h"

struct align {
	const struct ferry_placement *from;
	int32_t *target;  /* [n_slots] own copy */
	int32_t *becomes; /* [n_ranks] of a rank of target; -1: not known */
	int32_t *alike;   /* [n_ranks] ranks with as many slots, ascending */
	int32_t *place;   /* [n_ranks] in alike; -1: not in there */
	int32_t *column;  /* [n_ranks] */
	int32_t *seen_by; /* [n_experts] last rank of target, + 1 */
	int64_t *gain;    /* [largest number of alike ranks, squared] */
	struct assign_work work;
};

static int32_t n_slots_of(const struct ferry_placement *p, int32_t rank)
{
	return p->map.first_slot[rank + 1] - p->map.first_slot[rank];
}

/* Most ranks that have equally many slots. */
static size_t most_alike(const struct ferry_placement *p, int32_t *count)
{
	size_t most = 0;

	for (int32_t r = 0; r < p->map.n_ranks; r++) {
		int32_t *const n = &count[n_slots_of(p, r)];

		if ((size_t)++ * n > most)
			most = (size_t)*n;
	}
	return most;
}

static bool allocate(struct align *a)
{
	const size_t n_slots = (size_t)a->from->map.n_slots;
	const size_t n_ranks = (size_t)a->from->map.n_ranks;
	int32_t *const count =
		calloc((size_t)a->from->map.max_slots + 1, sizeof(*count));
	const size_t n = count ? most_alike(a->from, count) : 0;

	free(count);
	a->target = calloc(n_slots, sizeof(int32_t));
	a->becomes = calloc(n_ranks, sizeof(int32_t));
	a->alike = calloc(n_ranks, sizeof(int32_t));
	a->place = calloc(n_ranks, sizeof(int32_t));
	a->column = calloc(n_ranks, sizeof(int32_t));
	a->seen_by = calloc((size_t)a->from->n_experts, sizeof(int32_t));
	a->gain = calloc(n, n * sizeof(int64_t));
	a->work.row_price = calloc(n + 1, sizeof(int64_t));
	a->work.column_price = calloc(n + 1, sizeof(int64_t));
	a->work.slack = calloc(n + 1, sizeof(int64_t));
	a->work.row_of = calloc(n + 1, sizeof(int32_t));
	a->work.before = calloc(n + 1, sizeof(int32_t));
	a->work.seen = calloc(n + 1, 1);
	return n && a->target && a->becomes && a->alike && a->place &&
	       a->column && a->seen_by && a->gain && a->work.row_price &&
	       a->work.column_price && a->work.slack && a->work.row_of &&
	       a->work.before && a->work.seen;
}

static void release(struct align *a)
{
	free(a->target);
	free(a->becomes);
	free(a->alike);
	free(a->place);
	free(a->column);
	free(a->seen_by);
	free(a->gain);
	free(a->work.row_price);
	free(a->work.column_price);
	free(a->work.slack);
	free(a->work.row_of);
	free(a->work.before);
	free(a->work.seen);
}

/* Lists the ranks that have as many slots as `rank`, the first of them. */
static int32_t list_alike(struct align *a, int32_t rank)
{
	const int32_t n_slots = n_slots_of(a->from, rank);
	int32_t n = 0;

	for (int32_t r = 0; r < a->from->map.n_ranks; r++) {
		a->place[r] = -1;
		if (n_slots_of(a->from, r) != n_slots)
			continue;
		a->place[r] = n;
		a->alike[n++] = r;
	}
	return n;
}

/*
 * What is gained when rank alike[i] of target becomes alike[j]: the experts
 * that are there already, and between equals that it stays where it is.
 */
static void count_gain(struct align *a, int32_t i, int32_t n)
{
	const struct ferry_placement *const p = a->from;
	const int32_t rank = a->alike[i];
	int64_t *const gain = a->gain + (size_t)i * (size_t)n;

	memset(gain, 0, (size_t)n * sizeof(*gain));
	gain[i] = 1;
	for (int32_t s = p->map.first_slot[rank];
	     s < p->map.first_slot[rank + 1]; s++) {
		const int32_t e = a->target[s];

		if (e < 0 || a->seen_by[e] == rank + 1)
			continue;
		a->seen_by[e] = rank + 1;
		for (int32_t k = p->first_replica[e];
		     k < p->first_replica[e + 1]; k++) {
			const int32_t j =
				a->place[p->map.slot_rank[p->replicas[k]]];

			if (j >= 0)
				gain[j] += (int64_t)n + 1;
		}
	}
}

static void assign_ranks(struct align *a)
{
	const int32_t n_ranks = a->from->map.n_ranks;

	for (int32_t r = 0; r < n_ranks; r++)
		a->becomes[r] = -1;
	for (int32_t r = 0; r < n_ranks; r++) {
		if (a->becomes[r] >= 0)
			continue;
		const int32_t n = list_alike(a, r);

		for (int32_t i = 0; i < n; i++)
			count_gain(a, i, n);
		ferry_assign(&a->work, a->gain, n, a->column);
		for (int32_t i = 0; i < n; i++)
			a->becomes[a->alike[i]] = a->alike[a->column[i]];
	}
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
                               const int32_t *target, const int32_t *aligned)
{
	if (!from || !target || !aligned)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_align: %s is NULL",
		                  !from     ? "from"
		                  : !target ? "target"
		                            : "aligned");
	for (int32_t s = 0; s < from->map.n_slots; s++)
		if (target[s] < -1 || target[s] >= from->n_experts)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "placement_align: target[%d] is %d, "
			                  "experts are 0..%d, -1 is an empty "
			                  "slot",
			                  s, target[s], from->n_experts - 1);
	return FERRY_OK;
}

enum ferry_status ferry_placement_align(const struct ferry_placement *from,
                                        const int32_t *target, int32_t *aligned,
                                        int32_t *n_moved)
{
	struct align a = {.from = from};
	int32_t moved = 0;

	FERRY_TRY(check(from, target, aligned));
	const bool ok = allocate(&a);

	if (ok) {
		memcpy(a.target, target,
		       (size_t)from->map.n_slots * sizeof(*target));
		assign_ranks(&a);
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
