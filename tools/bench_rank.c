/* SPDX-License-Identifier: Apache-2.0 */
/* One rank with a channel, its buffers, and a way to run one checked step. */
#include "bench_rank.h"

#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "fabric/place.h"

int32_t *bench_hosts_of(const struct ferry_world *world)
{
	const int32_t n = world->n_ranks;
	int32_t *host = alloc_or_exit((size_t)n, sizeof(*host));

	for (int32_t r = 0; r < n; r++)
		while (!ferry_place_same_host(&world->places[host[r]],
		                              &world->places[r]))
			host[r]++;
	return host;
}

void bench_configure(const struct bench_case *c,
                     struct ferry_moe_config *config)
{
	*config = (struct ferry_moe_config)FERRY_MOE_CONFIG_INIT;
	config->n_ranks = c->n_ranks;
	config->max_tokens = c->tokens > 0 ? c->tokens : 1;
	config->hidden = c->hidden;
	config->topk = c->topk;
	config->n_experts = c->experts;
	config->layout = c->layout;
	config->combine = c->combine;
	config->device = c->device;
	config->path = c->path;
	config->max_sms = c->max_sms;
	/* A token that takes an expert twice needs two of its rows. */
	if (c->routing == BENCH_MESSY && c->layout == FERRY_EXPERT_PADDED)
		config->max_recv_rows =
			(int64_t)c->n_ranks * config->max_tokens * c->topk;
	if (!c->fp8)
		return;
	config->dtype = FERRY_FP8_E4M3;
	config->in_dtype = c->ready ? FERRY_FP8_E4M3 : FERRY_BF16;
	config->scale_type = FERRY_SCALE_FP32;
}

static void make_inputs(struct bench_rank *r)
{
	const size_t tokens = (size_t)r->c->tokens;
	const size_t hidden = (size_t)r->c->hidden;
	const size_t choices = tokens * (size_t)r->c->topk;

	r->x = alloc_or_exit(tokens * hidden, sizeof(*r->x));
	r->out = alloc_or_exit(tokens * hidden, sizeof(*r->out));
	r->ids = alloc_or_exit(choices, sizeof(*r->ids));
	r->weights = alloc_or_exit(choices, sizeof(*r->weights));
	r->in = (struct ferry_dispatch_in)FERRY_DISPATCH_IN_INIT;
	r->in.n_tokens = bench_tokens(r->c, r->me->rank);
	r->in.x = r->x;
	r->in.topk_ids = r->ids;
	r->in.topk_weights = r->weights;
	r->sum = (struct ferry_combine_out)FERRY_COMBINE_OUT_INIT;
	r->sum.out = r->out;
}

static void make_outputs(struct bench_rank *r)
{
	const struct bench_case *c = r->c;
	const size_t rows = (size_t)r->need.recv_rows;
	const size_t slots = (size_t)r->need.max_expert_slots;

	r->got = (struct ferry_dispatch_out)FERRY_DISPATCH_OUT_INIT;
	r->got.counts = alloc_or_exit(slots, sizeof(*r->got.counts));
	r->got.offsets = alloc_or_exit(slots + 1, sizeof(*r->got.offsets));
	if (c->layout == FERRY_TOKEN) {
		r->got.index = alloc_or_exit(rows, sizeof(*r->got.index));
		return;
	}
	r->got.rows = alloc_or_exit(rows, r->need.row_bytes);
	if (c->fp8)
		r->got.scales = alloc_or_exit(rows, r->need.scale_row_bytes);
}

static void make_back(struct bench_rank *r)
{
	r->back = (struct ferry_combine_in)FERRY_COMBINE_IN_INIT;
	r->back.layout = r->presummed ? FERRY_FROM_PRESUMMED
	                 : r->c->layout == FERRY_EXPERT_PADDED
	                         ? FERRY_FROM_PADDED
	                         : FERRY_FROM_PACKED;
	r->back.y = r->y;
}

/* Where the checks find what arrived, and room for the experts' rows. */
static bool make_received(struct bench_rank *r)
{
	struct ferry_moe_view view = FERRY_MOE_VIEW_INIT;
	int64_t rows = r->need.recv_rows;

	r->received = (struct bench_received){
		.rows = r->got.rows,
		.row_stride = r->need.row_bytes,
		.scales = r->got.scales,
		.scales_stride = r->need.scale_row_bytes,
		.counts = r->got.counts,
		.offsets = r->c->layout == FERRY_EXPERT_PADDED ? NULL
	                                                       : r->got.offsets,
		.index = r->got.index,
	};
	if (r->c->layout == FERRY_TOKEN) {
		if (!crew_good(r->me, ferry_moe_get_view(r->moe, 0, &view),
		               "view"))
			return false;
		r->received.rows = view.rows;
		r->received.row_stride = view.row_stride;
		r->received.scales = view.scales;
		r->received.scales_stride = view.row_stride;
		if (r->presummed)
			rows = view.n_rows;
	}
	r->y = alloc_or_exit((size_t)(rows * r->c->hidden), sizeof(*r->y));
	return true;
}

bool bench_rank_open(struct bench_rank *rank, const struct crew_member *me,
                     const struct bench_case *c, struct ferry_world *world)
{
	struct ferry_moe_config config;

	*rank = (struct bench_rank){
		.me = me,
		.c = c,
		.need = FERRY_MOE_NEED_INIT,
		.presummed =
			c->layout == FERRY_TOKEN && c->combine == FERRY_REDUCED,
	};
	bench_configure(c, &config);
	if (!crew_good(me, ferry_moe_query(&config, &rank->need), "query") ||
	    !crew_good(me, ferry_moe_open(world, &config, &rank->moe),
	               "opening a channel"))
		return false;
	make_inputs(rank);
	make_outputs(rank);
	if (!make_received(rank))
		return false;
	make_back(rank);
	return true;
}

void bench_rank_close(struct bench_rank *rank)
{
	ferry_moe_close(rank->moe);
	free(rank->x);
	free(rank->y);
	free(rank->out);
	free(rank->ids);
	free(rank->weights);
	free(rank->got.rows);
	free(rank->got.scales);
	free(rank->got.counts);
	free(rank->got.offsets);
	free(rank->got.index);
}

bool bench_rank_dispatch(struct bench_rank *rank)
{
	return crew_good(
		rank->me,
		ferry_dispatch(rank->moe, 0, &rank->in, &rank->got, NULL),
		"dispatch");
}

bool bench_rank_combine(struct bench_rank *rank)
{
	return crew_good(
		rank->me,
		ferry_combine(rank->moe, 0, &rank->back, &rank->sum, NULL),
		"combine");
}

/* Old rows must not pass for new ones. */
static void poison(struct bench_rank *r, const struct bench_arrivals *arrivals)
{
	const size_t bytes = r->need.row_bytes;
	const size_t out = (size_t)r->c->tokens * (size_t)r->c->hidden;

	for (int64_t i = 0; r->got.rows && i < arrivals->n; i++)
		memset((uint8_t *)r->got.rows +
		               (size_t)arrivals->list[i].row * bytes,
		       0x5a, bytes);
	memset(r->out, 0x5a, out * sizeof(*r->out));
}

bool bench_rank_step(struct bench_rank *rank, uint64_t step, int64_t *wrong)
{
	const struct bench_case *c = rank->c;
	struct bench_arrivals arrivals;

	bench_arrivals_make(&arrivals, c, rank->me->rank, step,
	                    rank->need.recv_rows_slot);
	bench_make_inputs(c, rank->me->rank, step, rank->x, rank->ids,
	                  rank->weights);
	poison(rank, &arrivals);
	bool good = bench_rank_dispatch(rank);

	if (good && wrong)
		wrong[0] += bench_check_received(c, step, &arrivals,
		                                 &rank->received, BENCH_WHOLE);
	if (good) {
		bench_run_experts(c, &arrivals, &rank->received,
		                  rank->presummed, rank->y, BENCH_WHOLE);
		good = bench_rank_combine(rank);
	}
	if (good && wrong)
		wrong[1] += bench_check_sums(c, rank->me->rank, step, rank->out,
		                             BENCH_WHOLE);
	bench_arrivals_free(&arrivals);
	return good;
}

void bench_rank_check(struct bench_rank *rank, uint64_t step, int64_t *wrong)
{
	struct bench_arrivals arrivals;

	bench_arrivals_make(&arrivals, rank->c, rank->me->rank, step,
	                    rank->need.recv_rows_slot);
	wrong[0] += bench_check_received(rank->c, step, &arrivals,
	                                 &rank->received, BENCH_WHOLE);
	wrong[1] += bench_check_sums(rank->c, rank->me->rank, step, rank->out,
	                             BENCH_WHOLE);
	bench_arrivals_free(&arrivals);
}
