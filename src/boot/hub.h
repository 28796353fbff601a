/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub of a rendezvous: who has come, the allgather in progress, the dead.
 * Pure state: it reads bytes that somebody received and names bytes that
 * somebody should send, so that a fuzzer drives all of it. Sockets are in
 * hub_loop.c.
 */
#ifndef FERRY_HUB_H
#define FERRY_HUB_H

#include "message.h"

enum {
	FERRY_HUB_INTRODUCTION_MS = 3000, /* a stranger may take this long */
	FERRY_HUB_STRANGERS = 64,         /* at once, beside those expected */
	FERRY_HUB_GATHER_MS = 1000,       /* see ferry_hub_may_tell */
};

enum ferry_conn_state {
	FERRY_CONN_NEW,        /* HELLO is next */
	FERRY_CONN_CHALLENGED, /* PROOF is next */
	FERRY_CONN_MEMBER,     /* a rank */
	FERRY_CONN_REFUSED,    /* to be closed once its output is out */
	FERRY_CONN_OVER,       /* to be closed now */
};

struct ferry_hub_conn {
	struct ferry_hub_conn *next;
	int fd; /* of the loop */
	enum ferry_conn_state state;
	int32_t rank; /* of a member, -1 */
	uint64_t deadline_ns;
	char from[80];
	struct ferry_hello hello;
	uint8_t nonce[FERRY_NONCE_BYTES];
	struct ferry_reader reader;
	/* The message on its way out: head bytes, then tail bytes. */
	uint8_t head[sizeof(struct ferry_msg) + FERRY_TEXT_BYTES];
	size_t n_head;
	const uint8_t *tail;
	size_t n_tail;
	size_t n_sent;
	/* What a member was told so far. */
	bool told_go;
	bool told_failure;
	bool owed_result;
	int32_t n_told_deaths;
};

struct ferry_hub {
	struct ferry_ctx *ctx;
	int32_t n_ranks;
	const struct ferry_secret *secret;
	struct ferry_hub_conn *conns;
	uint32_t n_refused;
	bool over; /* rank 0 has gone: flush and end */
	/* Until all have come. */
	bool *absent; /* [n_ranks] in this round; before, not yet come */
	int32_t n_absent;
	bool complete;
	/* The earliest deadline of a rank that waits, whose, and its wait. */
	uint64_t deadline_ns;
	int32_t waiter;
	uint64_t patience_ms;
	/* Allgather in progress. */
	uint64_t round;
	int32_t first; /* rank that gave first */
	size_t bytes;
	uint8_t *gather;
	uint8_t *result; /* of the round before */
	size_t result_bytes;
	/* Deaths in their order, as in FERRY_MSG_DEAD. */
	uint64_t *deaths;
	int32_t n_deaths;
	bool *gone; /* [n_ranks] */
	enum ferry_status failed;
	int32_t root;     /* rank that caused it, -1 */
	uint64_t tell_ns; /* when the members are told at the latest */
	char text[FERRY_TEXT_BYTES];
};

enum ferry_status ferry_hub_init(struct ferry_hub *hub, struct ferry_ctx *ctx,
                                 int32_t n_ranks,
                                 const struct ferry_secret *secret);
void ferry_hub_destroy(struct ferry_hub *hub);

/* A new connection; NULL: out of memory. `from` is for messages. */
struct ferry_hub_conn *ferry_hub_connect(struct ferry_hub *hub,
                                         const char *from);
/* Makes it a member, for the hello that it has given. */
void ferry_hub_join(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                    int32_t rank, uint64_t left_ns);
/* Not welcome, for this reason: logged, OVER. */
void ferry_hub_drop(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                    const char *reason);

/* Bytes came in. */
void ferry_hub_input(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                     const uint8_t *data, size_t n_data);
/* The connection has ended. `how`: not with FERRY_LEAVE_CLOSED. */
void ferry_hub_end(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                   enum ferry_leave how);
/* Frees it; its state is OVER. */
void ferry_hub_forget(struct ferry_hub *hub, struct ferry_hub_conn *conn);

/* The next bytes to send; 0: none. Then how many have gone. */
size_t ferry_hub_output(struct ferry_hub *hub, struct ferry_hub_conn *conn,
                        const uint8_t **data);
void ferry_hub_sent(struct ferry_hub_conn *conn, size_t n);

/* Ends what is late; when to come again at the latest. */
uint64_t ferry_hub_tick(struct ferry_hub *hub, uint64_t now_ns);

#endif
