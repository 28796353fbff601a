/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody at the door of a rendezvous. */
#include "stranger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "support/ranks.h"

static struct sockaddr_in address_of(const char *where)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	char host[64];

	snprintf(host, sizeof(host), "%s", where);
	*strrchr(host, ':') = 0;
	a.sin_port = htons((uint16_t)atoi(strrchr(where, ':') + 1));
	RANKS_EQ(inet_pton(AF_INET, host, &a.sin_addr), 1);
	return a;
}

int stranger_connect(const char *where)
{
	const struct sockaddr_in a = address_of(where);
	const uint64_t end_ns = ferry_deadline_ns(5000);

	for (;;) {
		const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		RANKS_CHECK(fd >= 0);
		if (!connect(fd, (const struct sockaddr *)&a, sizeof(a)))
			return fd;
		close(fd);
		RANKS_CHECK(ferry_now_ns() < end_ns);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
}

int stranger_listen(const char *where)
{
	const struct sockaddr_in a = address_of(where);
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;

	RANKS_CHECK(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	RANKS_EQ(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	RANKS_EQ(listen(fd, 100), 0);
	return fd;
}

void stranger_send(int fd, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	while (bytes) {
		const ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		p += n;
		bytes -= (size_t)n;
	}
}

void stranger_send_message(int fd, struct ferry_msg head, const void *body)
{
	stranger_send(fd, &head, sizeof(head));
	stranger_send(fd, body, (size_t)head.bytes);
}

static void read_all(int fd, void *data, size_t bytes)
{
	uint8_t *p = data;

	while (bytes) {
		struct pollfd wait = {fd, POLLIN, 0};

		RANKS_EQ(poll(&wait, 1, 5000), 1);
		const ssize_t n = recv(fd, p, bytes, 0);
		RANKS_CHECK(n > 0);
		p += n;
		bytes -= (size_t)n;
	}
}

struct ferry_msg stranger_read(int fd, void *body)
{
	struct ferry_msg head;

	read_all(fd, &head, sizeof(head));
	RANKS_EQ(head.magic, FERRY_MSG_MAGIC);
	RANKS_CHECK(head.bytes <= 512);
	read_all(fd, body, (size_t)head.bytes);
	return head;
}

bool stranger_is_closed(int fd, int timeout_ms)
{
	const uint64_t end_ns = ferry_deadline_ns(timeout_ms);

	while (ferry_now_ns() < end_ns) {
		struct pollfd wait = {fd, POLLIN, 0};
		uint8_t piece[256];

		if (poll(&wait, 1, 10) == 1 &&
		    recv(fd, piece, sizeof(piece), 0) <= 0)
			return true;
	}
	return false;
}

struct ferry_msg stranger_introduce(int fd, struct ferry_hello hello,
                                    const char *secret)
{
	struct ferry_secret key = {.n_bytes = strlen(secret)};
	uint8_t mac[FERRY_SHA256_BYTES];
	uint8_t body[512];

	memcpy(key.bytes, secret, key.n_bytes);
	memset(hello.nonce, 7, sizeof(hello.nonce));
	stranger_send_message(
		fd, ferry_msg_head(FERRY_MSG_HELLO, sizeof(hello), 0), &hello);
	const struct ferry_msg challenge = stranger_read(fd, body);
	if (challenge.type != FERRY_MSG_CHALLENGE)
		return challenge;
	ferry_proof(mac, &key, "peer", &hello, body);
	stranger_send_message(
		fd, ferry_msg_head(FERRY_MSG_PROOF, sizeof(mac), 10000000000u),
		mac);
	return stranger_read(fd, body);
}

void stranger_refused(const char *where, struct ferry_hello hello,
                      const char *secret, enum ferry_refusal why)
{
	const int fd = stranger_connect(where);
	const struct ferry_msg answer = stranger_introduce(fd, hello, secret);

	RANKS_EQ(answer.type, FERRY_MSG_REFUSE);
	RANKS_EQ((uint32_t)answer.arg, why);
	if (why == FERRY_REFUSE_PROTOCOL)
		RANKS_EQ(answer.arg >> 32, FERRY_BOOT_PROTOCOL);
	RANKS_CHECK(stranger_is_closed(fd, 2000));
	close(fd);
}
