/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strangers at a TCP rendezvous: whatever they do, they are refused and
 * logged, and the ranks of the job meet all the same and without delay.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "boot/hub.h"
#include "core/bits.h"
#include "core/order.h"
#include "meeting.h"
#include "stranger.h"

enum { N_RANKS = 3, QUICK_MS = 2500 };

/* What the hub logged about strangers, all lines behind one another. */
struct book {
	pthread_mutex_t lock;
	int n_lines;
	char lines[1 << 16];
};
static struct book book;

static void write_down(void *arg, enum ferry_log_level level, const char *line)
{
	struct book *b = arg;

	pthread_mutex_lock(&b->lock);
	if (level == FERRY_LOG_WARN && strstr(line, "stranger") &&
	    strlen(b->lines) + strlen(line) < sizeof(b->lines)) {
		b->n_lines++;
		strcat(b->lines, line);
	}
	pthread_mutex_unlock(&b->lock);
}

/* What is done to the hub, by rank 2 before it comes itself. */
typedef void attack_fn(const char *where);
static attack_fn *attack;
static int fds[256]; /* kept open until all is over */
static int n_fds;

static void close_fds(void)
{
	while (n_fds)
		close(fds[--n_fds]);
}

static void attacked(struct rank *rank)
{
	const struct meeting *meeting = rank->arg;
	struct visitor *v;

	if (rank->rank == 2)
		attack(meeting->where);
	RANKS_OK(visitor_open(rank, &v));
	if (rank->rank == 2)
		RANKS_CHECK(visitor_ms(v) < QUICK_MS);
	RANKS_OK(visitor_gather(v, 10000));
}

/* The job comes about, and the log has these words. */
static void run_attack(attack_fn *fn, const char *words)
{
	struct meeting meeting;

	meeting_init(&meeting, MEET_TCP);
	meeting.log = write_down;
	meeting.log_arg = &book;
	book.n_lines = 0;
	book.lines[0] = 0;
	attack = fn;
	ranks_run(&(struct ranks){.n_ranks = N_RANKS,
	                          .no_world = true,
	                          .arg = &meeting},
	          attacked);
	close_fds();
	if (words && !strstr(book.lines, words))
		fail_msg("'%s' is not in the log: '%s'", words, book.lines);
	if (words && !strstr(book.lines, "warn boot: stranger 127.0.0.1:"))
		fail_msg("the stranger is not named: '%s'", book.lines);
}

static void send_and_be_closed(const char *where, const void *data, size_t n)
{
	const int fd = stranger_connect(where);

	stranger_send(fd, data, n);
	RANKS_CHECK(stranger_is_closed(fd, 2000));
	close(fd);
}

static void garbage(const char *where)
{
	uint64_t seed = ranks_seed();
	uint8_t data[4096];

	for (int i = 0; i < 20; i++) {
		for (size_t j = 0; j < sizeof(data); j++)
			data[j] = (uint8_t)rng_next(&seed);
		send_and_be_closed(where, data, 24 + rng_next(&seed) % 4000);
	}
	send_and_be_closed(where, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
}

static void test_garbage(void **state)
{
	(void)state;
	run_attack(garbage, "it does not speak this protocol");
}

static void half_open(const char *where)
{
	for (int i = 0; i < 10; i++)
		fds[n_fds++] = stranger_connect(where);
}

static void test_half_open(void **state)
{
	(void)state;
	run_attack(half_open, "all ranks have come");
}

static void silent(const char *where)
{
	const int fd = stranger_connect(where);
	const uint64_t start_ns = ferry_now_ns();

	RANKS_CHECK(stranger_is_closed(fd, 10000));
	const int64_t ms = (int64_t)(ferry_now_ns() - start_ns) / 1000000;
	RANKS_CHECK(ms >= FERRY_HUB_INTRODUCTION_MS - 100);
	close(fd);
}

static void test_silent(void **state)
{
	(void)state;
	run_attack(silent, "it took too long");
}

/* A good HELLO, one byte at a time, for longer than the meeting takes. */
static void *drip(void *arg)
{
	const int fd = *(const int *)arg;
	const struct ferry_msg head =
		ferry_msg_head(FERRY_MSG_HELLO, sizeof(struct ferry_hello), 0);

	for (size_t i = 0; i < sizeof(head); i++) {
		stranger_send(fd, (const uint8_t *)&head + i, 1);
		nanosleep(&(struct timespec){0, 5000000}, NULL);
	}
	return NULL;
}

static pthread_t dripping;
static int dripping_fd; /* open until the thread has ended */

static void slow(const char *where)
{
	dripping_fd = stranger_connect(where);
	RANKS_EQ(pthread_create(&dripping, NULL, drip, &dripping_fd), 0);
}

static void test_slow(void **state)
{
	(void)state;
	run_attack(slow, NULL);
	pthread_join(dripping, NULL);
	close(dripping_fd);
}

static void oversized(const char *where)
{
	static const uint64_t sizes[] = {257,        1 << 20, UINT64_C(1) << 40,
	                                 UINT64_MAX, 0,       3};

	for (int i = 0; i < 6; i++) {
		const struct ferry_msg head =
			ferry_msg_head(FERRY_MSG_HELLO, sizes[i], 0);

		send_and_be_closed(where, &head, sizeof(head));
	}
	for (uint32_t type = 0; type < 20; type++) {
		const struct ferry_msg head =
			ferry_msg_head((enum ferry_msg_type)type, 48, 0);

		if (type != FERRY_MSG_HELLO)
			send_and_be_closed(where, &head, sizeof(head));
	}
}

static void test_oversized(void **state)
{
	(void)state;
	run_attack(oversized, "it does not speak this protocol");
}

static struct ferry_hello hello_of(int32_t rank, int32_t n_ranks)
{
	return (struct ferry_hello){.protocol = FERRY_BOOT_PROTOCOL,
	                            .rank = rank,
	                            .n_ranks = n_ranks,
	                            .patience_ms = 10000};
}

/* After a good HELLO, a PROOF of four gigabytes. */
static void oversized_proof(const char *where)
{
	const struct ferry_hello hello = hello_of(1, N_RANKS);
	const struct ferry_msg proof =
		ferry_msg_head(FERRY_MSG_PROOF, UINT64_C(1) << 32, UINT64_MAX);
	const int fd = stranger_connect(where);
	uint8_t body[512];

	stranger_send_message(
		fd, ferry_msg_head(FERRY_MSG_HELLO, sizeof(hello), 0), &hello);
	RANKS_EQ(stranger_read(fd, body).type, FERRY_MSG_CHALLENGE);
	stranger_send(fd, &proof, sizeof(proof));
	RANKS_CHECK(stranger_is_closed(fd, 2000));
	close(fd);
}

static void test_oversized_proof(void **state)
{
	(void)state;
	run_attack(oversized_proof, "it does not speak this protocol");
}

static void leaves_midway(const char *where)
{
	const struct ferry_hello hello = hello_of(1, N_RANKS);
	const struct ferry_msg head =
		ferry_msg_head(FERRY_MSG_HELLO, sizeof(hello), 0);

	for (size_t n = 0; n < sizeof(hello); n += 11) {
		const int fd = stranger_connect(where);

		stranger_send(fd, &head, sizeof(head));
		stranger_send(fd, &hello, n);
		close(fd);
	}
}

static void test_leaves_midway(void **state)
{
	(void)state;
	run_attack(leaves_midway, "it left before it was known");
}

static void comes_200_times(const char *where)
{
	for (int i = 0; i < 200; i++)
		fds[n_fds++] = stranger_connect(where);
}

/* They are dropped, the oldest first, and the log is not flooded. */
static void test_comes_200_times(void **state)
{
	(void)state;
	run_attack(comes_200_times, "too many wait");
	assert_in_range(book.n_lines, 1, 16);
	assert_non_null(strstr(book.lines, "(later ones are counted only)"));
}

static void wrong_secret(const char *where)
{
	stranger_refused(where, hello_of(1, N_RANKS), "a secre",
	                 FERRY_REFUSE_SECRET);
	stranger_refused(where, hello_of(1, N_RANKS), "", FERRY_REFUSE_SECRET);
	/* Who does not know the secret learns nothing about the job. */
	stranger_refused(where, hello_of(77, 99), "x", FERRY_REFUSE_SECRET);
}

static void test_wrong_secret(void **state)
{
	(void)state;
	run_attack(wrong_secret, "it does not know the job secret");
}

static void wrong_protocol(const char *where)
{
	struct ferry_hello hello = hello_of(1, N_RANKS);

	hello.protocol = FERRY_BOOT_PROTOCOL + 1;
	stranger_refused(where, hello, "a secret", FERRY_REFUSE_PROTOCOL);
}

static void test_wrong_protocol(void **state)
{
	(void)state;
	run_attack(wrong_protocol, "another boot protocol (3, not 2)");
}

static void wrong_rank(const char *where)
{
	stranger_refused(where, hello_of(N_RANKS, N_RANKS), "a secret",
	                 FERRY_REFUSE_RANGE);
	stranger_refused(where, hello_of(-1, N_RANKS), "a secret",
	                 FERRY_REFUSE_RANGE);
	stranger_refused(where, hello_of(INT32_MIN, N_RANKS), "a secret",
	                 FERRY_REFUSE_RANGE);
}

static void test_wrong_rank(void **state)
{
	(void)state;
	run_attack(wrong_rank, "its rank is out of range");
}

static void duplicate(const char *where)
{
	stranger_refused(where, hello_of(0, N_RANKS), "a secret",
	                 FERRY_REFUSE_TAKEN);
}

static void test_duplicate(void **state)
{
	(void)state;
	run_attack(duplicate, "its rank is taken");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_half_open),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_oversized),
		cmocka_unit_test(test_oversized_proof),
		cmocka_unit_test(test_leaves_midway),
		cmocka_unit_test(test_comes_200_times),
		cmocka_unit_test(test_wrong_secret),
		cmocka_unit_test(test_wrong_protocol),
		cmocka_unit_test(test_wrong_rank),
		cmocka_unit_test(test_duplicate),
	};

	pthread_mutex_init(&book.lock, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
