/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of an operation: arguments, slot states, and what happens before
 * and after an engine does the work. A slot goes through
 *
 *	dispatch_send, dispatch_recv, (combine_send, combine_recv)
 *
 * and again; any other order is refused before anything is touched.
 */
#include <string.h>

#include "../core/placement_inner.h"
#include "../cpu/kernels.h"
#include "../trace/events.h"
#include "moe_check.h"

static const char *expected_call(enum ferry_slot_state state)
{
	switch (state) {
	case FERRY_SLOT_IDLE:
		return "dispatch_send";
	case FERRY_SLOT_DISPATCH_SENT:
		return "dispatch_recv";
	case FERRY_SLOT_DISPATCHED:
		return "combine_send or dispatch_send";
	case FERRY_SLOT_COMBINE_SENT:
		return "combine_recv";
	}
	return "?";
}

/* Is a phase legal where the slot is? */
static bool is_next(enum ferry_slot_state state, enum ferry_phase phase)
{
	switch (phase) {
	case FERRY_PHASE_DISPATCH_SEND:
		return state == FERRY_SLOT_IDLE ||
		       state == FERRY_SLOT_DISPATCHED;
	case FERRY_PHASE_DISPATCH_RECV:
		return state == FERRY_SLOT_DISPATCH_SENT;
	case FERRY_PHASE_COMBINE_SEND:
		return state == FERRY_SLOT_DISPATCHED;
	case FERRY_PHASE_COMBINE_RECV:
		return state == FERRY_SLOT_COMBINE_SENT;
	case FERRY_PHASE_NONE:
	case FERRY_PHASE_OPEN:
		break;
	}
	return false;
}

static enum ferry_status check_state(const struct ferry_moe *moe,
                                     const char *call, int32_t slot,
                                     enum ferry_phase phase)
{
	const enum ferry_slot_state state = moe->slots[slot].state;

	if (is_next(state, phase))
		return FERRY_OK;
	return ferry_fail(&moe->world->ctx, FERRY_STATE,
	                  "%s: slot %d expects %s", call, slot,
	                  expected_call(state));
}

/* What an engine is about to do, or has done. */
struct run {
	struct ferry_moe *moe;
	const char *call;
	int32_t slot;
	uint64_t begin_ns; /* 0: nobody records */
	uint32_t fp;
};

static struct run begin_run(struct ferry_moe *moe, const char *call,
                            int32_t slot)
{
	return (struct run){
		.moe = moe,
		.call = call,
		.slot = slot,
		.begin_ns = ferry_trace_begin(moe->world->trace),
		.fp = ferry_fp_enter(),
	};
}

/* Nothing of the slot's operation reads its placement's weights any more. */
static void leave_placement(struct ferry_slot *slot)
{
	ferry_usage_leave(slot->usage);
	slot->usage = NULL;
}

/*
 * INVAL was refused before that phase did anything, so that the slot is where
 * it was; all other failures have ended the channel.
 */
static void end_run(const struct run *run, enum ferry_status status,
                    enum ferry_slot_state next)
{
	struct ferry_slot *slot = &run->moe->slots[run->slot];
	struct ferry_trace_event event = {
		.name = run->call,
		.category = "moe",
		.begin_ns = run->begin_ns,
		.epoch = slot->n_dispatches - 1,
		.slot = run->slot,
		.peer = -1,
	};

	ferry_fp_leave(run->fp);
	if (status == FERRY_OK)
		slot->state = next;
	if (slot->state == FERRY_SLOT_COMBINE_SENT ||
	    slot->state == FERRY_SLOT_IDLE)
		leave_placement(slot);
	ferry_trace_end(run->moe->world->trace, &event);
}

/* The slot knows its new operation from here on. */
static void start_operation(const struct ferry_moe *moe, int32_t index,
                            const struct ferry_dispatch_in *in)
{
	struct ferry_slot *const slot = &moe->slots[index];

	leave_placement(slot);
	slot->usage = ferry_placement_enter(in->placement);
	slot->n_dispatches++;
	slot->hidden = in->hidden;
	slot->topk = in->topk;
	slot->n_tokens = in->n_tokens;
	slot->state = FERRY_SLOT_DISPATCH_SENT;
}

/* Slot, failure, order: what every call looks at first. */
static enum ferry_status enter(struct ferry_moe *moe, const char *call,
                               int32_t slot, enum ferry_phase phase,
                               const struct CUstream_st *stream)
{
	FERRY_TRY(ferry_check_slot(moe, call, slot, stream));
	FERRY_TRY(ferry_segment_check(moe->segment));
	return check_state(moe, call, slot, phase);
}

enum ferry_status ferry_dispatch_send(struct ferry_moe *moe, int32_t slot,
                                      const struct ferry_dispatch_in *in,
                                      struct CUstream_st *stream)
{
	static const char call[] = "dispatch_send";
	struct ferry_dispatch_in own;

	FERRY_TRY(enter(moe, call, slot, FERRY_PHASE_DISPATCH_SEND, stream));
	FERRY_TRY(ferry_check_dispatch_in(moe, call, in, &own));
	start_operation(moe, slot, &own);
	const struct run run = begin_run(moe, call, slot);
	const enum ferry_status status =
		moe->ops->dispatch_send(moe, slot, &own, stream);

	end_run(&run, status, FERRY_SLOT_DISPATCH_SENT);
	return status;
}

/* As enter, for calls with outputs that a broken channel zeroes. */
static enum ferry_status enter_out(struct ferry_moe *moe, const char *call,
                                   int32_t slot, enum ferry_phase phase,
                                   const struct ferry_dispatch_out *out,
                                   struct CUstream_st *stream)
{
	const enum ferry_status status = ferry_segment_check(moe->segment);

	if (status) {
		moe->ops->clear(moe, out, stream);
		return status;
	}
	return check_state(moe, call, slot, phase);
}

enum ferry_status ferry_dispatch_recv(struct ferry_moe *moe, int32_t slot,
                                      const struct ferry_dispatch_out *out,
                                      struct CUstream_st *stream)
{
	static const char call[] = "dispatch_recv";
	struct ferry_dispatch_out own;

	FERRY_TRY(ferry_check_slot(moe, call, slot, stream));
	FERRY_TRY(ferry_take_dispatch_out(call, out, &own));
	FERRY_TRY(enter_out(moe, call, slot, FERRY_PHASE_DISPATCH_RECV, &own,
	                    stream));
	FERRY_TRY(ferry_check_dispatch_out(moe, call, moe->slots[slot].hidden,
	                                   &own));
	const struct run run = begin_run(moe, call, slot);
	const enum ferry_status status =
		moe->ops->dispatch_recv(moe, slot, &own, stream);

	end_run(&run, status, FERRY_SLOT_DISPATCHED);
	if (status)
		moe->ops->clear(moe, &own, stream);
	return status;
}

enum ferry_status ferry_dispatch(struct ferry_moe *moe, int32_t slot,
                                 const struct ferry_dispatch_in *in,
                                 const struct ferry_dispatch_out *out,
                                 struct CUstream_st *stream)
{
	static const char call[] = "dispatch";
	struct ferry_dispatch_in own_in;
	struct ferry_dispatch_out own_out;

	FERRY_TRY(ferry_check_slot(moe, call, slot, stream));
	FERRY_TRY(ferry_take_dispatch_out(call, out, &own_out));
	FERRY_TRY(enter_out(moe, call, slot, FERRY_PHASE_DISPATCH_SEND,
	                    &own_out, stream));
	FERRY_TRY(ferry_check_dispatch_in(moe, call, in, &own_in));
	FERRY_TRY(ferry_check_dispatch_out(moe, call, own_in.hidden, &own_out));
	start_operation(moe, slot, &own_in);
	const struct run run = begin_run(moe, call, slot);
	const enum ferry_status status =
		moe->ops->dispatch(moe, slot, &own_in, &own_out, stream);

	end_run(&run, status, FERRY_SLOT_DISPATCHED);
	if (status)
		moe->ops->clear(moe, &own_out, stream);
	return status;
}

enum ferry_status ferry_combine_send(struct ferry_moe *moe, int32_t slot,
                                     const struct ferry_combine_in *in,
                                     struct CUstream_st *stream)
{
	static const char call[] = "combine_send";
	struct ferry_combine_in own;

	FERRY_TRY(enter(moe, call, slot, FERRY_PHASE_COMBINE_SEND, stream));
	FERRY_TRY(ferry_check_combine_in(moe, call, moe->slots[slot].hidden, in,
	                                 &own));
	const struct run run = begin_run(moe, call, slot);
	const enum ferry_status status =
		moe->ops->combine_send(moe, slot, &own, stream);

	end_run(&run, status, FERRY_SLOT_COMBINE_SENT);
	return status;
}

enum ferry_status ferry_combine_recv(struct ferry_moe *moe, int32_t slot,
                                     const struct ferry_combine_out *out,
                                     struct CUstream_st *stream)
{
	static const char call[] = "combine_recv";
	struct ferry_combine_out own;

	FERRY_TRY(enter(moe, call, slot, FERRY_PHASE_COMBINE_RECV, stream));
	FERRY_TRY(ferry_check_combine_out(moe, call, &moe->slots[slot], out,
	                                  &own));
	const struct run run = begin_run(moe, call, slot);
	const enum ferry_status status =
		moe->ops->combine_recv(moe, slot, &own, stream);

	end_run(&run, status, FERRY_SLOT_IDLE);
	return status;
}

enum ferry_status ferry_combine(struct ferry_moe *moe, int32_t slot,
                                const struct ferry_combine_in *in,
                                const struct ferry_combine_out *out,
                                struct CUstream_st *stream)
{
	static const char call[] = "combine";
	struct ferry_combine_in own_in;
	struct ferry_combine_out own_out;

	FERRY_TRY(enter(moe, call, slot, FERRY_PHASE_COMBINE_SEND, stream));
	FERRY_TRY(ferry_check_combine_in(moe, call, moe->slots[slot].hidden, in,
	                                 &own_in));
	FERRY_TRY(ferry_check_combine_out(moe, call, &moe->slots[slot], out,
	                                  &own_out));
	const struct run run = begin_run(moe, call, slot);
	const enum ferry_status status =
		moe->ops->combine(moe, slot, &own_in, &own_out, stream);

	end_run(&run, status, FERRY_SLOT_IDLE);
	return status;
}
