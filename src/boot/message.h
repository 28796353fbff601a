/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over a rendezvous connection, and how it is read back. A message
 * is a head and `bytes` bytes of body. Who reads decides from the head alone
 * whether it is allowed, so that nothing is allocated for a stranger's claim.
 *
 *	peer                          hub (in the process of rank 0)
 *	HELLO rank, n_ranks, nonce ->
 *	                           <- CHALLENGE nonce
 *	PROOF mac                  ->
 *	                           <- WELCOME mac, or REFUSE reason
 *	                           <- GO, when every rank has come
 *	GIVE time left, bytes      ->
 *	                           <- RESULT bytes of all ranks
 *	ABORT, BYE                 ->
 *	                           <- DEAD rank; FAIL status, root, text: at
 *	                              any time
 */
#ifndef FERRY_MESSAGE_H
#define FERRY_MESSAGE_H

#include <ferry/base.h>

#include "boot.h"
#include "sha256.h"

enum {
	FERRY_MSG_MAGIC = 0x79727246,
	FERRY_BOOT_PROTOCOL = 2, /* changes with anything in this file */
	FERRY_NONCE_BYTES = 32,
	FERRY_TEXT_BYTES = sizeof(((struct ferry_error *)0)->text),
};

enum ferry_msg_type {
	FERRY_MSG_HELLO = 1,
	FERRY_MSG_CHALLENGE,
	FERRY_MSG_PROOF, /* arg: nanoseconds left to the peer */
	FERRY_MSG_WELCOME,
	FERRY_MSG_REFUSE, /* arg: reason, and a value above bit 32 */
	FERRY_MSG_GO,
	FERRY_MSG_GIVE,   /* arg: round */
	FERRY_MSG_RESULT, /* arg: round */
	FERRY_MSG_DEAD,   /* arg: rank, enum ferry_leave above bit 32 */
	FERRY_MSG_FAIL,   /* arg: ferry_msg_failure; body: text without 0 */
	FERRY_MSG_ABORT,
	FERRY_MSG_BYE,
};

/* How a rank has gone. */
enum ferry_leave {
	FERRY_LEAVE_DIED,
	FERRY_LEAVE_CLOSED,
	FERRY_LEAVE_SILENT, /* its host does not answer; it may live */
};

enum ferry_refusal {
	FERRY_REFUSE_PROTOCOL = 1, /* value: the hub's */
	FERRY_REFUSE_SECRET,
	FERRY_REFUSE_RANKS, /* value: n_ranks of the hub */
	FERRY_REFUSE_RANGE,
	FERRY_REFUSE_TAKEN,
};

struct ferry_msg {
	uint32_t magic;
	uint32_t type;
	uint64_t bytes; /* of the body */
	uint64_t arg;
};

struct ferry_hello {
	uint32_t protocol; /* first: all versions can read it */
	int32_t rank;
	int32_t n_ranks;
	uint32_t patience_ms; /* how long it waits for the others */
	uint8_t nonce[FERRY_NONCE_BYTES];
};

/* Body of GIVE: then 1..FERRY_BOOT_MAX_BYTES of data. */
struct ferry_give {
	uint64_t left_ns; /* to the deadline of the giver */
};

static inline struct ferry_msg ferry_msg_head(enum ferry_msg_type type,
                                              uint64_t bytes, uint64_t arg)
{
	return (struct ferry_msg){FERRY_MSG_MAGIC, type, bytes, arg};
}

/* -status, and the rank that caused it + 1 above bit 32; -1: nobody did. */
static inline uint64_t ferry_msg_failure(enum ferry_status status, int32_t root)
{
	return (uint32_t)-status | (uint64_t)(uint32_t)(root + 1) << 32;
}

/* One message in the making. Zeroed to begin with. */
struct ferry_reader {
	struct ferry_msg head;
	size_t n_bytes; /* so far, of head and body */
	uint8_t *body;  /* head.bytes, once the head is there */
	size_t capacity;
	bool whole; /* to be dropped by the next feed */
	bool bad; /* a head was not allowed: where the next begins is unknown */
};

/* "died", "closed its world", "does not answer" */
const char *ferry_leave_text(enum ferry_leave how);

void ferry_reader_destroy(struct ferry_reader *reader);

/* May this head come now? The magic is checked already. */
typedef bool ferry_msg_allowed(const void *arg, const struct ferry_msg *head);

/*
 * Takes bytes from *data, at most to the end of one message; *ready says that
 * it is whole, and stays so until the next call. PROTO: the head is not
 * allowed; NOMEM.
 */
enum ferry_status ferry_reader_feed(struct ferry_reader *reader,
                                    const uint8_t **data, size_t *n_data,
                                    ferry_msg_allowed *allowed, const void *arg,
                                    bool *ready);

/*
 * Bytes to the end of the head, or, once that is there, of the message: who
 * reads no more than this reads nothing of the next message.
 */
size_t ferry_reader_missing(const struct ferry_reader *reader);

/* What both sides prove: "peer" or "hub" knows the secret, for this meeting. */
struct ferry_secret {
	size_t n_bytes;
	uint8_t bytes[4096];
};
void ferry_proof(uint8_t mac[FERRY_SHA256_BYTES],
                 const struct ferry_secret *secret, const char *who,
                 const struct ferry_hello *hello,
                 const uint8_t nonce[FERRY_NONCE_BYTES]);

#endif
