/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of fabrics over a network: the inner fabric that brings the
 * memory, which peers it is used for, and what happens where a put arrives.
 */
#include "net.h"

#include <stdlib.h>

#include "../boot/team.h"
#include "place.h"
#include "shm_file.h"

_Static_assert(sizeof(struct ferry_shm_handle) <= FERRY_NET_HANDLE_AT,
               "the inner handle comes first");

static bool are_mates(const struct ferry_world *world, int32_t a, int32_t b)
{
	return ferry_place_same_host(&world->places[a], &world->places[b]);
}

static enum ferry_status find_mates(struct ferry_world *world,
                                    struct ferry_net *net)
{
	const int32_t n = world->n_ranks;

	net->next_mate = calloc((size_t)n, sizeof(*net->next_mate));
	if (!net->next_mate)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "%s: hosts of %d ranks",
		                  net->wrap.fabric.ops->name, n);
	for (int32_t r = 0; r < n; r++) {
		int32_t next = (r + 1) % n;

		while (!are_mates(world, r, next))
			next = (next + 1) % n;
		net->next_mate[r] = next;
	}
	return FERRY_OK;
}

static enum ferry_status open_inner(struct ferry_world *world,
                                    enum ferry_reach reach,
                                    struct ferry_fabric **inner)
{
	if (world->n_ranks == 1 || ferry_boot_is_team(world->boot))
		return ferry_fabric_local.open(world, inner);
	return ferry_fabric_shm_open(world, reach, inner);
}

enum ferry_status ferry_net_open(struct ferry_world *world, bool stores,
                                 enum ferry_reach reach, struct ferry_net *net)
{
	enum ferry_status status;

	net->wrap.fabric.world = world;
	net->stores = stores;
	FERRY_TRY(find_mates(world, net));
	status = open_inner(world, reach, &net->wrap.inner);
	if (status != FERRY_OK)
		free(net->next_mate);
	return status;
}

void ferry_net_close(struct ferry_fabric *fabric)
{
	free(((struct ferry_net *)fabric)->next_mate);
	ferry_wrap_close(fabric);
}

void ferry_net_arrived_at(const struct ferry_mem *mem, int32_t rank,
                          uint32_t counter)
{
	const struct ferry_net *net = ferry_net_of(mem);
	const int32_t *next = net->next_mate;
	const bool fans = net->stores && counter >= mem->fan_first &&
	                  counter < mem->fan_end;

	for (int32_t r = next[rank]; fans && r != rank; r = next[r])
		ferry_mem_raise(ferry_wrap_control(mem, r),
		                mem->counters_offset, counter);
	ferry_mem_raise(ferry_wrap_control(mem, rank), mem->counters_offset,
	                counter);
}

void ferry_net_arrived(const struct ferry_mem *mem, uint32_t counter)
{
	ferry_net_arrived_at(mem, mem->fabric->world->rank, counter);
}

void *ferry_net_control(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_world *world = mem->fabric->world;

	if (peer == world->rank)
		return mem->control;
	if (ferry_net_of(mem)->stores && are_mates(world, world->rank, peer))
		return ferry_wrap_control(mem, peer);
	return NULL;
}

uint32_t ferry_net_caps(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_world *world = mem->fabric->world;

	if (ferry_net_stores(mem, peer))
		return ferry_fabric_caps_ldst(mem, peer);
	return are_mates(world, world->rank, peer) ? FERRY_CAP_SAME_HOST : 0;
}
