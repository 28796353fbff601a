/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrapper fault: does to a rank what FERRY_FAULT says, at its puts. Nothing
 * that it does is against the contract of a fabric, death, delay and broken
 * connections included, where what is put is lost:
 * reorder keeps puts back until kick or flush, and then lets them go in any
 * order that the peer's capabilities allow.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../boot/team.h"
#include "../core/bits.h"
#include "fault_text.h"
#include "wrap.h"

enum { MAX_HELD = 8 };

struct fault_fabric {
	struct ferry_wrap wrap;
	struct ferry_faults faults;
	uint64_t n_puts;
	uint32_t killed;
	uint32_t cut; /* the connection with faults.cut_peer has broken */
};

/* A put that is kept back. */
struct held {
	int32_t peer;
	uint32_t signal;
	size_t offset;
	const void *source;
	size_t bytes;
};

struct fault_mem {
	struct ferry_wrap_mem wrap;
	pthread_mutex_t lock; /* of what follows */
	uint64_t rng;
	int n_held;
	struct held held[MAX_HELD];
};

static struct fault_fabric *fault(const struct ferry_mem *mem)
{
	return (struct fault_fabric *)mem->fabric;
}

static enum ferry_status say_killed(struct ferry_world *world)
{
	return ferry_fail(&world->ctx, FERRY_PEER,
	                  "fault: this rank, %d, was killed by FERRY_FAULT",
	                  world->rank);
}

static bool is_cut(struct fault_fabric *f, int32_t peer)
{
	return peer == f->faults.cut_peer && load_seq_u32(&f->cut);
}

/* A process dies in earnest; a thread only looks dead, and learns it. */
static enum ferry_status die(struct fault_fabric *f)
{
	struct ferry_world *world = f->wrap.fabric.world;

	store_seq_u32(&f->killed, 1);
	if (!ferry_boot_is_team(world->boot))
		kill(getpid(), SIGKILL);
	ferry_boot_die(world->boot);
	return say_killed(world);
}

static void pause_us(int64_t us)
{
	const struct timespec t = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

/* What happens to a rank at its next put. */
static enum ferry_status disturb(struct fault_fabric *f)
{
	const struct ferry_faults *faults = &f->faults;
	const int64_t n = (int64_t)add_seq_u64(&f->n_puts, 1);

	if (load_seq_u32(&f->killed))
		return say_killed(f->wrap.fabric.world);
	if (faults->kill && n >= faults->kill_after)
		return die(f);
	if (faults->stall_ms && n == faults->stall_after)
		pause_us(faults->stall_ms * 1000);
	if (faults->delay_us)
		pause_us(faults->delay_us);
	if (faults->cut_peer >= 0 && n >= faults->cut_after)
		store_seq_u32(&f->cut, 1);
	return FERRY_OK;
}

/* An entry that may go next: of an ordered peer only the oldest. */
static int pick(struct fault_mem *m)
{
	int i = (int)(rng_next(&m->rng) % (uint64_t)m->n_held);
	const int32_t peer = m->held[i].peer;

	if (!(ferry_wrap_caps(&m->wrap.mem, peer) & FERRY_CAP_ORDERED))
		return i;
	for (i = 0; m->held[i].peer != peer;)
		i++;
	return i;
}

static enum ferry_status let_go(struct fault_mem *m)
{
	enum ferry_status status = FERRY_OK;

	while (m->n_held) {
		const int i = pick(m);
		const struct held h = m->held[i];
		enum ferry_status put_status;

		m->n_held--;
		for (int j = i; j < m->n_held; j++)
			m->held[j] = m->held[j + 1];
		put_status = ferry_wrap_put(&m->wrap.mem, h.peer, h.offset,
		                            h.source, h.bytes, h.signal);
		if (status == FERRY_OK)
			status = put_status;
	}
	return status;
}

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct fault_mem *m = (struct fault_mem *)mem;
	enum ferry_status status = disturb(fault(mem));

	if (status != FERRY_OK || is_cut(fault(mem), peer))
		return status;
	if (!fault(mem)->faults.reorder)
		return ferry_wrap_put(mem, peer, offset, source, bytes, signal);
	pthread_mutex_lock(&m->lock);
	m->held[m->n_held++] =
		(struct held){peer, signal, offset, source, bytes};
	if (m->n_held == MAX_HELD)
		status = let_go(m);
	pthread_mutex_unlock(&m->lock);
	return status;
}

static enum ferry_status kick(struct ferry_mem *mem)
{
	struct fault_mem *m = (struct fault_mem *)mem;
	enum ferry_status status;

	if (load_seq_u32(&fault(mem)->killed))
		return say_killed(mem->fabric->world);
	pthread_mutex_lock(&m->lock);
	status = let_go(m);
	pthread_mutex_unlock(&m->lock);
	return status == FERRY_OK ? ferry_wrap_kick(mem) : status;
}

static bool flushed(struct ferry_mem *mem)
{
	struct fault_mem *m = (struct fault_mem *)mem;

	pthread_mutex_lock(&m->lock);
	const bool empty = m->n_held == 0;

	pthread_mutex_unlock(&m->lock);
	return empty && ferry_wrap_flushed(mem);
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	FERRY_TRY(ferry_wrap_mem_create(fabric, control_bytes, data_bytes, mem,
	                                handle));
	struct fault_mem *m = (struct fault_mem *)*mem;

	pthread_mutex_init(&m->lock, NULL);
	m->rng = (uint64_t)fabric->world->rank;
	return FERRY_OK;
}

static void mem_destroy(struct ferry_mem *mem)
{
	pthread_mutex_destroy(&((struct fault_mem *)mem)->lock);
	ferry_wrap_mem_destroy(mem);
}

static bool cut(struct ferry_mem *mem, int32_t peer,
                char why[FERRY_REASON_BYTES])
{
	if (!is_cut(fault(mem), peer))
		return ferry_wrap_cut(mem, peer, why);
	snprintf(why, FERRY_REASON_BYTES, "cut by FERRY_FAULT");
	return true;
}

static const struct ferry_fabric_ops fault_ops = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "fault",
	.summary = "wrapper that kills, stalls, delays, reorders and cuts",
	.probe = ferry_wrap_probe,
	.open = ferry_wrap_open,
	.close = ferry_wrap_close,
	.mem_create = mem_create,
	.mem_attach = ferry_wrap_mem_attach,
	.mem_seal = ferry_wrap_mem_seal,
	.mem_destroy = mem_destroy,
	.caps = ferry_wrap_caps,
	.control = ferry_wrap_control,
	.data = ferry_wrap_data,
	.max_put = ferry_wrap_max_put,
	.put = put,
	.kick = kick,
	.flushed = flushed,
	.progress = ferry_wrap_progress,
	.dead = ferry_wrap_dead,
	.cut = cut,
};

enum ferry_status ferry_fabric_wrap_fault(struct ferry_world *world,
                                          struct ferry_fabric *inner,
                                          struct ferry_fabric **fabric)
{
	struct fault_fabric *f;
	struct ferry_faults faults;

	FERRY_TRY(ferry_faults_read(&world->ctx, world->ctx.opt.fault,
	                            world->rank, world->n_ranks, &faults));
	f = calloc(1, sizeof(*f));
	if (!f)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "fault: state of %zu bytes", sizeof(*f));
	f->wrap.fabric.ops = &fault_ops;
	f->wrap.fabric.world = world;
	f->wrap.inner = inner;
	f->wrap.mem_bytes = sizeof(struct fault_mem);
	f->faults = faults;
	*fabric = &f->wrap.fabric;
	return FERRY_OK;
}
