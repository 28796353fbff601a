/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks of fabric p2p get at each other's memory: threads of a team by the
 * mapping that is there, processes by descriptors that they pass.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/clock.h"
#include "p2p_inner.h"
#include "place.h"

static void read_handle(const uint8_t *handles, int32_t r,
                        struct ferry_p2p_handle *handle)
{
	memcpy(handle, handles + (size_t)r * FERRY_HANDLE_BYTES,
	       sizeof(*handle));
}

static enum ferry_status attach_inner(struct ferry_p2p_mem *m,
                                      const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	const size_t n = (size_t)world->n_ranks;
	uint8_t *inner = calloc(n, FERRY_HANDLE_BYTES);
	enum ferry_status status;

	if (!inner)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: handles of %zu peers", n);
	for (size_t r = 0; r < n; r++)
		memcpy(inner + r * FERRY_HANDLE_BYTES,
		       handles + r * FERRY_HANDLE_BYTES, FERRY_P2P_INNER_BYTES);
	status = ferry_wrap_mem_attach(&m->wrap.mem, inner);
	free(inner);
	return status;
}

/* From here on mem_destroy gives up one reference to each. */
static void learn_blocks(struct ferry_p2p_mem *m, const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	struct ferry_p2p_handle handle;

	m->blocks[world->rank] = m->own;
	for (int32_t r = 0;
	     ferry_p2p_of(&m->wrap.mem)->team && r < world->n_ranks; r++) {
		read_handle(handles, r, &handle);
		m->blocks[r] = handle.block;
	}
	m->attached = true;
}

/* The first rank of its GPU: access is for all who share it, and given once. */
static bool is_first_of_gpu(const struct ferry_world *world)
{
	int32_t r = 0;

	while (!ferry_place_same_gpu(&world->places[r],
	                             &world->places[world->rank]))
		r++;
	return r == world->rank;
}

/* Does a rank on this GPU map it? They may pretend to be on several hosts. */
static bool is_wanted(const struct ferry_p2p_mem *m, int32_t r)
{
	const struct ferry_world *world = m->wrap.mem.fabric->world;
	const struct ferry_place *places = world->places;

	if (!ferry_p2p_of(&m->wrap.mem)->net)
		return true;
	for (int32_t i = 0; i < world->n_ranks; i++)
		if (ferry_place_same_host(&places[i], &places[r]) &&
		    ferry_place_same_gpu(&places[i], &places[world->rank]))
			return true;
	return false;
}

/* Threads: the blocks are there, and this GPU gets access to each. */
static enum ferry_status attach_team(struct ferry_p2p_mem *m)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;

	if (!is_first_of_gpu(world))
		return FERRY_OK;
	for (int32_t r = 0; r < world->n_ranks; r++)
		if (is_wanted(m, r) &&
		    !ferry_place_same_gpu(&world->places[r],
		                          &world->places[world->rank]))
			FERRY_TRY(ferry_gpu_share(&world->ctx, world->gpu, r,
			                          m->blocks[r]->memory));
	return FERRY_OK;
}

/* Leaves a descriptor of the own memory with every peer. */
static enum ferry_status send_all(struct ferry_p2p_mem *m,
                                  const uint8_t *handles, uint64_t deadline)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	enum ferry_status status;
	struct ferry_p2p_handle handle;
	int fd;

	FERRY_TRY(
		ferry_gpu_export(&world->ctx, world->gpu, m->own->memory, &fd));
	status = FERRY_OK;
	for (int32_t r = 0; status == FERRY_OK && r < world->n_ranks; r++) {
		if (r == world->rank || !ferry_p2p_is_near(&m->wrap.mem, r))
			continue;
		read_handle(handles, r, &handle);
		status = ferry_fd_post_send(&world->ctx, &handle.address,
		                            world->rank, r, fd, deadline);
	}
	close(fd);
	return status;
}

static enum ferry_status import(struct ferry_p2p_mem *m, int32_t r, int fd,
                                const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	struct ferry_p2p_handle handle;
	struct ferry_p2p_block *block = calloc(1, sizeof(*block));
	enum ferry_status status;

	if (!block)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "p2p: record of a memory");
	read_handle(handles, r, &handle);
	if (handle.bytes < m->wrap.mem.data_bytes)
		status = ferry_fail(&world->ctx, FERRY_PROTO,
		                    "p2p: rank %d has %llu bytes, not %zu", r,
		                    (unsigned long long)handle.bytes,
		                    m->wrap.mem.data_bytes);
	else
		status = ferry_gpu_import(&world->ctx, world->gpu, r, fd,
		                          handle.bytes, &block->memory);
	if (status != FERRY_OK) {
		free(block);
		return status;
	}
	block->n_refs = 1;
	m->blocks[r] = block;
	return FERRY_OK;
}

static enum ferry_status import_all(struct ferry_p2p_mem *m,
                                    const uint8_t *handles, int *fds)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	enum ferry_status status = FERRY_OK;

	for (int32_t r = 0; r < world->n_ranks; r++)
		fds[r] = r != world->rank && ferry_p2p_is_near(&m->wrap.mem, r)
		                 ? FERRY_FD_WANTED
		                 : FERRY_FD_NONE;
	FERRY_TRY(ferry_fd_post_receive(&world->ctx, &m->post, world->n_ranks,
	                                fds));
	for (int32_t r = 0; r < world->n_ranks; r++) {
		if (fds[r] < 0)
			continue;
		if (status == FERRY_OK)
			status = import(m, r, fds[r], handles);
		close(fds[r]);
	}
	return status;
}

/*
 * Processes: all leave their descriptors with all, agree that it is done, and
 * take what was left. So nobody waits for one who could not send.
 */
static enum ferry_status attach_processes(struct ferry_p2p_mem *m,
                                          const uint8_t *handles)
{
	struct ferry_world *world = m->wrap.mem.fabric->world;
	const uint64_t deadline = ferry_deadline_ns(world->open_timeout_ms);
	int *fds = calloc((size_t)world->n_ranks, sizeof(*fds));
	enum ferry_status status;

	if (fds)
		status = send_all(m, handles, deadline);
	else
		status = ferry_fail(&world->ctx, FERRY_NOMEM,
		                    "p2p: descriptors of %d peers",
		                    world->n_ranks);
	status = ferry_agree(world->boot, status, NULL, NULL, 0, deadline);
	if (status == FERRY_OK)
		status = import_all(m, handles, fds);
	free(fds);
	return status;
}

enum ferry_status ferry_p2p_attach(struct ferry_mem *mem,
                                   const uint8_t *handles)
{
	struct ferry_p2p_mem *m = (struct ferry_p2p_mem *)mem;

	learn_blocks(m, handles);
	FERRY_TRY(attach_inner(m, handles));
	return ferry_p2p_of(mem)->team ? attach_team(m)
	                               : attach_processes(m, handles);
}
