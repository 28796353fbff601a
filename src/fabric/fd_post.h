/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors passed among processes of one host. Every rank listens under a
 * name that nobody guesses; a sender connects and leaves its descriptor, which
 * completes without the receiver's doing. When all have sent, all receive.
 */
#ifndef FERRY_FD_POST_H
#define FERRY_FD_POST_H

#include "../core/ctx.h"

/* Where a rank listens; passed to its peers by boot. */
struct ferry_fd_address {
	char name[48];     /* of an abstract unix socket */
	uint8_t token[16]; /* who sends shows it */
};

struct ferry_fd_post {
	int socket; /* -1: closed */
	struct ferry_fd_address address;
};

/* Listens. Errors: SYS. */
enum ferry_status ferry_fd_post_open(struct ferry_ctx *ctx,
                                     struct ferry_fd_post *post);
void ferry_fd_post_close(struct ferry_fd_post *post);

/*
 * Leaves fd with rank `to`; it stays the caller's. Waits for room there at
 * most until deadline_ns. Errors: SYS, TIMEOUT, PEER (another user listens).
 */
enum ferry_status ferry_fd_post_send(struct ferry_ctx *ctx,
                                     const struct ferry_fd_address *address,
                                     int32_t from, int32_t to, int fd,
                                     uint64_t deadline_ns);

/* Of a rank: nothing is awaited from it, or a descriptor is. */
enum { FERRY_FD_NONE = -1, FERRY_FD_WANTED = -2 };

/*
 * Puts what was left here in place of each FERRY_FD_WANTED in fds[n_ranks]. All
 * have sent: nothing is waited for. What strangers left is thrown away. On
 * failure no descriptor is kept. Errors: SYS, PROTO.
 */
enum ferry_status ferry_fd_post_receive(struct ferry_ctx *ctx,
                                        struct ferry_fd_post *post,
                                        int32_t n_ranks, int *fds);

#endif
