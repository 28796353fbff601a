/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric of the model: the source of a put is read at any time, it arrives
 * at any time after, in any order, and then whoever raised the counter looks
 * whether somebody sleeps.
 */
#include "model_state.h"

/*
 * R4: the doorbell and the wake in one. Apart they could only wake somebody
 * once more who has begun to sleep in between.
 */
static void ring_at(uint8_t *sleep)
{
	if (*sleep == ASLEEP)
		*sleep = AWAKE;
	else if (*sleep != AWAKE)
		*sleep |= CHANGED;
}

/* A step of a ringer at `to`; where he then is, N_RINGERS: done. */
static enum ringer ring(struct state *n, enum ringer ringer, int to)
{
	const bool asleep = n->asleep[to];

	switch (ringer) {
	case RAISED:
		return asleep ? SEEN : N_RINGERS;
	case SEEN:
		n->asleep[to] = 0;
		return asleep ? SWAPPED : N_RINGERS;
	default:
		for (int slot = 0; slot < SLOTS; slot++)
			ring_at(&n->sleep[slot][to]);
		return N_RINGERS;
	}
}

static void run_ringers(struct at *at, int to)
{
	for (int i = 0; i < N_RINGERS; i++) {
		struct state n = *at->s;

		if (!n.ringers[to][i])
			continue;
		n.ringers[to][i]--;
		const enum ringer next = ring(&n, (enum ringer)i, to);

		if (next != N_RINGERS)
			n.ringers[to][next]++;
		emit(at, &n, A_RING, to, i, (int)next);
	}
}

/* A counter was raised: somebody will have to look who sleeps. */
static void add_ringer(const struct at *at, struct state *n, int to, int stage)
{
	if (!sleeps(at->m, to) || stage == PEEKED || gone(at->m, n, to))
		return;
	n->ringers[to][at->m->without & WITHOUT_LATE_ASLEEP ? SEEN : RAISED]++;
}

/* A put's stage as the name of its step has it. */
static int told(int before, int after)
{
	return (after & STAGE_MASK) == PEEKED ? NO_PUT : before & STAGE_MASK;
}

/* Wrongly looks at asleep before raising; true: it saw nobody. */
static bool peeks(const struct at *at, const struct state *n, int to, int stage)
{
	return sleeps(at->m, to) && (at->m->without & WITHOUT_LATE_ASLEEP) &&
	       stage == READ && !n->asleep[to];
}

static void arrive(const struct at *at, struct state *n, int slot, int epoch,
                   int kind, int to, int from)
{
	const int half = half_of(at->m, epoch);
	uint8_t *const put = &n->put[slot][epoch][kind][to][from];
	const bool is_far = far(at->m, to, from);
	const int whose = kind == HOST_PUT ? first_of(from) : from;
	uint8_t *const cell = kind == TABLE_PUT
	                              ? &n->table[slot][half][to][from]
	                      : kind == ROW_PUT ? &n->row[slot][half][to][from]
	                                        : &n->back[slot][to][whose];

	if ((*put & STAGE_MASK) == POSTED) {
		*put = (uint8_t)(READ | source_of(n, slot, half, kind, from)
		                                << TAG_SHIFT);
		return;
	}
	if (peeks(at, n, to, *put & STAGE_MASK)) {
		*put = (uint8_t)((*put & ~STAGE_MASK) | PEEKED);
		return;
	}
	if (kind == ROW_PUT && is_far) {
		land(at->m, n, slot, epoch, to, from);
		return;
	}
	if (finished(at->m, n, slot, to)) {
		*put = NO_PUT; /* nobody reads it */
		return;
	}
	if (kind != BACK_PUT || !is_far)
		*cell = *put >> TAG_SHIFT;
	n->count[slot][epoch % at->m->n_keys][kind][to]
		[kind == HOST_PUT ? 0 : from]++;
	add_ringer(at, n, to, *put & STAGE_MASK);
	*put = NO_PUT;
}

static void run_put(struct at *at, int slot, int epoch, int kind, int to,
                    int from)
{
	const int put = at->s->put[slot][epoch][kind][to][from];

	if (put == NO_PUT)
		return;
	struct state n = *at->s;

	arrive(at, &n, slot, epoch, kind, to, from);
	emit(at, &n, A_PUT, slot << 4 | kind, epoch << 4 | from << 2 | to,
	     told(put, n.put[slot][epoch][kind][to][from]));
}

static void run_verdict(struct at *at, int to, int from)
{
	const int put = at->s->verdict[to][from];

	if (put == NO_PUT)
		return;
	struct state n = *at->s;

	if (peeks(at, &n, to, put)) {
		n.verdict[to][from] = PEEKED;
	} else {
		n.poison[to] = 1;
		n.verdict[to][from] = NO_PUT;
		add_ringer(at, &n, to, put);
	}
	emit(at, &n, A_VERDICT, to, from, told(put, n.verdict[to][from]));
}

void run_fabric(struct at *at)
{
	const int n = at->m->n_ranks;

	for (int slot = 0; slot < at->m->n_slots; slot++)
		for (int e = 0; e < at->m->n_epochs; e++)
			for (int k = 0; k < N_KINDS; k++)
				for (int to = 0; to < n; to++)
					for (int from = 0; from < n; from++)
						run_put(at, slot, e, k, to,
						        from);
	for (int to = 0; to < n; to++) {
		for (int from = 0; from < n; from++)
			run_verdict(at, to, from);
		run_ringers(at, to);
	}
}
