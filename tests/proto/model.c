/* SPDX-License-Identifier: Apache-2.0 */
/* The model for the explorer: what is looked at in a state, names of steps. */
#include "model.h"

#include <stdio.h>
#include <string.h>

#include "model_state.h"

void emit(struct at *at, const struct state *next, enum name what, int a, int b,
          int c)
{
	explore_emit(at->explore, (const uint8_t *)next,
	             (uint64_t)what | (uint64_t)a << 8 | (uint64_t)b << 16 |
	                     (uint64_t)c << 24);
	if (what != A_GIVE_UP)
		at->n_steps++;
}

/* Is a rank through with all its slots? */
bool gone(const struct model *m, const struct state *n, int rank)
{
	for (int slot = 0; slot < m->n_slots; slot++)
		if (n->epoch[slot][rank] < m->n_epochs)
			return false;
	return true;
}

void forget_ringers(const struct model *m, struct state *n, int rank)
{
	if (!gone(m, n, rank))
		return;
	n->asleep[rank] = 0;
	memset(n->ringers[rank], 0, sizeof(n->ringers[rank]));
}

static bool all_finished(const struct at *at)
{
	for (int slot = 0; slot < at->m->n_slots; slot++)
		for (int r = 0; r < at->m->n_ranks; r++)
			if (!finished(at->m, at->s, slot, r))
				return false;
	return true;
}

static const char *expand(const void *model, const uint8_t *state,
                          struct explore *explore)
{
	struct state s;
	struct at at = {.m = model, .s = &s, .explore = explore};

	memcpy(&s, state, sizeof(s));
	if (run_first_local(&at))
		return at.wrong;
	run_waits(&at);
	if (at.wrong)
		return at.wrong;
	run_fabric(&at);
	/* Whoever goes on after giving up leaves others behind. */
	if (!at.n_steps && !all_finished(&at) &&
	    !(at.m->without & WITHOUT_STOP))
		return "a rank waits for ever";
	return NULL;
}

struct explore_result model_check(const struct model *model,
                                  uint64_t max_states)
{
	static const struct state first;

	return explore(model, expand, (const uint8_t *)&first, sizeof(first),
	               max_states);
}

static const char *const steps[] = {
	[SEND] = "sends",
	[TABLES] = "has all tables",
	[ROWS] = "has all rows",
	[SENT] = "has sent all",
	[BACK] = "sends back",
	[BACKS] = "has all that comes back",
	[BACK_SENT] = "has sent all back",
};
static const char *const kinds[] = {"table", "row", "row back", "sum"};
static const char *const sleeps_text[] = {
	"wakes",
	"notes the doorbell, sets asleep",
	"looks again",
	"sleeps",
};
static const char *const puts_text[] = {
	"finds nobody asleep",
	"source is read",
	"arrives",
	"arrives and rings nobody",
};

void model_step_text(uint64_t name, char *text, size_t bytes)
{
	const int a = name >> 8 & 255, b = name >> 16 & 255;
	const int c = name >> 24 & 255;

	switch ((enum name)(name & 255)) {
	case A_SEND:
		snprintf(text, bytes, "slot %d rank %d: sends dispatch %d", a,
		         b, c);
		break;
	case A_STEP:
		snprintf(text, bytes, "slot %d rank %d: %s", a, b, steps[c]);
		break;
	case A_BREAK:
		snprintf(text, bytes, "rank %d: stops, it was told", a);
		break;
	case A_GIVE_UP:
		snprintf(text, bytes, "slot %d rank %d: gives up dispatch %d",
		         a, b, c);
		break;
	case A_SLEEP:
		snprintf(text, bytes, "slot %d rank %d: %s", a, b,
		         sleeps_text[c]);
		break;
	case A_PUT:
		snprintf(text, bytes, "slot %d: %s %d, %d to %d: %s", a >> 4,
		         kinds[a & 15], b >> 4, b >> 2 & 3, b & 3,
		         puts_text[c]);
		break;
	case A_VERDICT:
		snprintf(text, bytes, "verdict, %d to %d: %s", b, a,
		         puts_text[c]);
		break;
	case A_RING:
		snprintf(text, bytes, "at rank %d: R%d", a, b + 2);
		break;
	}
}
