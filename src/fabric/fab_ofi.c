/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabrics ofi and shm+ofi: a network, through libfabric. A put is one remote
 * write whose immediate names the counter. In shm+ofi peers of the own host
 * are loaded and stored, in ofi they are put to, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/bits.h"
#include "ofi_memory.h"
#include "place.h"

enum {
	SCORE = 40,
	MAX_PUT_BYTES = 8 << 20, /* others get their turn between two */
	NAP_NS = 1000000,        /* of a put without room, at most */
	/*
	 * A process that dies takes its connections with it. Until then the
	 * kernel, or rank 0, will have said so.
	 */
	CUT_NS = 200000000,
};

static void say_choice(const struct ferry_ofi_api *api,
                       const struct ferry_ofi_choice *choice,
                       char text[FERRY_REASON_BYTES])
{
	const uint32_t v = api->version();

	snprintf(text, FERRY_REASON_BYTES,
	         "libfabric %u.%u, provider %s, domain %s", FI_MAJOR(v),
	         FI_MINOR(v), choice->provider,
	         choice->info->domain_attr->name);
}

/*
 * Behind that, where there is a GPU: which memory rows travel from and to, in
 * words of the caller if it is the GPU's.
 */
static void say_hmem(const struct ferry_ofi_choice *choice, const char *hmem,
                     const char *why, char text[FERRY_REASON_BYTES])
{
	const size_t n = strlen(text);

	snprintf(
		text + n, FERRY_REASON_BYTES - n, ", %s%s",
		choice->hmem ? hmem : "rows bounce: ", choice->hmem ? "" : why);
}

/* What it would be here, for those who ask what there is. */
static int probe_machine(char reason[FERRY_REASON_BYTES])
{
	struct ferry_options opt;
	struct ferry_ofi_api api;
	struct ferry_ofi_choice choice;
	char why[FERRY_REASON_BYTES];
	int score = 0;

	if (ferry_options_read(NULL, NULL, &opt) != FERRY_OK) {
		snprintf(reason, FERRY_REASON_BYTES, "bad options: %s",
		         ferry_last_error());
		return 0;
	}
	if (!ferry_ofi_load(opt.ofi_library, &api, reason))
		return 0;
	if (ferry_ofi_choose(&api, NULL, &opt, false, &choice, reason)) {
		const bool has_gpu = ferry_gpu_sighted(why) > 0;

		if (has_gpu)
			(void)ferry_ofi_hmem_find(&api, NULL, &opt, &choice,
			                          why);
		say_choice(&api, &choice, reason);
		if (has_gpu)
			say_hmem(&choice,
			         "rows in GPU memory if the GPU allows it", why,
			         reason);
		ferry_ofi_choice_drop(&api, &choice);
		score = FERRY_SCORE_BY_NAME;
	}
	ferry_ofi_unload(&api);
	return score;
}

/* Nobody loads it who will not use it. */
static bool is_named(const struct ferry_world *world)
{
	const char *name = strrchr(world->ctx.opt.fabric, ':');

	name = name ? name + 1 : world->ctx.opt.fabric;
	return !strcmp(name, "ofi") || !strcmp(name, "shm+ofi") ||
	       !strcmp(name, "p2p+ofi");
}

static int probe_world(const struct ferry_world *world, int score,
                       char reason[FERRY_REASON_BYTES])
{
	struct ferry_ofi_api api;

	if (score == FERRY_SCORE_BY_NAME && !is_named(world)) {
		snprintf(reason, FERRY_REASON_BYTES, "by name only");
		return 0;
	}
	if (!ferry_ofi_load(world->ctx.opt.ofi_library, &api, reason))
		return 0;
	ferry_ofi_unload(&api);
	snprintf(reason, FERRY_REASON_BYTES, "libfabric is there");
	return score;
}

static int probe_ofi(const struct ferry_world *world,
                     char reason[FERRY_REASON_BYTES])
{
	return world ? probe_world(world, FERRY_SCORE_BY_NAME, reason)
	             : probe_machine(reason);
}

/* The one for several hosts. */
static int probe_shm_ofi(const struct ferry_world *world,
                         char reason[FERRY_REASON_BYTES])
{
	if (world)
		return probe_world(
			world, world->n_nodes > 1 ? SCORE : FERRY_SCORE_BY_NAME,
			reason);
	return probe_machine(reason) ? SCORE : 0;
}

static void close_ofi(struct ferry_fabric *fabric)
{
	struct ofi_fabric *f = (struct ofi_fabric *)fabric;

	if (f->fid)
		fi_close(&f->fid->fid);
	ferry_ofi_choice_drop(&f->api, &f->choice);
	ferry_ofi_unload(&f->api);
	ferry_net_close(fabric);
}

/*
 * All ranks under one kernel, and nothing says that they live apart there?
 * Hosts that are pretended do not say so. All answer alike, or one would
 * listen where others do not look.
 */
static bool is_nearby(const struct ferry_world *world)
{
	bool nearby = true;

	for (int32_t r = 1; r < world->n_ranks; r++)
		nearby &=
			world->places[r].named_id == world->places[0].named_id;
	return nearby;
}

/* Of a world of GPUs. */
static enum ferry_status choose_hmem(struct ofi_fabric *f,
                                     char reason[FERRY_REASON_BYTES])
{
	const struct ferry_world *world = f->net.wrap.fabric.world;
	struct ferry_ctx *ctx = &f->net.wrap.fabric.world->ctx;

	if (ferry_ofi_hmem_find(&f->api, world, &ctx->opt, &f->choice,
	                        reason) ||
	    !ofi_requires_hmem(f))
		return FERRY_OK;
	return ferry_fail(ctx, FERRY_UNSUPPORTED,
	                  "ofi: FERRY_OFI_HMEM=require: %s", reason);
}

static enum ferry_status open_library(struct ofi_fabric *f)
{
	struct ferry_world *world = f->net.wrap.fabric.world;
	struct ferry_ctx *ctx = &world->ctx;
	char reason[FERRY_REASON_BYTES];

	if (!ferry_ofi_load(ctx->opt.ofi_library, &f->api, reason))
		return ferry_fail(ctx, FERRY_UNSUPPORTED, "ofi: %s", reason);
	if (!ferry_ofi_choose(&f->api, world, &ctx->opt, is_nearby(world),
	                      &f->choice, reason))
		return ferry_fail(ctx, FERRY_UNSUPPORTED, "ofi: %s", reason);
	if (world->gpu)
		FERRY_TRY(choose_hmem(f, reason));
	const int err = f->api.fabric(f->choice.info->fabric_attr, &f->fid, f);

	if (err)
		return ferry_ofi_fail(ctx, f, err, "fi_fabric");
	f->max_put = (size_t)min_i64(
		MAX_PUT_BYTES,
		(int64_t)(f->choice.info->ep_attr->max_msg_size & INT64_MAX));
	say_choice(&f->api, &f->choice, world->fabric_says);
	if (world->gpu)
		say_hmem(&f->choice, "rows in GPU memory", reason,
		         world->fabric_says);
	ferry_log(ctx, FERRY_LOG_INFO, "ofi: %s", world->fabric_says);
	return FERRY_OK;
}

static enum ferry_status open_net(struct ferry_world *world,
                                  const struct ferry_fabric_ops *ops,
                                  enum ferry_reach reach,
                                  struct ferry_fabric **fabric)
{
	struct ofi_fabric *f = calloc(1, sizeof(*f));
	enum ferry_status status;

	if (!f)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "ofi: state of %zu bytes", sizeof(*f));
	f->net.wrap.fabric.ops = ops;
	f->net.wrap.mem_bytes = sizeof(struct ofi_mem);
	status = ferry_net_open(world, reach == FERRY_REACH_HOST, reach,
	                        &f->net);
	if (status != FERRY_OK) {
		free(f);
		return status;
	}
	status = open_library(f);
	if (status != FERRY_OK) {
		close_ofi(&f->net.wrap.fabric);
		return status;
	}
	*fabric = &f->net.wrap.fabric;
	return FERRY_OK;
}

static enum ferry_status open_ofi(struct ferry_world *world,
                                  struct ferry_fabric **fabric)
{
	return open_net(world, &ferry_fabric_ofi, FERRY_REACH_SELF, fabric);
}

static enum ferry_status open_shm_ofi(struct ferry_world *world,
                                      struct ferry_fabric **fabric)
{
	return open_net(world, &ferry_fabric_shm_ofi, FERRY_REACH_HOST, fabric);
}

/*
 * In a world of GPUs each rank decides where its data lie, and tells nobody:
 * stores reach the own ones alone.
 */
static bool stores_data(const struct ferry_mem *mem, int32_t peer)
{
	const struct ferry_world *world = mem->fabric->world;

	if (peer == world->rank)
		return !((const struct ofi_mem *)mem)->gpu_memory;
	return !world->gpu && ferry_net_stores(mem, peer);
}

static uint32_t caps(const struct ferry_mem *mem, int32_t peer)
{
	const uint32_t all = ferry_net_caps(mem, peer);

	if (!ferry_net_stores(mem, peer) || stores_data(mem, peer))
		return all;
	return (all & ~(uint32_t)FERRY_CAP_LDST) |
	       (peer == mem->fabric->world->rank ? FERRY_CAP_DEVICE : 0);
}

static void *data(const struct ferry_mem *mem, int32_t peer)
{
	if (peer == mem->fabric->world->rank)
		return mem->data;
	return stores_data(mem, peer) ? ferry_fabric_data_behind(mem, peer)
	                              : NULL;
}

static size_t max_put(const struct ferry_mem *mem)
{
	return ((const struct ofi_fabric *)mem->fabric)->max_put;
}

/* Why a put cannot be; OK: it can, or nobody is there to miss it. */
static enum ferry_status refuse(struct ofi_mem *m, int32_t peer)
{
	struct ferry_ctx *ctx = &ofi_world(m)->ctx;
	const char *why = NULL;

	if (ofi_has_failed(&m->peers[peer]))
		why = ferry_ofi_why_lost(m, peer);
	return why ? ferry_fail(ctx, FERRY_PEER,
	                        "ofi: rank %d is not reached any more: %s",
	                        peer, why)
	           : FERRY_OK;
}

/* Why there was no room for a put. */
static enum ferry_status no_room(struct ofi_mem *m, int32_t peer)
{
	struct ferry_world *world = ofi_world(m);

	if (m->broken[0])
		return ferry_fail(&world->ctx, FERRY_FABRIC, "ofi: %s",
		                  m->broken);
	return ferry_fail(&world->ctx, FERRY_TIMEOUT,
	                  "ofi: rank %d took nothing of %u puts for %lld ms",
	                  peer, m->queue_mask + 1,
	                  (long long)world->timeout_ms);
}

/* Adds the put when there is room. OK also where nobody misses it. */
static enum ferry_status add(struct ofi_mem *m, int32_t peer,
                             const struct ofi_entry *entry,
                             uint64_t deadline_ns)
{
	while (!ferry_ofi_queue_add(m, peer, entry)) {
		const uint64_t now = ferry_now_ns();

		if (now >= deadline_ns || m->broken[0])
			return no_room(m, peer);
		if (!ferry_ofi_drive(m)) {
			ferry_ofi_ring(m);
			ferry_cond_wait(&m->room, &m->lock, now + NAP_NS);
		}
		if (ofi_has_failed(&m->peers[peer]))
			return refuse(m, peer);
	}
	return FERRY_OK;
}

/* To a rank of the own host, or to itself, in shm+ofi. */
static enum ferry_status put_near(struct ofi_mem *m, int32_t peer,
                                  size_t offset, const void *source,
                                  size_t bytes, uint32_t signal)
{
	struct ferry_mem *mem = &m->net.wrap.mem;

	if (bytes && offset >= mem->control_bytes && !stores_data(mem, peer))
		return ferry_fail(&ofi_world(m)->ctx, FERRY_UNSUPPORTED,
		                  "ofi: rank %d is on the own host: kernels "
		                  "reach its GPU, this memory does not",
		                  peer);
	return ferry_fabric_put_ldst(mem, peer, offset, source, bytes, signal);
}

static enum ferry_status put(struct ferry_mem *mem, int32_t peer, size_t offset,
                             const void *source, size_t bytes, uint32_t signal)
{
	struct ofi_mem *m = ofi_mem(mem);
	struct ferry_world *world = mem->fabric->world;
	const struct ofi_entry entry = {
		source, bytes, signal, 1, {{offset, bytes}}};
	enum ferry_status status;

	if (ferry_net_stores(mem, peer))
		return put_near(m, peer, offset, source, bytes, signal);
	pthread_mutex_lock(&m->lock);
	status = refuse(m, peer);
	if (status == FERRY_OK && !ofi_has_failed(&m->peers[peer]))
		status = add(m, peer, &entry,
		             ferry_deadline_ns(world->timeout_ms));
	pthread_mutex_unlock(&m->lock);
	return status;
}

static enum ferry_status kick(struct ferry_mem *mem)
{
	struct ofi_mem *m = ofi_mem(mem);

	pthread_mutex_lock(&m->lock);
	while (m->n_queued && ferry_ofi_drive(m))
		;
	ferry_ofi_leave(m);
	pthread_mutex_unlock(&m->lock);
	return FERRY_OK;
}

static bool flushed(struct ferry_mem *mem)
{
	struct ofi_mem *m = ofi_mem(mem);

	pthread_mutex_lock(&m->lock);
	if (ofi_is_busy(m) && ferry_ofi_drive(m))
		ferry_ofi_leave(m);
	const bool empty = !ofi_is_busy(m);

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
	if (moved)
		ferry_ofi_leave(m);
	pthread_mutex_unlock(&m->lock);
	return moved;
}

/* Of the own rank: has it become deaf? */
static bool is_deaf(struct ofi_mem *m, char why[FERRY_REASON_BYTES])
{
	pthread_mutex_lock(&m->lock);
	const bool deaf = m->broken[0];

	if (deaf)
		snprintf(why, FERRY_REASON_BYTES, "ofi: %.*s",
		         (int)(FERRY_REASON_BYTES - sizeof("ofi: ")),
		         m->broken);
	pthread_mutex_unlock(&m->lock);
	return deaf;
}

static bool cut(struct ferry_mem *mem, int32_t peer,
                char why[FERRY_REASON_BYTES])
{
	struct ofi_mem *m = ofi_mem(mem);

	if (peer == ofi_world(m)->rank)
		return is_deaf(m, why);
	const uint64_t since_ns = ofi_lost_ns(&m->peers[peer]);

	if (!(since_ns && ferry_now_ns() - since_ns >= CUT_NS) &&
	    !ferry_wrap_dead(mem->fabric, peer)) {
		ferry_ofi_say_stuck(m, peer, why);
		return false;
	}
	pthread_mutex_lock(&m->lock);
	const char *lost = ferry_ofi_why_lost(m, peer);

	if (lost)
		snprintf(why, FERRY_REASON_BYTES, "%s", lost);
	pthread_mutex_unlock(&m->lock);
	return lost;
}

#define SLOTS                                                                  \
	.size = sizeof(struct ferry_fabric_ops), .close = close_ofi,           \
	.mem_create = ferry_ofi_mem_create,                                    \
	.mem_attach = ferry_ofi_mem_attach, .mem_seal = ferry_wrap_mem_seal,   \
	.mem_destroy = ferry_ofi_mem_destroy, .caps = caps,                    \
	.control = ferry_net_control, .data = data, .max_put = max_put,        \
	.put = put, .kick = kick, .flushed = flushed, .progress = progress,    \
	.dead = ferry_wrap_dead, .cut = cut

const struct ferry_fabric_ops ferry_fabric_ofi = {
	SLOTS,
	.name = "ofi",
	.summary = "networks, through libfabric",
	.probe = probe_ofi,
	.open = open_ofi,
};

const struct ferry_fabric_ops ferry_fabric_shm_ofi = {
	SLOTS,
	.name = "shm+ofi",
	.summary = "stores inside a host, libfabric between hosts",
	.probe = probe_shm_ofi,
	.open = open_shm_ofi,
};
