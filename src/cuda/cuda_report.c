/* SPDX-License-Identifier: Apache-2.0 */
/* What a device has found, as a verdict and in words. */
#include "cuda_engine.h"

#include <inttypes.h>
#include <stdio.h>

/* Numbers of an operation as the host counts them. */
static void place(const struct ferry_moe *moe,
                  const struct ferry_cuda_record *r, struct ferry_blame *blame)
{
	struct ferry_verdict *v = &blame->verdict;

	v->reporter = moe->shape.rank;
	v->phase = r->phase;
	v->slot = r->slot;
	v->epoch = r->epoch - moe->first_epoch;
}

/* "dispatch_recv: slot 0, dispatch 17: " */
static void name_place(const struct ferry_moe *moe,
                       const struct ferry_cuda_record *r, char text[96])
{
	snprintf(text, 96, "%s: slot %d, dispatch %" PRIu64 ": ",
	         ferry_phase_name((enum ferry_phase)r->phase), r->slot,
	         r->epoch - moe->first_epoch);
}

static void say_waited(const struct ferry_moe *moe,
                       const struct ferry_cuda_record *r,
                       struct ferry_blame *blame)
{
	char where[96];

	name_place(moe, r, where);
	blame->verdict = (struct ferry_verdict){
		.status = FERRY_TIMEOUT,
		.root = r->root,
		.token = -1,
		.choice = -1,
	};
	snprintf(blame->text, sizeof(blame->text),
	         "%srank %d did not come within %" PRId64 " ms", where, r->root,
	         moe->world->timeout_ms);
}

/* Others have failed, or nobody knows. */
static void say_asked(const struct ferry_cuda_record *r,
                      struct ferry_blame *blame)
{
	blame->verdict = (struct ferry_verdict){
		.status = FERRY_TIMEOUT,
		.root = r->root,
		.token = -1,
		.choice = -1,
		.flags = FERRY_VERDICT_ASKED,
	};
	blame->text[0] = 0;
}

static void say_order(const struct ferry_moe *moe,
                      const struct ferry_cuda_record *r,
                      struct ferry_blame *blame)
{
	char where[96];

	name_place(moe, r, where);
	blame->verdict = (struct ferry_verdict){
		.status = FERRY_STATE,
		.root = r->root,
		.token = -1,
		.choice = -1,
	};
	snprintf(blame->text, sizeof(blame->text),
	         "%sthe GPU of rank %d found the slot in another state: are "
	         "graphs replayed out of order?",
	         where, r->root);
}

/* By the rank that looked: nobody else is known to be at fault. */
static void say_odd(const struct ferry_moe *moe,
                    const struct ferry_cuda_record *r,
                    struct ferry_blame *blame)
{
	char where[96];

	name_place(moe, r, where);
	blame->verdict = (struct ferry_verdict){
		.status = FERRY_INTERNAL,
		.root = r->root,
		.token = -1,
		.choice = -1,
	};
	snprintf(blame->text, sizeof(blame->text),
	         "%sthe GPU of rank %d found something wrong with the tables, "
	         "and not what",
	         where, r->root);
}

static void say_mark(const struct ferry_moe *moe,
                     const struct ferry_cuda_record *r,
                     struct ferry_blame *blame)
{
	const struct ferry_table mark = {
		.mark_status = r->status,
		.mark_token = r->detail == FERRY_CUDA_BAD_COUNT ? -1 : r->token,
		.mark_choice = r->choice,
		.mark_limit = r->limit,
		.mark_value = r->value,
	};

	ferry_blame_mark(blame, &moe->shape, r->root, &mark);
}

static void say(const struct ferry_moe *moe, const struct ferry_cuda_record *r,
                struct ferry_blame *blame)
{
	const int32_t ranks[2] = {r->root, r->limit};
	const int64_t values[2] = {r->value, r->other};
	const uint64_t hashes[2] = {(uint64_t)r->value, (uint64_t)r->other};

	switch ((enum ferry_cuda_detail)r->detail) {
	case FERRY_CUDA_BAD_ID:
	case FERRY_CUDA_BAD_COUNT:
		say_mark(moe, r, blame);
		break;
	case FERRY_CUDA_NO_ROOM:
		ferry_blame_room(blame, &moe->shape, r->root, r->value);
		break;
	case FERRY_CUDA_BAD_TABLE:
		ferry_blame_form(blame, r->root,
		                 (enum ferry_table_field)r->choice, r->value);
		break;
	case FERRY_CUDA_BAD_HIDDEN:
		ferry_blame_unequal(blame, "hidden", ranks, values);
		break;
	case FERRY_CUDA_BAD_PLACEMENT:
		ferry_blame_placement(blame, ranks, hashes);
		break;
	case FERRY_CUDA_BAD_MATE:
		ferry_blame_mate(blame, ranks);
		break;
	case FERRY_CUDA_BAD_MATE_COUNT:
		ferry_blame_unequal(blame, "n_tokens of one group", ranks,
		                    values);
		break;
	case FERRY_CUDA_BAD_MATE_TOPK:
		ferry_blame_unequal(blame, "topk of one group", ranks, values);
		break;
	case FERRY_CUDA_BAD_ORDER:
		say_order(moe, r, blame);
		break;
	case FERRY_CUDA_ODD_TABLES:
		say_odd(moe, r, blame);
		break;
	case FERRY_CUDA_WAITED:
		say_waited(moe, r, blame);
		break;
	case FERRY_CUDA_STOPPED:
	case FERRY_CUDA_ASKED:
		say_asked(r, blame);
		break;
	}
}

void ferry_cuda_report(const struct ferry_moe *moe,
                       const struct ferry_cuda_record *record,
                       struct ferry_blame *blame)
{
	say_asked(record, blame); /* of a detail that nobody knows */
	say(moe, record, blame);
	place(moe, record, blame);
}
