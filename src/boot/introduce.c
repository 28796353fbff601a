/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Introduction to the hub. Rank 0 may come later, something else may listen
 * at the address, a busy hub may drop a connection: all of that is tried again
 * until the deadline. A refusal by the hub is final.
 */
#include "introduce.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../core/clock.h"

enum { FIRST_PAUSE_US = 500, LONGEST_PAUSE_US = 20000, ATTEMPT_MS = 5000 };

/* NOT_REACHED and TRY_AGAIN are tried again; the latter had a connection. */
enum outcome { LET_IN, NOT_REACHED, TRY_AGAIN, REFUSED };

/* One attempt. */
struct attempt {
	const struct ferry_visit *visit;
	int fd;
	uint64_t deadline_ns;
	struct ferry_hello hello;
	struct ferry_reader reader;
	char *reason; /* [FERRY_REASON_TEXT] why to try again */
};

static bool send_all(struct attempt *a, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	while (bytes) {
		const ssize_t n = send(a->fd, p, bytes, MSG_NOSIGNAL);

		const bool later = n < 0 && ferry_socket_again();

		if (n <= 0 && !later)
			return false;
		if (later && !ferry_socket_wait(a->fd, POLLOUT, a->deadline_ns))
			return false;
		p += later ? 0 : n;
		bytes -= later ? 0 : (size_t)n;
	}
	return true;
}

static bool give_up(struct attempt *a, const char *why)
{
	snprintf(a->reason, FERRY_REASON_TEXT, "%s", why);
	return false;
}

static bool send_message(struct attempt *a, struct ferry_msg head,
                         const void *body)
{
	if (send_all(a, &head, sizeof(head)) &&
	    send_all(a, body, (size_t)head.bytes))
		return true;
	return give_up(a, "it closed the connection");
}

static bool allowed(const void *arg, const struct ferry_msg *head)
{
	(void)arg;
	switch (head->type) {
	case FERRY_MSG_CHALLENGE:
		return head->bytes == FERRY_NONCE_BYTES;
	case FERRY_MSG_WELCOME:
		return head->bytes == FERRY_SHA256_BYTES;
	case FERRY_MSG_REFUSE:
		return head->bytes == 0;
	default:
		return false;
	}
}

/*
 * Reads one message and not a byte more: what follows WELCOME is for the
 * spoke. False with a reason.
 */
static bool receive(struct attempt *a)
{
	uint8_t piece[sizeof(struct ferry_msg) + FERRY_SHA256_BYTES];
	bool ready = false;

	while (!ready) {
		const size_t want = ferry_reader_missing(&a->reader);
		const ssize_t n = recv(a->fd, piece, want, 0);
		const uint8_t *data = piece;
		size_t n_data = (size_t)n;

		if (n < 0 && ferry_socket_again()) {
			if (ferry_socket_wait(a->fd, POLLIN, a->deadline_ns))
				continue;
			return give_up(a, "it does not answer");
		}
		if (n <= 0)
			return give_up(a, "it closed the connection");
		if (ferry_reader_feed(&a->reader, &data, &n_data, allowed, NULL,
		                      &ready) != FERRY_OK)
			return give_up(a, "what listens there is not ferry");
	}
	return true;
}

static enum ferry_status refused(const struct attempt *a)
{
	const struct ferry_visit *v = a->visit;
	const uint32_t value = (uint32_t)(a->reader.head.arg >> 32);

	switch ((uint32_t)a->reader.head.arg) {
	case FERRY_REFUSE_PROTOCOL:
		return ferry_fail(v->ctx, FERRY_MISMATCH,
		                  "boot: rank 0 speaks boot protocol %u, rank "
		                  "%d speaks %d: the library versions differ",
		                  value, v->rank, FERRY_BOOT_PROTOCOL);
	case FERRY_REFUSE_SECRET:
		return ferry_fail(v->ctx, FERRY_MISMATCH,
		                  "boot: rank %d has another job secret than "
		                  "rank 0 at %s (FERRY_SECRET, "
		                  "FERRY_SECRET_FILE)",
		                  v->rank, v->address->text);
	case FERRY_REFUSE_RANKS:
		return ferry_fail(v->ctx, FERRY_MISMATCH,
		                  "boot: rank %d was started with %d ranks, "
		                  "rank 0 with %u",
		                  v->rank, v->n_ranks, value);
	case FERRY_REFUSE_TAKEN:
		return ferry_fail(v->ctx, FERRY_MISMATCH,
		                  "boot: rank %d has come already: two "
		                  "processes have this rank",
		                  v->rank);
	default:
		return ferry_fail(v->ctx, FERRY_MISMATCH,
		                  "boot: rank 0 at %s refuses rank %d of %d",
		                  v->address->text, v->rank, v->n_ranks);
	}
}

static uint64_t left_ns(uint64_t deadline_ns)
{
	const uint64_t now_ns = ferry_now_ns();

	return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

/* Both sides prove that they know the secret, this one first. */
static enum outcome prove(struct attempt *a)
{
	const struct ferry_visit *v = a->visit;
	uint8_t nonce[FERRY_NONCE_BYTES];
	uint8_t mac[FERRY_SHA256_BYTES];

	memcpy(nonce, a->reader.body, sizeof(nonce));
	ferry_proof(mac, v->secret, "peer", &a->hello, nonce);
	const struct ferry_msg head = ferry_msg_head(
		FERRY_MSG_PROOF, sizeof(mac), left_ns(v->deadline_ns));
	if (!send_message(a, head, mac) || !receive(a))
		return TRY_AGAIN;
	if (a->reader.head.type == FERRY_MSG_REFUSE)
		return REFUSED;
	ferry_proof(mac, v->secret, "hub", &a->hello, nonce);
	if (a->reader.head.type == FERRY_MSG_WELCOME &&
	    ferry_mac_equal(mac, a->reader.body))
		return LET_IN;
	give_up(a, "what listens there does not know the job secret");
	return TRY_AGAIN;
}

static enum outcome introduce(struct attempt *a)
{
	const struct ferry_msg head =
		ferry_msg_head(FERRY_MSG_HELLO, sizeof(a->hello), 0);

	if (!ferry_socket_adopt(a->fd, a->visit->ctx->opt.timeout_ms,
	                        a->reason) ||
	    !send_message(a, head, &a->hello) || !receive(a))
		return TRY_AGAIN;
	if (a->reader.head.type == FERRY_MSG_REFUSE)
		return REFUSED;
	if (a->reader.head.type == FERRY_MSG_CHALLENGE)
		return prove(a);
	give_up(a, "what listens there is not ferry");
	return TRY_AGAIN;
}

/* LET_IN with *fd, REFUSED with *status, the others with the reason. */
static enum outcome attempt(const struct ferry_visit *visit, int *fd,
                            enum ferry_status *status, char *reason)
{
	struct attempt a = {.visit = visit, .reason = reason};
	const uint64_t limit_ns = ferry_deadline_ns(ATTEMPT_MS);

	a.deadline_ns =
		visit->deadline_ns < limit_ns ? visit->deadline_ns : limit_ns;
	a.hello = (struct ferry_hello){.protocol = FERRY_BOOT_PROTOCOL,
	                               .rank = visit->rank,
	                               .n_ranks = visit->n_ranks,
	                               .patience_ms = visit->patience_ms};
	if (getrandom(a.hello.nonce, sizeof(a.hello.nonce), 0) !=
	    (ssize_t)sizeof(a.hello.nonce)) {
		*status = ferry_fail_errno(visit->ctx, FERRY_SYS, errno,
		                           "boot: getrandom");
		return REFUSED;
	}
	a.fd = ferry_address_connect(visit->address, a.deadline_ns, reason);
	if (a.fd < 0)
		return NOT_REACHED;
	const enum outcome outcome = introduce(&a);
	if (outcome == LET_IN)
		*fd = a.fd;
	else
		close(a.fd);
	if (outcome == REFUSED)
		*status = refused(&a);
	ferry_reader_destroy(&a.reader);
	return outcome;
}

/* Sleeps, longer each time, but not past the deadline. */
static void pause_between(uint64_t deadline_ns, uint64_t *pause_us)
{
	const uint64_t left_us = left_ns(deadline_ns) / 1000 + 1;
	const uint64_t us = *pause_us < left_us ? *pause_us : left_us;

	nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
	if (*pause_us < LONGEST_PAUSE_US)
		*pause_us *= 2;
}

enum ferry_status ferry_introduce(const struct ferry_visit *visit, int *fd)
{
	char reason[FERRY_REASON_TEXT] = "";
	uint64_t pause_us = FIRST_PAUSE_US;
	enum ferry_status status = FERRY_OK;
	enum outcome known = NOT_REACHED; /* what reason stands for */

	for (;;) {
		char now[FERRY_REASON_TEXT] = "";
		const enum outcome outcome = attempt(visit, fd, &status, now);

		if (outcome == LET_IN)
			return FERRY_OK;
		if (outcome == REFUSED)
			return status;
		const bool late = left_ns(visit->deadline_ns) == 0;
		/* An attempt that the deadline cut short tells less. */
		if (!late || !reason[0] || known < outcome) {
			memcpy(reason, now, sizeof(reason));
			known = outcome;
		}
		if (late)
			return ferry_fail(visit->ctx, FERRY_TIMEOUT,
			                  "boot: rank 0 did not come within "
			                  "%u ms: %s: %s",
			                  visit->patience_ms,
			                  visit->address->text, reason);
		pause_between(visit->deadline_ns, &pause_us);
	}
}
