/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a connection becomes a rank: it says who it wants to be, proves that it
 * knows the secret, and only then is compared with what the job expects. A
 * stranger learns nothing but a refusal.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "../core/clock.h"
#include "hub_inner.h"

/* Logged one by one up to this many, so that a flood does not fill a disk. */
enum { MAX_LOGGED = 16 };

void ferry_hub_drop(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                    const char *reason)
{
	hub->n_refused++;
	if (hub->n_refused <= MAX_LOGGED)
		ferry_log(hub->ctx, FERRY_LOG_WARN,
		          "boot: stranger %s refused: %s%s", conn->from, reason,
		          hub->n_refused == MAX_LOGGED
		                  ? " (later ones are counted only)"
		                  : "");
	conn->state = FERRY_CONN_OVER;
}

/* Too many strangers: the one that has been silent longest makes room. */
static void make_room(struct ferry_hub *hub)
{
	struct ferry_hub_conn *oldest = NULL;
	int n_strangers = 0;

	for (struct ferry_hub_conn *c = hub->conns; c; c = c->next) {
		if (c->state >= FERRY_CONN_MEMBER)
			continue;
		n_strangers++;
		if (!oldest || c->deadline_ns < oldest->deadline_ns)
			oldest = c;
	}
	if (oldest && n_strangers > FERRY_HUB_STRANGERS + hub->n_ranks)
		ferry_hub_drop(hub, oldest, "too many wait");
}

struct ferry_hub_conn *ferry_hub_connect(struct ferry_hub *hub,
                                         const char *from)
{
	struct ferry_hub_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->fd = -1;
	conn->rank = -1;
	conn->deadline_ns = ferry_deadline_ns(FERRY_HUB_INTRODUCTION_MS);
	snprintf(conn->from, sizeof(conn->from), "%s", from);
	conn->next = hub->conns;
	hub->conns = conn;
	make_room(hub);
	return conn;
}

/* Tells it why, logs it, and closes when that has been sent. */
static void refuse(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                   enum ferry_refusal why, uint32_t value)
{
	static const char *const reasons[] = {
		[FERRY_REFUSE_PROTOCOL] = "another boot protocol",
		[FERRY_REFUSE_SECRET] = "it does not know the job secret",
		[FERRY_REFUSE_RANKS] = "another number of ranks",
		[FERRY_REFUSE_RANGE] = "its rank is out of range",
		[FERRY_REFUSE_TAKEN] = "its rank is taken",
	};
	char reason[96];

	if (why == FERRY_REFUSE_PROTOCOL)
		snprintf(reason, sizeof(reason), "%s (%u, not %d)",
		         reasons[why], conn->hello.protocol,
		         FERRY_BOOT_PROTOCOL);
	else
		snprintf(reason, sizeof(reason),
		         "%s (says it is rank %d of %d)", reasons[why],
		         conn->hello.rank, conn->hello.n_ranks);
	ferry_hub_drop(hub, conn, reason);
	conn->state = FERRY_CONN_REFUSED;
	ferry_conn_put(conn,
	               ferry_msg_head(FERRY_MSG_REFUSE, 0,
	                              why | (uint64_t)value << 32),
	               NULL);
}

static void hello(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	memcpy(&conn->hello.protocol, conn->reader.body,
	       sizeof(conn->hello.protocol));
	if (conn->hello.protocol != FERRY_BOOT_PROTOCOL) {
		refuse(hub, conn, FERRY_REFUSE_PROTOCOL, FERRY_BOOT_PROTOCOL);
		return;
	}
	if (conn->reader.head.bytes != sizeof(conn->hello)) {
		ferry_hub_malformed(hub, conn);
		return;
	}
	memcpy(&conn->hello, conn->reader.body, sizeof(conn->hello));
	if (getrandom(conn->nonce, sizeof(conn->nonce), 0) !=
	    (ssize_t)sizeof(conn->nonce)) {
		ferry_hub_drop(hub, conn, "no random numbers");
		return;
	}
	conn->state = FERRY_CONN_CHALLENGED;
	ferry_conn_put(
		conn,
		ferry_msg_head(FERRY_MSG_CHALLENGE, sizeof(conn->nonce), 0),
		conn->nonce);
}

static bool has_come(const struct ferry_hub *hub, int32_t rank)
{
	return hub->complete || !hub->absent[rank];
}

static void proof(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	const struct ferry_hello *h = &conn->hello;
	const bool exists = h->rank >= 0 && h->rank < hub->n_ranks;
	uint8_t mac[FERRY_SHA256_BYTES];

	ferry_proof(mac, hub->secret, "peer", h, conn->nonce);
	if (!ferry_mac_equal(mac, conn->reader.body)) {
		refuse(hub, conn, FERRY_REFUSE_SECRET, 0);
		return;
	}
	if (h->n_ranks != hub->n_ranks) {
		ferry_hub_fail(hub, FERRY_MISMATCH, exists ? h->rank : -1,
		               "boot: rank %d was started with %d ranks, rank "
		               "0 with %d",
		               h->rank, h->n_ranks, hub->n_ranks);
		if (exists)
			ferry_hub_came(hub, h->rank);
		refuse(hub, conn, FERRY_REFUSE_RANKS, (uint32_t)hub->n_ranks);
		return;
	}
	if (!exists) {
		refuse(hub, conn, FERRY_REFUSE_RANGE, 0);
		return;
	}
	if (has_come(hub, h->rank)) {
		refuse(hub, conn, FERRY_REFUSE_TAKEN, 0);
		return;
	}
	ferry_proof(mac, hub->secret, "hub", h, conn->nonce);
	ferry_conn_put(conn, ferry_msg_head(FERRY_MSG_WELCOME, sizeof(mac), 0),
	               mac);
	ferry_hub_join(hub, conn, h->rank, conn->reader.head.arg);
}

/* What a connection may send in its state. */
static bool allowed(const void *arg, const struct ferry_msg *head)
{
	const struct ferry_hub_conn *conn = arg;

	switch (conn->state) {
	case FERRY_CONN_NEW: /* other versions may say more */
		return head->type == FERRY_MSG_HELLO &&
		       head->bytes >= sizeof(conn->hello.protocol) &&
		       head->bytes <= 256;
	case FERRY_CONN_CHALLENGED:
		return head->type == FERRY_MSG_PROOF &&
		       head->bytes == FERRY_SHA256_BYTES;
	case FERRY_CONN_MEMBER:
		if (head->type == FERRY_MSG_GIVE)
			return head->bytes > sizeof(struct ferry_give) &&
			       head->bytes <= sizeof(struct ferry_give) +
			                              FERRY_BOOT_MAX_BYTES;
		return head->bytes == 0 && (head->type == FERRY_MSG_ABORT ||
		                            head->type == FERRY_MSG_BYE);
	default:
		return false;
	}
}

static void message(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	if (conn->state == FERRY_CONN_MEMBER)
		ferry_hub_member(hub, conn);
	else if (conn->n_head)
		/* It must read our answer before it goes on. */
		ferry_hub_malformed(hub, conn);
	else if (conn->state == FERRY_CONN_NEW)
		hello(hub, conn);
	else
		proof(hub, conn);
}

void ferry_hub_input(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                     const uint8_t *data, size_t n_data)
{
	while (n_data && conn->state < FERRY_CONN_REFUSED) {
		bool ready;

		if (ferry_reader_feed(&conn->reader, &data, &n_data, allowed,
		                      conn, &ready) != FERRY_OK)
			ferry_hub_malformed(hub, conn);
		else if (ready)
			message(hub, conn);
	}
}
