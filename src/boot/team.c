/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of one process. The k-th world that a rank opens on a team
 * meets the k-th of every other rank: a session, which holds the state of one
 * allgather at a time. Everything in a session is under the team's lock, the
 * flags of the dead excepted, which waits of operations read.
 */
#include "team.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/clock.h"
#include "../core/order.h"
#include "../core/thread.h"
#include "boot_kinds.h"
#include "rank_list.h"

struct session {
	struct session *next;
	uint64_t number;
	int32_t n_closed;
	int32_t n_gone;
	uint32_t *gone; /* [n_ranks] enum gone */
	/*
	 * Allgather `round`. A buffer of each parity: while a slow rank still
	 * copies the result of one round, others may already give to the next.
	 */
	uint64_t round;
	bool *absent; /* [n_ranks] in this round */
	int32_t n_absent;
	int32_t first; /* rank that came first */
	size_t bytes;
	uint8_t *buffer[2];
	size_t buffer_bytes[2];
	enum ferry_status failed; /* of this and every later round */
	int32_t root;             /* rank that caused it, -1 */
	char text[sizeof(((struct ferry_error *)0)->text)];
};

enum gone { HERE, CLOSED, DIED };

struct ferry_team {
	int32_t n_ranks;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t *n_opened; /* [n_ranks] */
	struct session *sessions;
};

struct boot_team {
	struct ferry_boot boot;
	struct ferry_team *team;
	struct session *session;
};

static void session_free(struct session *s)
{
	if (!s)
		return;
	free(s->gone);
	free(s->absent);
	free(s->buffer[0]);
	free(s->buffer[1]);
	free(s);
}

static void round_begin(struct session *s, int32_t n_ranks)
{
	for (int32_t r = 0; r < n_ranks; r++)
		s->absent[r] = true;
	s->n_absent = n_ranks;
}

static struct session *session_new(uint64_t number, int32_t n_ranks)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->number = number;
	s->gone = calloc((size_t)n_ranks, sizeof(*s->gone));
	s->absent = calloc((size_t)n_ranks, sizeof(*s->absent));
	if (!s->gone || !s->absent) {
		session_free(s);
		return NULL;
	}
	round_begin(s, n_ranks);
	return s;
}

enum ferry_status ferry_team_create(int32_t n_ranks, struct ferry_team **team)
{
	if (n_ranks < 1 || n_ranks > FERRY_MAX_RANKS)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "team_create: n_ranks is %d, allowed are "
		                  "1..%d",
		                  n_ranks, FERRY_MAX_RANKS);
	if (!team)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "team_create: team is NULL");
	struct ferry_team *t = calloc(1, sizeof(*t));
	if (!t)
		goto err_nomem;
	t->n_opened = calloc((size_t)n_ranks, sizeof(*t->n_opened));
	if (!t->n_opened)
		goto err_team;
	t->n_ranks = n_ranks;
	pthread_mutex_init(&t->lock, NULL);
	ferry_cond_init(&t->changed);
	*team = t;
	return FERRY_OK;

err_team:
	free(t);
err_nomem:
	return ferry_fail(NULL, FERRY_NOMEM,
	                  "team_create: out of memory for %d ranks", n_ranks);
}

void ferry_team_destroy(struct ferry_team *team)
{
	if (!team)
		return;
	while (team->sessions) {
		struct session *next = team->sessions->next;

		session_free(team->sessions);
		team->sessions = next;
	}
	pthread_cond_destroy(&team->changed);
	pthread_mutex_destroy(&team->lock);
	free(team->n_opened);
	free(team);
}

/* Ends this round and every later one for all ranks; the first reason stays. */
__attribute__((format(printf, 5, 6))) static void
session_fail(struct ferry_team *team, struct session *s,
             enum ferry_status status, int32_t root, const char *fmt, ...)
{
	va_list args;

	if (s->failed)
		return;
	va_start(args, fmt);
	vsnprintf(s->text, sizeof(s->text), fmt, args);
	va_end(args);
	s->failed = status;
	s->root = root;
	pthread_cond_broadcast(&team->changed);
}

/* A round that still misses a rank that has gone cannot end well. */
static void fail_if_gone(struct ferry_team *team, struct session *s)
{
	for (int32_t r = 0; s->n_gone && r < team->n_ranks; r++)
		if (s->absent[r] && s->gone[r])
			session_fail(team, s, FERRY_PEER, r, "boot: rank %d %s",
			             r,
			             s->gone[r] == DIED ? "died"
			                                : "closed its world");
}

static bool buffer_reserve(struct session *s, size_t bytes)
{
	const size_t parity = s->round & 1;

	if (s->buffer_bytes[parity] >= bytes)
		return true;
	uint8_t *p = realloc(s->buffer[parity], bytes);
	if (!p)
		return false;
	s->buffer[parity] = p;
	s->buffer_bytes[parity] = bytes;
	return true;
}

/* Gives the own part to the present round. */
static void arrive(struct boot_team *b, const void *in, size_t bytes)
{
	struct ferry_team *team = b->team;
	struct session *s = b->session;
	const int32_t rank = b->boot.rank;

	if (s->n_absent == team->n_ranks) {
		s->bytes = bytes;
		s->first = rank;
		if (!buffer_reserve(s, bytes * (size_t)team->n_ranks))
			session_fail(team, s, FERRY_NOMEM, -1,
			             "boot: out of memory for %zu bytes of "
			             "each of %d ranks",
			             bytes, team->n_ranks);
	}
	if (bytes != s->bytes)
		session_fail(team, s, FERRY_MISMATCH, rank,
		             "boot: rank %d gave %zu bytes to an allgather, "
		             "rank %d gave %zu",
		             rank, bytes, s->first, s->bytes);
	if (s->failed)
		return;
	memcpy(s->buffer[s->round & 1] + bytes * (size_t)rank, in, bytes);
	s->absent[rank] = false;
	if (--s->n_absent == 0) {
		s->round++;
		round_begin(s, team->n_ranks);
		pthread_cond_broadcast(&team->changed);
	} else {
		fail_if_gone(team, s);
	}
}

static void fail_late(struct boot_team *b, uint64_t patience_ns)
{
	char text[FERRY_ABSENCE_BYTES];
	const int32_t root = ferry_absence_text(
		text,
		&(struct ferry_absence){b->session->absent, b->team->n_ranks,
	                                b->boot.rank, patience_ns / 1000000});

	session_fail(b->team, b->session, FERRY_TIMEOUT, root, "%s", text);
}

static enum ferry_status allgather(struct ferry_boot *boot, const void *in,
                                   void *out, size_t bytes,
                                   uint64_t deadline_ns)
{
	struct boot_team *b = (struct boot_team *)boot;
	struct session *s = b->session;
	const uint64_t now_ns = ferry_now_ns();
	char text[sizeof(s->text)];

	FERRY_TRY(ferry_boot_check_bytes(boot, bytes));
	pthread_mutex_lock(&b->team->lock);
	const uint64_t round = s->round;
	if (s->gone[boot->rank] == DIED)
		session_fail(b->team, s, FERRY_PEER, boot->rank,
		             "boot: rank %d died", boot->rank);
	if (!s->failed)
		arrive(b, in, bytes);
	while (s->round == round && !s->failed)
		if (!ferry_cond_wait(&b->team->changed, &b->team->lock,
		                     deadline_ns) &&
		    s->round == round)
			fail_late(b, deadline_ns > now_ns ? deadline_ns - now_ns
			                                  : 0);
	const uint8_t *result = s->buffer[round & 1];
	const enum ferry_status status =
		s->round == round ? s->failed : FERRY_OK;
	const int32_t root = s->root;
	memcpy(text, s->text, sizeof(text));
	pthread_mutex_unlock(&b->team->lock);
	if (status != FERRY_OK)
		return ferry_boot_fail(boot, status, root, "%s", text);
	memcpy(out, result, bytes * (size_t)boot->n_ranks);
	return FERRY_OK;
}

static void abort_all(struct ferry_boot *boot)
{
	struct boot_team *b = (struct boot_team *)boot;

	pthread_mutex_lock(&b->team->lock);
	session_fail(b->team, b->session, FERRY_ABORTED, boot->rank,
	             "boot: rank %d aborted the world", boot->rank);
	pthread_mutex_unlock(&b->team->lock);
}

static bool dead(struct ferry_boot *boot, int32_t peer)
{
	struct boot_team *b = (struct boot_team *)boot;

	return load_acquire_u32(&b->session->gone[peer]) != HERE;
}

static bool closed(struct ferry_boot *boot, int32_t peer)
{
	struct boot_team *b = (struct boot_team *)boot;

	return load_acquire_u32(&b->session->gone[peer]) == CLOSED;
}

static void leave(struct boot_team *b, enum gone how)
{
	struct session *s = b->session;

	/* Who died has died, even if the thread cleans up later. */
	if (s->gone[b->boot.rank] == HERE) {
		store_release_u32(&s->gone[b->boot.rank], how);
		s->n_gone++;
	}
	if (s->n_absent < b->team->n_ranks)
		fail_if_gone(b->team, s);
}

void ferry_boot_die(struct ferry_boot *boot)
{
	if (!ferry_boot_is_team(boot))
		return;
	struct boot_team *b = (struct boot_team *)boot;

	pthread_mutex_lock(&b->team->lock);
	leave(b, DIED);
	pthread_mutex_unlock(&b->team->lock);
}

static void close_team(struct ferry_boot *boot)
{
	struct boot_team *b = (struct boot_team *)boot;
	struct ferry_team *team = b->team;
	struct session **link = &team->sessions;

	pthread_mutex_lock(&team->lock);
	leave(b, CLOSED);
	if (++b->session->n_closed == team->n_ranks) {
		while (*link != b->session)
			link = &(*link)->next;
		*link = b->session->next;
		session_free(b->session);
	}
	pthread_mutex_unlock(&team->lock);
	free(b);
}

static const struct ferry_boot_ops ops = {
	.name = "team",
	.allgather = allgather,
	.abort = abort_all,
	.dead = dead,
	.silent = ferry_boot_never,
	.closed = closed,
	.close = close_team,
};

bool ferry_boot_is_team(const struct ferry_boot *boot)
{
	return boot->ops == &ops;
}

/* Joins the rank's next session, which an earlier rank may have begun. */
static struct session *session_join(struct ferry_team *team, int32_t rank)
{
	const uint64_t number = team->n_opened[rank];
	struct session *s = team->sessions;

	while (s && s->number != number)
		s = s->next;
	if (!s) {
		s = session_new(number, team->n_ranks);
		if (!s)
			return NULL;
		s->next = team->sessions;
		team->sessions = s;
	}
	team->n_opened[rank]++;
	return s;
}

enum ferry_status ferry_boot_open_team(struct ferry_ctx *ctx,
                                       struct ferry_team *team, int32_t rank,
                                       struct ferry_boot **boot)
{
	if (rank < 0 || rank >= team->n_ranks)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "world_open: rank is %d, the team has 0..%d",
		                  rank, team->n_ranks - 1);
	struct boot_team *b = calloc(1, sizeof(*b));
	if (!b)
		return ferry_fail(ctx, FERRY_NOMEM, "boot: state of %zu bytes",
		                  sizeof(*b));
	pthread_mutex_lock(&team->lock);
	b->session = session_join(team, rank);
	pthread_mutex_unlock(&team->lock);
	if (!b->session) {
		free(b);
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "boot: meeting of a team of %d ranks",
		                  team->n_ranks);
	}
	b->boot = (struct ferry_boot){.ops = &ops,
	                              .ctx = ctx,
	                              .rank = rank,
	                              .n_ranks = team->n_ranks};
	b->team = team;
	*boot = &b->boot;
	return FERRY_OK;
}
