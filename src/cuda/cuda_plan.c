/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_plan.h. */
#include "cuda_plan.h"

#include <string.h>

#include "../core/bits.h"
#include "../proto/sizes.h"
#include "cuda_placement.h"

/*
 * AUTO takes lines where latency counts: up to so many tokens a call, and
 * choices of all ranks, which every receiver scans. Above, chunks move more
 * bytes in less time: ferry bench --path shows where the two cross. Dispatch
 * of 512 tokens by lines and by chunks, two H200s, November 2026: bf16 TOKEN
 * 45 and 30 us, FP8 padded 39 and 37; combine 37 to 106 and 34 to 102, of 256
 * tokens 21 to 57 and 24 to 62. Who quantises is far better off with lines.
 */
enum {
	LINES_MOST_TOKENS = 512,
	LINES_MOST_OF_VIEW = 384, /* TOKEN, as they are */
	LINES_MOST_CHOICES = 16384,
};

int32_t ferry_cuda_plan_ctas(const struct ferry_cuda_room *room)
{
	const int64_t all = (int64_t)room->n_sms * room->ctas_per_sm;
	const int64_t kernels = (int64_t)room->n_slots * room->n_ranks;
	int64_t ctas = all / max_i64(kernels, 1);

	if (room->max_sms)
		ctas = min_i64(ctas, room->max_sms);
	return (int32_t)min_i64(ctas, INT32_MAX);
}

const struct ferry_cuda_dispatch_ops *
ferry_cuda_dispatch_of(enum ferry_path path)
{
	return path == FERRY_PATH_LINES ? &ferry_cuda_dispatch_lines
	                                : &ferry_cuda_dispatch_chunks;
}

const struct ferry_cuda_combine_ops *ferry_cuda_combine_of(enum ferry_path path)
{
	return path == FERRY_PATH_LINES ? &ferry_cuda_combine_lines
	                                : &ferry_cuda_combine_chunks;
}

static const char *path_name(enum ferry_path path)
{
	return path == FERRY_PATH_LINES ? "lines" : "chunks";
}

/* Why the kernels of a path cannot serve; *why NULL: they can. */
static enum ferry_status ask_kernels(const struct ferry_shape *shape,
                                     enum ferry_path path, const char **why)
{
	struct ferry_shape asked = *shape;
	struct ferry_cuda_channel channel;
	struct ferry_window window;

	asked.path = path;
	FERRY_TRY(ferry_window_init(&window, &asked, false));
	ferry_cuda_channel_fill(&channel, &asked, &window, NULL);
	*why = ferry_cuda_dispatch_of(path)->refuse(&channel);
	if (!*why)
		*why = ferry_cuda_combine_of(path)->refuse(&channel);
	return FERRY_OK;
}

static bool wants_lines(const struct ferry_shape *shape)
{
	const int64_t tokens = (int64_t)shape->n_ranks * shape->max_tokens;
	const bool view = shape->layout == FERRY_TOKEN && !shape->quantize;
	const int32_t most = view ? LINES_MOST_OF_VIEW : LINES_MOST_TOKENS;

	return shape->max_tokens <= most &&
	       tokens * shape->topk <= LINES_MOST_CHOICES;
}

/* What AUTO stands for. */
static enum ferry_status choose(const struct ferry_ctx *ctx,
                                struct ferry_shape *shape)
{
	const char *option = ctx ? ctx->opt.path : "auto";
	const char *why = NULL;

	if (!strcmp(option, "lines") || !strcmp(option, "chunks")) {
		shape->path =
			option[0] == 'l' ? FERRY_PATH_LINES : FERRY_PATH_CHUNKS;
		return FERRY_OK;
	}
	shape->path = FERRY_PATH_CHUNKS;
	if (!wants_lines(shape))
		return FERRY_OK;
	FERRY_TRY(ask_kernels(shape, FERRY_PATH_LINES, &why));
	if (!why)
		shape->path = FERRY_PATH_LINES;
	return FERRY_OK;
}

enum ferry_status ferry_cuda_settle(struct ferry_ctx *ctx,
                                    struct ferry_shape *shape)
{
	const char *why = NULL;

	if (shape->n_ranks > FERRY_CUDA_MAX_RANKS)
		return ferry_fail(ctx, FERRY_UNSUPPORTED,
		                  "moe_config: n_ranks is %d, on GPUs are "
		                  "allowed 1..%d",
		                  shape->n_ranks, FERRY_CUDA_MAX_RANKS);
	if (shape->path == FERRY_PATH_AUTO)
		FERRY_TRY(choose(ctx, shape));
	FERRY_TRY(ask_kernels(shape, shape->path, &why));
	if (!why)
		return FERRY_OK;
	return ferry_fail(ctx, FERRY_UNSUPPORTED, "moe_config: path %s: %s",
	                  path_name(shape->path), why);
}

/* Device memory and pinned memory of a channel, the window apart. */
static size_t heap_bytes(const struct ferry_shape *shape, int32_t ctas)
{
	struct ferry_cuda_channel channel;
	struct ferry_window window;

	if (ferry_window_init(&window, shape, false))
		return SIZE_MAX;
	ferry_cuda_channel_fill(&channel, shape, &window, NULL);
	/* As the engine lays them out. */
	const size_t scratch =
		size_add(round_up(ferry_cuda_dispatch_of(shape->path)
	                                  ->scratch_bytes(&channel, ctas),
	                          256),
	                 ferry_cuda_combine_of(shape->path)
	                         ->scratch_bytes(&channel, ctas));
	const size_t ops = size_mul((size_t)shape->n_slots,
	                            ferry_cuda_op_bytes(&channel, scratch));

	return size_add(ops, ferry_cuda_placements_bytes(shape) +
	                             sizeof(struct ferry_cuda_local) +
	                             sizeof(struct ferry_cuda_host));
}

enum ferry_status ferry_cuda_query(const struct ferry_shape *shape,
                                   struct ferry_moe_need *need)
{
	const struct ferry_cuda_room room = {
		.n_sms = FERRY_CUDA_TYPICAL_SMS,
		.n_ranks = 1,
		.n_slots = shape->n_slots,
		.max_sms = shape->max_sms,
		.ctas_per_sm = 1,
	};
	const int32_t ctas = (int32_t)max_i64(1, ferry_cuda_plan_ctas(&room));

	need->path = path_name(shape->path);
	need->n_sms = ctas;
	need->resident_ctas = ctas * shape->n_slots;
	need->heap_bytes = heap_bytes(shape, ctas);
	if (need->heap_bytes <= PTRDIFF_MAX)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_RANGE,
	                  "moe_config: the heap exceeds 2^63 bytes: n_ranks "
	                  "%d, max_tokens %d, topk %d, n_slots %d",
	                  shape->n_ranks, shape->max_tokens, shape->topk,
	                  shape->n_slots);
}
