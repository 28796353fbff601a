/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of fibres.h. It takes a grid from each stream, draws a warp
 * among those of all grids, and lets each of its lanes run until it waits. Some
 * blocks are slow for a while: a warp of theirs runs one time in 200 that it is
 * drawn. A grid that was launched early may start at any time from when each
 * block of the one in front has said so, or ended.
 */
#include "fibres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fibre_inner.h"
#include "fibre_switch.h"

enum {
	LANES = 32,
	MEETINGS = 16,     /* masks of a warp */
	FIXED = 2,         /* shared variables of a kernel */
	PICK_NS = 200,     /* a drawn warp's share of the clock */
	IDLE_MAX = 5000000 /* draws in turn in which nobody could run */
};

struct meeting {
	uint32_t mask, arrived, round;
	uint64_t value[2][LANES]; /* of even and of odd rounds */
};

struct barrier {
	uint32_t n, round;
	bool any[2];
};

/* A shared variable of a kernel, by the line that declares it. */
struct fixed {
	int line;
	void *p;
};

struct thread {
	struct fibre fibre;
	uint32_t id, lane;
	struct warp *warp;
	bool over;
	const uint32_t *round; /* waits until this is not `seen` */
	uint32_t seen;
	struct fibre_traffic traffic;
};

struct warp {
	struct block *block;
	struct thread threads[LANES];
	struct meeting meetings[MEETINGS];
	uint32_t n_meetings, n_alive;
	size_t at; /* in `warps` */
};

struct block {
	struct grid *grid;
	struct warp *warps;
	struct barrier barriers[2];
	struct fibre_space space;
	struct fixed fixed[FIXED];
	uint32_t id, n_alive;
	bool slow;
	bool told; /* the next grid may start */
};

struct grid {
	struct grid *next;     /* of the stream */
	struct grid *previous; /* NULL when it has ended */
	uint32_t n_previous;   /* how many times it has */
	uint32_t n_untold;     /* blocks */
	struct fibre_launch launch;
	struct block *blocks;
	uint32_t n_alive; /* blocks */
	bool runs;
};

struct CUstream_st {
	struct CUstream_st *next;
	struct grid *first;
};

struct fibre_index threadIdx, blockIdx, gridDim, blockDim;

static struct CUstream_st *streams;
static struct warp **warps; /* those that have not ended */
static size_t n_warps, room_warps;
static struct thread *self;
static uint64_t random_state = 1, n_picks;
/* Alike for the lanes of a step: lines rely on lanes that go on together. */
static uint64_t pauses;

_Noreturn void fibres_give_up(const char *why)
{
	printf("fibres: %s, draw %llu\n", why, (unsigned long long)n_picks);
	fflush(stdout);
	abort();
}

void *fibres_taken(size_t bytes, int value)
{
	void *p = NULL;

	if (posix_memalign(&p, 128, bytes))
		fibres_give_up("no memory");
	memset(p, value, bytes);
	return p;
}

static uint64_t draw_from(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t fibres_draw(void)
{
	return draw_from(&random_state);
}

void fibres_seed(uint64_t seed)
{
	random_state = seed;
	n_picks = 0;
}

struct CUstream_st *fibres_stream_open(void)
{
	struct CUstream_st *s = fibres_taken(sizeof(*s), 0);

	s->next = streams;
	return streams = s;
}

void fibres_stream_close(struct CUstream_st *stream)
{
	struct CUstream_st **at = &streams;

	fibres_run();
	for (; *at; at = &(*at)->next)
		if (*at == stream) {
			*at = stream->next;
			break;
		}
	free(stream);
}

void fibres_enqueue(struct CUstream_st *stream, const struct fibre_launch *l)
{
	struct grid *g = fibres_taken(sizeof(*g), 0), **at = &stream->first;
	void *args = fibres_taken(l->args_bytes, 0);

	memcpy(args, l->args, l->args_bytes);
	g->launch = *l;
	g->launch.args = args;
	g->n_untold = l->n_blocks;
	while (*at) {
		g->previous = *at;
		at = &(*at)->next;
	}
	*at = g;
}

static void run_kernel(void)
{
	const struct fibre_launch *l = &self->warp->block->grid->launch;

	l->call(l->kernel, l->args);
	flights_leave(&self->traffic, self->warp->block->grid);
	self->over = true;
}

static void add_warp(struct warp *w)
{
	if (n_warps == room_warps) {
		room_warps = 2 * room_warps + 64;
		warps = realloc(warps, room_warps * sizeof(*warps));
		if (!warps)
			fibres_give_up("no memory");
	}
	w->at = n_warps;
	warps[n_warps++] = w;
}

static void start_warp(struct block *b, uint32_t first_thread)
{
	struct warp *w = &b->warps[first_thread / LANES];

	w->block = b;
	w->n_alive = LANES;
	for (uint32_t lane = 0; lane < LANES; lane++) {
		struct thread *t = &w->threads[lane];

		t->id = first_thread + lane;
		t->lane = lane;
		t->warp = w;
		t->traffic.space = &b->space;
		flights_fence(&t->traffic);
		if (!fibre_open(&t->fibre, run_kernel))
			fibres_give_up("no memory");
	}
	add_warp(w);
}

static void start(struct grid *g)
{
	const struct fibre_launch *l = &g->launch;

	g->runs = true;
	g->n_alive = l->n_blocks;
	g->blocks = fibres_taken(l->n_blocks * sizeof(*g->blocks), 0);
	for (uint32_t i = 0; i < l->n_blocks; i++) {
		struct block *b = &g->blocks[i];

		b->grid = g;
		b->id = i;
		b->n_alive = l->n_threads;
		flights_space_open(&b->space, l->shared_bytes);
		b->slow = fibres_draw() % 4 == 0;
		b->warps = fibres_taken(
			l->n_threads / LANES * sizeof(*b->warps), 0);
		for (uint32_t t = 0; t < l->n_threads; t += LANES)
			start_warp(b, t);
	}
}

/* It may end before those in front of it. */
static void end_grid(struct grid *g)
{
	for (struct CUstream_st *s = streams; s; s = s->next)
		for (struct grid **at = &s->first; *at; at = &(*at)->next)
			if (*at == g) {
				*at = g->next;
				break;
			}
	flights_end(g);
	if (g->next) {
		g->next->previous = NULL;
		g->next->n_previous++;
	}
	free(g->blocks);
	free((void *)(uintptr_t)g->launch.args);
	free(g);
}

static void tell_next(struct block *b)
{
	if (!b->told)
		b->grid->n_untold--;
	b->told = true;
}

static void end_block(struct block *b)
{
	const uint32_t n = b->grid->launch.n_threads;

	for (uint32_t t = 0; t < n; t++)
		fibre_close(&b->warps[t / LANES].threads[t % LANES].fibre);
	free(b->warps);
	flights_space_close(&b->space);
	tell_next(b);
	for (int i = 0; i < FIXED; i++)
		free(b->fixed[i].p);
	if (--b->grid->n_alive == 0)
		end_grid(b->grid);
}

static void release(struct barrier *r)
{
	r->n = 0;
	r->round++;
	r->any[r->round & 1] = false;
}

static void end_thread(struct thread *t)
{
	struct block *b = t->warp->block;

	t->warp->n_alive--;
	b->n_alive--;
	/* Barrier 0 is that of all which have not ended. */
	if (b->barriers[0].n && b->barriers[0].n == b->n_alive)
		release(&b->barriers[0]);
}

static void run_lane(struct thread *t, uint64_t step)
{
	const struct block *b = t->warp->block;

	self = t;
	pauses = step;
	t->round = NULL;
	threadIdx.x = t->id;
	blockIdx.x = b->id;
	gridDim.x = b->grid->launch.n_blocks;
	blockDim.x = b->grid->launch.n_threads;
	fibre_enter(&t->fibre);
	if (t->over)
		end_thread(t);
}

/* One step of a warp; false: all of its lanes wait. */
static bool run_warp(struct warp *w)
{
	bool can[LANES], ran = false;

	for (int lane = 0; lane < LANES; lane++) {
		const struct thread *t = &w->threads[lane];

		can[lane] = !t->over && (!t->round || *t->round != t->seen);
		ran |= can[lane];
		if (can[lane])
			fibre_prefetch(&t->fibre);
	}
	const uint64_t step = ran ? fibres_draw() : 0;

	for (int lane = 0; lane < LANES; lane++)
		if (can[lane])
			run_lane(&w->threads[lane], step);
	flights_see(&w->block->space);
	if (w->n_alive)
		return ran;
	warps[w->at] = warps[--n_warps];
	warps[w->at]->at = w->at;
	if (w->block->n_alive == 0)
		end_block(w->block);
	return ran;
}

static void change_paces(void)
{
	for (size_t i = 0; i < n_warps; i++)
		if (fibres_draw() % 50 == 0)
			warps[i]->block->slow = fibres_draw() % 3 == 0;
}

/* Now, if it is not the first one of its stream? */
static bool starts_early(const struct grid *g)
{
	const struct grid *p = g->previous;

	if (!g->launch.early || (p && (!p->runs || p->n_untold)))
		return false;
	return fibres_draw() % 4 == 0;
}

static bool start_grids(void)
{
	for (struct CUstream_st *s = streams; s; s = s->next)
		for (struct grid *g = s->first; g; g = g->next) {
			if (g->runs)
				continue;
			if (g != s->first && !starts_early(g))
				break;
			start(g);
		}
	return n_warps > 0;
}

void fibres_run(void)
{
	uint64_t n_idle = 0;

	while (start_grids())
		for (int i = 0; i < 64 && n_warps; i++) {
			if (++n_picks % 20000 == 0)
				change_paces();
			flights_step(n_warps);
			struct warp *w = warps[fibres_draw() % n_warps];

			if (w->block->slow && fibres_draw() % 200)
				continue;
			n_idle = run_warp(w) ? 0 : n_idle + 1;
			if (n_idle > IDLE_MAX)
				fibres_give_up("deadlock");
		}
}

uint32_t fibre_lane(void)
{
	return self->lane;
}

static struct meeting *meeting_of(struct warp *w, uint32_t mask)
{
	for (uint32_t i = 0; i < w->n_meetings; i++)
		if (w->meetings[i].mask == mask)
			return &w->meetings[i];
	if (w->n_meetings == MEETINGS)
		fibres_give_up("a warp meets by too many masks");
	w->meetings[w->n_meetings].mask = mask;
	return &w->meetings[w->n_meetings++];
}

static void await(const uint32_t *round, uint32_t seen)
{
	self->round = round;
	self->seen = seen;
}

void fibres_await(const uint32_t *word)
{
	await(word, *word);
	fibre_leave(&self->fibre);
}

struct fibre_traffic *fibres_traffic(void)
{
	return &self->traffic;
}

const uint64_t *fibre_meet(uint32_t mask, uint64_t value)
{
	struct meeting *m = meeting_of(self->warp, mask);
	const uint32_t lane = 1u << self->lane, round = m->round;

	if (m->arrived & lane || !(mask & lane))
		fibres_give_up("a lane at a meeting that it is not of");
	m->value[round & 1][self->lane] = value;
	m->arrived |= lane;
	await(&m->round, round);
	if (m->arrived == mask) {
		m->arrived = 0;
		m->round++;
	}
	fibre_leave(&self->fibre);
	return m->value[round & 1];
}

static void arrive(struct barrier *r, uint32_t n)
{
	if (++r->n == n)
		release(r);
}

bool fibre_barrier(int barrier, uint32_t n, bool value)
{
	struct block *b = self->warp->block;
	struct barrier *r = &b->barriers[barrier];
	const uint32_t round = r->round;

	r->any[round & 1] |= value;
	await(&r->round, round);
	arrive(r, n ? n : b->n_alive);
	fibre_leave(&self->fibre);
	return r->any[round & 1];
}

void fibre_arrive(int barrier, uint32_t n)
{
	arrive(&self->warp->block->barriers[barrier], n);
}

void *fibre_dynamic(void)
{
	return self->warp->block->space.shared;
}

void *fibre_shared(int line, size_t bytes)
{
	struct fixed *f = self->warp->block->fixed;

	for (int i = 0; i < FIXED; i++) {
		if (!f[i].p)
			f[i] = (struct fixed){line, fibres_taken(bytes, 0xdd)};
		if (f[i].line == line)
			return f[i].p;
	}
	fibres_give_up("a kernel has too many shared variables");
}

void fibre_pause(uint32_t one_in)
{
	if (draw_from(&pauses) % one_in)
		return;
	self->round = NULL;
	fibre_leave(&self->fibre);
}

void fibre_launch_next(void)
{
	tell_next(self->warp->block);
}

void fibre_wait_previous(void)
{
	const struct grid *g = self->warp->block->grid;

	while (g->previous)
		fibres_await(&g->n_previous);
	flights_fence(&self->traffic);
}

uint64_t fibre_ns(void)
{
	return n_picks * PICK_NS + 1;
}
