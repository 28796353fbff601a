/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of the hub. One thread polls all of them, never blocks on one, and
 * reads a bounded piece of each in turn, so that nobody can hold up the rest.
 */
#include "hub_loop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../core/clock.h"
#include "../core/thread.h"
#include "hub.h"

enum { PIECE_BYTES = 65536, FLUSH_MS = 500, ACCEPT_PAUSE_MS = 20 };

struct ferry_hub_loop {
	struct ferry_hub hub;
	pthread_t thread;
	int listener;
	uint64_t accept_again_ns; /* out of descriptors until then */
	struct pollfd *polls;
	size_t n_polls;
	uint8_t piece[PIECE_BYTES];
};

static struct ferry_hub_conn *add(struct ferry_hub_loop *loop, int fd,
                                  const char *from)
{
	struct ferry_hub_conn *conn = ferry_hub_connect(&loop->hub, from);

	if (conn)
		conn->fd = fd;
	else
		close(fd);
	return conn;
}

/* Out of descriptors or memory: the visitors stay in the queue meanwhile. */
static void pause_accept(struct ferry_hub_loop *loop, int err)
{
	if (err != EMFILE && err != ENFILE && err != ENOBUFS && err != ENOMEM)
		return;
	if (!loop->accept_again_ns)
		ferry_log(
			loop->hub.ctx, FERRY_LOG_WARN,
			"boot: accept: %s; rank 0 needs an open file for each "
			"of %d ranks (ulimit -n)",
			strerrordesc_np(err), loop->hub.n_ranks);
	loop->accept_again_ns = ferry_deadline_ns(ACCEPT_PAUSE_MS);
}

static void accept_all(struct ferry_hub_loop *loop)
{
	const int64_t timeout_ms = loop->hub.ctx->opt.timeout_ms;

	for (int i = 0; i < 64; i++) {
		char from[80];
		char reason[FERRY_REASON_TEXT];
		const int fd = accept4(loop->listener, NULL, NULL,
		                       SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			pause_accept(loop, errno);
			return;
		}
		ferry_socket_peer(fd, from, sizeof(from));
		struct ferry_hub_conn *conn = add(loop, fd, from);
		if (conn && !ferry_socket_adopt(fd, timeout_ms, reason))
			ferry_hub_drop(&loop->hub, conn, reason);
	}
}

/* What became of the peer whose connection a send or recv has ended. */
static enum ferry_leave how_left(ssize_t n)
{
	return n < 0 && ferry_socket_silent() ? FERRY_LEAVE_SILENT
	                                      : FERRY_LEAVE_DIED;
}

static void read_piece(struct ferry_hub_loop *loop, struct ferry_hub_conn *conn)
{
	const ssize_t n = recv(conn->fd, loop->piece, PIECE_BYTES, 0);

	if (n > 0)
		ferry_hub_input(&loop->hub, conn, loop->piece, (size_t)n);
	else if (n == 0 || !ferry_socket_again())
		ferry_hub_end(&loop->hub, conn, how_left(n));
}

/* Sends what there is; true when the socket is full. */
static bool write_all(struct ferry_hub_loop *loop, struct ferry_hub_conn *conn)
{
	const uint8_t *data;
	size_t n;

	while ((n = ferry_hub_output(&loop->hub, conn, &data)) > 0) {
		const ssize_t sent = send(conn->fd, data, n, MSG_NOSIGNAL);

		if (sent < 0 && ferry_socket_again())
			return true;
		if (sent < 0) {
			ferry_hub_end(&loop->hub, conn, how_left(sent));
			return false;
		}
		ferry_hub_sent(conn, (size_t)sent);
	}
	return false;
}

/* Everyone has come: nobody else is expected. */
static void shut_door(struct ferry_hub_loop *loop)
{
	if (loop->listener < 0)
		return;
	close(loop->listener);
	loop->listener = -1;
	for (struct ferry_hub_conn *c = loop->hub.conns; c; c = c->next)
		if (c->state < FERRY_CONN_MEMBER)
			ferry_hub_drop(&loop->hub, c, "all ranks have come");
}

static void sweep(struct ferry_hub_loop *loop)
{
	for (struct ferry_hub_conn *c = loop->hub.conns, *next; c; c = next) {
		next = c->next;
		if (c->state != FERRY_CONN_OVER)
			continue;
		close(c->fd);
		ferry_hub_forget(&loop->hub, c);
	}
}

static bool reserve_polls(struct ferry_hub_loop *loop)
{
	size_t n = 1;

	for (struct ferry_hub_conn *c = loop->hub.conns; c; c = c->next)
		n++;
	if (n <= loop->n_polls)
		return true;
	struct pollfd *p = realloc(loop->polls, 2 * n * sizeof(*p));
	if (!p)
		return false;
	loop->polls = p;
	loop->n_polls = 2 * n;
	return true;
}

/* Writes what can be written; true when a socket was full. */
static bool write_everyone(struct ferry_hub_loop *loop)
{
	bool full = false;

	/* A connection that fails while written to is news to the others. */
	for (int32_t n_deaths = -1; n_deaths != loop->hub.n_deaths;) {
		n_deaths = loop->hub.n_deaths;
		full = false;
		for (struct ferry_hub_conn *c = loop->hub.conns; c; c = c->next)
			if (c->state != FERRY_CONN_OVER)
				full |= write_all(loop, c);
	}
	return full;
}

static void wait_for_news(struct ferry_hub_loop *loop, uint64_t until_ns)
{
	const uint64_t now_ns = ferry_now_ns();
	const bool pause = now_ns < loop->accept_again_ns;
	const uint8_t *data;
	nfds_t n = 1;

	if (pause && loop->accept_again_ns < until_ns)
		until_ns = loop->accept_again_ns;
	loop->polls[0] =
		(struct pollfd){pause ? -1 : loop->listener, POLLIN, 0};
	for (struct ferry_hub_conn *c = loop->hub.conns; c; c = c->next) {
		const bool out = ferry_hub_output(&loop->hub, c, &data) > 0;

		loop->polls[n++] = (struct pollfd){
			c->fd, (short)(POLLIN | (out ? POLLOUT : 0)), 0};
	}
	const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	const struct timespec left = ferry_timespec(left_ns);

	if (ppoll(loop->polls, n, until_ns == UINT64_MAX ? NULL : &left, NULL) <
	    0)
		for (nfds_t i = 0; i < n; i++)
			loop->polls[i].revents = 0;
}

static void read_news(struct ferry_hub_loop *loop)
{
	size_t i = 1;

	/* Before accept: new ones come first in the list. */
	for (struct ferry_hub_conn *c = loop->hub.conns; c; c = c->next, i++)
		if (loop->polls[i].revents & (POLLIN | POLLHUP | POLLERR))
			read_piece(loop, c);
	if (loop->polls[0].revents)
		accept_all(loop);
}

static void *serve(void *arg)
{
	struct ferry_hub_loop *loop = arg;
	uint64_t end_ns = UINT64_MAX;

	for (;;) {
		uint64_t until_ns = ferry_hub_tick(&loop->hub, ferry_now_ns());

		if (loop->hub.complete)
			shut_door(loop);
		const bool full = write_everyone(loop);
		sweep(loop);
		if (loop->hub.over && end_ns == UINT64_MAX)
			end_ns = ferry_deadline_ns(FLUSH_MS);
		if (loop->hub.over && (!full || ferry_now_ns() >= end_ns))
			break;
		if (end_ns < until_ns)
			until_ns = end_ns;
		if (!reserve_polls(loop))
			break;
		wait_for_news(loop, until_ns);
		read_news(loop);
	}
	return NULL;
}

static void destroy(struct ferry_hub_loop *loop)
{
	for (struct ferry_hub_conn *c = loop->hub.conns; c; c = c->next)
		close(c->fd);
	if (loop->hub.n_refused)
		ferry_log(loop->hub.ctx, FERRY_LOG_INFO,
		          "boot: %u strangers were refused",
		          loop->hub.n_refused);
	ferry_hub_destroy(&loop->hub);
	if (loop->listener >= 0)
		close(loop->listener);
	free(loop->polls);
	free(loop);
}

/* The connection between rank 0 and the hub in its process. */
static enum ferry_status join_rank_0(const struct ferry_hub_job *job,
                                     struct ferry_hub_loop *loop, int *fd)
{
	const uint64_t now_ns = ferry_now_ns();
	const uint64_t left_ns =
		job->deadline_ns > now_ns ? job->deadline_ns - now_ns : 0;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
	               ends))
		return ferry_fail_errno(job->ctx, FERRY_SYS, errno,
		                        "boot: socketpair");
	struct ferry_hub_conn *conn = add(loop, ends[0], "rank 0");
	if (!conn) {
		close(ends[1]);
		return ferry_fail(job->ctx, FERRY_NOMEM,
		                  "boot: a connection of %zu bytes",
		                  sizeof(*conn));
	}
	conn->hello.patience_ms = job->patience_ms;
	ferry_hub_join(&loop->hub, conn, 0, left_ns);
	*fd = ends[1];
	return FERRY_OK;
}

enum ferry_status ferry_hub_start(const struct ferry_hub_job *job,
                                  struct ferry_hub_loop **loop, int *fd)
{
	struct ferry_hub_loop *l = calloc(1, sizeof(*l));
	enum ferry_status status;

	if (!l)
		return ferry_fail(job->ctx, FERRY_NOMEM,
		                  "boot: a hub of %zu bytes", sizeof(*l));
	l->listener = -1;
	status = ferry_hub_init(&l->hub, job->ctx, job->n_ranks, job->secret);
	if (status != FERRY_OK) {
		free(l);
		return status;
	}
	status = ferry_address_listen(job->ctx, job->address, job->deadline_ns,
	                              &l->listener);
	if (status != FERRY_OK)
		goto err_loop;
	status = join_rank_0(job, l, fd);
	if (status != FERRY_OK)
		goto err_loop;
	const int err = ferry_thread_start(&l->thread, serve, l);
	if (err) {
		status = ferry_fail_errno(job->ctx, FERRY_SYS, err,
		                          "boot: pthread_create");
		goto err_fd;
	}
	*loop = l;
	return FERRY_OK;

err_fd:
	close(*fd);
err_loop:
	destroy(l);
	return status;
}

void ferry_hub_stop(struct ferry_hub_loop *loop)
{
	if (!loop)
		return;
	pthread_join(loop->thread, NULL);
	destroy(loop);
}
