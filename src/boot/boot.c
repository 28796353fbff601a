/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how the ranks meet. */
#include "boot.h"

#include "boot_kinds.h"
#include "team.h"

enum ferry_status ferry_boot_check_bytes(const struct ferry_boot *boot,
                                         size_t bytes)
{
	if (bytes >= 1 && bytes <= FERRY_BOOT_MAX_BYTES)
		return FERRY_OK;
	return ferry_fail(boot->ctx, FERRY_INVAL,
	                  "allgather: bytes is %zu, allowed are 1..%d", bytes,
	                  FERRY_BOOT_MAX_BYTES);
}

static enum ferry_status choose(struct ferry_ctx *ctx,
                                const struct ferry_world_config *config,
                                struct ferry_boot **boot)
{
	if (config->team && config->callbacks)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "world_open: team and callbacks are both "
		                  "given, at most one is allowed");
	if (config->team)
		return ferry_boot_open_team(ctx, config->team, config->rank,
		                            boot);
	if (config->callbacks)
		return ferry_boot_open_callbacks(ctx, config->callbacks,
		                                 config->rank, config->n_ranks,
		                                 boot);
	return ferry_boot_open_self(ctx, boot);
}

enum ferry_status ferry_boot_open(struct ferry_ctx *ctx,
                                  const struct ferry_world_config *config,
                                  struct ferry_boot **boot)
{
	static const struct ferry_world_config defaults =
		FERRY_WORLD_CONFIG_INIT;

	FERRY_TRY(choose(ctx, config ? config : &defaults, boot));
	ctx->rank = (*boot)->rank;
	ferry_log(ctx, FERRY_LOG_DEBUG, "boot: %s, rank %d of %d",
	          (*boot)->ops->name, (*boot)->rank, (*boot)->n_ranks);
	return FERRY_OK;
}

void ferry_boot_close(struct ferry_boot *boot)
{
	if (boot)
		boot->ops->close(boot);
}
