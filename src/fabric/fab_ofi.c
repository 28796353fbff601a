/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabric ofi: a network, through libfabric. A put is one remote write whose
 * immediate names the counter. The memory comes from the fabric of this
 * machine; what is on other machines is put to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "ofi_inner.h"
#include "registry.h"

enum {
	SCORE = 2,
	MAX_PUT_BYTES = 8 << 20, /* others get their turn between two */
	NAP_NS = 1000000,        /* of a put without room, at most */
};

static const struct ferry_fabric_ops *inner_ops(const struct ferry_world *world,
                                                char reason[FERRY_REASON_BYTES])
{
	if (ferry_fabric_local.probe(world, reason) > 0)
		return &ferry_fabric_local;
	if (ferry_fabric_shm.probe(world, reason) > 0)
		return &ferry_fabric_shm;
	return NULL;
}

/* What it would be here, for those who ask what there is. */
static int probe_machine(char reason[FERRY_REASON_BYTES])
{
	struct ferry_options opt;
	struct ferry_ofi_api api;
	struct ferry_ofi_choice choice;
	int score = 0;

	if (ferry_options_read(NULL, NULL, &opt) != FERRY_OK) {
		snprintf(reason, FERRY_REASON_BYTES, "bad options: %s",
		         ferry_last_error());
		return 0;
	}
	if (!ferry_ofi_load(opt.ofi_library, &api, reason))
		return 0;
	if (ferry_ofi_choose(&api, &opt, false, &choice, reason)) {
		const uint32_t v = api.version();

		snprintf(reason, FERRY_REASON_BYTES,
		         "libfabric %u.%u, provider %s, domain %s", FI_MAJOR(v),
		         FI_MINOR(v), choice.provider,
		         choice.info->domain_attr->name);
		api.freeinfo(choice.info);
		score = SCORE;
	}
	ferry_ofi_unload(&api);
	return score;
}

static int probe(const struct ferry_world *world,
                 char reason[FERRY_REASON_BYTES])
{
	struct ferry_ofi_api api;

	if (!world)
		return probe_machine(reason);
	if (!inner_ops(world, reason))
		return 0;
	/* Nobody loads it who will not use it. */
	if (!strstr(world->ctx.opt.fabric, "ofi")) {
		snprintf(reason, FERRY_REASON_BYTES,
		         "all ranks are on one host: by name only");
		return 0;
	}
	if (!ferry_ofi_load(world->ctx.opt.ofi_library, &api, reason))
		return 0;
	ferry_ofi_unload(&api);
	snprintf(reason, FERRY_REASON_BYTES, "libfabric is there");
	return SCORE;
}

static void close_ofi(struct ferry_fabric *fabric)
{
	struct ofi_fabric *f = (struct ofi_fabric *)fabric;

	if (f->fid)
		fi_close(&f->fid->fid);
	if (f->choice.info)
		f->api.freeinfo(f->choice.info);
	ferry_ofi_unload(&f->api);
	if (f->inner)
		f->inner->ops->close(f->inner);
	free(f->lost);
	free(f);
}

static enum ferry_status open_library(struct ofi_fabric *f)
{
	struct ferry_ctx *ctx = &f->fabric.world->ctx;
	char reason[FERRY_REASON_BYTES];

	if (!ferry_ofi_load(ctx->opt.ofi_library, &f->api, reason))
		return ferry_fail(ctx, FERRY_UNSUPPORTED, "ofi: %s", reason);
	if (!ferry_ofi_choose(&f->api, &ctx->opt, true, &f->choice, reason))
		return ferry_fail(ctx, FERRY_UNSUPPORTED, "ofi: %s", reason);
	const int err = f->api.fabric(f->choice.info->fabric_attr, &f->fid, f);

	if (err)
		return ferry_ofi_fail(ctx, f, err, "fi_fabric");
	f->max_put = (size_t)min_i64(
		MAX_PUT_BYTES,
		(int64_t)(f->choice.info->ep_attr->max_msg_size & INT64_MAX));
	ferry_log(ctx, FERRY_LOG_INFO, "ofi: provider %s, domain %s",
	          f->choice.provider, f->choice.info->domain_attr->name);
	return FERRY_OK;
}

static enum ferry_status open_ofi(struct ferry_world *world,
                                  struct ferry_fabric **fabric)
{
	char reason[FERRY_REASON_BYTES];
	struct ofi_fabric *f = calloc(1, sizeof(*f));
	enum ferry_status status;

	if (f)
		f->lost = calloc((size_t)world->n_ranks, sizeof(*f->lost));
	if (!f || !f->lost) {
		free(f);
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "ofi: state of %d peers", world->n_ranks);
	}
	f->fabric.ops = &ferry_fabric_ofi;
	f->fabric.world = world;
	status = inner_ops(world, reason)->open(world, &f->inner);
	if (status == FERRY_OK)
		status = open_library(f);
	if (status != FERRY_OK) {
		close_ofi(&f->fabric);
		return status;
	}
	*fabric = &f->fabric;
	return FERRY_OK;
}

static void mem_destroy(struct ferry_mem *mem)
{
	struct ofi_mem *m = ofi_mem(mem);

	ferry_ofi_settle(m);
	ferry_ofi_thread_close(m);
	ferry_ofi_endpoint_close(m);
	ferry_ofi_queue_close(m);
	if (m->inner)
		m->inner->ops->mem_destroy(m->inner);
	pthread_cond_destroy(&m->room);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static enum ferry_status mem_create(struct ferry_fabric *fabric,
                                    size_t control_bytes, size_t data_bytes,
                                    struct ferry_mem **mem,
                                    uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_fabric *inner = ((struct ofi_fabric *)fabric)->inner;
	struct ofi_mem *m = calloc(1, sizeof(*m));
	enum ferry_status status;

	if (!m)
		return ferry_fail(&fabric->world->ctx, FERRY_NOMEM,
		                  "ofi: state of %zu bytes", sizeof(*m));
	ferry_mem_init(&m->mem, fabric, control_bytes, data_bytes);
	m->cq_fd = -1;
	m->bell_fd = -1;
	pthread_mutex_init(&m->lock, NULL);
	ferry_cond_init(&m->room);
	status = inner->ops->mem_create(inner, control_bytes, data_bytes,
	                                &m->inner, handle);
	if (status == FERRY_OK) {
		m->mem.control = m->inner->control;
		m->mem.data = m->inner->data;
		status = ferry_ofi_queue_open(m);
	}
	if (status == FERRY_OK)
		status = ferry_ofi_endpoint_open(m, handle);
	if (status != FERRY_OK) {
		mem_destroy(&m->mem);
		return status;
	}
	*mem = &m->mem;
	return FERRY_OK;
}

static enum ferry_status mem_attach(struct ferry_mem *mem,
                                    const uint8_t *handles)
{
	struct ofi_mem *m = ofi_mem(mem);

	m->inner->counters_offset = mem->counters_offset;
	m->inner->n_signals = mem->n_signals;
	FERRY_TRY(m->inner->ops->mem_attach(m->inner, handles));
	FERRY_TRY(ferry_ofi_endpoint_attach(m, handles));
	return ferry_ofi_thread_open(m);
}

static void mem_seal(struct ferry_mem *mem)
{
	struct ferry_mem *inner = ofi_mem(mem)->inner;

	inner->ops->mem_seal(inner);
}

static bool is_self(const struct ferry_mem *mem, int32_t peer)
{
	return peer == mem->fabric->world->rank;
}

static uint32_t caps(const struct ferry_mem *mem, int32_t peer)
{
	if (is_self(mem, peer))
		return ferry_fabric_caps_ldst(mem, peer);
	return FERRY_CAP_SAME_HOST;
}

static void *control(const struct ferry_mem *mem, int32_t peer)
{
	return is_self(mem, peer) ? mem->control : NULL;
}

static size_t max_put(const struct ferry_mem *mem)
{
	return ((const struct ofi_fabric *)mem->fabric)->max_put;
}

/* Why a put cannot be; OK: it can, or nobody is there to miss it. */
static enum ferry_status refuse(struct ofi_mem *m, int32_t peer)
{
	struct ferry_ctx *ctx = &ofi_world(m)->ctx;
	const struct ofi_peer *p = &m->peers[peer];

	if (m->broken[0])
		return ferry_fail(ctx, FERRY_FABRIC, "ofi: %s: %s",
		                  ofi_fabric(m)->choice.provider, m->broken);
	if (p->failed && !ferry_ofi_peer_has_told(m, peer))
		return ferry_fail(ctx, FERRY_PEER,
		                  "ofi: rank %d is not reached any more: %s",
		                  peer, p->text);
	return FERRY_OK;
}

/* Adds the put; false when there was no room until the deadline. */
static bool add(struct ofi_mem *m, int32_t peer, const struct ofi_entry *entry,
                uint64_t deadline_ns)
{
	while (!ferry_ofi_queue_add(m, peer, entry)) {
		const uint64_t now = ferry_now_ns();

		if (now >= deadline_ns)
			return false;
		if (!ferry_ofi_drive(m)) {
			ferry_ofi_ring(m);
			ferry_cond_wait(&m->room, &m->lock, now + NAP_NS);
		}
		if (m->peers[peer].failed || m->broken[0])
			return true;
	}
	return true;
}

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct ofi_mem *m = ofi_mem(mem);
	struct ferry_world *world = mem->fabric->world;
	const struct ofi_entry entry = {offset, source, bytes, signal};
	enum ferry_status status;
	bool added = true;

	if (is_self(mem, peer))
		return ferry_fabric_put_ldst(mem, peer, offset, source, bytes,
		                             signal);
	pthread_mutex_lock(&m->lock);
	status = refuse(m, peer);
	if (status == FERRY_OK && !m->peers[peer].failed) {
		added = add(m, peer, &entry,
		            ferry_deadline_ns(world->timeout_ms));
		status = refuse(m, peer);
	}
	pthread_mutex_unlock(&m->lock);
	if (added)
		return status;
	return ferry_fail(&world->ctx, FERRY_TIMEOUT,
	                  "ofi: rank %d took nothing of %u puts for %lld ms",
	                  peer, m->queue_mask + 1,
	                  (long long)world->timeout_ms);
}

static enum ferry_status kick(struct ferry_mem *mem)
{
	struct ofi_mem *m = ofi_mem(mem);

	pthread_mutex_lock(&m->lock);
	while (m->n_queued && ferry_ofi_drive(m))
		;
	if (m->n_queued || m->n_flying)
		ferry_ofi_ring(m);
	pthread_mutex_unlock(&m->lock);
	return FERRY_OK;
}

static bool flushed(struct ferry_mem *mem)
{
	struct ofi_mem *m = ofi_mem(mem);

	pthread_mutex_lock(&m->lock);
	if (m->n_queued || m->n_flying)
		ferry_ofi_drive(m);
	const bool empty = m->broken[0] || (!m->n_queued && !m->n_flying);

	pthread_mutex_unlock(&m->lock);
	return empty;
}

/* A wait takes over the work of the thread while it spins. */
static bool progress(struct ferry_mem *mem)
{
	struct ofi_mem *m = ofi_mem(mem);
	bool moved;

	if (pthread_mutex_trylock(&m->lock))
		return false;
	moved = ferry_ofi_drive(m);
	pthread_mutex_unlock(&m->lock);
	return moved;
}

static bool dead(struct ferry_fabric *fabric, int32_t peer)
{
	struct ofi_fabric *f = (struct ofi_fabric *)fabric;

	return load_seq_u32(&f->lost[peer]) ||
	       f->inner->ops->dead(f->inner, peer);
}

const struct ferry_fabric_ops ferry_fabric_ofi = {
	.size = sizeof(struct ferry_fabric_ops),
	.name = "ofi",
	.summary = "networks, through libfabric",
	.probe = probe,
	.open = open_ofi,
	.close = close_ofi,
	.mem_create = mem_create,
	.mem_attach = mem_attach,
	.mem_seal = mem_seal,
	.mem_destroy = mem_destroy,
	.caps = caps,
	.control = control,
	.data = ferry_fabric_data_behind,
	.max_put = max_put,
	.put = put,
	.kick = kick,
	.flushed = flushed,
	.progress = progress,
	.dead = dead,
};
