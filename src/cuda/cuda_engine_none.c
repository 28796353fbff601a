/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA engine in a build without CUDA: it refuses every shape. */
#include "../proto/channel.h"

static enum ferry_status settle(struct ferry_ctx *ctx,
                                struct ferry_shape *shape)
{
	(void)shape;
	return ferry_fail(ctx, FERRY_UNSUPPORTED,
	                  "moe_config: device is CUDA, and this build has no "
	                  "CUDA");
}

static enum ferry_status query(const struct ferry_shape *shape,
                               struct ferry_moe_need *need)
{
	(void)shape;
	(void)need;
	return FERRY_UNSUPPORTED;
}

/* Nothing else is called: there is no world of this device either. */
const struct ferry_engine_ops ferry_engine_cuda = {
	.name = "cuda",
	.settle = settle,
	.query = query,
};
