/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabrics wire and shm+wire: a network as unpleasant as the contract allows,
 * for tests. The ranks are on one machine, but see no memory of each other, or
 * only that of their own host (FERRY_RANKS_PER_HOST): a thread in the part of
 * the NIC takes puts from a queue of 16 in any order and after any delay,
 * reads the source only then, and raises the counter that the 32-bit immediate
 * names. A put may stay in the queue until a kick, or until room is needed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "../core/thread.h"
#include "net.h"
#include "place.h"

enum {
	QUEUE = 16,
	MAX_PUT_BYTES = 8192, /* rows are split */
};

struct entry {
	int32_t peer;
	uint32_t immediate; /* counter */
	size_t offset;
	const void *source;
	size_t bytes;
	uint64_t due_ns;
	bool kicked;
	bool leaving; /* being delivered now */
};

struct wire_mem {
	struct ferry_net_mem net;
	pthread_t nic;
	bool has_nic;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t work;  /* for the NIC */
	pthread_cond_t room;  /* for puts */
	bool stop;
	uint64_t rng;
	uint64_t delay_ns;
	int n_entries;
	struct entry queue[QUEUE];
};

static struct wire_mem *wire(struct ferry_mem *mem)
{
	return (struct wire_mem *)mem;
}

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	if (world && ferry_place_machine_ranks(world->places, world->n_ranks,
	                                       0) < world->n_ranks) {
		snprintf(reason, FERRY_REASON_BYTES,
		         "ranks are on more than one machine");
		return 0;
	}
	snprintf(reason, FERRY_REASON_BYTES,
	         "for tests: any order, delays; only by name");
	return FERRY_SCORE_BY_NAME;
}

static enum ferry_status open_net(struct ferry_world *world,
                                  const struct ferry_fabric_ops *ops,
                                  bool stores, struct ferry_fabric **fabric)
{
	struct ferry_net *net = calloc(1, sizeof(*net));
	enum ferry_status status;

	if (!net)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "%s: state of %zu bytes", ops->name,
		                  sizeof(*net));
	net->wrap.fabric.ops = ops;
	net->wrap.mem_bytes = sizeof(struct wire_mem);
	status = ferry_net_open(world, stores, FERRY_REACH_MACHINE, net);
	if (status != FERRY_OK) {
		free(net);
		return status;
	}
	*fabric = &net->wrap.fabric;
	return FERRY_OK;
}

static enum ferry_status open_wire(struct ferry_world *world,
                                   struct ferry_fabric **fabric)
{
	return open_net(world, &ferry_fabric_wire, false, fabric);
}

static enum ferry_status open_shm_wire(struct ferry_world *world,
                                       struct ferry_fabric **fabric)
{
	return open_net(world, &ferry_fabric_shm_wire, true, fabric);
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	const struct ferry_world *world = fabric->world;
	const struct ferry_options *opt = &world->ctx.opt;

	FERRY_TRY(ferry_wrap_mem_create(fabric, control_bytes, data_bytes, mem,
	                                handle));
	struct wire_mem *m = wire(*mem);

	m->rng = hash_u64((uint64_t)opt->wire_seed, (uint64_t)world->rank);
	m->delay_ns = (uint64_t)opt->wire_delay_us * 1000;
	pthread_mutex_init(&m->lock, NULL);
	ferry_cond_init(&m->work);
	ferry_cond_init(&m->room);
	return FERRY_OK;
}

/* An entry that may leave now, at random; else when the next one may. */
static struct entry *pick(struct wire_mem *m, uint64_t now, uint64_t *next_ns)
{
	struct entry *picked = NULL;
	uint64_t n_ready = 0;

	*next_ns = UINT64_MAX;
	for (int i = 0; i < m->n_entries; i++) {
		struct entry *e = &m->queue[i];

		if (!e->kicked)
			continue;
		if (e->due_ns > now)
			*next_ns = e->due_ns < *next_ns ? e->due_ns : *next_ns;
		else if (rng_next(&m->rng) % ++n_ready == 0)
			picked = e;
	}
	return picked;
}

/* Reads the source, and not before. The lock is not held. */
static void deliver(struct wire_mem *m, const struct entry *e)
{
	const struct ferry_mem *mem = &m->net.wrap.mem;

	ferry_mem_store(ferry_wrap_control(mem, e->peer), e->offset, e->source,
	                e->bytes);
	ferry_net_arrived_at(mem, e->peer, e->immediate);
}

/* Delivers one entry, which may move in the queue meanwhile. */
static void leave(struct wire_mem *m, struct entry *e)
{
	const struct entry copy = *e;
	int i = 0;

	e->leaving = true;
	pthread_mutex_unlock(&m->lock);
	deliver(m, &copy);
	pthread_mutex_lock(&m->lock);
	while (!m->queue[i].leaving)
		i++;
	m->queue[i] = m->queue[--m->n_entries];
	pthread_cond_broadcast(&m->room);
}

static void *nic(void *arg)
{
	struct wire_mem *m = arg;

	prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&m->lock);
	while (!m->stop) {
		uint64_t next_ns;
		struct entry *e = pick(m, ferry_now_ns(), &next_ns);

		if (e)
			leave(m, e);
		else
			ferry_cond_wait(&m->work, &m->lock, next_ns);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static enum ferry_status mem_attach(struct ferry_mem *mem,
                                    const uint8_t *handles)
{
	struct wire_mem *m = wire(mem);

	FERRY_TRY(ferry_wrap_mem_attach(mem, handles));
	const int err = ferry_thread_start(&m->nic, nic, m);

	m->has_nic = !err;
	if (err)
		return ferry_fail_errno(&mem->fabric->world->ctx, FERRY_SYS,
		                        err, "wire: a thread");
	return FERRY_OK;
}

static void mem_destroy(struct ferry_mem *mem)
{
	struct wire_mem *m = wire(mem);

	if (m->has_nic) {
		pthread_mutex_lock(&m->lock);
		m->stop = true;
		pthread_cond_signal(&m->work);
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->nic, NULL);
	}
	pthread_cond_destroy(&m->room);
	pthread_cond_destroy(&m->work);
	pthread_mutex_destroy(&m->lock);
	ferry_wrap_mem_destroy(mem);
}

static size_t max_put(const struct ferry_mem *mem)
{
	(void)mem;
	return MAX_PUT_BYTES;
}

static void kick_all(struct wire_mem *m)
{
	for (int i = 0; i < m->n_entries; i++)
		m->queue[i].kicked = true;
	pthread_cond_signal(&m->work);
}

/* Waits for room; what lies in the queue leaves for that. */
static bool wait_for_room(struct wire_mem *m, uint64_t deadline_ns)
{
	while (m->n_entries == QUEUE) {
		kick_all(m);
		ferry_cond_wait(&m->room, &m->lock, deadline_ns);
		if (m->n_entries == QUEUE && ferry_now_ns() >= deadline_ns)
			return false;
	}
	return true;
}

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct wire_mem *m = wire(mem);
	struct ferry_world *world = mem->fabric->world;
	const uint64_t now = ferry_now_ns();
	bool room;

	if (ferry_net_stores(mem, peer))
		return ferry_fabric_put_ldst(mem, peer, offset, source, bytes,
		                             signal);
	pthread_mutex_lock(&m->lock);
	room = wait_for_room(m, now + (uint64_t)world->timeout_ms * 1000000u);
	if (room)
		m->queue[m->n_entries++] = (struct entry){
			.peer = peer,
			.immediate = signal,
			.offset = offset,
			.source = source,
			.bytes = bytes,
			.due_ns = now + rng_next(&m->rng) % (m->delay_ns + 1),
		};
	pthread_mutex_unlock(&m->lock);
	if (room)
		return FERRY_OK;
	return ferry_fail(&world->ctx, FERRY_TIMEOUT,
	                  "wire: no room in the queue of %d for %lld ms", QUEUE,
	                  (long long)world->timeout_ms);
}

static enum ferry_status kick(struct ferry_mem *mem)
{
	struct wire_mem *m = wire(mem);

	pthread_mutex_lock(&m->lock);
	kick_all(m);
	pthread_mutex_unlock(&m->lock);
	return FERRY_OK;
}

static bool flushed(struct ferry_mem *mem)
{
	struct wire_mem *m = wire(mem);

	pthread_mutex_lock(&m->lock);
	const bool empty = m->n_entries == 0;

	pthread_mutex_unlock(&m->lock);
	return empty;
}

#define SLOTS                                                                  \
	.size = sizeof(struct ferry_fabric_ops), .probe = probe,               \
	.close = ferry_net_close, .mem_create = mem_create,                    \
	.mem_attach = mem_attach, .mem_seal = ferry_wrap_mem_seal,             \
	.mem_destroy = mem_destroy, .caps = ferry_net_caps,                    \
	.control = ferry_net_control, .data = ferry_fabric_data_behind,        \
	.max_put = max_put, .put = put, .kick = kick, .flushed = flushed,      \
	.progress = ferry_fabric_progress_none, .dead = ferry_wrap_dead,       \
	.cut = ferry_fabric_cut_never

const struct ferry_fabric_ops ferry_fabric_wire = {
	SLOTS,
	.name = "wire",
	.summary = "for tests: put and signal only, unordered, delayed",
	.open = open_wire,
};

const struct ferry_fabric_ops ferry_fabric_shm_wire = {
	SLOTS,
	.name = "shm+wire",
	.summary = "for tests: stores inside a host, wire between hosts",
	.open = open_shm_wire,
};
