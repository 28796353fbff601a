/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a splitter: arguments, what is sent, and what becomes of the
 * messages of all ranks. The arithmetic is that of balance/exact.h.
 */
#include "split_inner.h"

#include <inttypes.h>
#include <stdio.h>

#include "../balance/problem.h"
#include "../core/bits.h"
#include "../core/placement_inner.h"
#include "../core/range.h"
#include "../core/sized.h"
#include "../trace/events.h"

/* Slot, failure, order: what every call looks at first. */
static enum ferry_status enter(struct ferry_splitter *s, const char *call,
                               int32_t slot, bool sent)
{
	if (!s)
		return ferry_fail(NULL, FERRY_INVAL, "%s: splitter is NULL",
		                  call);
	FERRY_TRY(check_range(&s->world->ctx, call, "slot", slot, 0,
	                      s->config.n_slots - 1));
	FERRY_TRY(ferry_segment_check(s->region.segment));
	if (s->slots[slot].sent == sent)
		return FERRY_OK;
	return ferry_fail(&s->world->ctx, FERRY_STATE,
	                  "%s: slot %d expects split_%s", call, slot,
	                  sent ? "send" : "recv");
}

/* Strides: contiguous where 0; otherwise whole elements, and enough of them. */
static enum ferry_status take_stride(const struct ferry_splitter *s,
                                     const char *call, const char *name,
                                     size_t *stride, size_t row, size_t element)
{
	if (*stride == 0)
		*stride = row;
	if (*stride >= row && *stride % element == 0)
		return FERRY_OK;
	return ferry_fail(&s->world->ctx, FERRY_INVAL,
	                  "%s: %s is %zu, allowed are 0 and multiples of %zu "
	                  "from %zu on",
	                  call, name, *stride, element, row);
}

static enum ferry_status check_placement(const struct ferry_splitter *s,
                                         const char *call,
                                         const struct ferry_placement *p)
{
	struct ferry_ctx *const ctx = &s->world->ctx;

	if (!p)
		return ferry_fail(ctx, FERRY_INVAL, "%s: placement is NULL",
		                  call);
	if (p->map.n_ranks != s->world->n_ranks)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "%s: placement has %d ranks, the world %d",
		                  call, p->map.n_ranks, s->world->n_ranks);
	if (p->n_experts > s->config.max_experts)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "%s: placement has %d experts, allowed are "
		                  "1..%d",
		                  call, p->n_experts, s->config.max_experts);
	if (p->map.n_slots > s->config.max_expert_slots)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "%s: placement has %d expert slots, allowed "
		                  "are 1..%d",
		                  call, p->map.n_slots,
		                  s->config.max_expert_slots);
	return FERRY_OK;
}

static enum ferry_status check_in(const struct ferry_splitter *s,
                                  const char *call,
                                  const struct ferry_split_in *in,
                                  struct ferry_split_in *own)
{
	struct ferry_ctx *const ctx = &s->world->ctx;

	FERRY_TRY(ferry_sized_copy(own, sizeof(*own), in, "split: in"));
	if (own->topk == 0)
		own->topk = s->config.topk;
	FERRY_TRY(check_range(ctx, call, "n_tokens", own->n_tokens, 0,
	                      s->config.max_tokens));
	if (own->topk < 1 || own->topk > s->config.topk)
		return ferry_fail(ctx, FERRY_RANGE,
		                  "%s: topk is %d, allowed are 0..%d", call,
		                  own->topk, s->config.topk);
	FERRY_TRY(check_range(ctx, call, "id_type", (int)own->id_type,
	                      FERRY_ID_INT32, FERRY_ID_INT64));
	if (!own->ids && own->n_tokens > 0)
		return ferry_fail(ctx, FERRY_INVAL, "%s: ids is NULL", call);
	const size_t id_bytes = own->id_type == FERRY_ID_INT64
	                                ? sizeof(int64_t)
	                                : sizeof(int32_t);

	if ((uintptr_t)own->ids % id_bytes)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "%s: ids is %p, allowed are multiples of %zu",
		                  call, own->ids, id_bytes);
	FERRY_TRY(take_stride(s, call, "ids_stride", &own->ids_stride,
	                      (size_t)own->topk * id_bytes, id_bytes));
	FERRY_TRY(check_placement(s, call, own->placement));
	return ferry_check_speed(call, own->speed, s->world->n_ranks);
}

static enum ferry_status check_out(const struct ferry_splitter *s,
                                   const char *call, int32_t n_tokens,
                                   int32_t topk,
                                   const struct ferry_split_out *out,
                                   struct ferry_split_out *own)
{
	FERRY_TRY(ferry_sized_copy(own, sizeof(*own), out, "split: out"));
	if (!own->slots && n_tokens > 0)
		return ferry_fail(&s->world->ctx, FERRY_INVAL,
		                  "%s: slots is NULL", call);
	return take_stride(s, call, "slots_stride", &own->slots_stride,
	                   (size_t)topk * sizeof(int32_t), sizeof(int32_t));
}

static uint64_t speed_hash(const int32_t *speed, int32_t n_ranks)
{
	uint64_t h = 1;

	for (int32_t r = 0; speed && r < n_ranks; r++)
		h = hash_u64(h, (uint64_t)speed[r]);
	return speed ? h : 0;
}

/* Codes of the batch, and its counts or a mark, into the own message. */
static size_t fill_message(struct ferry_splitter *s, int32_t slot,
                           const struct ferry_split_in *in)
{
	const struct ferry_placement *const p = in->placement;
	const int32_t n_ranks = s->world->n_ranks;
	const struct ferry_exact_ids ids = {
		.n_tokens = in->n_tokens,
		.topk = in->topk,
		.ids = in->ids,
		.stride = in->ids_stride,
		.type = in->id_type,
		.n_experts = p->n_experts,
		.skip_bad = s->config.bad_id == FERRY_BAD_ID_SKIP,
	};
	struct ferry_split_head *const head =
		ferry_split_region_own(&s->region, split_round(s, slot));
	int32_t *const words = (int32_t *)(void *)(head + 1);
	struct ferry_exact_bad bad;

	*head = (struct ferry_split_head){
		.number = s->slots[slot].n_splits,
		.placement = p->hash,
		.speed = speed_hash(in->speed, n_ranks),
	};
	memset(s->counts, 0, (size_t)p->n_experts * sizeof(*s->counts));
	ferry_exact_code_of(p, s->code_of);
	if (!ferry_exact_encode(&ids, s->code_of, &s->slots[slot].codes,
	                        s->counts, &bad)) {
		head->mark_status = FERRY_RANGE;
		head->mark_token = bad.token;
		head->mark_choice = bad.choice;
		head->mark_value = bad.value;
		return sizeof(*head);
	}
	memset(words, 0, (size_t)n_ranks * sizeof(*words));
	head->n_words = n_ranks +
	                ferry_exact_tally(p, s->counts, words, words + n_ranks);
	return sizeof(*head) + (size_t)head->n_words * sizeof(*words);
}

/* The segment has said what is wrong, but not who used it for what. */
static enum ferry_status fail(const struct ferry_splitter *s, const char *call,
                              int32_t slot, enum ferry_status status)
{
	char text[600];

	snprintf(text, sizeof(text), "%s: slot %d, split %" PRIu64 ": %s", call,
	         slot, s->slots[slot].n_splits, ferry_last_error());
	ferry_last_error_set(text);
	return status;
}

static void record(const struct ferry_splitter *s, const char *call,
                   int32_t slot, uint64_t begin_ns, size_t bytes)
{
	struct ferry_trace_event event = {
		.name = call,
		.category = "split",
		.begin_ns = begin_ns,
		.epoch = s->slots[slot].n_splits,
		.bytes = bytes,
		.slot = slot,
		.peer = -1,
	};

	ferry_trace_end(s->world->trace, &event);
}

/* After all checks. */
static enum ferry_status send(struct ferry_splitter *s, int32_t slot,
                              const struct ferry_split_in *in)
{
	static const char call[] = "split_send";
	struct ferry_split_slot *const state = &s->slots[slot];
	const uint64_t begin_ns = ferry_trace_begin(s->world->trace);
	const size_t bytes = fill_message(s, slot, in);
	const enum ferry_status status = ferry_split_region_send(
		&s->region, split_round(s, slot), bytes);

	record(s, call, slot, begin_ns, bytes);
	if (status != FERRY_OK)
		return fail(s, call, slot, status);
	state->n_tokens = in->n_tokens;
	state->topk = in->topk;
	state->placement = in->placement;
	state->speed = in->speed;
	state->sent = true;
	return FERRY_OK;
}

/* The question that all ranks ask: loads, from one rank of each group. */
static void add_up(struct ferry_splitter *s, int32_t slot)
{
	const int32_t n_ranks = s->world->n_ranks;
	struct ferry_sharing *const sharing = &s->sharing;

	memset(sharing->fixed, 0, (size_t)n_ranks * sizeof(int64_t));
	memset(sharing->load, 0,
	       (size_t)sharing->in.n_experts * sizeof(int64_t));
	for (int32_t i = 0; i < s->n_sources; i++) {
		const int32_t *const words = split_words(
			split_head_of(s, slot, i * s->config.group_size));

		for (int32_t r = 0; r < n_ranks; r++)
			sharing->fixed[r] += words[r];
		for (int32_t e = 0; e < sharing->in.n_experts; e++)
			sharing->load[e] += words[n_ranks + e];
	}
}

/* What each replica serves of this rank's choices. */
static void serve(struct ferry_splitter *s, int32_t slot)
{
	const int32_t n_ranks = s->world->n_ranks;

	for (int32_t e = 0; e < s->sharing.in.n_experts; e++) {
		for (int32_t i = 0; i < s->n_sources; i++)
			s->source_count[i] = split_words(split_head_of(
				s, slot,
				i * s->config.group_size))[n_ranks + e];
		ferry_exact_serve(&s->sharing, s->slots[slot].placement, e,
		                  s->source_count, s->config.group_size,
		                  s->source, &s->runs);
	}
}

static void copy_rows(const struct ferry_split_slot *state,
                      const struct ferry_split_out *out)
{
	const size_t row = (size_t)state->topk * sizeof(int32_t);
	const char *from = (const char *)state->codes.code;
	char *to = (char *)out->slots;

	if (state->n_tokens > 0 && out->slots_stride == row) {
		memcpy(to, from, (size_t)state->n_tokens * row);
		return;
	}
	for (int32_t t = 0; t < state->n_tokens; t++) {
		memcpy(to, from, row);
		from += row;
		to += out->slots_stride;
	}
}

static void give(struct ferry_splitter *s, int32_t slot, int64_t max_load,
                 const struct ferry_split_out *out)
{
	ferry_exact_resolve(&s->slots[slot].codes, &s->runs);
	copy_rows(&s->slots[slot], out);
	if (out->rank_loads)
		memcpy(out->rank_loads, s->sharing.room.load,
		       (size_t)s->world->n_ranks * sizeof(*out->rank_loads));
	if (out->max_load)
		*out->max_load = max_load;
}

static enum ferry_status meet(struct ferry_splitter *s, int32_t slot)
{
	FERRY_TRY(ferry_split_region_recv(&s->region, split_round(s, slot)));
	ferry_sharing_map(&s->sharing, s->slots[slot].placement,
	                  s->slots[slot].speed);
	return ferry_split_check(s, slot);
}

/* After all checks. */
static enum ferry_status receive(struct ferry_splitter *s, int32_t slot,
                                 const struct ferry_split_out *out)
{
	static const char call[] = "split_recv";
	const uint64_t begin_ns = ferry_trace_begin(s->world->trace);
	const enum ferry_status status = meet(s, slot);

	if (status == FERRY_OK) {
		add_up(s, slot);
		const int64_t max_load = ferry_sharing_answer(&s->sharing);

		serve(s, slot);
		give(s, slot, max_load, out);
	}
	record(s, call, slot, begin_ns, 0);
	if (status != FERRY_OK)
		return fail(s, call, slot, status);
	s->slots[slot].n_splits++;
	s->slots[slot].sent = false;
	return FERRY_OK;
}

enum ferry_status ferry_split_send(struct ferry_splitter *splitter,
                                   int32_t slot,
                                   const struct ferry_split_in *in)
{
	static const char call[] = "split_send";
	struct ferry_split_in own;

	FERRY_TRY(enter(splitter, call, slot, false));
	FERRY_TRY(check_in(splitter, call, in, &own));
	return send(splitter, slot, &own);
}

enum ferry_status ferry_split_recv(struct ferry_splitter *splitter,
                                   int32_t slot,
                                   const struct ferry_split_out *out)
{
	static const char call[] = "split_recv";
	struct ferry_split_out own;

	FERRY_TRY(enter(splitter, call, slot, true));
	FERRY_TRY(check_out(splitter, call, splitter->slots[slot].n_tokens,
	                    splitter->slots[slot].topk, out, &own));
	return receive(splitter, slot, &own);
}

enum ferry_status ferry_split(struct ferry_splitter *splitter, int32_t slot,
                              const struct ferry_split_in *in,
                              const struct ferry_split_out *out)
{
	static const char call[] = "split";
	struct ferry_split_in own_in;
	struct ferry_split_out own_out;

	FERRY_TRY(enter(splitter, call, slot, false));
	FERRY_TRY(check_in(splitter, call, in, &own_in));
	FERRY_TRY(check_out(splitter, call, own_in.n_tokens, own_in.topk, out,
	                    &own_out));
	FERRY_TRY(send(splitter, slot, &own_in));
	return receive(splitter, slot, &own_out);
}
