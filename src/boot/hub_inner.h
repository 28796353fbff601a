/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the hub: state, introductions, output. */
#ifndef FERRY_HUB_INNER_H
#define FERRY_HUB_INNER_H

#include "hub.h"

/*
 * The first failure stays, and every member will be told; root: the rank that
 * caused it, -1.
 */
__attribute__((format(printf, 4, 5))) void
ferry_hub_fail(struct ferry_hub *hub, enum ferry_status status, int32_t root,
               const char *fmt, ...);

/*
 * Is it time to tell the members of the failure? One that is found while ranks
 * still come waits a little for the rest: whoever came after the hub has gone
 * would only know that nobody is there.
 */
bool ferry_hub_may_tell(const struct ferry_hub *hub, uint64_t now_ns);

/* This rank came, even if it was not let in. */
void ferry_hub_came(struct ferry_hub *hub, int32_t rank);

/* A message of a member is whole. */
void ferry_hub_member(struct ferry_hub *hub, struct ferry_hub_conn *conn);

/* What came is no message that may come. */
void ferry_hub_malformed(struct ferry_hub *hub, struct ferry_hub_conn *conn);

/* Puts a message on its way; nothing else may be. */
void ferry_conn_put(struct ferry_hub_conn *conn, struct ferry_msg head,
                    const void *body);

#endif
