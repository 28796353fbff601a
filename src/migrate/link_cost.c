/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What links cost, measured. Ranks meet in pairs, as in a tournament: in each
 * step everybody has another partner, and the two time their link in one
 * direction and then in the other, while other pairs do the same.
 *
 * A transfer of n bytes is puts of at most max_put bytes and a kick; the
 * partner answers by a signal when all have arrived. With n = 0 that is a
 * signal there and back, of which alpha is half. What n bytes take beyond it is
 * fitted by least squares through the origin, so that the large transfers,
 * which experts are, weigh most. Of every size the fastest round counts:
 * whatever else the machine does only adds.
 */
#include <ferry/balance.h>

#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "../core/range.h"
#include "../core/sized.h"
#include "../fabric/pairs.h"
#include "agree_numbers.h"

enum {
	LEAST_BYTES = 4096,
	DEFAULT_BYTES = 16 << 20,
	MOST_BYTES = 1 << 30,
	DEFAULT_ROUNDS = 10,
	MOST_ROUNDS = 1000,
	N_SIZES = 5, /* 0, and max_bytes by powers of 8 */
	RATIO = 8,
};

struct meter {
	struct ferry_world *world;
	struct ferry_pairs pairs;
	struct ferry_cost_config config;
	size_t put_bytes; /* of each put but the last */
	int64_t *row;     /* [2][n_ranks] own alpha, own ps per byte */
	int64_t *all;     /* [n_ranks][2][n_ranks] */
};

static enum ferry_status check_config(struct ferry_world *world,
                                      const struct ferry_cost_config *given,
                                      struct ferry_cost_config *config)
{
	static const struct ferry_cost_config defaults = FERRY_COST_CONFIG_INIT;
	const char *const call = "cost_measure";

	FERRY_TRY(ferry_sized_copy(config, sizeof(*config),
	                           given ? given : &defaults,
	                           "cost_measure: config"));
	if (config->max_bytes == 0)
		config->max_bytes = DEFAULT_BYTES;
	if (config->rounds == 0)
		config->rounds = DEFAULT_ROUNDS;
	FERRY_TRY(check_range(&world->ctx, call, "max_bytes", config->max_bytes,
	                      LEAST_BYTES, MOST_BYTES));
	return check_range(&world->ctx, call, "rounds", config->rounds, 1,
	                   MOST_ROUNDS);
}

/*
 * Ranks that count differently, or that were refused, would be waited for in
 * vain. `mine`: how the own preparation went.
 */
static enum ferry_status compare_rounds(struct meter *m, enum ferry_status mine)
{
	const struct ferry_agreed own[] = {
		{"max_bytes", m->config.max_bytes},
		{"rounds", m->config.rounds},
	};

	return ferry_agree_numbers(m->world, "cost_measure", mine, own, 2);
}

static enum ferry_status prepare(struct meter *m,
                                 const struct ferry_cost_config *config)
{
	const size_t n = (size_t)m->world->n_ranks;

	m->pairs.seen = calloc(n, sizeof(*m->pairs.seen));
	m->row = calloc(2 * n, sizeof(*m->row));
	m->all = calloc(2 * n * n, sizeof(*m->all));
	if (!m->pairs.seen || !m->row || !m->all)
		return ferry_fail(&m->world->ctx, FERRY_NOMEM,
		                  "cost_measure: tables of %zu ranks", n);
	return check_config(m->world, config, &m->config);
}

static enum ferry_status open_meter(struct meter *m,
                                    const struct ferry_cost_config *config)
{
	const size_t n = (size_t)m->world->n_ranks;

	FERRY_TRY(compare_rounds(m, prepare(m, config)));
	/* What is sent, and behind it what comes. */
	FERRY_TRY(ferry_segment_open(m->world, 2 * (size_t)m->config.max_bytes,
	                             (uint32_t)n, &m->pairs.segment));
	const size_t max_put = ferry_segment_max_put(m->pairs.segment);

	m->put_bytes = (size_t)m->config.max_bytes;
	if (m->put_bytes > max_put)
		m->put_bytes = max_put;
	return FERRY_OK;
}

static void close_meter(struct meter *m)
{
	ferry_segment_close(m->pairs.segment);
	free(m->pairs.seen);
	free(m->row);
	free(m->all);
}

/* Puts `bytes` bytes, or a signal for none. */
static enum ferry_status transfer(struct meter *m, int32_t peer, size_t bytes)
{
	const unsigned char *source = ferry_segment_base(m->pairs.segment);
	const size_t to = (size_t)m->config.max_bytes;

	if (!bytes)
		return ferry_pairs_say(&m->pairs, peer);
	for (size_t at = 0; at < bytes; at += m->put_bytes) {
		const size_t left = bytes - at;

		FERRY_TRY(ferry_segment_put(
			m->pairs.segment, peer, to + at, source + at,
			left < m->put_bytes ? left : m->put_bytes,
			ferry_pairs_signal(&m->pairs)));
	}
	return ferry_segment_kick(m->pairs.segment);
}

static uint64_t puts_of(const struct meter *m, size_t bytes)
{
	return bytes ? (uint64_t)div_up((int64_t)bytes, (int64_t)m->put_bytes)
	             : 1;
}

static size_t size_at(const struct meter *m, int i)
{
	size_t bytes = (size_t)m->config.max_bytes;

	if (i == 0)
		return 0;
	for (int k = i; k < N_SIZES - 1; k++)
		bytes /= RATIO;
	return bytes;
}

/* There and back, the fastest round. */
static enum ferry_status time_size(struct meter *m, int32_t peer, size_t bytes,
                                   int64_t *ns)
{
	*ns = INT64_MAX;
	for (int32_t i = 0; i < m->config.rounds; i++) {
		const uint64_t begin = ferry_now_ns();

		FERRY_TRY(transfer(m, peer, bytes));
		FERRY_TRY(ferry_pairs_await(&m->pairs, peer, 1));
		*ns = min_i64(*ns, (int64_t)(ferry_now_ns() - begin));
		/* The source is free again; nothing of it is timed. */
		FERRY_TRY(ferry_segment_flush(m->pairs.segment));
	}
	return FERRY_OK;
}

/*
 * Least squares of ns = slope * bytes, in ps, rounded up. Sizes are below 2^31
 * and times below 2^63, so that products stay below 2^127.
 */
static int64_t slope_of(const struct meter *m, const int64_t *ns,
                        int64_t there_and_back)
{
	__int128_t xy = 0;
	__int128_t xx = 0;

	for (int i = 1; i < N_SIZES; i++) {
		const __int128_t bytes = (__int128_t)size_at(m, i);

		xy += bytes * max_i64(ns[i] - there_and_back, 0);
		xx += bytes * bytes;
	}
	return (int64_t)((xy * 1000 + xx - 1) / xx);
}

/* This rank's link to a peer. */
static enum ferry_status time_link(struct meter *m, int32_t peer)
{
	int64_t ns[N_SIZES];

	for (int i = 0; i < N_SIZES; i++)
		FERRY_TRY(time_size(m, peer, size_at(m, i), &ns[i]));
	m->row[peer] = div_up(ns[0], 2);
	m->row[m->world->n_ranks + peer] = slope_of(m, ns, ns[0]);
	return FERRY_OK;
}

/* The other side of time_link. */
static enum ferry_status answer(struct meter *m, int32_t peer)
{
	for (int i = 0; i < N_SIZES; i++)
		for (int32_t k = 0; k < m->config.rounds; k++) {
			FERRY_TRY(ferry_pairs_await(&m->pairs, peer,
			                            puts_of(m, size_at(m, i))));
			FERRY_TRY(ferry_pairs_say(&m->pairs, peer));
		}
	return FERRY_OK;
}

static enum ferry_status meet(struct meter *m, int32_t step)
{
	const int32_t rank = m->world->rank;
	const int32_t partner =
		ferry_pairs_partner(rank, m->world->n_ranks, step);

	if (partner == rank)
		return FERRY_OK;
	if (rank < partner) {
		FERRY_TRY(time_link(m, partner));
		return answer(m, partner);
	}
	FERRY_TRY(answer(m, partner));
	return time_link(m, partner);
}

static enum ferry_status measure(struct meter *m)
{
	const int32_t n_ranks = m->world->n_ranks;
	const int32_t n_steps = ferry_pairs_steps(n_ranks);

	for (int32_t step = 0; step < n_steps; step++) {
		/* Together, so that no pair is alone on the machine. */
		FERRY_TRY(ferry_world_barrier(m->world));
		FERRY_TRY(meet(m, step));
	}
	return ferry_world_allgather(m->world, m->row, m->all,
	                             2 * (size_t)n_ranks * sizeof(*m->row));
}

static void give(const struct meter *m, int64_t *alpha_ns, int64_t *ps_per_byte)
{
	const size_t n = (size_t)m->world->n_ranks;

	for (size_t r = 0; r < n; r++) {
		memcpy(alpha_ns + r * n, m->all + 2 * r * n,
		       n * sizeof(*alpha_ns));
		memcpy(ps_per_byte + r * n, m->all + (2 * r + 1) * n,
		       n * sizeof(*ps_per_byte));
	}
}

enum ferry_status ferry_cost_measure(struct ferry_world *world,
                                     const struct ferry_cost_config *config,
                                     int64_t *alpha_ns, int64_t *ps_per_byte)
{
	struct meter m = {.world = world};
	enum ferry_status status;

	if (!world || !alpha_ns || !ps_per_byte)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "cost_measure: %s is NULL",
		                  !world      ? "world"
		                  : !alpha_ns ? "alpha_ns"
		                              : "ps_per_byte");
	status = open_meter(&m, config);
	if (status == FERRY_OK)
		status = measure(&m);
	if (status == FERRY_OK)
		give(&m, alpha_ns, ps_per_byte);
	close_meter(&m);
	return status;
}
