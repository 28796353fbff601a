/* SPDX-License-Identifier: Apache-2.0 */
/* See fd_post.h. */
#include "fd_post.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../core/clock.h"

/* What comes with a descriptor. */
struct letter {
	uint8_t token[16];
	int32_t from;
};

/* Abstract: the name begins with a zero, and goes with its socket. */
static socklen_t fill(struct sockaddr_un *at,
                      const struct ferry_fd_address *address)
{
	const size_t n = strnlen(address->name, sizeof(address->name));

	memset(at, 0, sizeof(*at));
	at->sun_family = AF_UNIX;
	memcpy(at->sun_path + 1, address->name, n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int new_socket(void)
{
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
	              0);
}

/* Does a process of this user hold the other end? */
static bool is_own_user(int fd)
{
	struct ucred who = {0, (uid_t)-1, (gid_t)-1};
	socklen_t bytes = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) &&
	       who.uid == geteuid();
}

enum ferry_status ferry_fd_post_open(struct ferry_ctx *ctx,
                                     struct ferry_fd_post *post)
{
	struct ferry_fd_address *address = &post->address;
	struct sockaddr_un at;
	uint64_t random[2];

	memset(post, 0, sizeof(*post));
	post->socket = -1;
	if (getrandom(random, sizeof(random), 0) != sizeof(random) ||
	    getrandom(address->token, sizeof(address->token), 0) !=
	            sizeof(address->token))
		return ferry_fail_errno(ctx, FERRY_SYS, errno,
		                        "p2p: random name of a socket");
	snprintf(address->name, sizeof(address->name),
	         "ferry-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
	post->socket = new_socket();
	const socklen_t bytes = fill(&at, address);

	if (post->socket < 0 ||
	    bind(post->socket, (const struct sockaddr *)&at, bytes) ||
	    listen(post->socket, SOMAXCONN)) {
		const int err = errno;

		ferry_fd_post_close(post);
		return ferry_fail_errno(ctx, FERRY_SYS, err,
		                        "p2p: a socket to receive descriptors");
	}
	return FERRY_OK;
}

void ferry_fd_post_close(struct ferry_fd_post *post)
{
	if (post->socket >= 0)
		close(post->socket);
	post->socket = -1;
}

/* A message with one descriptor, or with room for one. */
struct envelope {
	struct msghdr message;
	struct iovec part;
	_Alignas(struct cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))];
};

static void envelope_init(struct envelope *e, struct letter *letter)
{
	memset(e, 0, sizeof(*e));
	e->part = (struct iovec){letter, sizeof(*letter)};
	e->message.msg_iov = &e->part;
	e->message.msg_iovlen = 1;
	e->message.msg_control = e->control;
	/* Padding would leave room for a second one, which nobody closes. */
	e->message.msg_controllen = CMSG_LEN(sizeof(int));
}

static bool send_letter(int socket, struct letter *letter, int fd)
{
	struct envelope e;

	envelope_init(&e, letter);
	struct cmsghdr *head = CMSG_FIRSTHDR(&e.message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	return sendmsg(socket, &e.message, MSG_NOSIGNAL) ==
	       (ssize_t)sizeof(*letter);
}

/* EAGAIN: as many as the other end asked for are waiting there. */
static bool connect_until(int socket, const struct ferry_fd_address *address,
                          uint64_t deadline_ns)
{
	struct sockaddr_un at;
	const socklen_t bytes = fill(&at, address);

	while (connect(socket, (const struct sockaddr *)&at, bytes)) {
		if (errno != EINTR && errno != EAGAIN)
			return false;
		if (ferry_now_ns() >= deadline_ns) {
			errno = ETIMEDOUT;
			return false;
		}
		usleep(100);
	}
	return true;
}

enum ferry_status ferry_fd_post_send(struct ferry_ctx *ctx,
                                     const struct ferry_fd_address *address,
                                     int32_t from, int32_t to, int fd,
                                     uint64_t deadline_ns)
{
	struct letter letter = {.from = from};
	const int socket = new_socket();
	enum ferry_status status = FERRY_OK;

	memcpy(letter.token, address->token, sizeof(letter.token));
	if (socket < 0 || !connect_until(socket, address, deadline_ns))
		status = ferry_fail_errno(
			ctx, errno == ETIMEDOUT ? FERRY_TIMEOUT : FERRY_SYS,
			errno,
			"p2p: rank %d is not reached to pass a descriptor (do "
			"the ranks share a network namespace?)",
			to);
	else if (!is_own_user(socket))
		status = ferry_fail(ctx, FERRY_PEER,
		                    "p2p: the socket of rank %d belongs to "
		                    "another user",
		                    to);
	else if (!send_letter(socket, &letter, fd))
		status = ferry_fail_errno(ctx, FERRY_SYS, errno,
		                          "p2p: passing a descriptor to rank "
		                          "%d",
		                          to);
	if (socket >= 0)
		close(socket);
	return status;
}

/* The descriptor that came with a message, -1: none. */
static int descriptor_of(struct msghdr *message)
{
	const struct cmsghdr *head = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (head && head->cmsg_level == SOL_SOCKET &&
	    head->cmsg_type == SCM_RIGHTS &&
	    head->cmsg_len == CMSG_LEN(sizeof(fd)))
		memcpy(&fd, CMSG_DATA(head), sizeof(fd));
	return fd;
}

/* Reads one connection; -1 unless a rank that is awaited left something. */
static int read_letter(const struct ferry_fd_post *post, int socket,
                       struct letter *letter)
{
	struct envelope e;
	ssize_t n;

	envelope_init(&e, letter);
	do
		n = recvmsg(socket, &e.message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	const int fd = descriptor_of(&e.message);

	if (n == (ssize_t)sizeof(*letter) &&
	    !(e.message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
	    is_own_user(socket) &&
	    !memcmp(letter->token, post->address.token, sizeof(letter->token)))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Takes one connection; false when there is none. */
static bool take(struct ferry_fd_post *post, int32_t n_ranks, int *fds)
{
	struct letter letter;
	const int socket =
		accept4(post->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (socket < 0)
		return errno == EINTR || errno == ECONNABORTED;
	const int fd = read_letter(post, socket, &letter);

	close(socket);
	if (fd < 0)
		return true;
	if (letter.from >= 0 && letter.from < n_ranks &&
	    fds[letter.from] == FERRY_FD_WANTED)
		fds[letter.from] = fd;
	else
		close(fd);
	return true;
}

/* The smallest rank whose descriptor is missing, -1: none. */
static int32_t missing(int32_t n_ranks, const int *fds)
{
	for (int32_t r = 0; r < n_ranks; r++)
		if (fds[r] == FERRY_FD_WANTED)
			return r;
	return -1;
}

enum ferry_status ferry_fd_post_receive(struct ferry_ctx *ctx,
                                        struct ferry_fd_post *post,
                                        int32_t n_ranks, int *fds)
{
	int err = 0;

	while (missing(n_ranks, fds) >= 0 && take(post, n_ranks, fds))
		;
	if (missing(n_ranks, fds) < 0)
		return FERRY_OK;
	err = errno;
	const int32_t absent = missing(n_ranks, fds);

	for (int32_t r = 0; r < n_ranks; r++)
		if (fds[r] >= 0)
			close(fds[r]);
	if (err != EAGAIN)
		return ferry_fail_errno(ctx, FERRY_SYS, err,
		                        "p2p: the descriptor of rank %d",
		                        absent);
	return ferry_fail(ctx, FERRY_PROTO,
	                  "p2p: no descriptor came from rank %d (are too many "
	                  "files open?)",
	                  absent);
}
