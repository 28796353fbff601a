/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how the ranks meet. */
#include "boot.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../core/clock.h"
#include "../core/order.h"
#include "boot_kinds.h"
#include "launch.h"
#include "star.h"
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

static enum ferry_status open_launched(struct ferry_ctx *ctx,
                                       struct ferry_boot **boot)
{
	const uint64_t deadline_ns =
		ferry_deadline_ns(ctx->opt.open_timeout_ms);
	struct ferry_launch launch;
	struct ferry_address address;

	FERRY_TRY(ferry_launch_read(ctx, &launch));
	ctx->rank = launch.rank;
	if (launch.n_ranks == 1)
		return ferry_boot_open_self(ctx, boot);
	FERRY_TRY(ferry_address_parse(ctx, launch.address, &address));
	ferry_log(ctx, FERRY_LOG_DEBUG, "boot: rank %d of %d by %s, at %s",
	          launch.rank, launch.n_ranks, launch.name, address.text);
	return ferry_boot_open_star(ctx, &address, launch.rank, launch.n_ranks,
	                            deadline_ns, boot);
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
	return open_launched(ctx, boot);
}

enum ferry_status ferry_boot_open(struct ferry_ctx *ctx,
                                  const struct ferry_world_config *config,
                                  struct ferry_boot **boot)
{
	static const struct ferry_world_config defaults =
		FERRY_WORLD_CONFIG_INIT;

	FERRY_TRY(choose(ctx, config ? config : &defaults, boot));
	ferry_log(ctx, FERRY_LOG_DEBUG, "boot: %s, rank %d of %d",
	          (*boot)->ops->name, (*boot)->rank, (*boot)->n_ranks);
	return FERRY_OK;
}

void ferry_boot_close(struct ferry_boot *boot)
{
	if (boot)
		boot->ops->close(boot);
}

#undef ferry_boot_fail /* a macro for the analyzer */

enum ferry_status ferry_boot_fail(struct ferry_boot *boot,
                                  enum ferry_status status, int32_t root,
                                  const char *fmt, ...)
{
	char text[sizeof(boot->text)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (!boot->failed) {
		boot->root = root;
		memcpy(boot->text, text, sizeof(text));
		store_release_u32(&boot->failed, (uint32_t)status);
	}
	return ferry_fail(boot->ctx, status, "%s", text);
}

void ferry_boot_blame(const struct ferry_boot *boot, struct ferry_error *error)
{
	const uint32_t failed = load_acquire_u32(&boot->failed);

	if (!failed)
		return;
	error->status = (enum ferry_status)(int32_t)failed;
	error->root_rank = boot->root;
	error->rank = boot->rank;
	snprintf(error->text, sizeof(error->text), "%s", boot->text);
}

bool ferry_boot_never(struct ferry_boot *boot, int32_t peer)
{
	(void)boot;
	(void)peer;
	return false;
}
