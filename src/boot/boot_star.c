/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of the star: sends its part, reads what the hub says. The socket
 * never blocks and the lock is held for one step only, so that an abort or a
 * look at the dead from another thread need not wait for an allgather. Each of
 * them reads, unless an allgather polls, which reads at once what comes.
 */
#include "star.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../core/bits.h"
#include "../core/clock.h"
#include "boot_kinds.h"
#include "hub_loop.h"
#include "introduce.h"
#include "spoke.h"

/*
 * The hub's word on who is absent comes a little before the deadline. Where
 * the process of rank 0 does not run at all, we end later, by a quarter of the
 * time within these bounds.
 */
static const int64_t SHORTEST_GRACE_NS = 50000000;
static const int64_t LONGEST_GRACE_NS = 500000000;

struct boot_star {
	struct ferry_boot boot;
	struct ferry_secret secret;
	struct ferry_hub_loop *hub; /* of rank 0 */
	int fd;
	int wake; /* eventfd: an abort ends the wait of an allgather */
	pthread_mutex_t lock; /* all below */
	struct ferry_spoke spoke;
	/* On its way out: a head, and bytes that the allgather's caller has. */
	uint8_t head[sizeof(struct ferry_msg) + sizeof(struct ferry_give)];
	size_t n_head;
	const uint8_t *tail;
	size_t n_tail;
	size_t n_sent;
	bool polled;     /* an allgather sleeps until there is news */
	bool mute;       /* a message was cut: nothing more can be said */
	bool silent;     /* the host of rank 0 does not answer */
	bool must_abort; /* ABORT is to be sent */
};

static void put(struct boot_star *b, struct ferry_msg head)
{
	memcpy(b->head, &head, sizeof(head));
	b->n_head = sizeof(head);
	b->n_tail = 0;
	b->n_sent = 0;
}

static void put_give(struct boot_star *b, const void *in, size_t bytes,
                     uint64_t left_ns)
{
	const struct ferry_give give = {left_ns};

	put(b, ferry_msg_head(FERRY_MSG_GIVE, sizeof(give) + bytes,
	                      b->spoke.round));
	memcpy(b->head + b->n_head, &give, sizeof(give));
	b->n_head += sizeof(give);
	b->tail = in;
	b->n_tail = bytes;
}

static bool is_sending(const struct boot_star *b)
{
	return !b->mute && b->n_sent < b->n_head + b->n_tail;
}

/* Only the first error of a socket says why. */
static void lose(struct boot_star *b)
{
	b->silent |= ferry_socket_silent();
	b->mute = true;
}

static void send_some(struct boot_star *b)
{
	while (is_sending(b)) {
		const bool at_head = b->n_sent < b->n_head;
		const uint8_t *p = at_head ? b->head + b->n_sent
		                           : b->tail + b->n_sent - b->n_head;
		const size_t n = (at_head ? b->n_head : b->n_head + b->n_tail) -
		                 b->n_sent;
		const ssize_t sent = send(b->fd, p, n, MSG_NOSIGNAL);

		if (sent > 0)
			b->n_sent += (size_t)sent;
		else if (ferry_socket_again())
			return;
		else
			lose(b); /* the end will be read, too */
	}
}

static void receive_some(struct boot_star *b)
{
	uint8_t piece[16384];

	for (;;) {
		const ssize_t n = recv(b->fd, piece, sizeof(piece), 0);

		if (n > 0)
			ferry_spoke_input(&b->spoke, piece, (size_t)n);
		else if (n < 0 && ferry_socket_again())
			return;
		if (n <= 0) {
			b->silent |= n < 0 && ferry_socket_silent();
			ferry_spoke_end(&b->spoke, b->silent
			                                   ? FERRY_LEAVE_SILENT
			                                   : FERRY_LEAVE_DIED);
		}
		if (n <= 0 || b->spoke.failed == FERRY_PROTO)
			return;
	}
}

/* One step, under the lock. */
static void step(struct boot_star *b)
{
	send_some(b);
	if (b->must_abort && !is_sending(b) && !b->mute) {
		b->must_abort = false;
		put(b, ferry_msg_head(FERRY_MSG_ABORT, 0, 0));
		send_some(b);
	}
	receive_some(b);
}

static void wait_for_news(struct boot_star *b, bool sending, uint64_t until_ns)
{
	const uint64_t now_ns = ferry_now_ns();
	const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	const struct timespec left = ferry_timespec(left_ns);
	struct pollfd p[2] = {
		{b->fd, (short)(POLLIN | (sending ? POLLOUT : 0)), 0},
		{b->wake, POLLIN, 0}};
	eventfd_t n;

	ppoll(p, 2, &left, NULL);
	if (p[1].revents)
		eventfd_read(b->wake, &n);
}

/* Who comes when its time is over is told so by the hub, too. */
static uint64_t end_of_grace(uint64_t now_ns, uint64_t deadline_ns)
{
	if (deadline_ns >= UINT64_MAX / 2)
		return deadline_ns;
	if (deadline_ns < now_ns)
		deadline_ns = now_ns;
	const int64_t quarter_ns = (int64_t)(deadline_ns - now_ns) / 4;
	const int64_t grace_ns = min_i64(
		LONGEST_GRACE_NS, max_i64(SHORTEST_GRACE_NS, quarter_ns));

	return deadline_ns + (uint64_t)grace_ns;
}

/* Steps until done(spoke) or a failure. Called and returns with the lock. */
static void run(struct boot_star *b, bool (*done)(const struct ferry_spoke *),
                uint64_t deadline_ns)
{
	const uint64_t start_ns = ferry_now_ns();
	const uint64_t end_ns = end_of_grace(start_ns, deadline_ns);

	for (;;) {
		step(b);
		if (done(&b->spoke) || b->spoke.failed)
			return;
		if (ferry_now_ns() >= end_ns) {
			ferry_spoke_fail(
				&b->spoke, FERRY_TIMEOUT, 0,
				"boot: rank 0 does not answer for %llu ms",
				(unsigned long long)(ferry_now_ns() -
			                             start_ns) /
					1000000);
			return;
		}
		const bool sending = is_sending(b);

		b->polled = true;
		pthread_mutex_unlock(&b->lock);
		wait_for_news(b, sending, end_ns);
		pthread_mutex_lock(&b->lock);
		b->polled = false;
	}
}

static bool has_result(const struct ferry_spoke *spoke)
{
	return spoke->result;
}

static bool may_go(const struct ferry_spoke *spoke)
{
	return spoke->go;
}

/* The caller's bytes go away: half a message makes the connection useless. */
static void forget_tail(struct boot_star *b)
{
	if (is_sending(b)) {
		b->mute = true;
		shutdown(b->fd, SHUT_RDWR);
	}
	b->n_head = 0;
	b->n_tail = 0;
	b->n_sent = 0;
}

static enum ferry_status allgather(struct ferry_boot *boot, const void *in,
                                   void *out, size_t bytes,
                                   uint64_t deadline_ns)
{
	struct boot_star *b = (struct boot_star *)boot;
	const size_t all_bytes = bytes * (size_t)boot->n_ranks;
	const uint64_t now_ns = ferry_now_ns();

	FERRY_TRY(ferry_boot_check_bytes(boot, bytes));
	pthread_mutex_lock(&b->lock);
	if (!b->spoke.failed) {
		b->spoke.expected = all_bytes;
		put_give(b, in, bytes,
		         deadline_ns > now_ns ? deadline_ns - now_ns : 0);
		run(b, has_result, deadline_ns);
		forget_tail(b);
		b->spoke.expected = 0;
	}
	uint8_t *result = b->spoke.result;
	b->spoke.result = NULL;
	b->spoke.round++;
	pthread_mutex_unlock(&b->lock);
	/* Once there is a failure, its record does not change any more. */
	if (!result)
		return ferry_boot_fail(boot, b->spoke.failed, b->spoke.root,
		                       "%s", b->spoke.text);
	memcpy(out, result, all_bytes);
	free(result);
	return FERRY_OK;
}

static void abort_all(struct ferry_boot *boot)
{
	struct boot_star *b = (struct boot_star *)boot;

	pthread_mutex_lock(&b->lock);
	b->must_abort = !b->spoke.failed;
	ferry_spoke_fail(&b->spoke, FERRY_ABORTED, boot->rank,
	                 "boot: rank %d aborted the world", boot->rank);
	step(b);
	pthread_mutex_unlock(&b->lock);
	eventfd_write(b->wake, 1);
}

/*
 * 1 + enum ferry_leave, 0: it is here. Whoever polls reads: news taken from
 * under it would not wake it.
 */
static int has_left(struct ferry_boot *boot, int32_t peer)
{
	struct boot_star *b = (struct boot_star *)boot;

	pthread_mutex_lock(&b->lock);
	if (!b->polled)
		step(b);
	const int how = b->spoke.gone[peer];
	pthread_mutex_unlock(&b->lock);
	return how;
}

static bool dead(struct ferry_boot *boot, int32_t peer)
{
	const int how = has_left(boot, peer);

	return how && how != 1 + FERRY_LEAVE_SILENT;
}

static bool silent(struct ferry_boot *boot, int32_t peer)
{
	return has_left(boot, peer) == 1 + FERRY_LEAVE_SILENT;
}

static bool closed(struct ferry_boot *boot, int32_t peer)
{
	return has_left(boot, peer) == 1 + FERRY_LEAVE_CLOSED;
}

static void destroy(struct boot_star *b)
{
	if (b->fd >= 0)
		close(b->fd);
	ferry_hub_stop(b->hub);
	if (b->wake >= 0)
		close(b->wake);
	ferry_spoke_destroy(&b->spoke);
	pthread_mutex_destroy(&b->lock);
	explicit_bzero(&b->secret, sizeof(b->secret));
	free(b);
}

static void close_star(struct ferry_boot *boot)
{
	struct boot_star *b = (struct boot_star *)boot;

	if (!is_sending(b) && !b->mute) {
		put(b, ferry_msg_head(FERRY_MSG_BYE, 0, 0));
		send_some(b);
	}
	destroy(b);
}

#define OPS(kind)                                                              \
	{                                                                      \
		.name = kind, .allgather = allgather, .abort = abort_all,      \
		.dead = dead, .silent = silent, .closed = closed,              \
		.close = close_star,                                           \
	}
static const struct ferry_boot_ops ops_unix = OPS("unix");
static const struct ferry_boot_ops ops_tcp = OPS("tcp");

static enum ferry_status check_secret(struct ferry_ctx *ctx,
                                      const struct ferry_address *address,
                                      const struct ferry_secret *secret)
{
	if (secret->n_bytes || address->is_local)
		return FERRY_OK;
	return ferry_fail(ctx, FERRY_INVAL,
	                  "boot: %s can be reached from other hosts and there "
	                  "is no job secret: set FERRY_SECRET, or "
	                  "FERRY_SECRET_FILE, to the same on all ranks",
	                  address->text);
}

/* Rank 0 starts the hub, the others go to it. */
static enum ferry_status meet(struct boot_star *b,
                              const struct ferry_address *address,
                              uint64_t deadline_ns)
{
	struct ferry_ctx *ctx = b->boot.ctx;
	const uint32_t patience_ms = (uint32_t)ctx->opt.open_timeout_ms;

	if (b->boot.rank)
		return ferry_introduce(
			&(struct ferry_visit){.ctx = ctx,
		                              .address = address,
		                              .secret = &b->secret,
		                              .rank = b->boot.rank,
		                              .n_ranks = b->boot.n_ranks,
		                              .patience_ms = patience_ms,
		                              .deadline_ns = deadline_ns},
			&b->fd);
	return ferry_hub_start(
		&(struct ferry_hub_job){.ctx = ctx,
	                                .address = address,
	                                .secret = &b->secret,
	                                .n_ranks = b->boot.n_ranks,
	                                .patience_ms = patience_ms,
	                                .deadline_ns = deadline_ns},
		&b->hub, &b->fd);
}

static enum ferry_status open_star(struct boot_star *b,
                                   const struct ferry_address *address,
                                   uint64_t deadline_ns)
{
	struct ferry_ctx *ctx = b->boot.ctx;

	FERRY_TRY(ferry_secret_load(ctx, &b->secret));
	FERRY_TRY(check_secret(ctx, address, &b->secret));
	b->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (b->wake < 0)
		return ferry_fail_errno(ctx, FERRY_SYS, errno, "boot: eventfd");
	FERRY_TRY(meet(b, address, deadline_ns));
	pthread_mutex_lock(&b->lock);
	run(b, may_go, deadline_ns);
	/* A peer that fails right after all have come is for later calls. */
	const bool go = b->spoke.go;
	pthread_mutex_unlock(&b->lock);
	if (!go)
		return ferry_fail(ctx, b->spoke.failed, "%s", b->spoke.text);
	return FERRY_OK;
}

enum ferry_status ferry_boot_open_star(struct ferry_ctx *ctx,
                                       const struct ferry_address *address,
                                       int32_t rank, int32_t n_ranks,
                                       uint64_t deadline_ns,
                                       struct ferry_boot **boot)
{
	struct boot_star *b = calloc(1, sizeof(*b));

	if (!b)
		return ferry_fail(ctx, FERRY_NOMEM, "boot: state of %zu bytes",
		                  sizeof(*b));
	if (!ferry_spoke_init(&b->spoke, rank, n_ranks)) {
		free(b);
		return ferry_fail(ctx, FERRY_NOMEM, "boot: state of %d ranks",
		                  n_ranks);
	}
	b->boot = (struct ferry_boot){.ops = address->is_unix ? &ops_unix
	                                                      : &ops_tcp,
	                              .ctx = ctx,
	                              .rank = rank,
	                              .n_ranks = n_ranks};
	b->fd = -1;
	b->wake = -1;
	pthread_mutex_init(&b->lock, NULL);
	const enum ferry_status status = open_star(b, address, deadline_ns);
	if (status != FERRY_OK) {
		destroy(b);
		return status;
	}
	*boot = &b->boot;
	return FERRY_OK;
}
