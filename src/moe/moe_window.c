/* SPDX-License-Identifier: Apache-2.0 */
/* See moe_window.h. */
#include "moe_window.h"

#include <stdlib.h>
#include <string.h>

#include "../cuda/net_layout.h"
#include "../fabric/nvshmem_inner.h"
#include "../fabric/place.h"

static enum ferry_status open_segment(struct ferry_moe *m)
{
	const bool cuda = m->shape.device == FERRY_DEVICE_CUDA;

	FERRY_TRY(ferry_window_init(&m->window, &m->shape, m->staged));
	/* Kernels have their flags in the window, and need no counters. */
	return ferry_segment_open_fan(
		m->world, m->window.bytes,
		cuda ? 1 : ferry_window_n_signals(&m->shape),
		ferry_window_n_fan(&m->shape), &m->segment);
}

/* What a rank has seen of its peers, and all must know. */
enum { NEEDS_OTHER_LAYOUT = 1 << 0, HAS_FAR = 1 << 1 };

/* Do stores reach all peers? Otherwise the window needs a stage. */
static bool is_direct(const struct ferry_moe *m)
{
	for (int32_t r = 0; r < m->shape.n_ranks; r++)
		if (!(ferry_segment_caps(m->segment, r) & FERRY_CAP_LDST))
			return false;
	return true;
}

/* Do stores reach just the ranks of the own host? */
static bool is_host_direct(const struct ferry_moe *m)
{
	const struct ferry_place *places = m->world->places;

	for (int32_t r = 0; r < m->shape.n_ranks; r++) {
		const uint32_t caps = ferry_segment_caps(m->segment, r);
		const bool near = ferry_place_same_host(&places[r],
		                                        &places[m->shape.rank]);

		if (near != !!(caps & FERRY_CAP_LDST))
			return false;
	}
	return true;
}

/* The network that a world of GPUs has, too, NULL: there is none. */
static struct ferry_fabric *network_of(const struct ferry_moe *m)
{
	if (ferry_nvshmem_of(m->world))
		return m->world->fabric;
	if (m->shape.device != FERRY_DEVICE_CUDA || m->world->n_nodes <= 1)
		return NULL;
	return ferry_fabric_network(m->world->fabric);
}

/* No line crosses a network. */
static enum ferry_status look_at_far(struct ferry_moe *m, int32_t r,
                                     uint8_t *seen)
{
	struct ferry_ctx *ctx = &m->world->ctx;
	const bool lines = m->shape.path == FERRY_PATH_LINES;

	if (!network_of(m))
		return ferry_fail(
			ctx, FERRY_UNSUPPORTED,
			"moe_open: the GPU of rank %d cannot load and "
			"store the memory of rank %d",
			m->shape.rank, r);
	if (lines && m->path_asked)
		return ferry_fail(
			ctx, FERRY_UNSUPPORTED,
			"moe_open: path is LINES, but ranks %d and %d "
			"are on different hosts: allowed are CHUNKS "
			"and AUTO",
			m->shape.rank, r);
	*seen |= HAS_FAR;
	if (lines)
		*seen |= NEEDS_OTHER_LAYOUT;
	return FERRY_OK;
}

/* Can lines go to all peers? Without that there is no engine, or chunks. */
static enum ferry_status look_at_gpus(struct ferry_moe *m, uint8_t *seen)
{
	const bool lines = m->shape.path == FERRY_PATH_LINES;

	for (int32_t r = 0; r < m->shape.n_ranks; r++) {
		const uint32_t caps = ferry_segment_caps(m->segment, r);

		if (!(caps & FERRY_CAP_DEVICE)) {
			FERRY_TRY(look_at_far(m, r, seen));
			continue;
		}
		if (!lines || caps & FERRY_CAP_NVLINK)
			continue;
		if (m->path_asked)
			return ferry_fail(&m->world->ctx, FERRY_UNSUPPORTED,
			                  "moe_open: path is LINES, but ranks "
			                  "%d and %d share no GPU and have no "
			                  "NVLink: allowed are CHUNKS and AUTO",
			                  m->shape.rank, r);
		*seen |= NEEDS_OTHER_LAYOUT;
	}
	return FERRY_OK;
}

/* Must the window be laid out otherwise, as this rank reaches its peers? */
static enum ferry_status look_at_peers(struct ferry_moe *m, uint8_t *seen)
{
	bool otherwise;

	*seen = 0;
	if (m->shape.device == FERRY_DEVICE_CUDA)
		return look_at_gpus(m, seen);
	otherwise = m->shape.hosts.n ? !is_host_direct(m)
	                             : !m->staged && !is_direct(m);
	*seen = otherwise ? NEEDS_OTHER_LAYOUT : 0;
	return FERRY_OK;
}

/* Bits that any rank has; `mine`: how the own step before it went. */
static enum ferry_status gather(struct ferry_moe *m, enum ferry_status mine,
                                uint8_t own, uint64_t deadline, uint8_t *any)
{
	const int32_t n_ranks = m->shape.n_ranks;
	uint8_t *all = calloc((size_t)n_ranks, 1);
	enum ferry_status status = mine;

	if (!all && status == FERRY_OK)
		status = ferry_fail(&m->world->ctx, FERRY_NOMEM,
		                    "moe_open: answers of %d ranks", n_ranks);
	status = ferry_agree(m->world->boot, status, &own, all, sizeof(own),
	                     deadline);
	*any = 0;
	for (int32_t r = 0; status == FERRY_OK && r < n_ranks; r++)
		*any |= all[r];
	free(all);
	return status;
}

/* All ranks must lay out alike: what one needs, all do. */
static enum ferry_status agree_layout(struct ferry_moe *m, uint64_t deadline,
                                      bool *otherwise)
{
	uint8_t own, any;
	const enum ferry_status status = look_at_peers(m, &own);

	FERRY_TRY(gather(m, status, own, deadline, &any));
	*otherwise = any & NEEDS_OTHER_LAYOUT;
	m->has_far = any & HAS_FAR;
	return FERRY_OK;
}

/* From here on rows travel once per host, if counters have numbers enough. */
static enum ferry_status use_hosts(struct ferry_moe *m)
{
	const int32_t n_ranks = m->shape.n_ranks;
	uint64_t *ids = calloc((size_t)n_ranks, sizeof(*ids));
	struct ferry_hosts hosts;

	if (!ids)
		return ferry_fail(&m->world->ctx, FERRY_NOMEM,
		                  "moe_open: hosts of %d ranks", n_ranks);
	for (int32_t r = 0; r < n_ranks; r++)
		ids[r] = m->world->places[r].host_id;
	const enum ferry_status status =
		ferry_hosts_init(&hosts, ids, n_ranks, m->shape.rank);

	free(ids);
	if (status == FERRY_UNSUPPORTED) /* the same on all ranks */
		return FERRY_OK;
	FERRY_TRY(status);
	if (ferry_window_fan_fits(&m->shape, &hosts))
		ferry_shape_use_hosts(&m->shape, &hosts);
	else
		ferry_hosts_destroy(&hosts);
	return FERRY_OK;
}

/* Sums of hosts need a hierarchy, and groups that lie on one host each. */
static enum ferry_status check_per_host(struct ferry_moe *m)
{
	const struct ferry_place *places = m->world->places;
	struct ferry_ctx *ctx = &m->world->ctx;

	if (m->shape.combine != FERRY_PER_HOST || m->world->n_nodes == 1)
		return FERRY_OK;
	if (!m->shape.hosts.n)
		return ferry_fail(ctx, FERRY_UNSUPPORTED,
		                  "moe_open: combine is PER_HOST on %d hosts, "
		                  "which needs a fabric that stores within a "
		                  "host and puts between hosts, as shm+ofi "
		                  "does (this is %s), at most %d ranks on "
		                  "a host, and FERRY_HIERARCHY not off",
		                  m->world->n_nodes,
		                  ferry_world_fabric(m->world),
		                  FERRY_MAX_HOST_RANKS);
	for (int32_t r = 0; r < m->shape.n_ranks; r++) {
		const int32_t first = r - r % m->shape.group_size;

		if (!ferry_place_same_host(&places[r], &places[first]))
			return ferry_fail(ctx, FERRY_UNSUPPORTED,
			                  "moe_open: combine is PER_HOST, "
			                  "but ranks %d and %d of a group "
			                  "are on two hosts: allowed are "
			                  "EXACT, REDUCED",
			                  first, r);
	}
	return FERRY_OK;
}

/* Rows travel to every rank on its own. */
static void use_no_hosts(struct ferry_moe *m)
{
	ferry_hosts_destroy(&m->shape.hosts);
	ferry_shape_use_hosts(&m->shape, &(struct ferry_hosts){.n = 0});
}

/*
 * On several hosts there are ranks that stores do not reach, and most likely
 * those of the own host are the others: a segment on a network is not opened
 * only to find that out. One rank is enough that wants no hierarchy.
 */
static enum ferry_status expect_hosts(struct ferry_moe *m, uint64_t deadline)
{
	const uint8_t off = !strcmp(m->world->ctx.opt.hierarchy, "off");
	const enum ferry_status status = use_hosts(m);
	uint8_t any_off;

	m->staged = true;
	FERRY_TRY(gather(m, status, off, deadline, &any_off));
	if (any_off)
		use_no_hosts(m);
	return FERRY_OK;
}

/*
 * Only an open segment tells for certain how its peers are reached. Where some
 * are not reached by stores the window needs a stage; where those of a host are
 * not there is no hierarchy; where some GPUs have no NVLink it cannot have
 * lines; then it is made again.
 */
enum ferry_status ferry_moe_open_window(struct ferry_moe *m, uint64_t deadline)
{
	const bool cuda = m->shape.device == FERRY_DEVICE_CUDA;
	bool otherwise = false;

	if (!cuda && m->world->n_nodes > 1)
		FERRY_TRY(expect_hosts(m, deadline));
	FERRY_TRY(open_segment(m));
	FERRY_TRY(agree_layout(m, deadline, &otherwise));
	if (!otherwise)
		return check_per_host(m);
	ferry_segment_close(m->segment);
	m->segment = NULL;
	if (cuda)
		m->shape.path = FERRY_PATH_CHUNKS;
	else
		m->staged = true;
	use_no_hosts(m);
	FERRY_TRY(check_per_host(m)); /* the same on all ranks */
	return open_segment(m);
}

enum ferry_status ferry_moe_open_mirror(struct ferry_moe *m)
{
	struct ferry_fabric *network = network_of(m);
	const uint32_t n_signals = ferry_window_n_signals(&m->shape);

	if (!network || !m->has_far)
		return FERRY_OK;
	if (ferry_nvshmem_of(m->world))
		return ferry_segment_open_on(
			m->world, network,
			ferry_net_heap_bytes(&m->shape, &m->window, n_signals),
			1, &m->mirror);
	return ferry_segment_open_on(
		m->world, network,
		ferry_net_mirror_bytes(&m->shape, &m->window), n_signals,
		&m->mirror);
}
