/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of expert loads over ranks: every rank's counts travel as they are, and
 * everybody adds them up, so that all get the same sums without a root and
 * without a second flight.
 */
#include <ferry/balance.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/range.h"
#include "../core/sized.h"
#include "../fabric/world.h"
#include "../trace/events.h"
#include "agree_numbers.h"
#include "gather.h"

/* What a rank sends. */
struct message {
	uint64_t tag;
	int64_t window_ns;
	int32_t n_experts;
	int32_t pad;
	int32_t counts[]; /* [max_experts] */
};

struct ferry_totals {
	struct ferry_world *world;
	struct ferry_gather *gather;
	struct message *own;
	int32_t max_experts;
	uint64_t n_received;
};

static size_t message_bytes(int32_t max_experts)
{
	return sizeof(struct message) + (size_t)max_experts * sizeof(int32_t);
}

/* Before anybody waits for a rank that was refused. */
static enum ferry_status agree(const struct ferry_totals *t)
{
	struct ferry_world *const world = t->world;
	const struct ferry_agreed own = {"max_experts", t->max_experts};
	const enum ferry_status mine =
		check_range(&world->ctx, "totals_open", own.name, own.value, 1,
	                    FERRY_MAX_EXPERTS);

	return ferry_agree_numbers(world, "totals_open", mine, &own, 1);
}

static enum ferry_status open_parts(struct ferry_totals *t)
{
	FERRY_TRY(agree(t));
	const size_t bytes = message_bytes(t->max_experts);

	t->own = calloc(1, bytes);
	if (!t->own)
		return ferry_fail(&t->world->ctx, FERRY_NOMEM,
		                  "totals_open: counts of %d experts",
		                  t->max_experts);
	return ferry_gather_open(t->world, "totals", bytes, &t->gather);
}

enum ferry_status ferry_totals_open(struct ferry_world *world,
                                    int32_t max_experts,
                                    struct ferry_totals **totals)
{
	if (!world || !totals)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "totals_open: %s is NULL",
		                  world ? "totals" : "world");
	struct ferry_totals *t = calloc(1, sizeof(*t));

	if (!t)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "totals_open: %zu bytes", sizeof(*t));
	t->world = world;
	t->max_experts = max_experts;
	const enum ferry_status status = open_parts(t);

	if (status != FERRY_OK) {
		ferry_totals_close(t);
		return status;
	}
	*totals = t;
	return FERRY_OK;
}

void ferry_totals_close(struct ferry_totals *totals)
{
	if (!totals)
		return;
	ferry_gather_close(totals->gather);
	free(totals->own);
	free(totals);
}

static enum ferry_status check_in(const struct ferry_totals *t,
                                  const struct ferry_totals_in *in)
{
	FERRY_TRY(check_range(&t->world->ctx, "totals_send", "n_experts",
	                      in->n_experts, 1, t->max_experts));
	for (int32_t e = 0; in->counts && e < in->n_experts; e++)
		if (in->counts[e] < 0)
			return ferry_fail(&t->world->ctx, FERRY_RANGE,
			                  "totals_send: counts[%d] is %d, "
			                  "allowed are 0..",
			                  e, in->counts[e]);
	return FERRY_OK;
}

static void trace(const struct ferry_totals *t, const char *name,
                  uint64_t begin_ns)
{
	struct ferry_trace_event event = {
		.name = name,
		.category = "balance",
		.begin_ns = begin_ns,
		.epoch = t->n_received,
		.slot = -1,
		.peer = -1,
	};

	ferry_trace_end(t->world->trace, &event);
}

enum ferry_status ferry_totals_send(struct ferry_totals *totals,
                                    const struct ferry_totals_in *in)
{
	struct ferry_totals_in given;

	if (!totals)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "totals_send: totals is NULL");
	FERRY_TRY(
		ferry_sized_copy(&given, sizeof(given), in, "totals_send: in"));
	FERRY_TRY(check_in(totals, &given));
	struct message *own = totals->own;
	const size_t bytes = (size_t)given.n_experts * sizeof(*own->counts);

	own->tag = given.tag;
	own->window_ns = given.window_ns;
	own->n_experts = given.n_experts;
	if (given.counts)
		memcpy(own->counts, given.counts, bytes);
	else
		memset(own->counts, 0, bytes);
	const uint64_t begin_ns = ferry_trace_begin(totals->world->trace);
	const enum ferry_status status = ferry_gather_send(totals->gather, own);

	trace(totals, "totals_send", begin_ns);
	return status;
}

/* The messages of a round. */
struct round {
	const unsigned char *all;
	size_t stride;
	int32_t n_ranks;
};

static const struct message *message_of(const struct round *round, int32_t rank)
{
	return (const void *)(round->all + (size_t)rank * round->stride);
}

/* Do all ranks speak of the same? */
static enum ferry_status compare(const struct ferry_totals *t,
                                 const struct round *round)
{
	const struct message *first = message_of(round, 0);

	for (int32_t r = 1; r < round->n_ranks; r++) {
		const struct message *m = message_of(round, r);

		if (m->n_experts != first->n_experts)
			return ferry_fail(
				&t->world->ctx, FERRY_MISMATCH,
				"totals_recv: round %" PRIu64
				": rank %d has %d experts, rank 0 has %d",
				t->n_received, r, m->n_experts,
				first->n_experts);
		if (m->tag != first->tag)
			return ferry_fail(
				&t->world->ctx, FERRY_MISMATCH,
				"totals_recv: round %" PRIu64
				": rank %d has tag %" PRIu64 " (0x%" PRIx64
				"), rank 0 has %" PRIu64 " (0x%" PRIx64 ")",
				t->n_received, r, m->tag, m->tag, first->tag,
				first->tag);
	}
	return FERRY_OK;
}

static void add_up(const struct round *round, int64_t *loads)
{
	const int32_t n_experts = message_of(round, 0)->n_experts;

	memset(loads, 0, (size_t)n_experts * sizeof(*loads));
	for (int32_t r = 0; r < round->n_ranks; r++) {
		const int32_t *counts = message_of(round, r)->counts;

		for (int32_t e = 0; e < n_experts; e++)
			loads[e] += counts[e];
	}
}

static void give_windows(const struct round *round,
                         const struct ferry_totals_out *out)
{
	int64_t least = INT64_MAX;

	for (int32_t r = 0; r < round->n_ranks; r++) {
		const int64_t window = message_of(round, r)->window_ns;

		least = min_i64(least, window);
		if (out->rank_window_ns)
			out->rank_window_ns[r] = window;
	}
	if (out->window_ns)
		*out->window_ns = least;
}

enum ferry_status ferry_totals_recv(struct ferry_totals *totals,
                                    const struct ferry_totals_out *out)
{
	struct ferry_totals_out wanted;
	struct round round;
	const void *all;

	if (!totals)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "totals_recv: totals is NULL");
	FERRY_TRY(ferry_sized_copy(&wanted, sizeof(wanted), out,
	                           "totals_recv: out"));
	const uint64_t begin_ns = ferry_trace_begin(totals->world->trace);
	enum ferry_status status =
		ferry_gather_recv(totals->gather, &all, &round.stride);

	trace(totals, "totals_recv", begin_ns);
	if (status != FERRY_OK)
		return status;
	round.all = all;
	round.n_ranks = totals->world->n_ranks;
	status = compare(totals, &round);
	totals->n_received++;
	if (status != FERRY_OK)
		return status;
	if (wanted.loads)
		add_up(&round, wanted.loads);
	give_windows(&round, &wanted);
	return FERRY_OK;
}
