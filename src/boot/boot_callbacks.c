/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that meet through functions of the caller. These may block for as long
 * as they like: a deadline can only be passed on by the caller's own store.
 */
#include "boot_kinds.h"

#include <stdlib.h>
#include <string.h>

#include "../core/order.h"

struct boot_callbacks {
	struct ferry_boot boot;
	struct ferry_boot_callbacks call;
	uint64_t *sizes; /* [n_ranks] scratch */
	uint32_t aborted;
};

static enum ferry_status gather(struct boot_callbacks *b, const void *in,
                                void *out, size_t bytes)
{
	const int rc = b->call.allgather(b->call.arg, in, out, bytes);

	if (!rc)
		return FERRY_OK;
	return ferry_boot_fail(&b->boot, FERRY_FABRIC, -1,
	                       "boot: the caller's allgather of %zu bytes on "
	                       "rank %d returned %d",
	                       bytes, b->boot.rank, rc);
}

/*
 * A store that is given different sizes hangs or mixes bytes up, so the sizes
 * are compared before the data is trusted to it.
 */
static enum ferry_status sizes_agree(struct boot_callbacks *b, size_t bytes)
{
	const uint64_t mine = bytes;

	FERRY_TRY(gather(b, &mine, b->sizes, sizeof(mine)));
	for (int32_t r = 0; r < b->boot.n_ranks; r++) {
		if (b->sizes[r] == b->sizes[0])
			continue;
		return ferry_boot_fail(&b->boot, FERRY_MISMATCH, r,
		                       "boot: rank %d gave %llu bytes to an "
		                       "allgather, rank 0 gave %llu",
		                       r, (unsigned long long)b->sizes[r],
		                       (unsigned long long)b->sizes[0]);
	}
	return FERRY_OK;
}

static enum ferry_status allgather(struct ferry_boot *boot, const void *in,
                                   void *out, size_t bytes,
                                   uint64_t deadline_ns)
{
	struct boot_callbacks *b = (struct boot_callbacks *)boot;

	(void)deadline_ns;
	FERRY_TRY(ferry_boot_check_bytes(boot, bytes));
	if (load_acquire_u32(&b->aborted))
		return ferry_boot_fail(boot, FERRY_ABORTED, boot->rank,
		                       "boot: rank %d aborted the world",
		                       boot->rank);
	if (boot->failed)
		return ferry_boot_fail(boot, FERRY_FABRIC, -1,
		                       "boot: an earlier call of the caller's "
		                       "allgather failed");
	FERRY_TRY(sizes_agree(b, bytes));
	return gather(b, in, out, bytes);
}

static void abort_all(struct ferry_boot *boot)
{
	struct boot_callbacks *b = (struct boot_callbacks *)boot;

	store_release_u32(&b->aborted, 1);
}

static bool dead(struct ferry_boot *boot, int32_t peer)
{
	(void)boot;
	(void)peer;
	return false;
}

static void close_callbacks(struct ferry_boot *boot)
{
	struct boot_callbacks *b = (struct boot_callbacks *)boot;

	free(b->sizes);
	free(b);
}

static const struct ferry_boot_ops ops = {
	.name = "callbacks",
	.allgather = allgather,
	.abort = abort_all,
	.dead = dead,
	.silent = ferry_boot_never,
	.closed = ferry_boot_never,
	.close = close_callbacks,
};

static enum ferry_status check(struct ferry_ctx *ctx,
                               const struct ferry_boot_callbacks *callbacks,
                               int32_t rank, int32_t n_ranks)
{
	if (!callbacks->allgather || !callbacks->barrier)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "world_open: callbacks->%s is NULL, it must "
		                  "be a function",
		                  callbacks->allgather ? "barrier"
		                                       : "allgather");
	if (n_ranks < 1 || n_ranks > FERRY_MAX_RANKS)
		return ferry_fail(
			ctx, FERRY_INVAL,
			"world_open: n_ranks is %d, with callbacks it "
			"must be 1..%d",
			n_ranks, FERRY_MAX_RANKS);
	if (rank < 0 || rank >= n_ranks)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "world_open: rank is %d, allowed are 0..%d",
		                  rank, n_ranks - 1);
	return FERRY_OK;
}

enum ferry_status ferry_boot_open_callbacks(
	struct ferry_ctx *ctx, const struct ferry_boot_callbacks *callbacks,
	int32_t rank, int32_t n_ranks, struct ferry_boot **boot)
{
	FERRY_TRY(check(ctx, callbacks, rank, n_ranks));
	struct boot_callbacks *b = calloc(1, sizeof(*b));
	uint64_t *sizes = calloc((size_t)n_ranks, sizeof(*sizes));

	if (!b || !sizes) {
		free(b);
		free(sizes);
		return ferry_fail(ctx, FERRY_NOMEM, "boot: state of %d ranks",
		                  n_ranks);
	}
	b->boot = (struct ferry_boot){
		.ops = &ops, .ctx = ctx, .rank = rank, .n_ranks = n_ranks};
	b->call = *callbacks;
	b->sizes = sizes;
	const int rc = b->call.barrier(b->call.arg);
	if (rc) {
		close_callbacks(&b->boot);
		return ferry_fail(ctx, FERRY_FABRIC,
		                  "boot: the caller's barrier on rank %d "
		                  "returned %d",
		                  rank, rc);
	}
	*boot = &b->boot;
	return FERRY_OK;
}
