/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a CUDA world with a channel: its buffers and its operations.
 * Steps that are checked are in gpu_step.c.
 */
#include "gpu_rank.h"

#include <stdio.h>

#include "bench_rank.h"

static bool make_inputs(struct gpu_rank *r)
{
	struct gpu_seat *s = r->seat;
	const size_t tokens = (size_t)r->c->tokens;
	const size_t choices = tokens * (size_t)r->c->topk;
	const size_t row = (size_t)r->c->hidden * sizeof(uint16_t);
	const size_t scales = r->c->ready ? r->need.scale_row_bytes : 0;

	r->in = (struct ferry_dispatch_in)FERRY_DISPATCH_IN_INIT;
	r->in.n_tokens = bench_tokens(r->c, s->me->rank);
	r->in.x = gpu_device_memory(s, GPU_X, tokens * row);
	if (scales)
		r->in.scales =
			gpu_device_memory(s, GPU_X_SCALES, tokens * scales);
	r->in.topk_ids = gpu_device_memory(s, GPU_IDS, choices * 4);
	r->in.topk_weights = gpu_device_memory(s, GPU_WEIGHTS, choices * 4);
	r->sum = (struct ferry_combine_out)FERRY_COMBINE_OUT_INIT;
	r->sum.out = gpu_device_memory(s, GPU_OUT, tokens * row);
	return r->in.x && (!scales || r->in.scales) && r->in.topk_ids &&
	       r->in.topk_weights && r->sum.out;
}

static bool make_outputs(struct gpu_rank *r)
{
	struct gpu_seat *s = r->seat;
	const size_t rows = (size_t)r->need.recv_rows;
	const size_t slots = (size_t)r->need.max_expert_slots;
	const bool token = r->c->layout == FERRY_TOKEN;
	struct ferry_dispatch_out *got = &r->got;

	*got = (struct ferry_dispatch_out)FERRY_DISPATCH_OUT_INIT;
	got->counts = gpu_device_memory(s, GPU_COUNTS, slots * 4);
	got->offsets = gpu_device_memory(s, GPU_OFFSETS, (slots + 1) * 8);
	if (token) {
		got->index = gpu_device_memory(s, GPU_INDEX, rows * 8);
		return got->counts && got->offsets && got->index;
	}
	got->rows = gpu_device_memory(s, GPU_ROWS, rows * r->need.row_bytes);
	if (r->c->fp8)
		got->scales = gpu_device_memory(s, GPU_SCALES,
		                                rows * r->need.scale_row_bytes);
	return got->counts && got->offsets && got->rows &&
	       (!r->c->fp8 || got->scales);
}

static bool make_back(struct gpu_rank *r)
{
	const int64_t rows = r->presummed ? r->view.n_rows : r->need.recv_rows;

	r->back = (struct ferry_combine_in)FERRY_COMBINE_IN_INIT;
	r->back.layout = r->presummed ? FERRY_FROM_PRESUMMED
	                 : r->c->layout == FERRY_EXPERT_PADDED
	                         ? FERRY_FROM_PADDED
	                         : FERRY_FROM_PACKED;
	r->back.y = gpu_device_memory(r->seat, GPU_Y,
	                              (size_t)(rows * r->c->hidden) *
	                                      sizeof(uint16_t));
	return r->back.y;
}

bool gpu_rank_open(struct gpu_rank *rank, struct gpu_seat *seat,
                   const struct bench_case *c)
{
	const struct crew_member *me = seat->me;
	struct ferry_moe_config config;

	*rank = (struct gpu_rank){
		.seat = seat,
		.c = c,
		.packed = *c,
		.need = FERRY_MOE_NEED_INIT,
		.view = FERRY_MOE_VIEW_INIT,
		.presummed =
			c->layout == FERRY_TOKEN && c->combine == FERRY_REDUCED,
	};
	if (c->layout == FERRY_EXPERT_PADDED)
		rank->packed.layout = FERRY_EXPERT_PACKED;
	bench_configure(c, &config);
	return crew_good(me, ferry_moe_query(&config, &rank->need), "query") &&
	       crew_good(me, ferry_moe_open(seat->world, &config, &rank->moe),
	                 "opening a channel") &&
	       (c->layout != FERRY_TOKEN ||
	        crew_good(me, ferry_moe_get_view(rank->moe, 0, &rank->view),
	                  "view")) &&
	       make_inputs(rank) && make_outputs(rank) && make_back(rank);
}

void gpu_rank_close(struct gpu_rank *rank)
{
	ferry_moe_close(rank->moe);
}

bool gpu_rank_dispatch(struct gpu_rank *rank, int32_t slot)
{
	return crew_good(rank->seat->me,
	                 ferry_dispatch(rank->moe, slot, &rank->in, &rank->got,
	                                rank->seat->stream),
	                 "dispatch");
}

bool gpu_rank_combine(struct gpu_rank *rank, int32_t slot)
{
	return crew_good(rank->seat->me,
	                 ferry_combine(rank->moe, slot, &rank->back, &rank->sum,
	                               rank->seat->stream),
	                 "combine");
}

bool gpu_rank_sync(struct gpu_rank *rank)
{
	const struct crew_member *me = rank->seat->me;
	struct ferry_error error = FERRY_ERROR_INIT;

	if (!gpu_good(me, cudaStreamSynchronize(rank->seat->stream), "waiting"))
		return false;
	if (ferry_moe_poll(rank->moe, &error) == FERRY_OK)
		return true;
	fprintf(stderr, "%s: rank %d: %s (%s)\n", me->crew->name, me->rank,
	        error.text, ferry_status_name(error.status));
	return false;
}
