/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hub has to say to a connection, one message at a time. Nothing is
 * queued: a member is compared with what it was told, so that the memory for a
 * slow reader is bounded.
 */
#include <string.h>

#include "../core/clock.h"
#include "hub_inner.h"

void ferry_conn_put(struct ferry_hub_conn *conn, struct ferry_msg head,
                    const void *body)
{
	memcpy(conn->head, &head, sizeof(head));
	if (head.bytes)
		memcpy(conn->head + sizeof(head), body, (size_t)head.bytes);
	conn->n_head = sizeof(head) + (size_t)head.bytes;
	conn->n_tail = 0;
	conn->n_sent = 0;
}

static void put_result(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	struct ferry_msg head = ferry_msg_head(
		FERRY_MSG_RESULT, hub->result_bytes, hub->round - 1);

	memcpy(conn->head, &head, sizeof(head));
	conn->n_head = sizeof(head);
	conn->tail = hub->result;
	conn->n_tail = hub->result_bytes;
	conn->n_sent = 0;
}

/* Picks the next message for a member; false when it knows everything. */
static bool put_next(struct ferry_hub *hub, struct ferry_hub_conn *conn)
{
	if (hub->complete && !conn->told_go) {
		ferry_conn_put(conn, ferry_msg_head(FERRY_MSG_GO, 0, 0), NULL);
		conn->told_go = true;
	} else if (conn->owed_result) {
		put_result(hub, conn);
	} else if (conn->n_told_deaths < hub->n_deaths) {
		const uint64_t death = hub->deaths[conn->n_told_deaths++];

		ferry_conn_put(conn, ferry_msg_head(FERRY_MSG_DEAD, 0, death),
		               NULL);
	} else if (!conn->told_failure &&
	           ferry_hub_may_tell(hub, ferry_now_ns())) {
		ferry_conn_put(conn,
		               ferry_msg_head(FERRY_MSG_FAIL, strlen(hub->text),
		                              ferry_msg_failure(hub->failed,
		                                                hub->root)),
		               hub->text);
		conn->told_failure = true;
	} else {
		return false;
	}
	return true;
}

size_t ferry_hub_output(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                        const uint8_t **data)
{
	if (!conn->n_head &&
	    (conn->state != FERRY_CONN_MEMBER || !put_next(hub, conn)))
		return 0;
	if (conn->n_sent < conn->n_head) {
		*data = conn->head + conn->n_sent;
		return conn->n_head - conn->n_sent;
	}
	*data = conn->tail + (conn->n_sent - conn->n_head);
	return conn->n_head + conn->n_tail - conn->n_sent;
}

void ferry_hub_sent(struct ferry_hub_conn *conn, size_t n)
{
	conn->n_sent += n;
	if (conn->n_sent < conn->n_head + conn->n_tail)
		return;
	if (conn->n_tail)
		conn->owed_result = false;
	conn->n_head = 0;
	conn->n_tail = 0;
	if (conn->state == FERRY_CONN_REFUSED)
		conn->state = FERRY_CONN_OVER;
}
