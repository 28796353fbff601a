/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every pair of ranks, in the steps of a tournament. A failure breaks the
 * segment of all, so after each step all tell each other how it went, by the
 * boot connection; those who are to blame are left out, a new segment is
 * opened, and the step is repeated for whoever was only disturbed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "hosts.h"
#include "opt.h"

/* How a step went on one rank; travels. */
struct vote {
	int32_t failed;
	int32_t root, reporter; /* -1: not known */
	int32_t pad;
	char text[HOSTS_TEXT_BYTES];
};

static bool world_good(struct hosts *h, enum ferry_status status,
                       const char *what)
{
	if (status == FERRY_OK)
		return true;
	snprintf(h->broken, sizeof(h->broken), "%s: %s (%s)", what,
	         ferry_last_error(), ferry_status_name(status));
	return false;
}

static void measure(struct hosts *h, int32_t peer, struct vote *vote)
{
	struct hosts_pair *const pair = &h->pairs[peer];
	const enum ferry_status status =
		raw_link_measure(&h->ground, peer, &pair->link);
	const struct ferry_error *error = &h->ground.pairs.segment->error;

	if (status == FERRY_OK) {
		pair->state = HOSTS_TESTED;
		return;
	}
	vote->failed = 1;
	vote->root = error->status ? error->root_rank : -1;
	vote->reporter = error->status ? error->rank : -1;
	snprintf(vote->text, sizeof(vote->text), "%s", ferry_last_error());
}

static void blame(struct hosts *h, int32_t a, int32_t b, const char *text)
{
	const int32_t peer = h->me->rank == a ? b : h->me->rank == b ? a : -1;

	if (peer < 0)
		return;
	h->pairs[peer].state = HOSTS_FAILED;
	snprintf(h->pairs[peer].text, HOSTS_TEXT_BYTES, "%s", text);
}

/*
 * All ranks come to the same conclusions. Where a record names no pair of this
 * step, every pair that failed is to blame, so that this comes to an end.
 */
static void judge(struct hosts *h, int32_t step, const struct vote *votes)
{
	bool known = false;

	for (int32_t r = 0; r < h->n_ranks; r++) {
		const struct vote *v = &votes[r];
		const bool pair = v->failed && v->root >= 0 &&
		                  v->reporter >= 0 && v->root != v->reporter &&
		                  ferry_pairs_partner(v->reporter, h->n_ranks,
		                                      step) == v->root;

		if (pair)
			blame(h, v->root, v->reporter, v->text);
		known |= pair;
	}
	for (int32_t r = 0; !known && r < h->n_ranks; r++)
		if (votes[r].failed)
			blame(h, r, ferry_pairs_partner(r, h->n_ranks, step),
			      votes[r].text);
}

/* Neither of the two has measured unless both have. */
static void settle(struct hosts *h, int32_t partner, const struct vote *votes)
{
	struct hosts_pair *const pair = &h->pairs[partner];

	if (pair->state == HOSTS_TESTED &&
	    (votes[h->me->rank].failed || votes[partner].failed))
		pair->state = HOSTS_UNTESTED;
}

static bool all_well(const struct hosts *h, const struct vote *votes)
{
	for (int32_t r = 0; r < h->n_ranks; r++)
		if (votes[r].failed)
			return false;
	return true;
}

static bool run_step(struct hosts *h, int32_t step, struct vote *votes)
{
	const int32_t partner =
		ferry_pairs_partner(h->me->rank, h->n_ranks, step);

	for (;;) {
		struct vote mine = {.root = -1, .reporter = -1};

		if (partner != h->me->rank &&
		    h->pairs[partner].state == HOSTS_UNTESTED)
			measure(h, partner, &mine);
		if (!world_good(h,
		                ferry_world_allgather(h->world, &mine, votes,
		                                      sizeof(mine)),
		                "a rank was lost"))
			return false;
		if (all_well(h, votes))
			return true;
		settle(h, partner, votes);
		judge(h, step, votes);
		raw_ground_close(&h->ground);
		if (!world_good(h, raw_ground_open(h->world, &h->ground),
		                "a new segment, after a pair had failed"))
			return false;
	}
}

bool hosts_try_pairs(struct hosts *h)
{
	const int32_t n_steps = ferry_pairs_steps(h->n_ranks);
	struct vote *votes = alloc_or_exit((size_t)h->n_ranks, sizeof(*votes));
	bool good = world_good(h, raw_ground_open(h->world, &h->ground),
	                       "a segment of all ranks");

	for (int32_t step = 0; good && step < n_steps; step++)
		good = run_step(h, step, votes);
	raw_ground_close(&h->ground);
	free(votes);
	return good;
}
