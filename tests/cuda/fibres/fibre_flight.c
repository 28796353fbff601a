/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies under way, as unkind as the bulk copy engine may be. A copy reads its
 * source at a random time after it was asked for and writes at a later one, all
 * of them in random order; until then its destination is garbage. Of shared
 * memory the engine sees what was there at the last fence of the block, and a
 * thread must not let it load what it has stored since the thread's own fence.
 */
#include "fibres.h"

#include <stdlib.h>
#include <string.h>

#include "fibre_inner.h"

enum {
	GARBAGE = 0xa5,
	/* Turns of a warp that a copy may wait for, before each of its steps;
	 * a slow one longer. */
	TURNS = 4,
	SLOW_TURNS = 64,
	LINE = 16,
	LINES_LOG = 18, /* of global memory whose last store is known */
};

/* In shared memory, where CUDA has an mbarrier. */
struct mbarrier {
	uint32_t round;  /* its low bit is the parity of the phase */
	int16_t units;   /* of 16 bytes, to come */
	uint8_t n, left; /* arrivals of a phase, and those to come */
};

struct flight {
	const struct fibre_traffic *owner; /* NULL: it has ended */
	struct fibre_space *space;
	const void *grid; /* of a store whose owner has ended */
	unsigned char *to;
	const unsigned char *from;
	uint32_t bytes, group;
	struct mbarrier *barrier; /* of a load */
	unsigned char *data;      /* once the source has been read */
	uint64_t due;             /* draw of its next step */
};

/* When the engine last stored to a line. */
struct landing {
	uintptr_t line;
	uint64_t when;
	const struct fibre_traffic *owner;
};

static struct flight *flights;
static size_t n_flights, room_flights;
static struct landing landings[1 << LINES_LOG];
static uint64_t now = 1;
static uint64_t n_steps, n_steps_turn = 1; /* draws of warps; a turn of all */

void flights_space_open(struct fibre_space *s, size_t bytes)
{
	/* What a kernel finds there is what others have left. */
	*s = (struct fibre_space){
		.shared = fibres_taken(bytes, 0x5e),
		.seen = fibres_taken(bytes, GARBAGE),
		.bytes = bytes,
	};
}

void flights_space_close(struct fibre_space *s)
{
	if (s->n_flights)
		fibres_give_up("a block ends with bulk copies under way");
	free(s->shared);
	free(s->seen);
}

void flights_see(struct fibre_space *s)
{
	if (!s->fenced)
		return;
	memcpy(s->seen, s->shared, s->bytes);
	s->fenced = s->new_barrier = false;
}

void flights_fence(struct fibre_traffic *t)
{
	t->fenced = now++;
}

void fibre_fence_global(void)
{
	flights_fence(fibres_traffic());
}

void fibre_fence_shared(void)
{
	fibres_traffic()->space->fenced = true;
}

/* Where the engine sees what is at p of shared memory; else p. */
static unsigned char *seen_at(const struct fibre_space *s, const void *p)
{
	const uintptr_t at = (uintptr_t)p - (uintptr_t)s->shared;

	return at < s->bytes ? s->seen + at : (unsigned char *)(uintptr_t)p;
}

static struct landing *landing_of(uintptr_t line)
{
	return &landings[line * 0x9e3779b97f4a7c15u >> (64 - LINES_LOG)];
}

static void check_landings(const struct flight *f)
{
	const uintptr_t from = (uintptr_t)f->from;

	for (uintptr_t i = from / LINE; i <= (from + f->bytes - 1) / LINE;
	     i++) {
		const struct landing *l = landing_of(i);

		if (l->line == i && l->when > f->owner->fenced &&
		    l->owner != f->owner)
			fibres_give_up("a bulk load of what was stored since "
			               "its thread's last fence");
	}
}

static void note_landing(const struct flight *f)
{
	const uintptr_t to = (uintptr_t)f->to;

	now++;
	for (uintptr_t i = to / LINE; i <= (to + f->bytes - 1) / LINE; i++)
		*landing_of(i) = (struct landing){i, now, f->owner};
}

static uint64_t due(void)
{
	const uint64_t d = fibres_draw();
	const uint64_t turns = d % 4 == 0    ? 0
	                       : d % 32 == 1 ? SLOW_TURNS
	                                     : TURNS;

	return n_steps + (d >> 8) % (turns * n_steps_turn + 1);
}

static void take(struct flight *f)
{
	const unsigned char *from = f->from;

	f->data = fibres_taken(f->bytes, 0);
	if (f->barrier)
		check_landings(f);
	else
		from = seen_at(f->space, from);
	memcpy(f->data, from, f->bytes);
	f->due = due();
}

static void end_phase(struct mbarrier *b)
{
	if (b->left || b->units)
		return;
	b->round++;
	b->left = b->n;
}

/* The last flight has its place then. */
static void land(struct flight *f)
{
	if (!f->data)
		take(f);
	memcpy(f->to, f->data, f->bytes);
	if (f->barrier) {
		memcpy(seen_at(f->space, f->to), f->data, f->bytes);
		f->barrier->units -= (int16_t)(f->bytes / 16);
		end_phase(f->barrier);
	} else {
		note_landing(f);
	}
	free(f->data);
	if (f->owner)
		f->space->n_flights--;
	*f = flights[--n_flights];
}

void flights_step(size_t n_warps)
{
	n_steps++;
	n_steps_turn = n_warps;
	if (!n_flights)
		return;
	struct flight *f = &flights[fibres_draw() % n_flights];

	if (f->due > n_steps)
		return;
	if (f->data) {
		land(f);
		return;
	}
	take(f);
}

static void begin(struct flight f)
{
	if (((uintptr_t)f.to | (uintptr_t)f.from | f.bytes) % 16)
		fibres_give_up("a copy of what is no multiple of 16");
	if (n_flights == room_flights) {
		room_flights = 2 * room_flights + 64;
		flights = realloc(flights, room_flights * sizeof(*flights));
		if (!flights)
			fibres_give_up("no memory");
	}
	f.space->n_flights++;
	f.due = due();
	memset(f.to, GARBAGE, f.bytes);
	flights[n_flights++] = f;
}

void fibre_bulk_load(void *shared, const void *global, uint32_t bytes,
                     uint64_t *mbarrier)
{
	struct fibre_traffic *t = fibres_traffic();

	flights_see(t->space);
	if (t->space->new_barrier)
		fibres_give_up(
			"a bulk load by a barrier that no fence follows");
	begin((struct flight){
		.owner = t,
		.space = t->space,
		.to = shared,
		.from = global,
		.bytes = bytes,
		.barrier = (struct mbarrier *)mbarrier,
	});
	memset(seen_at(t->space, shared), GARBAGE, bytes);
}

void fibre_bulk_store(void *to, const void *from, uint32_t bytes)
{
	struct fibre_traffic *t = fibres_traffic();

	flights_see(t->space);
	begin((struct flight){
		.owner = t,
		.space = t->space,
		.to = to,
		.from = from,
		.bytes = bytes,
		.group = t->group,
	});
}

void fibre_bulk_commit(void)
{
	fibres_traffic()->group++;
}

void fibre_bulk_wait(uint32_t n_groups, bool read)
{
	const struct fibre_traffic *t = fibres_traffic();

	fibre_pause(2);
	for (size_t i = n_flights; i-- > 0;) {
		struct flight *f = &flights[i];

		if (f->owner != t || f->barrier ||
		    f->group + n_groups >= t->group)
			continue;
		if (!read)
			land(f);
		else if (!f->data)
			take(f);
	}
}

void flights_leave(const struct fibre_traffic *t, const void *grid)
{
	free(t->loads); /* that it has not waited for */
	for (size_t i = 0; i < n_flights; i++) {
		struct flight *f = &flights[i];

		if (f->owner != t)
			continue;
		if (f->barrier || !f->data)
			fibres_give_up("a thread ends with bulk copies that "
			               "use shared memory");
		f->space->n_flights--;
		f->owner = NULL;
		f->space = NULL;
		f->grid = grid;
	}
}

void flights_end(const void *grid)
{
	for (size_t i = n_flights; i-- > 0;)
		if (!flights[i].owner && flights[i].grid == grid)
			land(&flights[i]);
}

/* The oldest ones, until so many are left. */
static void load_until(struct fibre_traffic *t, uint32_t n_left)
{
	struct copies *c = t->loads;
	const uint32_t n = c->n - n_left;

	for (uint32_t i = 0; i < n; i++)
		memcpy(c->of[i].to, c->of[i].from, c->of[i].bytes);
	memmove(c->of, c->of + n, n_left * sizeof(*c->of));
	c->n = n_left;
	if (n_left)
		return;
	free(c);
	t->loads = NULL;
}

void fibre_async_load(void *shared, const void *global, uint32_t bytes)
{
	struct fibre_traffic *t = fibres_traffic();

	if (((uintptr_t)shared | (uintptr_t)global | bytes) % 16)
		fibres_give_up("a copy of what is no multiple of 16");
	if (!t->loads)
		t->loads = fibres_taken(sizeof(*t->loads), 0);
	else if (t->loads->n == COPIES)
		load_until(t, COPIES - 1);
	t->loads->of[t->loads->n++] = (struct copy){shared, global, bytes};
	if (fibres_draw() % 2)
		load_until(t, 0);
}

void fibre_async_wait(void)
{
	struct fibre_traffic *t = fibres_traffic();

	if (t->loads)
		load_until(t, 0);
}

void fibre_mbarrier_init(uint64_t *mbarrier, uint32_t n_arrivals)
{
	struct fibre_space *s = fibres_traffic()->space;
	const uint8_t n = (uint8_t)n_arrivals;

	*(struct mbarrier *)mbarrier = (struct mbarrier){0, 0, n, n};
	flights_see(s);
	s->new_barrier = true;
}

void fibre_mbarrier_add(uint64_t *mbarrier, uint32_t bytes, bool arrives)
{
	struct mbarrier *b = (struct mbarrier *)mbarrier;

	b->units += (int16_t)(bytes / 16);
	if (!arrives)
		return;
	if (!b->left)
		fibres_give_up("more arrivals than a barrier has");
	b->left--;
	end_phase(b);
}

void fibre_mbarrier_wait(uint64_t *mbarrier, uint32_t parity)
{
	const struct mbarrier *b = (struct mbarrier *)mbarrier;

	while ((b->round & 1) == parity)
		fibres_await(&b->round);
}
