/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody at the door of a rendezvous who speaks the protocol as badly, or as
 * well, as a test wants. Failures end the body of the rank that plays him.
 */
#ifndef STRANGER_H
#define STRANGER_H

#include "boot/message.h"

/* Connects to "HOST:PORT", an IPv4 address, as soon as somebody listens. */
int stranger_connect(const char *where);

/* Sends what the other side still takes. */
void stranger_send(int fd, const void *data, size_t bytes);
void stranger_send_message(int fd, struct ferry_msg head, const void *body);

/* Reads one message; body has room for 512 bytes. */
struct ferry_msg stranger_read(int fd, void *body);

/* Waits until the other side closes; false when it does not. */
bool stranger_is_closed(int fd, int timeout_ms);

/* HELLO, CHALLENGE, PROOF; the answer of the hub. */
struct ferry_msg stranger_introduce(int fd, struct ferry_hello hello,
                                    const char *secret);

/* A listener of his own at "HOST:PORT". */
int stranger_listen(const char *where);

/* Comes as `hello` says, and must be refused for this reason. */
void stranger_refused(const char *where, struct ferry_hello hello,
                      const char *secret, enum ferry_refusal why);

#endif
