/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a channel. Every step that can fail on one rank ends in
 * an agreement, so that all ranks open or none does.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "../core/clock.h"
#include "../core/placement_inner.h"
#include "../core/sized.h"
#include "moe_compare.h"
#include "moe_window.h"

static enum ferry_status take_config(struct ferry_moe *m,
                                     const struct ferry_moe_config *config,
                                     struct ferry_moe_config *own)
{
	struct ferry_ctx *ctx = &m->world->ctx;

	FERRY_TRY(ferry_sized_copy(own, sizeof(*own), config,
	                           "moe_open: config"));
	if (own->n_ranks && own->n_ranks != m->world->n_ranks)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "moe_open: n_ranks is %d, allowed are 0 and "
		                  "the world's, %d",
		                  own->n_ranks, m->world->n_ranks);
	own->device = m->world->device;
	m->path_asked = own->path != FERRY_PATH_AUTO;
	FERRY_TRY(ferry_shape_init(&m->shape, own, m->world->n_ranks,
	                           m->world->rank));
	return m->ops->settle(ctx, &m->shape);
}

/* Expert e in slot e, for callers without a placement. */
static enum ferry_status make_identity(struct ferry_moe *m,
                                       const struct ferry_moe_config *own)
{
	struct ferry_placement_config config = FERRY_PLACEMENT_CONFIG_INIT;

	if (m->shape.n_expert_slots < m->shape.n_experts)
		return FERRY_OK;
	config.n_experts = m->shape.n_experts;
	config.n_ranks = m->shape.n_ranks;
	config.expert_slots = own->expert_slots;
	return ferry_placement_create(&config, &m->identity);
}

static enum ferry_status allocate(struct ferry_moe *m)
{
	const size_t n_own = (size_t)m->shape.own_expert_slots;

	m->slots = calloc((size_t)m->shape.n_slots, sizeof(*m->slots));
	m->wait_ns = calloc((size_t)m->shape.n_ranks, sizeof(*m->wait_ns));
	m->slot_rows = calloc(n_own ? n_own : 1, sizeof(*m->slot_rows));
	if (m->slots && m->wait_ns && m->slot_rows)
		return FERRY_OK;
	return ferry_fail(&m->world->ctx, FERRY_NOMEM,
	                  "moe_open: records of %d slots, %d ranks, %zu expert "
	                  "slots",
	                  m->shape.n_slots, m->shape.n_ranks, n_own);
}

/* What a rank does on its own before it meets the others. */
static enum ferry_status prepare(struct ferry_moe *m,
                                 const struct ferry_moe_config *config)
{
	struct ferry_moe_config own;

	m->ops = ferry_engine_of(m->world->device);
	m->stats = (struct ferry_moe_stats)FERRY_MOE_STATS_INIT;
	FERRY_TRY(take_config(m, config, &own));
	FERRY_TRY(make_identity(m, &own));
	FERRY_TRY(allocate(m));
	if (getrandom(&m->first_epoch, sizeof(m->first_epoch), 0) !=
	    sizeof(m->first_epoch))
		return ferry_fail_errno(&m->world->ctx, FERRY_SYS, errno,
		                        "moe_open: getrandom");
	/* On a GPU an epoch is never 0, which is what nobody has written. */
	if (m->shape.device == FERRY_DEVICE_CUDA)
		m->first_epoch |= UINT64_C(1) << 63;
	return FERRY_OK;
}

static enum ferry_status open_steps(struct ferry_moe *m,
                                    const struct ferry_moe_config *config)
{
	const uint64_t deadline = ferry_deadline_ns(m->world->open_timeout_ms);

	FERRY_TRY(ferry_moe_compare(m, prepare(m, config), deadline));
	FERRY_TRY(ferry_moe_open_window(m, deadline));
	FERRY_TRY(ferry_moe_open_mirror(m));
	return ferry_agree(m->world->boot, m->ops->open(m, &m->engine), NULL,
	                   NULL, 0, deadline);
}

enum ferry_status ferry_moe_open(struct ferry_world *world,
                                 const struct ferry_moe_config *config,
                                 struct ferry_moe **moe)
{
	if (!world || !moe)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "moe_open: %s is NULL",
		                  world ? "moe" : "world");
	struct ferry_moe *m = calloc(1, sizeof(*m));

	if (!m)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "moe_open: a channel of %zu bytes",
		                  sizeof(*m));
	m->world = world;
	const enum ferry_status status = open_steps(m, config);

	if (status) {
		ferry_moe_close(m);
		return status;
	}
	*moe = m;
	return FERRY_OK;
}

void ferry_moe_close(struct ferry_moe *moe)
{
	if (!moe)
		return;
	if (moe->engine && !moe->ops->close(moe->engine))
		return; /* all of it stays: a kernel may still be at it */
	for (int32_t i = 0; moe->slots && i < moe->shape.n_slots; i++)
		ferry_usage_leave(moe->slots[i].usage);
	ferry_segment_close(moe->mirror);
	ferry_segment_close(moe->segment);
	ferry_placement_destroy(moe->identity);
	ferry_shape_destroy(&moe->shape);
	free(moe->slots);
	free(moe->wait_ns);
	free(moe->slot_rows);
	free(moe);
}
