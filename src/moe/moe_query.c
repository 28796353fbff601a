/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration needs, and the view of a TOKEN channel. */
#include "../core/sized.h"
#include "../cuda/net_layout.h"
#include "../proto/channel.h"

static void fill_need(struct ferry_moe_need *need,
                      const struct ferry_shape *shape,
                      const struct ferry_window *window)
{
	need->window_bytes = window->bytes;
	need->recv_rows = shape->recv_rows;
	need->recv_rows_slot = shape->padded_rows;
	need->row_bytes = shape->row_bytes;
	need->scale_row_bytes = shape->scale_row_bytes;
	need->n_scales = shape->n_scales;
	if (shape->layout == FERRY_TOKEN)
		need->view_row_stride = shape->row_stride;
	need->max_expert_slots = shape->max_expert_slots;
}

/* Rows cross hosts by path chunks, whatever is best on one. */
static enum ferry_status ask_mirror(const struct ferry_shape *shape,
                                    size_t *bytes)
{
	struct ferry_shape chunks = *shape;
	struct ferry_window window;

	*bytes = 0;
	if (shape->device != FERRY_DEVICE_CUDA)
		return FERRY_OK;
	chunks.path = FERRY_PATH_CHUNKS;
	FERRY_TRY(ferry_window_init(&window, &chunks, false));
	*bytes = ferry_net_mirror_bytes(&chunks, &window);
	return FERRY_OK;
}

static enum ferry_status ask(const struct ferry_shape *shape,
                             struct ferry_moe_need *need)
{
	struct ferry_moe_need found = FERRY_MOE_NEED_INIT;
	struct ferry_window window;

	FERRY_TRY(ferry_window_init(&window, shape, false));
	FERRY_TRY(ferry_engine_of(shape->device)->query(shape, &found));
	FERRY_TRY(ask_mirror(shape, &found.mirror_bytes));
	fill_need(&found, shape, &window);
	return ferry_sized_give(need, &found, sizeof(found), "moe_query: need");
}

enum ferry_status ferry_moe_query(const struct ferry_moe_config *config,
                                  struct ferry_moe_need *need)
{
	struct ferry_moe_config own;
	struct ferry_shape shape;

	FERRY_TRY(ferry_sized_copy(&own, sizeof(own), config,
	                           "moe_query: config"));
	FERRY_TRY(ferry_shape_init(&shape, &own, own.n_ranks, 0));
	enum ferry_status status =
		ferry_engine_of(shape.device)->settle(NULL, &shape);

	if (status == FERRY_OK)
		status = ask(&shape, need);

	ferry_shape_destroy(&shape);
	return status;
}

static struct ferry_moe_view view_of(const struct ferry_moe *moe, int32_t slot)
{
	const struct ferry_shape *shape = &moe->shape;
	/* Of the host or of the device: only added to. */
	const char *rows = (const char *)ferry_segment_base(moe->segment) +
	                   ferry_window_row(&moe->window, shape, slot, 0,
	                                    shape->rank, 0, 0);

	return (struct ferry_moe_view){
		.rows = rows,
		.n_rows = 2 * (int64_t)shape->n_ranks * shape->cap,
		.row_stride = shape->row_stride,
		.scales = shape->scale_row_bytes ? rows + shape->scale_offset
	                                         : NULL,
		.cap = shape->cap,
	};
}

enum ferry_status ferry_moe_get_view(const struct ferry_moe *moe, int32_t slot,
                                     struct ferry_moe_view *view)
{
	if (!moe)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_get_view: moe is NULL");
	if (slot < 0 || slot >= moe->shape.n_slots)
		return ferry_fail(&moe->world->ctx, FERRY_RANGE,
		                  "moe_get_view: slot is %d, allowed are 0..%d",
		                  slot, moe->shape.n_slots - 1);
	if (moe->shape.layout != FERRY_TOKEN)
		return ferry_fail(&moe->world->ctx, FERRY_UNSUPPORTED,
		                  "moe_get_view: layout is %s, a view has "
		                  "TOKEN only",
		                  moe->shape.layout == FERRY_EXPERT_PADDED
		                          ? "EXPERT_PADDED"
		                          : "EXPERT_PACKED");
	const struct ferry_moe_view found = view_of(moe, slot);

	return ferry_sized_give(view, &found, sizeof(found),
	                        "moe_get_view: view");
}
