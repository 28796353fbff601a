/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a rendezvous: members, rounds, deaths. See hub_intro.c too. */
#include "hub.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/clock.h"
#include "hub_inner.h"
#include "rank_list.h"

/* A year: no sum of times overflows. */
static const uint64_t MAX_NS = 31536000u * UINT64_C(1000000000);

/* The hub gives up this long before the ranks do, or a fifth of the time. */
static const uint64_t MARGIN_NS = 50000000;

static void wait_begin(struct ferry_hub *hub)
{
	for (int32_t r = 0; r < hub->n_ranks; r++)
		hub->absent[r] = true;
	hub->n_absent = hub->n_ranks;
	hub->deadline_ns = UINT64_MAX;
}

enum ferry_status ferry_hub_init(struct ferry_hub *hub, struct ferry_ctx *ctx,
                                 int32_t n_ranks,
                                 const struct ferry_secret *secret)
{
	const size_t n = (size_t)n_ranks;

	*hub = (struct ferry_hub){
		.ctx = ctx, .n_ranks = n_ranks, .secret = secret};
	hub->absent = calloc(n, sizeof(*hub->absent));
	hub->gone = calloc(n, sizeof(*hub->gone));
	hub->deaths = calloc(n, sizeof(*hub->deaths));
	if (!hub->absent || !hub->gone || !hub->deaths) {
		ferry_hub_destroy(hub);
		return ferry_fail(ctx, FERRY_NOMEM,
		                  "boot: out of memory for %d ranks", n_ranks);
	}
	wait_begin(hub);
	return FERRY_OK;
}

void ferry_hub_destroy(struct ferry_hub *hub)
{
	while (hub->conns)
		ferry_hub_forget(hub, hub->conns);
	free(hub->absent);
	free(hub->gone);
	free(hub->deaths);
	free(hub->gather);
	free(hub->result);
}

void ferry_hub_forget(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	struct ferry_hub_conn **link = &hub->conns;

	while (*link != conn)
		link = &(*link)->next;
	*link = conn->next;
	ferry_reader_destroy(&conn->reader);
	free(conn);
}

void ferry_hub_fail(struct ferry_hub *hub, enum ferry_status status,
                    int32_t root, const char *fmt, ...)
{
	va_list args;

	if (hub->failed)
		return;
	va_start(args, fmt);
	vsnprintf(hub->text, sizeof(hub->text), fmt, args);
	va_end(args);
	hub->failed = status;
	hub->root = root;
	if (!hub->complete && status != FERRY_TIMEOUT) {
		hub->tell_ns = ferry_deadline_ns(FERRY_HUB_GATHER_MS);
		if (hub->tell_ns > hub->deadline_ns)
			hub->tell_ns = hub->deadline_ns;
	}
	hub->deadline_ns = UINT64_MAX;
}

bool ferry_hub_may_tell(const struct ferry_hub *hub, uint64_t now_ns)
{
	return hub->failed &&
	       (hub->complete || !hub->n_absent || now_ns >= hub->tell_ns);
}

void ferry_hub_came(struct ferry_hub *hub, int32_t rank)
{
	hub->n_absent -= hub->absent[rank];
	hub->absent[rank] = false;
}

/* A rank waits from now on, for left_ns; it says it waits `patience_ms`. */
static void wait_add(struct ferry_hub *hub, int32_t rank, uint64_t left_ns,
                     uint64_t patience_ms)
{
	/* The verdict must reach everyone before the deadline does. */
	const uint64_t bounded_ns = left_ns < MAX_NS ? left_ns : MAX_NS;
	const uint64_t margin_ns =
		bounded_ns / 5 < MARGIN_NS ? bounded_ns / 5 : MARGIN_NS;
	const uint64_t at_ns = ferry_now_ns() + bounded_ns - margin_ns;

	ferry_hub_came(hub, rank);
	if (at_ns >= hub->deadline_ns || hub->failed)
		return;
	hub->deadline_ns = at_ns;
	hub->waiter = rank;
	hub->patience_ms = patience_ms;
}

/* A round that still misses a rank that has gone cannot end well. */
static void fail_if_gone(struct ferry_hub *hub)
{
	for (int32_t i = 0; i < hub->n_deaths; i++) {
		const int32_t r = (int32_t)(uint32_t)hub->deaths[i];

		if (hub->absent[r])
			ferry_hub_fail(hub, FERRY_PEER, r, "boot: rank %d %s",
			               r,
			               ferry_leave_text((enum ferry_leave)(
					       hub->deaths[i] >> 32)));
	}
}

void ferry_hub_join(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                    int32_t rank, uint64_t left_ns)
{
	conn->state = FERRY_CONN_MEMBER;
	conn->rank = rank;
	wait_add(hub, rank, left_ns, conn->hello.patience_ms);
	if (hub->n_absent || hub->failed)
		return;
	hub->complete = true;
	wait_begin(hub);
}

/* A member has gone; before all have come, that fails the open. */
static void member_gone(struct ferry_hub *hub, int32_t rank,
                        enum ferry_leave how)
{
	if (hub->gone[rank])
		return;
	hub->gone[rank] = true;
	hub->deaths[hub->n_deaths++] = (uint32_t)rank | (uint64_t)how << 32;
	if (!hub->complete)
		ferry_hub_fail(hub, FERRY_PEER, rank,
		               "boot: rank %d %s while others still came", rank,
		               how == FERRY_LEAVE_CLOSED
		                       ? "gave up"
		                       : ferry_leave_text(how));
	else if (hub->n_absent < hub->n_ranks)
		fail_if_gone(hub);
	if (rank == 0)
		hub->over = true;
}

void ferry_hub_end(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                   enum ferry_leave how)
{
	if (conn->state == FERRY_CONN_MEMBER)
		member_gone(hub, conn->rank, how);
	else if (conn->state < FERRY_CONN_MEMBER)
		ferry_hub_drop(hub, conn, "it left before it was known");
	conn->state = FERRY_CONN_OVER;
}

/* A member that breaks the protocol is as good as dead, and told apart. */
void ferry_hub_malformed(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	if (conn->state != FERRY_CONN_MEMBER) {
		ferry_hub_drop(hub, conn, "it does not speak this protocol");
		return;
	}
	ferry_hub_fail(hub, FERRY_PROTO, conn->rank,
	               "boot: rank %d (%s) sent a malformed message",
	               conn->rank, conn->from);
	ferry_hub_end(hub, conn, FERRY_LEAVE_DIED);
}

static void round_end(struct ferry_hub *hub)
{
	free(hub->result);
	hub->result = hub->gather;
	hub->result_bytes = hub->bytes * (size_t)hub->n_ranks;
	hub->gather = NULL;
	hub->round++;
	for (struct ferry_hub_conn *c = hub->conns; c; c = c->next)
		c->owed_result = c->state == FERRY_CONN_MEMBER;
	wait_begin(hub);
}

/* The first of a round says how many bytes it is about. */
static void round_begin(struct ferry_hub *hub, int32_t rank, size_t bytes)
{
	hub->first = rank;
	hub->bytes = bytes;
	free(hub->gather);
	hub->gather = malloc(bytes * (size_t)hub->n_ranks);
	if (!hub->gather)
		ferry_hub_fail(hub, FERRY_NOMEM, -1,
		               "boot: out of memory for %zu bytes of each of "
		               "%d ranks",
		               bytes, hub->n_ranks);
}

static void give(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	const struct ferry_reader *reader = &conn->reader;
	const size_t bytes =
		(size_t)reader->head.bytes - sizeof(struct ferry_give);
	const int32_t rank = conn->rank;
	struct ferry_give head;

	if (hub->failed)
		return;
	if (!hub->complete || reader->head.arg != hub->round ||
	    !hub->absent[rank] || conn->owed_result) {
		ferry_hub_malformed(hub, conn);
		return;
	}
	if (hub->n_absent == hub->n_ranks)
		round_begin(hub, rank, bytes);
	if (bytes != hub->bytes)
		ferry_hub_fail(hub, FERRY_MISMATCH, rank,
		               "boot: rank %d gave %zu bytes to an allgather, "
		               "rank %d gave %zu",
		               rank, bytes, hub->first, hub->bytes);
	if (hub->failed)
		return;
	memcpy(&head, reader->body, sizeof(head));
	memcpy(hub->gather + bytes * (size_t)rank, reader->body + sizeof(head),
	       bytes);
	wait_add(hub, rank, head.left_ns, (head.left_ns + 500000) / 1000000);
	if (hub->n_absent == 0)
		round_end(hub);
	else
		fail_if_gone(hub);
}

void ferry_hub_member(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	switch (conn->reader.head.type) {
	case FERRY_MSG_GIVE:
		give(hub, conn);
		return;
	case FERRY_MSG_ABORT:
		ferry_hub_fail(hub, FERRY_ABORTED, conn->rank,
		               "boot: rank %d aborted the world", conn->rank);
		return;
	default: /* BYE, or it would not have been allowed */
		member_gone(hub, conn->rank, FERRY_LEAVE_CLOSED);
		conn->state = FERRY_CONN_OVER;
		return;
	}
}

static uint64_t absent_fail(struct ferry_hub *hub)
{
	char text[FERRY_ABSENCE_BYTES];
	const int32_t root = ferry_absence_text(
		text, &(struct ferry_absence){hub->absent, hub->n_ranks,
	                                      hub->waiter, hub->patience_ms});

	ferry_hub_fail(hub, FERRY_TIMEOUT, root, "%s", text);
	return UINT64_MAX;
}

uint64_t ferry_hub_tick(struct ferry_hub *hub, uint64_t now_ns)
{
	uint64_t next_ns = hub->deadline_ns;

	if (now_ns >= next_ns)
		next_ns = absent_fail(hub);
	if (hub->failed && !ferry_hub_may_tell(hub, now_ns))
		next_ns = hub->tell_ns;
	for (struct ferry_hub_conn *c = hub->conns; c; c = c->next) {
		if (c->state == FERRY_CONN_MEMBER ||
		    c->state == FERRY_CONN_OVER)
			continue;
		if (now_ns >= c->deadline_ns && c->state == FERRY_CONN_REFUSED)
			c->state = FERRY_CONN_OVER;
		else if (now_ns >= c->deadline_ns)
			ferry_hub_drop(hub, c, "it took too long");
		else if (c->deadline_ns < next_ns)
			next_ns = c->deadline_ns;
	}
	return next_ns;
}
