/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements on the device: each call goes by the one that it names, also when
 * the channel has seen more than it keeps, and when a graph was captured with
 * one that is older than all that are kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lab.h"

enum { EXPERTS = 64, MANY = 1300, TOPK = 2 };

static const int32_t all_experts[2] = {EXPERTS, EXPERTS};

/* A channel of one rank, or of two that have all experts; one token each. */
struct bench {
	struct ferry_moe *moe;
	struct rank_memory *memory;
	struct CUstream_st *stream;
	struct mirror ids, x, rows, counts;
	struct ferry_dispatch_in in;
	struct ferry_dispatch_out out;
	uint64_t rng;
};

static struct bench bench_open(struct rank *rank)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;
	struct bench b = {.rng = run_args.seed};

	lab_device(rank);
	c.max_tokens = 1;
	c.hidden = 8;
	c.topk = TOPK;
	c.n_experts = EXPERTS;
	c.expert_slots = rank->n_ranks == 2 ? all_experts : NULL;
	c.layout = FERRY_EXPERT_PACKED;
	c.path = run_args.path;
	RANKS_OK(ferry_moe_open(rank->world, &c, &b.moe));
	b.memory = rank_memory_of(rank, 1);
	b.stream = rank_memory_stream(b.memory, 0);
	b.ids = mirror_make(b.memory, 64, 64);
	b.x = mirror_make(b.memory, 64, 64);
	b.rows = mirror_make(b.memory, 16384, 64);
	b.counts = mirror_make(b.memory, EXPERTS * 4, EXPERTS * 4);
	b.in = (struct ferry_dispatch_in)FERRY_DISPATCH_IN_INIT;
	b.in.n_tokens = 1;
	b.in.x = b.x.device;
	b.in.topk_ids = b.ids.device;
	b.out = (struct ferry_dispatch_out)FERRY_DISPATCH_OUT_INIT;
	b.out.rows = b.rows.device;
	b.out.counts = (int32_t *)(void *)b.counts.device;
	return b;
}

static void bench_close(struct bench *b)
{
	rank_memory_sync(b->memory, NULL);
	RANKS_OK(ferry_moe_poll(b->moe, NULL));
	ferry_moe_close(b->moe);
	mirror_drop(b->memory, &b->ids);
	mirror_drop(b->memory, &b->x);
	mirror_drop(b->memory, &b->rows);
	mirror_drop(b->memory, &b->counts);
}

/* Experts in any order of slots. */
struct shuffled {
	int32_t slot_expert[EXPERTS];
	struct ferry_placement *placement;
};

static void shuffle(struct shuffled *s, uint64_t *rng)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	for (int32_t i = 0; i < EXPERTS; i++) {
		const int64_t j = traffic_between(rng, 0, i);

		s->slot_expert[i] = s->slot_expert[j];
		s->slot_expert[j] = i;
	}
	c.n_experts = EXPERTS;
	c.n_ranks = 1;
	c.slot_expert = s->slot_expert;
	RANKS_OK(ferry_placement_create(&c, &s->placement));
}

static void choose(struct bench *b)
{
	int32_t *ids = (int32_t *)(void *)b->ids.host;

	for (int32_t k = 0; k < TOPK; k++)
		ids[k] = (int32_t)traffic_between(&b->rng, 0, EXPERTS - 1);
	mirror_push(b->memory, &b->ids, b->stream);
}

static void check(struct bench *b, const struct shuffled *s)
{
	const int32_t *ids = (int32_t *)(void *)b->ids.host;
	const int32_t *counts = (int32_t *)(void *)b->counts.host;

	mirror_pull(b->memory, &b->counts, b->stream);
	rank_memory_sync(b->memory, b->stream);
	for (int32_t i = 0; i < EXPERTS; i++) {
		int32_t n = 0;

		for (int32_t k = 0; k < TOPK; k++)
			n += ids[k] == s->slot_expert[i];
		RANKS_EQ(counts[i], n);
	}
}

static void dispatch(struct bench *b, const struct shuffled *s)
{
	b->in.placement = s->placement;
	RANKS_OK(ferry_dispatch(b->moe, 0, &b->in, &b->out, b->stream));
}

static void many_body(struct rank *rank)
{
	struct bench b = bench_open(rank);
	struct shuffled old[8];
	int n_old = 0;

	for (int i = 0; i < MANY; i++) {
		struct shuffled s;
		const int again = (int)traffic_between(&b.rng, 0, 7);

		shuffle(&s, &b.rng);
		choose(&b);
		dispatch(&b, &s);
		check(&b, &s);
		if (n_old < 8) {
			old[n_old++] = s;
			continue;
		}
		/* One that may be kept, or not. */
		choose(&b);
		dispatch(&b, &old[again]);
		check(&b, &old[again]);
		ferry_placement_destroy(old[again].placement);
		old[again] = s;
	}
	for (int i = 0; i < n_old; i++)
		ferry_placement_destroy(old[i].placement);
	bench_close(&b);
}

static void more_placements_than_are_kept(void **state)
{
	const struct ranks how = run_args_ranks(1);

	(void)state;
	ranks_run(&how, many_body);
}

static void captured_body(struct rank *rank)
{
	struct bench b = bench_open(rank);
	struct shuffled captured, s;
	cudaGraphExec_t exec;

	shuffle(&captured, &b.rng);
	lab_capture(b.stream);
	dispatch(&b, &captured);
	exec = lab_captured(rank->world, b.stream);
	ferry_placement_destroy(captured.placement);
	for (int i = 0; i < MANY; i++) {
		shuffle(&s, &b.rng);
		choose(&b);
		dispatch(&b, &s);
		ferry_placement_destroy(s.placement);
		if (i % 100)
			continue;
		check(&b, &s);
		LAB_OK(cudaGraphLaunch(exec, b.stream));
		check(&b, &captured);
	}
	LAB_OK(cudaGraphExecDestroy(exec));
	bench_close(&b);
}

static void a_graph_keeps_its_placement(void **state)
{
	const struct ranks how = run_args_ranks(1);

	(void)state;
	ranks_run(&how, captured_body);
}

/* Quotas by which all tokens go to one of two ranks. */
static struct ferry_placement *all_to(int32_t rank)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	int32_t slot_expert[2 * EXPERTS];
	int64_t quota[2 * EXPERTS];
	struct ferry_placement *p;

	for (int32_t s = 0; s < 2 * EXPERTS; s++) {
		slot_expert[s] = s % EXPERTS;
		quota[s] = s / EXPERTS == rank;
	}
	c.n_experts = EXPERTS;
	c.n_ranks = 2;
	c.expert_slots = all_experts;
	c.slot_expert = slot_expert;
	c.split = FERRY_SPLIT_QUOTA;
	c.quota = quota;
	RANKS_OK(ferry_placement_create(&c, &p));
	return p;
}

static void check_sum(struct bench *b, int32_t want)
{
	const int32_t *counts = (int32_t *)(void *)b->counts.host;
	int32_t sum = 0;

	mirror_pull(b->memory, &b->counts, b->stream);
	rank_memory_sync(b->memory, b->stream);
	for (int32_t i = 0; i < EXPERTS; i++)
		sum += counts[i];
	RANKS_EQ(sum, want);
}

static void quotas_body(struct rank *rank)
{
	struct ferry_placement *to[2] = {all_to(0), all_to(1)};
	struct bench b = bench_open(rank);
	cudaGraphExec_t exec;

	choose(&b);
	b.in.placement = to[1];
	lab_capture(b.stream);
	RANKS_OK(ferry_dispatch(b.moe, 0, &b.in, &b.out, b.stream));
	exec = lab_captured(rank->world, b.stream);
	for (int i = 0; i < 40; i++) {
		b.in.placement = to[i / 3 % 2];
		RANKS_OK(ferry_dispatch(b.moe, 0, &b.in, &b.out, b.stream));
		check_sum(&b, rank->rank == i / 3 % 2 ? 2 * TOPK : 0);
		LAB_OK(cudaGraphLaunch(exec, b.stream));
		check_sum(&b, rank->rank == 1 ? 2 * TOPK : 0);
	}
	LAB_OK(cudaGraphExecDestroy(exec));
	bench_close(&b);
	ferry_placement_destroy(to[0]);
	ferry_placement_destroy(to[1]);
}

/* The same map with other quotas is another placement. */
static void each_call_goes_by_its_quotas(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, quotas_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_placements_than_are_kept),
		cmocka_unit_test(a_graph_keeps_its_placement),
		cmocka_unit_test(each_call_goes_by_its_quotas),
	};

	lab_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
