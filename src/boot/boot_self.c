/* SPDX-License-Identifier: Apache-2.0 */
/* A world of one rank: nobody to meet. */
#include "boot_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "../core/order.h"

struct boot_self {
	struct ferry_boot boot;
	uint32_t aborted;
};

static enum ferry_status allgather(struct ferry_boot *boot, const void *in,
                                   void *out, size_t bytes,
                                   uint64_t deadline_ns)
{
	struct boot_self *self = (struct boot_self *)boot;

	(void)deadline_ns;
	FERRY_TRY(ferry_boot_check_bytes(boot, bytes));
	if (load_acquire_u32(&self->aborted))
		return ferry_boot_fail(boot, FERRY_ABORTED, 0,
		                       "boot: rank 0 aborted the world");
	memmove(out, in, bytes);
	return FERRY_OK;
}

static void abort_all(struct ferry_boot *boot)
{
	struct boot_self *self = (struct boot_self *)boot;

	store_release_u32(&self->aborted, 1);
}

static bool dead(struct ferry_boot *boot, int32_t peer)
{
	(void)boot;
	(void)peer;
	return false;
}

static void close_self(struct ferry_boot *boot)
{
	free(boot);
}

static const struct ferry_boot_ops ops = {
	.name = "self",
	.allgather = allgather,
	.abort = abort_all,
	.dead = dead,
	.silent = ferry_boot_never,
	.closed = ferry_boot_never,
	.close = close_self,
};

enum ferry_status ferry_boot_open_self(struct ferry_ctx *ctx,
                                       struct ferry_boot **boot)
{
	struct boot_self *self = calloc(1, sizeof(*self));

	if (!self)
		return ferry_fail(ctx, FERRY_NOMEM, "boot: state of %zu bytes",
		                  sizeof(*self));
	self->boot = (struct ferry_boot){.ops = &ops, .ctx = ctx, .n_ranks = 1};
	*boot = &self->boot;
	return FERRY_OK;
}
