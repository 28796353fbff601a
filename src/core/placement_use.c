/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many operations use a placement. Placements are const where they are
 * used, and a careless caller destroys one while an operation still names it:
 * so the count is an object of its own, freed by whoever leaves last.
 */
#include <stdlib.h>

#include "order.h"
#include "placement_inner.h"

/* Operations are counted in twos; the lowest bit is the placement itself. */
enum { ALIVE = 1, ONE = 2 };

struct ferry_usage {
	uint32_t count;
};

struct ferry_usage *ferry_usage_create(void)
{
	struct ferry_usage *const usage = malloc(sizeof(*usage));

	if (usage)
		usage->count = ALIVE;
	return usage;
}

static void take(struct ferry_usage *usage, uint32_t what)
{
	if (usage && sub_seq_u32(&usage->count, what) == what)
		free(usage);
}

void ferry_usage_abandon(struct ferry_usage *usage)
{
	take(usage, ALIVE);
}

void ferry_usage_leave(struct ferry_usage *usage)
{
	take(usage, ONE);
}

struct ferry_usage *
ferry_placement_enter(const struct ferry_placement *placement)
{
	if (!placement)
		return NULL;
	add_seq_u32(&placement->usage->count, ONE);
	return placement->usage;
}

int32_t ferry_placement_in_use(const struct ferry_placement *placement)
{
	if (!placement)
		return 0;
	return (int32_t)(load_seq_u32(&placement->usage->count) / ONE);
}
