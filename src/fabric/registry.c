/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabrics of this build and the choice among them: by name, or the best by
 * probe; and the wrappers that a name or the options put around it.
 */
#include "registry.h"

#include <stdio.h>
#include <string.h>

#include "../core/sized.h"
#include "world.h"

const struct ferry_fabric_ops *const ferry_fabrics[] = {
	&ferry_fabric_p2p,
	&ferry_fabric_nvshmem,
	&ferry_fabric_local,
	&ferry_fabric_shm,
	&ferry_fabric_shm_ofi,
	&ferry_fabric_ofi,
	&ferry_fabric_wire,
	&ferry_fabric_shm_wire,
	&ferry_fabric_p2p_wire,
	&ferry_fabric_p2p_ofi,
	NULL,
};

typedef enum ferry_status wrap_fn(struct ferry_world *world,
                                  struct ferry_fabric *inner,
                                  struct ferry_fabric **fabric);

static const struct wrapper {
	const char *name;
	wrap_fn *wrap;
} wrappers[] = {
	{"fault", ferry_fabric_wrap_fault},
	{"trace", ferry_fabric_wrap_trace},
};

enum { N_WRAPPERS = sizeof(wrappers) / sizeof(*wrappers) };

bool ferry_fabric_get(int i, struct ferry_fabric_info *info)
{
	if (i < 0 || !info)
		return false;
	for (int j = 0; j <= i; j++)
		if (!ferry_fabrics[j])
			return false;
	const struct ferry_fabric_ops *ops = ferry_fabrics[i];

	struct ferry_fabric_info found = FERRY_FABRIC_INFO_INIT;

	found.name = ops->name;
	found.summary = ops->summary;
	found.score = ops->probe(NULL, found.reason);
	return ferry_sized_give(info, &found, sizeof(found), "fabric_info") ==
	       FERRY_OK;
}

static const struct ferry_fabric_ops *by_name(const char *name)
{
	for (int i = 0; ferry_fabrics[i]; i++)
		if (!strcmp(ferry_fabrics[i]->name, name))
			return ferry_fabrics[i];
	return NULL;
}

static enum ferry_status unknown(struct ferry_world *world, const char *what,
                                 size_t length)
{
	char names[256] = "auto";

	for (int i = 0; ferry_fabrics[i]; i++) {
		const size_t n = strlen(names);

		snprintf(names + n, sizeof(names) - n, ", %s",
		         ferry_fabrics[i]->name);
	}
	return ferry_fail(&world->ctx, FERRY_INVAL,
	                  "world_open: fabric '%.*s' is not known, allowed "
	                  "are %s, with trace: or fault: before them",
	                  (int)length, what, names);
}

/* Score for this world; the device must be the world's, too. */
static int probe(const struct ferry_world *world,
                 const struct ferry_fabric_ops *ops,
                 char reason[FERRY_REASON_BYTES])
{
	if (ops->device == world->device)
		return ops->probe(world, reason);
	snprintf(reason, FERRY_REASON_BYTES, "is for worlds on %s",
	         ops->device == FERRY_DEVICE_CPU ? "the CPU" : "GPUs");
	return 0;
}

/* Those of the other device, and those that wait to be named, say nothing. */
static void add_reason(const struct ferry_world *world,
                       const struct ferry_fabric_ops *ops, const char *reason,
                       char *reasons, size_t bytes)
{
	const size_t n = strlen(reasons);

	if (ops->device == world->device)
		snprintf(reasons + n, bytes - n, "%s%s: %s", n ? "; " : "",
		         ops->name, reason);
}

static enum ferry_status choose(struct ferry_world *world, const char *name,
                                const struct ferry_fabric_ops **chosen)
{
	char reason[FERRY_REASON_BYTES];
	char reasons[400] = "";
	int best = FERRY_SCORE_BY_NAME;

	if (*name && strcmp(name, "auto")) {
		*chosen = by_name(name);
		if (!*chosen)
			return unknown(world, name, strlen(name));
		if (probe(world, *chosen, reason) > 0)
			return FERRY_OK;
		return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
		                  "world_open: fabric %s: %s", name, reason);
	}
	for (int i = 0; ferry_fabrics[i]; i++) {
		const int score = probe(world, ferry_fabrics[i], reason);

		if (score == 0)
			add_reason(world, ferry_fabrics[i], reason, reasons,
			           sizeof(reasons));
		if (score > best) {
			best = score;
			*chosen = ferry_fabrics[i];
		}
	}
	if (best > FERRY_SCORE_BY_NAME)
		return FERRY_OK;
	return ferry_fail(&world->ctx, FERRY_UNSUPPORTED,
	                  "world_open: no fabric reaches all ranks: %s",
	                  reasons);
}

/* The name in full grows from the outside in. */
static void name_add(struct ferry_world *world, const char *name)
{
	const size_t n = strlen(world->fabric_name);

	snprintf(world->fabric_name + n, sizeof(world->fabric_name) - n, "%s%s",
	         n ? ":" : "", name);
}

/* Wraps *fabric; on failure it is closed. */
static enum ferry_status wrap(struct ferry_world *world, wrap_fn *how,
                              struct ferry_fabric **fabric)
{
	struct ferry_fabric *inner = *fabric;
	const enum ferry_status status = how(world, inner, fabric);

	if (status != FERRY_OK && inner)
		inner->ops->close(inner);
	return status;
}

/* "trace:fault:shm": the wrappers, outermost first, then the fabric. */
static enum ferry_status open_named(struct ferry_world *world, const char *name,
                                    struct ferry_fabric **fabric)
{
	const char *colon = strchr(name, ':');
	const struct ferry_fabric_ops *ops = NULL;

	if (!colon) {
		FERRY_TRY(choose(world, name, &ops));
		name_add(world, ops->name);
		return ops->open(world, fabric);
	}
	const size_t length = (size_t)(colon - name);

	for (int i = 0; i < N_WRAPPERS; i++) {
		if (strlen(wrappers[i].name) != length ||
		    memcmp(wrappers[i].name, name, length))
			continue;
		name_add(world, wrappers[i].name);
		FERRY_TRY(open_named(world, colon + 1, fabric));
		return wrap(world, wrappers[i].wrap, fabric);
	}
	return unknown(world, name, length);
}

/* Is the wrapper among those of the name? */
static bool names_wrapper(const char *name, const char *wrapper)
{
	const size_t length = strlen(wrapper);

	for (; strchr(name, ':'); name = strchr(name, ':') + 1)
		if (!strncmp(name, wrapper, length) && name[length] == ':')
			return true;
	return false;
}

enum ferry_status ferry_fabric_open(struct ferry_world *world, const char *name,
                                    struct ferry_fabric **fabric)
{
	const bool implied =
		world->ctx.opt.fault[0] && !names_wrapper(name, "fault");
	struct ferry_fabric *opened = NULL;

	if (implied)
		name_add(world, "fault");
	FERRY_TRY(open_named(world, name, &opened));
	if (implied)
		FERRY_TRY(wrap(world, ferry_fabric_wrap_fault, &opened));
	*fabric = opened;
	return FERRY_OK;
}
