/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a splitter. */
#include "split_inner.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../core/range.h"
#include "../core/sized.h"
#include "agree_numbers.h"

enum { MAX_TOPK = 64, MAX_SLOTS = 256 };

static enum ferry_status check_sizes(const struct ferry_splitter *s)
{
	const struct ferry_splitter_config *const c = &s->config;
	struct ferry_ctx *const ctx = &s->world->ctx;
	const char *const call = "splitter_open";

	FERRY_TRY(check_range(ctx, call, "max_tokens", c->max_tokens, 1,
	                      INT32_MAX));
	FERRY_TRY(check_range(ctx, call, "topk", c->topk, 1, MAX_TOPK));
	FERRY_TRY(check_range(ctx, call, "max_experts", c->max_experts, 1,
	                      FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(ctx, call, "max_expert_slots",
	                      c->max_expert_slots, 1, FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(ctx, call, "n_slots", c->n_slots, 1, MAX_SLOTS));
	FERRY_TRY(check_range(ctx, call, "bad_id", (int)c->bad_id,
	                      FERRY_BAD_ID_ERROR, FERRY_BAD_ID_SKIP));
	if (c->group_size < 1 || s->world->n_ranks % c->group_size)
		return ferry_fail(&s->world->ctx, FERRY_INVAL,
		                  "splitter_open: group_size is %d, it must "
		                  "divide the %d ranks",
		                  c->group_size, s->world->n_ranks);
	return FERRY_OK;
}

/* Counts of a rank fit into int32, sums of all into FERRY_MAX_LOAD. */
static enum ferry_status check_sums(const struct ferry_splitter *s)
{
	const int64_t choices = (int64_t)s->config.max_tokens * s->config.topk;

	if (choices <= INT32_MAX &&
	    choices <= FERRY_MAX_LOAD / s->world->n_ranks)
		return FERRY_OK;
	return ferry_fail(&s->world->ctx, FERRY_RANGE,
	                  "splitter_open: max_tokens * topk is %" PRId64
	                  ", allowed are 1..%" PRId64,
	                  choices,
	                  FERRY_MAX_LOAD / s->world->n_ranks < INT32_MAX
	                          ? FERRY_MAX_LOAD / s->world->n_ranks
	                          : INT32_MAX);
}

static enum ferry_status take_config(struct ferry_splitter *s,
                                     const struct ferry_splitter_config *config)
{
	struct ferry_splitter_config *const c = &s->config;

	FERRY_TRY(ferry_sized_copy(c, sizeof(*c), config,
	                           "splitter_open: config"));
	if (s->world->device != FERRY_DEVICE_CPU)
		return ferry_fail(&s->world->ctx, FERRY_UNSUPPORTED,
		                  "splitter_open: the world is one of GPUs; "
		                  "open one with FERRY_DEVICE_CPU beside it "
		                  "for this");
	c->n_slots += c->n_slots == 0;
	c->group_size += c->group_size == 0;
	if (c->max_expert_slots == 0)
		c->max_expert_slots = c->max_experts;
	FERRY_TRY(check_sizes(s));
	FERRY_TRY(check_sums(s));
	s->n_sources = s->world->n_ranks / c->group_size;
	s->source = s->world->rank / c->group_size;
	return FERRY_OK;
}

static int32_t *words(size_t n)
{
	return malloc(n * sizeof(int32_t));
}

static bool allocate_slots(struct ferry_splitter *s)
{
	const size_t n = (size_t)s->config.max_tokens * (size_t)s->config.topk;

	s->slots = calloc((size_t)s->config.n_slots, sizeof(*s->slots));
	for (int32_t i = 0; s->slots && i < s->config.n_slots; i++) {
		s->slots[i].codes.code = words(n);
		s->slots[i].codes.where = words(n);
		if (!s->slots[i].codes.code || !s->slots[i].codes.where)
			return false;
	}
	return s->slots;
}

static enum ferry_status allocate(struct ferry_splitter *s)
{
	const size_t n_experts = (size_t)s->config.max_experts;
	const size_t n_slots = (size_t)s->config.max_expert_slots;

	FERRY_TRY(ferry_sharing_init(&s->sharing, s->config.max_experts,
	                             s->config.max_expert_slots,
	                             s->world->n_ranks));
	s->region.items =
		calloc((size_t)s->world->n_ranks, sizeof(*s->region.items));
	s->code_of = words(n_experts);
	s->counts = words(n_experts);
	s->source_count = words((size_t)s->n_sources);
	s->runs.slot = words(n_slots);
	s->runs.left = words(n_slots);
	s->runs.at = words(n_experts);
	if (allocate_slots(s) && s->region.items && s->code_of && s->counts &&
	    s->source_count && s->runs.slot && s->runs.left && s->runs.at)
		return FERRY_OK;
	return ferry_fail(&s->world->ctx, FERRY_NOMEM,
	                  "splitter_open: %d slots of %d tokens, %d experts",
	                  s->config.n_slots, s->config.max_tokens,
	                  s->config.max_experts);
}

static enum ferry_status prepare(struct ferry_splitter *s,
                                 const struct ferry_splitter_config *config)
{
	FERRY_TRY(take_config(s, config));
	return allocate(s);
}

/* Do all ranks open the same? `mine`: how the own preparation went. */
static enum ferry_status agree(struct ferry_splitter *s, enum ferry_status mine)
{
	const struct ferry_splitter_config *const c = &s->config;
	const struct ferry_agreed own[] = {
		{"max_tokens", c->max_tokens},
		{"topk", c->topk},
		{"max_experts", c->max_experts},
		{"max_expert_slots", c->max_expert_slots},
		{"n_slots", c->n_slots},
		{"group_size", c->group_size},
		{"bad_id", c->bad_id},
	};

	return ferry_agree_numbers(s->world, "splitter_open", mine, own,
	                           sizeof(own) / sizeof(own[0]));
}

static enum ferry_status open_parts(struct ferry_splitter *s,
                                    const struct ferry_splitter_config *config)
{
	FERRY_TRY(agree(s, prepare(s, config)));
	return ferry_split_region_open(&s->region, s->world, s->config.n_slots,
	                               sizeof(struct ferry_split_head) +
	                                       split_max_words(s) *
	                                               sizeof(int32_t));
}

enum ferry_status
ferry_splitter_open(struct ferry_world *world,
                    const struct ferry_splitter_config *config,
                    struct ferry_splitter **splitter)
{
	if (!world || !splitter)
		return ferry_fail(world ? &world->ctx : NULL, FERRY_INVAL,
		                  "splitter_open: %s is NULL",
		                  world ? "splitter" : "world");
	struct ferry_splitter *const s = calloc(1, sizeof(*s));

	if (!s)
		return ferry_fail(&world->ctx, FERRY_NOMEM,
		                  "splitter_open: %zu bytes", sizeof(*s));
	s->world = world;
	const enum ferry_status status = open_parts(s, config);

	if (status != FERRY_OK) {
		ferry_splitter_close(s);
		return status;
	}
	*splitter = s;
	return FERRY_OK;
}

void ferry_splitter_close(struct ferry_splitter *splitter)
{
	struct ferry_splitter *const s = splitter;

	if (!s)
		return;
	ferry_split_region_close(&s->region);
	free(s->region.items);
	for (int32_t i = 0; s->slots && i < s->config.n_slots; i++) {
		free(s->slots[i].codes.code);
		free(s->slots[i].codes.where);
	}
	free(s->slots);
	free(s->code_of);
	free(s->counts);
	free(s->source_count);
	free(s->runs.slot);
	free(s->runs.left);
	free(s->runs.at);
	ferry_sharing_destroy(&s->sharing);
	free(s);
}
