/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors passed among processes: they arrive, strangers are thrown away,
 * and no descriptor stays behind.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "descriptors.h"
#include "fabric/fd_post.h"

enum { RANKS = 4, OWN = 2, LONG_MS = 5000 };

/* A descriptor that holds one number. */
static int numbered(int64_t number)
{
	const int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &number, sizeof(number), 0),
	                 sizeof(number));
	return fd;
}

static int64_t number_of(int fd)
{
	int64_t number = -1;

	assert_int_equal(pread(fd, &number, sizeof(number), 0), sizeof(number));
	return number;
}

static void send_number(const struct ferry_fd_post *post, int32_t from,
                        int64_t number)
{
	const int fd = numbered(number);

	assert_int_equal(ferry_fd_post_send(NULL, &post->address, from, OWN, fd,
	                                    ferry_deadline_ns(LONG_MS)),
	                 FERRY_OK);
	close(fd);
}

static void send_all(const struct ferry_fd_post *post)
{
	for (int32_t r = RANKS - 1; r >= 0; r--)
		if (r != OWN)
			send_number(post, r, 100 + r);
}

/* From all but the own rank. */
static enum ferry_status receive(struct ferry_fd_post *post, int fds[RANKS])
{
	for (int32_t r = 0; r < RANKS; r++)
		fds[r] = r == OWN ? FERRY_FD_NONE : FERRY_FD_WANTED;
	return ferry_fd_post_receive(NULL, post, RANKS, fds);
}

static void receive_all(struct ferry_fd_post *post)
{
	int fds[RANKS];

	assert_int_equal(receive(post, fds), FERRY_OK);
	for (int32_t r = 0; r < RANKS; r++) {
		if (r == OWN) {
			assert_int_equal(fds[r], -1);
			continue;
		}
		assert_int_equal(number_of(fds[r]), 100 + r);
		close(fds[r]);
	}
}

static struct ferry_fd_post *open_post(void)
{
	static struct ferry_fd_post post;

	assert_int_equal(ferry_fd_post_open(NULL, &post), FERRY_OK);
	return &post;
}

static void test_arrive(void **state)
{
	const int before = descriptors_count();
	struct ferry_fd_post *post = open_post();

	(void)state;
	send_all(post);
	receive_all(post);
	ferry_fd_post_close(post);
	ferry_fd_post_close(post);
	assert_int_equal(descriptors_count(), before);
}

/* A connection to a post, as anybody can make one. */
static int stranger(const struct ferry_fd_post *post)
{
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const size_t n = strlen(post->address.name);

	assert_true(fd >= 0);
	memcpy(at.sun_path + 1, post->address.name, n);
	assert_int_equal(
		connect(fd, (const struct sockaddr *)&at,
	                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
	                            n)),
		0);
	return fd;
}

/* Sends bytes with some copies of a descriptor. */
static void send_odd(int socket, const void *bytes, size_t n_bytes, int n_fds)
{
	union {
		struct cmsghdr head;
		unsigned char room[CMSG_SPACE(4 * sizeof(int))];
	} control;
	const int fd = numbered(7);
	const int fds[4] = {fd, fd, fd, fd};
	const size_t size = (size_t)n_fds * sizeof(int);
	struct iovec part = {(void *)(uintptr_t)bytes, n_bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	if (n_fds) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(size);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(size);
		memcpy(CMSG_DATA(&control.head), fds, size);
	}
	assert_true(sendmsg(socket, &message, MSG_NOSIGNAL) >= 0);
	close(fd);
	close(socket);
}

struct forged {
	uint8_t token[16];
	int32_t from;
};

/* Silent ones, wrong tokens, sizes and ranks, too many descriptors, none. */
static void test_strangers(void **state)
{
	const int before = descriptors_count();
	struct ferry_fd_post *post = open_post();
	struct forged letter = {.from = 1};

	(void)state;
	const int silent = stranger(post);

	send_odd(stranger(post), &letter, sizeof(letter), 1);
	memcpy(letter.token, post->address.token, sizeof(letter.token));
	send_odd(stranger(post), &letter, sizeof(letter) - 1, 1);
	send_odd(stranger(post), &letter, sizeof(letter), 0);
	send_odd(stranger(post), &letter, sizeof(letter), 2);
	send_odd(stranger(post), &letter, sizeof(letter), 4);
	letter.from = RANKS;
	send_odd(stranger(post), &letter, sizeof(letter), 1);
	letter.from = OWN;
	send_odd(stranger(post), &letter, sizeof(letter), 1);
	send_all(post);
	send_number(post, 0, 7); /* a second one counts for nothing */
	receive_all(post);
	ferry_fd_post_close(post);
	close(silent);
	assert_int_equal(descriptors_count(), before);
}

static void test_missing(void **state)
{
	const int before = descriptors_count();
	struct ferry_fd_post *post = open_post();
	int fds[RANKS];

	(void)state;
	send_number(post, 0, 100);
	send_number(post, 3, 103);
	assert_int_equal(receive(post, fds), FERRY_PROTO);
	assert_non_null(
		strstr(ferry_last_error(), "no descriptor came from rank 1"));
	ferry_fd_post_close(post);
	assert_int_equal(descriptors_count(), before);
}

/* Whoever has gone, or was never there, is named. */
static void test_nobody_listens(void **state)
{
	struct ferry_fd_post *post = open_post();
	const int fd = numbered(1);

	(void)state;
	ferry_fd_post_close(post);
	assert_int_equal(ferry_fd_post_send(NULL, &post->address, 0, 3, fd,
	                                    ferry_deadline_ns(LONG_MS)),
	                 FERRY_SYS);
	assert_non_null(strstr(ferry_last_error(), "rank 3 is not reached"));
	close(fd);
}

/* Where only `spare` more descriptors can be had, none is lost. */
static void with_few(int spare, enum ferry_status want)
{
	struct ferry_fd_post *post = open_post();
	struct rlimit limit, small;
	int fds[RANKS];

	send_all(post);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	small = limit;
	/* dup tells the smallest one that is free. */
	const int first = dup(post->socket);

	close(first);
	small.rlim_cur = (rlim_t)(first + spare);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	const enum ferry_status status = receive(post, fds);

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(status, want);
	ferry_fd_post_close(post);
}

static void test_too_many_open(void **state)
{
	const int before = descriptors_count();

	(void)state;
	with_few(0, FERRY_SYS);
	with_few(1, FERRY_PROTO);
	with_few(2, FERRY_PROTO);
	assert_int_equal(descriptors_count(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arrive),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_too_many_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
