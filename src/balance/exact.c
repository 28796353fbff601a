/* SPDX-License-Identifier: Apache-2.0 */
/* See exact.h. */
#include "exact.h"

#include "../core/bits.h"
#include "../core/placement_inner.h"

enum { NO_SLOT = -1, FIRST_CHOICE = -2 };

void ferry_exact_code_of(const struct ferry_placement *placement,
                         int32_t *code_of)
{
	int32_t next = FIRST_CHOICE;

	for (int32_t e = 0; e < placement->n_experts; e++)
		code_of[e] = placement_n_replicas(placement, e) > 1
		                     ? next--
		                     : placement->replicas
		                               [placement->first_replica[e]];
}

/* Any value that is no expert, and not NO_SLOT. */
enum { MAX_TOPK = 64, OUT_OF_RANGE = INT32_MIN };

static void narrow(const int64_t *ids, int32_t topk, int32_t *to)
{
	for (int32_t k = 0; k < topk; k++)
		to[k] = ids[k] >= NO_SLOT && ids[k] <= INT32_MAX
		                ? (int32_t)ids[k]
		                : OUT_OF_RANGE;
}

/* Where a batch goes. */
struct target {
	const int32_t *code_of;
	int32_t *code;
	int32_t *where;
	int32_t *counts;
};

/*
 * One row, whose first choice is at place `begin`; *n counts the places that
 * are listed. Returns the first choice that is out of range, topk: none.
 */
static int32_t encode_row(const struct ferry_exact_ids *in, const int32_t *ids,
                          struct target to, int32_t begin, int32_t *n)
{
	const uint32_t n_experts = (uint32_t)in->n_experts;
	const int32_t topk = in->topk;
	int32_t n_listed = *n;

	for (int32_t k = 0; k < topk; k++) {
		const uint32_t id = (uint32_t)ids[k];
		int32_t code = NO_SLOT;

		if (id < n_experts) {
			code = to.code_of[id];
			to.counts[id]++;
		} else if (ids[k] != NO_SLOT && !in->skip_bad) {
			return k;
		}
		to.code[begin + k] = code;
		to.where[n_listed] = begin + k;
		n_listed += code <= FIRST_CHOICE;
	}
	*n = n_listed;
	return topk;
}

static void tell(const struct ferry_exact_ids *in, int32_t token,
                 int32_t choice, struct ferry_exact_bad *bad)
{
	const void *const row =
		(const char *)in->ids + (size_t)token * in->stride;

	bad->token = token;
	bad->choice = choice;
	bad->value = in->type == FERRY_ID_INT64
	                     ? ((const int64_t *)row)[choice]
	                     : ((const int32_t *)row)[choice];
}

bool ferry_exact_encode(const struct ferry_exact_ids *in,
                        const int32_t *code_of, struct ferry_exact_codes *codes,
                        int32_t *counts, struct ferry_exact_bad *bad)
{
	const struct target to = {code_of, codes->code, codes->where, counts};
	int32_t narrowed[MAX_TOPK];
	int32_t n = 0;

	for (int32_t t = 0; t < in->n_tokens; t++) {
		const void *ids =
			(const char *)in->ids + (size_t)t * in->stride;

		if (in->type == FERRY_ID_INT64) {
			narrow(ids, in->topk, narrowed);
			ids = narrowed;
		}
		const int32_t k = encode_row(in, ids, to, t * in->topk, &n);

		if (k < in->topk) {
			tell(in, t, k, bad);
			return false;
		}
	}
	codes->n = n;
	return true;
}

int32_t ferry_exact_tally(const struct ferry_placement *placement,
                          const int32_t *counts, int32_t *fixed,
                          int32_t *choice)
{
	int32_t n = 0;

	for (int32_t e = 0; e < placement->n_experts; e++) {
		const int32_t slot =
			placement->replicas[placement->first_replica[e]];

		if (placement_n_replicas(placement, e) > 1)
			choice[n++] = counts[e];
		else
			fixed[placement->map.slot_rank[slot]] += counts[e];
	}
	return n;
}

/* The list that is being written. */
struct list {
	struct ferry_exact_runs *runs;
	int32_t end;
};

static void append(struct list *list, int32_t slot, int64_t n)
{
	if (n == 0)
		return;
	list->runs->slot[list->end] = slot;
	list->runs->left[list->end++] = (int32_t)n;
}

/* One expert, its replicas and its sources. */
struct service {
	const int32_t *slots; /* of the replicas */
	const int32_t *rank;
	int64_t *share;
	int32_t n;
	const int32_t *count; /* [n_sources] */
	int32_t group_size;
	int32_t own;
};

/*
 * Rule 1, for all sources. Returns how many choices of the sources before the
 * own one are not served at home; *left is how many of the own are not.
 */
static int64_t serve_at_home(const struct service *s, struct list *list,
                             int64_t *left)
{
	int64_t before = 0;

	*left = s->count[s->own];
	for (int32_t i = 0; i < s->own; i++)
		before += s->count[i];
	for (int32_t i = 0; i < s->n;) {
		const int32_t source = s->rank[i] / s->group_size;
		int64_t want = s->count[source];

		for (; i < s->n && s->rank[i] / s->group_size == source; i++) {
			const int64_t n = min_i64(want, s->share[i]);

			want -= n;
			s->share[i] -= n;
			if (source < s->own)
				before -= n;
			if (source != s->own)
				continue;
			append(list, s->slots[i], n);
			*left -= n;
		}
	}
	return before;
}

/* Rule 2: `left` of what the quotas have, after the first `before`. */
static void serve_away(const struct service *s, struct list *list,
                       int64_t before, int64_t left)
{
	for (int32_t i = 0; i < s->n && left > 0; i++) {
		const int64_t skip = min_i64(before, s->share[i]);
		const int64_t n = min_i64(left, s->share[i] - skip);

		before -= skip;
		left -= n;
		append(list, s->slots[i], n);
	}
}

void ferry_exact_serve(struct ferry_sharing *sharing,
                       const struct ferry_placement *placement, int32_t expert,
                       const int32_t *count, int32_t group_size, int32_t own,
                       struct ferry_exact_runs *runs)
{
	const int32_t begin = sharing->first[expert];
	const int32_t id = sharing->expert[expert];
	const struct service service = {
		.slots = placement->replicas + placement->first_replica[id],
		.rank = sharing->rank + begin,
		.share = sharing->room.share + begin,
		.n = sharing->first[expert + 1] - begin,
		.count = count,
		.group_size = group_size,
		.own = own,
	};
	struct list list = {runs, begin};
	int64_t left;
	const int64_t before = serve_at_home(&service, &list, &left);

	serve_away(&service, &list, before, left);
	runs->at[expert] = begin;
}

void ferry_exact_resolve(struct ferry_exact_codes *codes,
                         struct ferry_exact_runs *runs)
{
	for (int32_t i = 0; i < codes->n; i++) {
		int32_t *const code = &codes->code[codes->where[i]];
		int32_t *const at = &runs->at[FIRST_CHOICE - *code];

		*code = runs->slot[*at];
		if (--runs->left[*at] == 0)
			(*at)++;
	}
}
