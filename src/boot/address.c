/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses as text, and the sockets of both ends. */
#include "address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../core/bits.h"
#include "../core/clock.h"

enum {
	BACKLOG = 1024,
	RETRY_LISTEN_MS = 3000,
	CONNECT_MS = 3000,
	SILENCE_LEAST_MS = 1000,
	SILENCE_MOST_MS = 25000,
};

static enum ferry_status bad(struct ferry_ctx *ctx, const char *text)
{
	return ferry_fail(ctx, FERRY_INVAL,
	                  "boot: rendezvous is '%.120s', allowed are HOST:PORT "
	                  "with a port of 1..65535, and unix:NAME with a name "
	                  "of 1..100 bytes",
	                  text);
}

static bool port_is_good(const char *port)
{
	const size_t n = strspn(port, "0123456789");

	return n >= 1 && n <= 5 && !port[n] && atoi(port) >= 1 &&
	       atoi(port) <= 65535;
}

/* The result depends on the text only, so that all ranks judge alike. */
static bool host_is_local(const char *host)
{
	return !strcmp(host, "localhost") || !strcmp(host, "::1") ||
	       (!strncmp(host, "127.", 4) &&
	        strspn(host, "0123456789.") == strlen(host));
}

static bool host_is_number(const char *host)
{
	return strchr(host, ':') || strspn(host, "0123456789.") == strlen(host);
}

enum ferry_status ferry_address_parse(struct ferry_ctx *ctx, const char *text,
                                      struct ferry_address *address)
{
	struct ferry_address a = {.is_unix = !strncmp(text, "unix:", 5)};
	const char *host = a.is_unix ? text + 5 : text;
	size_t n = strlen(host);

	if (!a.is_unix) {
		const char *colon = strrchr(text, ':');

		if (!colon || !port_is_good(colon + 1))
			return bad(ctx, text);
		snprintf(a.port, sizeof(a.port), "%s", colon + 1);
		n = (size_t)(colon - text);
		if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
			host++;
			n -= 2;
		} else if (memchr(host, ':', n)) {
			return bad(ctx, text);
		}
	}
	if (n < 1 || n > (a.is_unix ? 100 : sizeof(a.host) - 1))
		return bad(ctx, text);
	memcpy(a.host, host, n);
	a.is_local = a.is_unix || host_is_local(a.host);
	snprintf(a.text, sizeof(a.text), "%s", text);
	*address = a;
	return FERRY_OK;
}

static socklen_t unix_name(const struct ferry_address *address,
                           struct sockaddr_un *to)
{
	const size_t n = strlen(address->host);

	/* A leading 0 byte: the name lives in the kernel, not in a file. */
	*to = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(to->sun_path + 1, address->host, n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int open_socket(int family)
{
	return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int listen_at(int family, const struct sockaddr *at, socklen_t n)
{
	const int on = 1;
	const int off = 0;
	const int fd = open_socket(family);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (!bind(fd, at, n) && !listen(fd, BACKLOG))
		return fd;
	const int err = errno;

	close(fd);
	errno = err;
	return -1;
}

static int listen_unix(const struct ferry_address *address)
{
	struct sockaddr_un at;
	const socklen_t n = unix_name(address, &at);

	return listen_at(AF_UNIX, (struct sockaddr *)&at, n);
}

static int resolve(const char *host, const char *port, int flags,
                   struct addrinfo **list)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC,
	                               .ai_socktype = SOCK_STREAM,
	                               .ai_flags = flags | AI_NUMERICSERV};

	return getaddrinfo(host, port, &hints, list);
}

static int listen_tcp(const struct ferry_address *address)
{
	const char *host = address->host;
	struct addrinfo *list;
	int fd = -1;

	if (!address->is_local && !host_is_number(host))
		host = NULL;
	if (resolve(host, address->port, AI_PASSIVE, &list)) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	/* All addresses of the host: IPv6 listens to IPv4, too. */
	for (int six = host ? 0 : 1; six >= 0 && fd < 0; six--)
		for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
			if (host || (a->ai_family == AF_INET6) == six)
				fd = listen_at(a->ai_family, a->ai_addr,
				               a->ai_addrlen);
	const int err = errno;

	freeaddrinfo(list);
	errno = err;
	return fd;
}

enum ferry_status ferry_address_listen(struct ferry_ctx *ctx,
                                       const struct ferry_address *address,
                                       uint64_t deadline_ns, int *fd)
{
	const uint64_t patience_ns = ferry_deadline_ns(RETRY_LISTEN_MS);
	const uint64_t end_ns =
		patience_ns < deadline_ns ? patience_ns : deadline_ns;

	for (;;) {
		const int s = address->is_unix ? listen_unix(address)
		                               : listen_tcp(address);

		if (s >= 0) {
			*fd = s;
			return FERRY_OK;
		}
		if (errno != EADDRINUSE || ferry_now_ns() >= end_ns)
			return ferry_fail_errno(ctx, FERRY_SYS, errno,
			                        "boot: rank 0 cannot listen at "
			                        "%s",
			                        address->text);
		nanosleep(&(struct timespec){0, 5000000}, NULL);
	}
}

bool ferry_socket_again(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

bool ferry_socket_silent(void)
{
	return errno == ETIMEDOUT || errno == EHOSTUNREACH ||
	       errno == ENETUNREACH || errno == ENETDOWN;
}

bool ferry_socket_wait(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		const uint64_t now_ns = ferry_now_ns();

		if (now_ns >= deadline_ns)
			return false;
		const uint64_t left_ns = deadline_ns - now_ns;
		const struct timespec left = ferry_timespec(left_ns);

		if (ppoll(&p, 1, &left, NULL) > 0)
			return true;
	}
}

/*
 * A port that nobody listens at may be given to the very socket that connects
 * to it: TCP then connects it to itself.
 */
static bool is_itself(int fd)
{
	struct sockaddr_storage a = {0};
	struct sockaddr_storage b = {0};
	socklen_t n_a = sizeof(a);
	socklen_t n_b = sizeof(b);

	return !getsockname(fd, (struct sockaddr *)&a, &n_a) &&
	       !getpeername(fd, (struct sockaddr *)&b, &n_b) && n_a == n_b &&
	       !memcmp(&a, &b, n_a);
}

static int connect_to(int family, const struct sockaddr *to, socklen_t n,
                      uint64_t deadline_ns)
{
	const struct linger at_once = {1, 0};
	const int fd = open_socket(family);
	int err = 0;
	socklen_t n_err = sizeof(err);

	if (fd < 0)
		return -1;
	if (connect(fd, to, n)) {
		err = errno;
		if (err == EINPROGRESS) {
			err = ETIMEDOUT;
			if (ferry_socket_wait(fd, POLLOUT, deadline_ns))
				getsockopt(fd, SOL_SOCKET, SO_ERROR, &err,
				           &n_err);
		}
	}
	if (!err && family != AF_UNIX && is_itself(fd)) {
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once,
		           sizeof(at_once));
		err = ECONNREFUSED;
	}
	if (!err)
		return fd;
	close(fd);
	errno = err;
	return -1;
}

static int connect_tcp(const struct ferry_address *address,
                       uint64_t deadline_ns, char reason[FERRY_REASON_TEXT])
{
	struct addrinfo *list;
	int fd = -1;
	const int rc = resolve(address->host, address->port, 0, &list);

	if (rc) {
		snprintf(reason, FERRY_REASON_TEXT, "look-up of the name: %s",
		         gai_strerror(rc));
		return -1;
	}
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
		fd = connect_to(a->ai_family, a->ai_addr, a->ai_addrlen,
		                deadline_ns);
	const int err = errno;

	freeaddrinfo(list);
	errno = err;
	if (fd < 0)
		snprintf(reason, FERRY_REASON_TEXT, "connect: %s",
		         strerrordesc_np(err));
	return fd;
}

int ferry_address_connect(const struct ferry_address *address,
                          uint64_t deadline_ns, char reason[FERRY_REASON_TEXT])
{
	const uint64_t limit_ns = ferry_deadline_ns(CONNECT_MS);

	if (deadline_ns > limit_ns)
		deadline_ns = limit_ns;
	if (!address->is_unix)
		return connect_tcp(address, deadline_ns, reason);
	struct sockaddr_un to;
	const socklen_t n = unix_name(address, &to);
	const int fd =
		connect_to(AF_UNIX, (struct sockaddr *)&to, n, deadline_ns);

	if (fd < 0)
		snprintf(reason, FERRY_REASON_TEXT, "connect: %s",
		         strerrordesc_np(errno));
	return fd;
}

/*
 * A host that goes down, or whose cable is out, sends no end: that is noticed
 * when its kernel has not answered for the timeout of the world, or half a
 * minute. A process need not run for that.
 */
static void adopt_tcp(int fd, int64_t timeout_ms)
{
	const int on = 1;
	const int unanswered_ms = (int)min_i64(
		max_i64(timeout_ms, SILENCE_LEAST_MS), SILENCE_MOST_MS);
	const int idle_s = (int)max_i64(unanswered_ms / 2500, 1);
	const int interval_s = (int)max_i64(unanswered_ms / 5000, 1);
	const int n_probes = 3;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s,
	           sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms,
	           sizeof(unanswered_ms));
}

static bool is_unix_socket(int fd)
{
	int domain = 0;
	socklen_t n = sizeof(domain);

	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n);
	return domain == AF_UNIX;
}

bool ferry_socket_adopt(int fd, int64_t timeout_ms,
                        char reason[FERRY_REASON_TEXT])
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (!is_unix_socket(fd)) {
		adopt_tcp(fd, timeout_ms);
		return true;
	}
	/* Abstract names have no permissions: anyone may take or call them. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n)) {
		snprintf(reason, FERRY_REASON_TEXT, "its user is not known");
		return false;
	}
	if (cred.uid == geteuid())
		return true;
	snprintf(reason, FERRY_REASON_TEXT, "it belongs to user %u, not %u",
	         (unsigned)cred.uid, (unsigned)geteuid());
	return false;
}

void ferry_socket_peer(int fd, char *text, size_t bytes)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	struct ucred cred;
	socklen_t n_cred = sizeof(cred);
	char host[48];
	char port[8];

	if (is_unix_socket(fd)) {
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n_cred))
			snprintf(text, bytes, "?");
		else
			snprintf(text, bytes, "pid %d of user %u",
			         (int)cred.pid, (unsigned)cred.uid);
		return;
	}
	if (getpeername(fd, (struct sockaddr *)&a, &n) ||
	    getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port,
	                sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(text, bytes, "?");
	else
		snprintf(text, bytes, "%s:%s", host, port);
}
