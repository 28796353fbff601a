/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long run: random channels with several slots each, random batches, calls
 * of all of them interleaved on two streams, nothing waited for; at intervals
 * one operation gets fresh data, and every byte of it is compared. After a
 * while the channels are closed and others opened.
 *
 * --count N operations (a dispatch, a combine), or --seconds N, for each number
 * of ranks, or for --ranks N; printed is how many there were and how many of
 * them were compared.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "lab.h"
#include "moe/drive_inner.h"
#include "moe/random_case.h"

enum {
	N_CHANNELS = 3,
	N_SLOTS = 2, /* of each */
	N_OPS = 3,
	MAX_LANES = 12,
	INTERVAL = 500,
	ROUND = 50000, /* operations of the same channels */
};

/* One operation slot of a channel. */
struct lane {
	struct drive *d;
	struct CUstream_st *stream;
	struct drive_op *ops[N_OPS]; /* batches to choose from */
	struct drive_op *op;         /* in flight */
	int next;                    /* of the four calls */
	bool combine, fused, compare;
	uint64_t n_dispatches;
};

struct soak {
	struct random_case cases[N_CHANNELS];
	struct drive *channels[N_CHANNELS];
	struct lane lanes[MAX_LANES];
	int n_lanes;
	uint64_t rng;
	int round;
	uint64_t n_operations, n_compared;
};

/*
 * Channels know nothing of each other: where several wait on one GPU, the
 * caller shares it out (docs/guide.md).
 */
static int32_t sms_of_channel(int32_t n_ranks)
{
	const int32_t n_gpus = run_args.n_gpus;
	int32_t n_sms = 0;

	if (n_gpus == 0)
		return 0;
	LAB_OK(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount,
	                              0));
	n_sms /= N_CHANNELS * N_SLOTS * ((n_ranks + n_gpus - 1) / n_gpus);
	return n_sms ? n_sms : 1;
}

/* A random case of which no step must fail, and that fits a soak. */
static void make_case(struct random_case *c, uint64_t seed, int32_t n_ranks)
{
	struct ferry_moe_config *m = &c->config;

	do {
		random_case_make(c, seed, n_ranks);
		seed += 1000003;
	} while (c->deep);
	m->bad_id = FERRY_BAD_ID_SKIP;
	m->overflow = FERRY_OVERFLOW_DROP;
	m->n_slots = N_SLOTS;
	m->max_sms = sms_of_channel(n_ranks);
	if (m->path == FERRY_PATH_AUTO)
		m->path = run_args.path;
}

static void pick_batch(const struct random_case *c, int32_t rank,
                       struct drive_step *step, uint64_t *rng)
{
	bool combine;

	random_case_step(c, (int32_t)(traffic_random(rng) >> 40), rank, step,
	                 &combine);
}

static void open_lanes(struct soak *s, struct rank *rank)
{
	for (int i = 0; i < N_CHANNELS; i++) {
		struct random_case *c = &s->cases[i];

		make_case(c,
		          run_args.seed + (uint64_t)(N_CHANNELS * s->round + i),
		          rank->n_ranks);
		if (rank->rank == 0)
			random_case_print(c);
		struct drive *d = drive_open(rank, &c->config,
		                             c->placed ? &c->placement : NULL);

		s->channels[i] = d;
		for (int32_t slot = 0; slot < c->config.n_slots; slot++) {
			struct lane *lane = &s->lanes[s->n_lanes++];

			lane->d = d;
			lane->stream = rank_memory_stream(d->memory, i + slot);
			for (int b = 0; b < N_OPS; b++) {
				struct drive_step step;

				pick_batch(c, rank->rank, &step, &s->rng);
				lane->ops[b] =
					drive_begin_lasting(d, slot, &step);
			}
		}
	}
}

/* Another batch for an operation: any shape's numbers and any routing. */
static void renew(struct soak *s, struct lane *lane)
{
	const struct ferry_moe_config *m = &lane->d->config;
	struct drive_step step = {0};

	step.spec.seed = traffic_random(&s->rng);
	step.spec.routing = (enum traffic_routing)traffic_between(
		&s->rng, 0, TRAFFIC_N_ROUTINGS - 1);
	step.spec.special = traffic_chance(&s->rng, 40);
	for (int32_t r = 0; r < m->n_ranks; r++) {
		const int32_t g = m->group_size ? m->group_size : 1;

		step.n_tokens[r] = r % g ? step.n_tokens[r - r % g]
		                         : (int32_t)traffic_between(
						   &s->rng, 0, m->max_tokens);
	}
	drive_renew(lane->op, &step, lane->n_dispatches);
	drive_refill(lane->op, lane->stream);
}

static void begin(struct soak *s, struct lane *lane, bool compare)
{
	lane->op = lane->ops[traffic_between(&s->rng, 0, N_OPS - 1)];
	lane->combine = traffic_chance(&s->rng, 85);
	lane->fused = traffic_chance(&s->rng, 40);
	lane->compare = compare;
	lane->next = 0;
	if (compare)
		renew(s, lane);
	lane->n_dispatches++;
}

/* The next call of a lane, which is the last one of its operation or not. */
static void call(struct soak *s, struct lane *lane)
{
	const enum drive_call calls[2][4] = {
		{DRIVE_DISPATCH_SEND, DRIVE_DISPATCH_RECV, DRIVE_COMBINE_SEND,
	         DRIVE_COMBINE_RECV},
		{DRIVE_DISPATCH, DRIVE_DISPATCH, DRIVE_COMBINE, DRIVE_COMBINE}};

	RANKS_OK(drive_issue(lane->op, calls[lane->fused][lane->next],
	                     lane->stream));
	lane->next += lane->fused ? 2 : 1;
	s->n_operations += lane->next % 2 == 0;
	if (lane->next < 2 || (lane->combine && lane->next < 4))
		return;
	if (lane->compare) {
		drive_finish(lane->op, lane->combine, lane->stream);
		s->n_compared++;
	}
	lane->op = NULL;
}

/* An interval's calls; the operation that begins at its end is compared. */
static void interval(struct soak *s)
{
	bool compared = false;

	for (int i = 0; i < INTERVAL || !compared; i++) {
		struct lane *lane =
			&s->lanes[traffic_between(&s->rng, 0, s->n_lanes - 1)];

		if (lane->op == NULL) {
			const bool now = i >= INTERVAL - 40 && !compared;

			begin(s, lane, now);
			compared |= now;
		}
		call(s, lane);
	}
}

static void close_lanes(struct soak *s)
{
	rank_memory_sync(s->channels[0]->memory, NULL);
	for (int i = 0; i < N_CHANNELS; i++) {
		RANKS_OK(ferry_moe_poll(s->channels[i]->moe, NULL));
		drive_close(s->channels[i]);
	}
	memset(s->lanes, 0, sizeof(s->lanes));
	s->n_lanes = 0;
	s->round++;
}

/* Rank 0 looks at the clock, all stop together. */
static bool over(struct rank *rank, const struct soak *s, uint64_t end_ns)
{
	uint8_t all[RANKS_MAX];
	uint8_t mine = run_args.count
	                       ? s->n_operations >= (uint64_t)run_args.count
	                       : ferry_now_ns() > end_ns;

	RANKS_OK(ferry_world_allgather(rank->world, &mine, all, 1));
	return all[0];
}

static void body(struct rank *rank)
{
	static _Thread_local struct soak s;
	const int seconds = run_args.seconds ? run_args.seconds : 5;
	const uint64_t begin_ns = ferry_now_ns();
	const uint64_t end_ns =
		begin_ns + (uint64_t)seconds * UINT64_C(1000000000);

	bool end;

	memset(&s, 0, sizeof(s));
	s.rng = run_args.seed + 17;
	lab_device(rank);
	do {
		const uint64_t limit = s.n_operations + ROUND;

		open_lanes(&s, rank);
		do {
			interval(&s);
			end = over(rank, &s, end_ns);
		} while (!end && s.n_operations < limit);
		close_lanes(&s);
	} while (!end);
	if (rank->rank == 0)
		printf("# %llu operations, %llu compared, %.1f s\n",
		       (unsigned long long)s.n_operations,
		       (unsigned long long)s.n_compared,
		       (double)(ferry_now_ns() - begin_ns) * 1e-9);
}

static void soak(int32_t n_ranks)
{
	struct ranks how = run_args_ranks(n_ranks);

	if (run_args.ranks && run_args.ranks != n_ranks)
		skip();
	how.limit_ms = 30000 + 2000 * (run_args.seconds ? run_args.seconds : 5);
	if (run_args.count)
		how.limit_ms = 900000;
	ranks_run(&how, body);
}

static void two_ranks(void **state)
{
	(void)state;
	soak(2);
}

static void four_ranks(void **state)
{
	(void)state;
	soak(4);
}

static void eight_ranks(void **state)
{
	(void)state;
	soak(8);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_ranks),
		cmocka_unit_test(four_ranks),
		cmocka_unit_test(eight_ranks),
	};

	lab_read(argc, argv);
	run_args.streams = 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
