/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a rank: the host's, and which kind it is. */
#include "rank_memory.h"

#include <stdlib.h>
#include <string.h>
#include <threads.h>

static struct rank_memory *host_open(const struct rank *rank, int n_streams)
{
	struct rank_memory *m = calloc(1, sizeof(*m));

	(void)rank;
	if (m != NULL)
		m->n_streams = n_streams;
	return m;
}

static void host_close(struct rank_memory *m)
{
	free(m);
}

static struct CUstream_st *host_stream(struct rank_memory *m, int i)
{
	(void)m;
	(void)i;
	return NULL;
}

static void host_make(struct rank_memory *m, struct mirror *mirror)
{
	(void)m;
	mirror->device = malloc(mirror->device_room + 1);
	mirror->host = mirror->device;
	if (mirror->host == NULL)
		RANKS_FAIL("out of memory: %zu bytes", mirror->device_room);
}

static void host_drop(struct rank_memory *m, struct mirror *mirror)
{
	(void)m;
	free(mirror->host);
}

static void host_copy(struct rank_memory *m, const struct mirror *mirror,
                      struct CUstream_st *stream)
{
	(void)m;
	(void)mirror;
	(void)stream;
}

static void host_fill(struct rank_memory *m, const struct mirror *mirror,
                      int byte, struct CUstream_st *stream)
{
	(void)m;
	(void)stream;
	memset(mirror->device, byte, mirror->bytes);
}

static void host_move(struct rank_memory *m, void *to, const void *from,
                      size_t bytes)
{
	(void)m;
	memcpy(to, from, bytes);
}

static void host_sync(struct rank_memory *m, struct CUstream_st *stream)
{
	(void)m;
	(void)stream;
}

static const struct rank_memory_ops host_ops = {
	.open = host_open,
	.close = host_close,
	.stream = host_stream,
	.make = host_make,
	.drop = host_drop,
	.push = host_copy,
	.pull = host_copy,
	.fill = host_fill,
	.read = host_move,
	.write = host_move,
	.sync = host_sync,
};

static thread_local struct rank_memory *my_memory;

/* Called by another thread where the rank's own has died. */
static void close_mine(void *memory)
{
	struct rank_memory *m = memory;

	m->ops->close(m);
	if (my_memory == m)
		my_memory = NULL;
}

struct rank_memory *rank_memory_of(const struct rank *rank, int n_streams)
{
	const bool cuda = ferry_world_device(rank->world) == FERRY_DEVICE_CUDA;
	const struct rank_memory_ops *ops =
		cuda ? rank_memory_cuda() : &host_ops;

	if (my_memory != NULL)
		return my_memory;
	if (ops == NULL)
		RANKS_FAIL("a CUDA world, but tests without CUDA");
	my_memory = ops->open(rank, n_streams);
	if (my_memory == NULL)
		RANKS_FAIL("out of memory");
	my_memory->ops = ops;
	my_memory->is_device = cuda;
	ranks_defer(close_mine, my_memory);
	return my_memory;
}

struct mirror mirror_make(struct rank_memory *m, size_t bytes, size_t mirrored)
{
	struct mirror mirror = {
		.bytes = mirrored, .host_room = mirrored, .device_room = bytes};

	m->ops->make(m, &mirror);
	return mirror;
}

void mirror_use(struct rank_memory *m, struct mirror *mirror, size_t bytes,
                size_t room)
{
	if (mirror->device == NULL) {
		if (room < bytes)
			room = bytes;
		*mirror = mirror_make(m, room, room);
	}
	if (mirror->host_room < bytes)
		RANKS_FAIL("a buffer of %zu bytes for %zu", mirror->host_room,
		           bytes);
	mirror->bytes = bytes;
}

void mirror_drop(struct rank_memory *m, struct mirror *mirror)
{
	if (mirror->device != NULL)
		m->ops->drop(m, mirror);
	*mirror = (struct mirror){0};
}

void mirror_push(struct rank_memory *m, const struct mirror *mirror,
                 struct CUstream_st *stream)
{
	if (mirror->bytes > 0)
		m->ops->push(m, mirror, stream);
}

void mirror_pull(struct rank_memory *m, const struct mirror *mirror,
                 struct CUstream_st *stream)
{
	if (mirror->bytes > 0)
		m->ops->pull(m, mirror, stream);
}

void mirror_fill(struct rank_memory *m, const struct mirror *mirror, int byte,
                 struct CUstream_st *stream)
{
	if (mirror->bytes > 0)
		m->ops->fill(m, mirror, byte, stream);
}

struct CUstream_st *rank_memory_stream(struct rank_memory *m, int i)
{
	return m->ops->stream(m, i % m->n_streams);
}

struct CUstream_st *rank_memory_next_stream(struct rank_memory *m)
{
	return rank_memory_stream(m, m->turn++ % m->n_streams);
}

void rank_memory_sync(struct rank_memory *m, struct CUstream_st *stream)
{
	m->ops->sync(m, stream);
}

void rank_memory_read(struct rank_memory *m, void *to, const void *from,
                      size_t bytes)
{
	m->ops->read(m, to, from, bytes);
}

void rank_memory_write(struct rank_memory *m, void *to, const void *from,
                       size_t bytes)
{
	m->ops->write(m, to, from, bytes);
}
