/* SPDX-License-Identifier: Apache-2.0 */
/* Where rank 0 listens: an abstract unix name, or a TCP host and port. */
#ifndef FERRY_ADDRESS_H
#define FERRY_ADDRESS_H

#include "../core/ctx.h"

enum { FERRY_ADDRESS_BYTES = 256, FERRY_REASON_TEXT = 160 };

struct ferry_address {
	bool is_unix;
	bool is_local; /* cannot be reached from another host */
	char host[FERRY_ADDRESS_BYTES]; /* of unix: the name */
	char port[8];
	char text[FERRY_ADDRESS_BYTES + 16]; /* for messages */
};

/* "unix:NAME", "HOST:PORT", "[V6]:PORT". INVAL names what is allowed. */
enum ferry_status ferry_address_parse(struct ferry_ctx *ctx, const char *text,
                                      struct ferry_address *address);

/*
 * Listens, not blocking. A number and localhost are bound as they are; for
 * another name, all addresses of the host, since a name often stands for
 * 127.0.1.1 on the host itself. While somebody else has the address, tries
 * again for a few seconds.
 */
enum ferry_status ferry_address_listen(struct ferry_ctx *ctx,
                                       const struct ferry_address *address,
                                       uint64_t deadline_ns, int *fd);

/* One attempt; -1 with the reason when nobody answers. Not blocking after. */
int ferry_address_connect(const struct ferry_address *address,
                          uint64_t deadline_ns, char reason[FERRY_REASON_TEXT]);

/*
 * Prepares a connection; false with a reason when it is another user's. A host
 * that answers nothing for timeout_ms, 1 to 25 s, is given up.
 */
bool ferry_socket_adopt(int fd, int64_t timeout_ms,
                        char reason[FERRY_REASON_TEXT]);

/* Who is at the other end: "127.0.0.1:5123", "pid 17 of user 1000". */
void ferry_socket_peer(int fd, char *text, size_t bytes);

/* errno of a send or recv that failed: is it to be tried again? */
bool ferry_socket_again(void);

/* Likewise: is the other host out of reach, so that nothing is known of it? */
bool ferry_socket_silent(void);

/* Waits for poll events; false when the deadline has passed. */
bool ferry_socket_wait(int fd, short events, uint64_t deadline_ns);

#endif
