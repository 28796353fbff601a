/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world: this rank meets its peers through boot, tells them where it lives,
 * and opens one fabric with them. The rest of Ferry hangs off it.
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/clock.h"
#include "../core/sized.h"
#include "../trace/events.h"
#include "place.h"
#include "segment.h"
#include "segment_break.h"

enum { FABRIC_NAME_BYTES = sizeof(((struct ferry_world *)0)->fabric_name) };

static const char *device_name(int32_t device)
{
	return device == FERRY_DEVICE_CPU ? "CPU" : "CUDA";
}

/* Worlds can only work together when library and structs are the same. */
static enum ferry_status compare_places(struct ferry_world *world)
{
	const struct ferry_place *first = &world->places[0];

	for (int32_t r = 1; r < world->n_ranks; r++) {
		const struct ferry_place *place = &world->places[r];

		if (place->version != first->version)
			return ferry_fail(&world->ctx, FERRY_MISMATCH,
			                  "world_open: rank %d has ferry "
			                  "%d.%d.%d, rank 0 has %d.%d.%d",
			                  r, place->version / 10000,
			                  place->version / 100 % 100,
			                  place->version % 100,
			                  first->version / 10000,
			                  first->version / 100 % 100,
			                  first->version % 100);
		if (place->abi != first->abi)
			return ferry_fail(&world->ctx, FERRY_MISMATCH,
			                  "world_open: rank %d and rank 0 have "
			                  "other builds of ferry: their shared "
			                  "structs differ",
			                  r);
		if (place->device != first->device)
			return ferry_fail(&world->ctx, FERRY_MISMATCH,
			                  "world_open: rank %d opens a %s "
			                  "world, rank 0 a %s world",
			                  r, device_name(place->device),
			                  device_name(first->device));
	}
	return FERRY_OK;
}

/* The device of this rank. */
static enum ferry_status choose_device(struct ferry_world *world,
                                       const struct ferry_world_config *config)
{
	world->cuda_device = -1;
	if (config->device != FERRY_DEVICE_CPU &&
	    config->device != FERRY_DEVICE_CUDA)
		return ferry_fail(&world->ctx, FERRY_INVAL,
		                  "world_open: device is %d, allowed are 0 "
		                  "(CPU) and 1 (CUDA)",
		                  (int)config->device);
	world->device = config->device;
	if (world->device == FERRY_DEVICE_CPU)
		return FERRY_OK;
	FERRY_TRY(
		ferry_gpu_open(&world->ctx, config->cuda_device, &world->gpu));
	world->cuda_device = ferry_gpu_ordinal(world->gpu);
	return FERRY_OK;
}

/* Who has no device, or cannot do without one, tells the others. */
static enum ferry_status gather_places(struct ferry_world *world,
                                       const struct ferry_world_config *config,
                                       uint64_t deadline)
{
	const enum ferry_status status = choose_device(world, config);
	struct ferry_place own;

	ferry_place_read(&own);
	ferry_place_set_host(&world->ctx, world->rank, &own);
	own.device = (int32_t)world->device;
	if (world->gpu)
		ferry_gpu_uuid(world->gpu, own.gpu);
	FERRY_TRY(ferry_agree(world->boot, status, &own, world->places,
	                      sizeof(own), deadline));
	world->n_nodes = ferry_place_hosts(world->places, world->n_ranks);
	world->n_host_ranks = ferry_place_host_ranks(
		world->places, world->n_ranks, world->rank);
	world->n_machine_ranks = ferry_place_machine_ranks(
		world->places, world->n_ranks, world->rank);
	world->n_machine_cores = ferry_place_machine_cores(
		world->places, world->n_ranks, world->rank);
	world->n_gpu_ranks = ferry_place_gpu_ranks(world->places,
	                                           world->n_ranks, world->rank);
	return compare_places(world);
}

static enum ferry_status compare_fabrics(struct ferry_world *world,
                                         const char *names)
{
	for (int32_t r = 1; r < world->n_ranks; r++)
		if (strcmp(names, names + (size_t)r * FABRIC_NAME_BYTES))
			return ferry_fail(
				&world->ctx, FERRY_MISMATCH,
				"world_open: rank %d uses fabric %s, rank 0 "
				"uses %s",
				r, names + (size_t)r * FABRIC_NAME_BYTES,
				names);
	return FERRY_OK;
}

/*
 * Opens the fabric; who fails tells the others. That all answer afterwards
 * also proves that whoever was looked up while opening was still alive.
 */
static enum ferry_status open_fabric(struct ferry_world *world,
                                     uint64_t deadline)
{
	char *names = calloc((size_t)world->n_ranks, FABRIC_NAME_BYTES);
	enum ferry_status status;

	if (!names)
		status = ferry_fail(&world->ctx, FERRY_NOMEM,
		                    "world_open: names of %d ranks",
		                    world->n_ranks);
	else
		status = ferry_fabric_open(world, world->ctx.opt.fabric,
		                           &world->fabric);
	status = ferry_agree(world->boot, status, world->fabric_name, names,
	                     FABRIC_NAME_BYTES, deadline);
	if (status == FERRY_OK)
		status = compare_fabrics(world, names);
	free(names);
	return status;
}

static enum ferry_status meet(struct ferry_world *world,
                              const struct ferry_world_config *config,
                              uint64_t deadline)
{
	FERRY_TRY(ferry_boot_open(&world->ctx, config, &world->boot));
	world->rank = world->boot->rank;
	world->n_ranks = world->boot->n_ranks;
	world->places = calloc((size_t)world->n_ranks, sizeof(*world->places));
	if (!world->places)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "world_open: places of %d ranks",
		                  world->n_ranks);
	FERRY_TRY(gather_places(world, config, deadline));
	FERRY_TRY(ferry_trace_open(&world->ctx, &world->trace));
	return open_fabric(world, deadline);
}

enum ferry_status ferry_world_open(const struct ferry_world_config *config,
                                   struct ferry_world **world)
{
	struct ferry_world_config full = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *opened;
	enum ferry_status status;

	if (!world)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "world_open: world is NULL");
	if (config)
		FERRY_TRY(ferry_sized_copy(&full, sizeof(full), config,
		                           "world_open: config"));
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "world_open: a world of %zu bytes",
		                  sizeof(*opened));
	status = ferry_ctx_init(&opened->ctx, &full);
	if (status != FERRY_OK) {
		free(opened);
		return status;
	}
	opened->timeout_ms = opened->ctx.opt.timeout_ms;
	opened->open_timeout_ms = opened->ctx.opt.open_timeout_ms;
	opened->error = (struct ferry_error)FERRY_ERROR_INIT;
	pthread_mutex_init(&opened->lock, NULL);
	opened->n_users = 1;
	status =
		meet(opened, &full, ferry_deadline_ns(opened->open_timeout_ms));
	if (status != FERRY_OK) {
		ferry_world_close(opened);
		return status;
	}
	*world = opened;
	return FERRY_OK;
}

static void destroy(struct ferry_world *world)
{
	if (world->fabric)
		world->fabric->ops->close(world->fabric);
	ferry_trace_close(&world->ctx, world->trace);
	ferry_boot_close(world->boot);
	ferry_gpu_close(world->gpu);
	free(world->places);
	pthread_mutex_destroy(&world->lock);
	ferry_ctx_destroy(&world->ctx);
	free(world);
}

void ferry_world_release(struct ferry_world *world)
{
	pthread_mutex_lock(&world->lock);
	const bool last = --world->n_users == 0;

	pthread_mutex_unlock(&world->lock);
	if (last)
		destroy(world);
}

void ferry_world_close(struct ferry_world *world)
{
	if (!world)
		return;
	if (world->segments)
		ferry_log(&world->ctx, FERRY_LOG_WARN,
		          "world_close: a segment or channel is still open; "
		          "the world ends with the last of them");
	ferry_world_release(world);
}

void ferry_world_abort(struct ferry_world *world)
{
	if (!world)
		return;
	pthread_mutex_lock(&world->lock);
	store_seq_u32(&world->aborted, 1);
	for (struct ferry_segment *s = world->segments; s; s = s->next)
		ferry_segment_abort(s);
	if (world->error.status == FERRY_OK) {
		world->error.status = FERRY_ABORTED;
		world->error.root_rank = world->rank;
		world->error.rank = world->rank;
		snprintf(world->error.text, sizeof(world->error.text),
		         "rank %d aborted the world", world->rank);
	}
	pthread_mutex_unlock(&world->lock);
	world->boot->ops->abort(world->boot);
}

enum ferry_status ferry_world_poll(struct ferry_world *world,
                                   struct ferry_error *error)
{
	if (!world)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "world_poll: world is NULL");
	pthread_mutex_lock(&world->lock);
	for (struct ferry_segment *s = world->segments; s; s = s->next)
		if (ferry_segment_decide(s))
			ferry_segment_blame_world(s);
	if (world->error.status == FERRY_OK)
		ferry_boot_blame(world->boot, &world->error);
	const struct ferry_error found = world->error;

	pthread_mutex_unlock(&world->lock);
	if (found.status != FERRY_OK && error)
		FERRY_TRY(ferry_sized_give(error, &found, sizeof(found),
		                           "world_poll: error"));
	return found.status;
}

int32_t ferry_world_rank(const struct ferry_world *world)
{
	return world ? world->rank : -1;
}

int32_t ferry_world_size(const struct ferry_world *world)
{
	return world ? world->n_ranks : 0;
}

enum ferry_device ferry_world_device(const struct ferry_world *world)
{
	return world ? world->device : FERRY_DEVICE_CPU;
}

int32_t ferry_world_nodes(const struct ferry_world *world)
{
	return world ? world->n_nodes : 0;
}

const char *ferry_world_fabric(const struct ferry_world *world)
{
	return world ? world->fabric_name : "";
}

static enum ferry_status aborted(struct ferry_world *world, const char *call)
{
	if (!load_seq_u32(&world->aborted))
		return FERRY_OK;
	return ferry_fail(&world->ctx, FERRY_ABORTED,
	                  "%s: the world was aborted by rank %d", call,
	                  world->rank);
}

enum ferry_status ferry_world_barrier(struct ferry_world *world)
{
	if (!world)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "world_barrier: world is NULL");
	const enum ferry_status mine = aborted(world, "world_barrier");

	return ferry_agree(world->boot, mine, NULL, NULL, 0,
	                   ferry_deadline_ns(world->open_timeout_ms));
}

static enum ferry_status check_allgather(struct ferry_world *world,
                                         const void *in, const void *out,
                                         size_t bytes)
{
	if (!in || !out)
		return ferry_fail(&world->ctx, FERRY_INVAL,
		                  "world_allgather: %s is NULL",
		                  in ? "out" : "in");
	if (bytes < 1 || bytes > FERRY_BOOT_MAX_BYTES)
		return ferry_fail(&world->ctx, FERRY_INVAL,
		                  "world_allgather: bytes is %zu, allowed are "
		                  "1..%d",
		                  bytes, FERRY_BOOT_MAX_BYTES);
	return aborted(world, "world_allgather");
}

enum ferry_status ferry_world_allgather(struct ferry_world *world,
                                        const void *in, void *out, size_t bytes)
{
	if (!world)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "world_allgather: world is NULL");
	FERRY_TRY(check_allgather(world, in, out, bytes));
	return world->boot->ops->allgather(
		world->boot, in, out, bytes,
		ferry_deadline_ns(world->open_timeout_ms));
}
