/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule by which ranks agree on one failure, and its words. How verdicts
 * travel is in segment_break.c.
 */
#include "verdict.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Smaller counts more. */
enum verdict_class {
	CLASS_DEATH,
	CLASS_CUT,
	CLASS_CONTENT,
	CLASS_ABORT,
	CLASS_TIMEOUT,
	CLASS_ASKED,
	CLASS_NO_ROOT,
	CLASS_GOODBYE,
};

static enum verdict_class class_of(const struct ferry_verdict *v)
{
	switch (v->status) {
	case FERRY_OK:
		return CLASS_GOODBYE;
	case FERRY_PEER:
		return v->flags & FERRY_VERDICT_CUT ? CLASS_CUT : CLASS_DEATH;
	case FERRY_ABORTED:
		return CLASS_ABORT;
	case FERRY_TIMEOUT:
		if (v->root < 0)
			return CLASS_NO_ROOT;
		return v->flags & FERRY_VERDICT_ASKED ? CLASS_ASKED
		                                      : CLASS_TIMEOUT;
	default:
		return CLASS_CONTENT;
	}
}

static int order_i64(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int order_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Below 0: a counts more than b, which is of the same class. */
static int order_within(const struct ferry_verdict *a,
                        const struct ferry_verdict *b)
{
	int order = order_u64(a->epoch, b->epoch);

	if (!order)
		order = order_i64(a->phase, b->phase);
	if (!order)
		order = order_i64(a->slot, b->slot);
	if (!order)
		order = order_i64(a->root, b->root);
	return order ? order : order_i64(a->reporter, b->reporter);
}

/* All verdicts, as one rank knows them. */
struct known {
	const struct ferry_verdict *verdicts;
	const bool *here;
	int32_t n;
};

static bool tells_of_death(const struct known *k, int32_t i, int32_t r)
{
	const struct ferry_verdict *v = &k->verdicts[i];

	return k->here[i] && i != r && v->root == r &&
	       v->status == FERRY_PEER &&
	       !(v->flags & (FERRY_VERDICT_CLOSED | FERRY_VERDICT_CUT));
}

static bool is_called_dead(const struct known *k, int32_t r)
{
	for (int32_t i = 0; i < k->n; i++)
		if (tells_of_death(k, i, r))
			return true;
	return false;
}

/*
 * Did the reporter die while it told, so that others may not know its verdict?
 * Then it must not count here either. Somebody says so whom nobody calls dead:
 * that one's verdict is everywhere.
 */
static bool is_cut_short(const struct known *k, int32_t r)
{
	for (int32_t i = 0; i < k->n; i++)
		if (tells_of_death(k, i, r) && !is_called_dead(k, i))
			return true;
	return false;
}

/* The verdict that counts most, whatever the others say of its root. */
static int32_t best_of(const struct ferry_verdict *verdicts, const bool *here,
                       int32_t n)
{
	const struct known known = {verdicts, here, n};
	enum verdict_class best_class = CLASS_GOODBYE;
	int32_t best = -1;

	for (int32_t r = 0; r < n; r++) {
		if (!here[r] || is_cut_short(&known, r))
			continue;
		const enum verdict_class c = class_of(&verdicts[r]);

		if (c > best_class || c == CLASS_GOODBYE)
			continue;
		if (c == best_class &&
		    order_within(&verdicts[r], &verdicts[best]) > 0)
			continue;
		best_class = c;
		best = r;
	}
	return best;
}

static bool waits_for_somebody(const struct ferry_verdict *v)
{
	return v->status == FERRY_TIMEOUT && v->root >= 0;
}

int32_t ferry_verdict_choose(const struct ferry_verdict *verdicts,
                             const bool *here, int32_t n)
{
	const int32_t best = best_of(verdicts, here, n);
	int32_t at = best;

	if (best < 0 || !waits_for_somebody(&verdicts[best]))
		return best;
	for (int32_t step = 0; step < n; step++) {
		const int32_t root = verdicts[at].root;

		if (root >= n || !here[root] ||
		    !waits_for_somebody(&verdicts[root]))
			return at;
		at = root;
	}
	return best; /* they wait for each other */
}

__attribute__((format(printf, 3, 4))) static void
append(char *text, size_t bytes, const char *fmt, ...)
{
	const size_t n = strlen(text);
	va_list args;

	va_start(args, fmt);
	vsnprintf(text + n, bytes - n, fmt, args);
	va_end(args);
}

/* Both ends say the same. */
static void append_cut(const struct ferry_verdict *v, const char *why,
                       char *text, size_t bytes)
{
	const bool up = v->reporter < v->root;

	append(text, bytes,
	       "the connection between rank %" PRId32 " and rank %" PRId32
	       " broke%s%s",
	       up ? v->reporter : v->root, up ? v->root : v->reporter,
	       why ? ": " : "", why ? why : "");
}

static void append_cause(const struct ferry_verdict *v, const char *why,
                         char *text, size_t bytes)
{
	switch (v->status) {
	case FERRY_PEER:
		if (v->flags & FERRY_VERDICT_CUT) {
			append_cut(v, why, text, bytes);
			break;
		}
		append(text, bytes, "rank %" PRId32 " %s", v->root,
		       v->flags & FERRY_VERDICT_CLOSED ? "closed its segment"
		                                       : "died");
		break;
	case FERRY_ABORTED:
		append(text, bytes, "rank %" PRId32 " aborted the world",
		       v->root);
		break;
	case FERRY_TIMEOUT:
		if (v->root < 0)
			append(text, bytes,
			       "gave up waiting, and no rank is known to be "
			       "missing");
		else
			append(text, bytes,
			       "rank %" PRId32 " did not come in time",
			       v->root);
		break;
	default:
		append(text, bytes, "rank %" PRId32 ": %s", v->root,
		       ferry_status_text((enum ferry_status)v->status));
		if (v->token >= 0)
			append(text, bytes,
			       ": token %" PRId32 ", choice %" PRId32
			       ", value %" PRId64,
			       v->token, v->choice, v->value);
		if (why)
			append(text, bytes, ": %s", why);
	}
}

void ferry_verdict_text(const struct ferry_verdict *v, const char *why,
                        char *text, size_t bytes)
{
	text[0] = 0;
	if (v->phase != FERRY_PHASE_NONE)
		append(text, bytes,
		       "%s: ", ferry_phase_name((enum ferry_phase)v->phase));
	if (v->slot >= 0)
		append(text, bytes, "slot %" PRId32 ", dispatch %" PRIu64 ": ",
		       v->slot, v->epoch);
	append_cause(v, why, text, bytes);
	append(text, bytes, " (noticed by rank %" PRId32 ")", v->reporter);
}

void ferry_verdict_record(const struct ferry_verdict *v,
                          struct ferry_error *error)
{
	error->size = sizeof(*error);
	error->status = (enum ferry_status)v->status;
	error->root_rank = v->root;
	error->phase = (enum ferry_phase)v->phase;
	error->slot = v->slot;
	error->epoch = v->epoch;
}
