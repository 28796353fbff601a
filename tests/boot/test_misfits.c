/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that do not fit: another secret, number of ranks, protocol, the same
 * rank twice, members that break the protocol, and hubs that are none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "meeting.h"
#include "stranger.h"

enum { QUICK_MS = 3000 };

static void run(ranks_body *body, int32_t n_ranks, int32_t open_timeout_ms)
{
	struct meeting meeting;

	meeting_init(&meeting, MEET_TCP);
	meeting.open_timeout_ms = open_timeout_ms;
	ranks_run(&(struct ranks){.n_ranks = n_ranks,
	                          .no_world = true,
	                          .arg = &meeting},
	          body);
}

static void other_secret(struct rank *rank)
{
	struct meeting meeting = *(struct meeting *)rank->arg;
	struct visitor *v;

	if (rank->rank == 1) {
		meeting.secret = "another";
		rank->arg = &meeting;
		RANKS_STATUS(visitor_open(rank, &v), FERRY_MISMATCH);
		RANKS_TEXT(ferry_last_error(),
		           "boot: rank 1 has another job secret than rank 0 "
		           "at 127.0.0.1:");
		RANKS_TEXT(ferry_last_error(), "FERRY_SECRET");
	} else {
		RANKS_STATUS(visitor_open(rank, &v), FERRY_TIMEOUT);
		RANKS_TEXT(ferry_last_error(), "boot: rank 1 did not come");
	}
}

static void test_other_secret(void **state)
{
	(void)state;
	run(other_secret, 3, 500);
}

static void other_n_ranks(struct rank *rank)
{
	struct visitor *v;

	if (rank->rank == 2)
		rank->n_ranks = 4;
	RANKS_STATUS(visitor_open(rank, &v), FERRY_MISMATCH);
	RANKS_CHECK(visitor_ms(v) < QUICK_MS);
	RANKS_TEXT(ferry_last_error(), "boot: rank 2 was started with 4 "
	                               "ranks, rank 0 with 3");
}

static void test_other_n_ranks(void **state)
{
	(void)state;
	run(other_n_ranks, 3, 10000);
}

static void twice(struct rank *rank)
{
	struct visitor *v;
	const int32_t number = rank->rank;

	/* Number 3 thinks that it is rank 1; rank 2 comes after that. */
	rank->n_ranks = 3;
	if (number == 3) {
		rank->rank = 1;
		ranks_meet(0, 2);
		/* Who of the two is first does not matter, but one is. */
		const enum ferry_status status = visitor_open(rank, &v);
		RANKS_EQ(status, FERRY_MISMATCH);
		RANKS_TEXT(ferry_last_error(),
		           "boot: rank 1 has come already: two processes have "
		           "this rank");
		ranks_meet(1, 2);
		return;
	}
	if (number == 1) {
		/* Its connection stands long before number 3 comes. */
		RANKS_OK(visitor_open(rank, &v));
	} else if (number == 2) {
		nanosleep(&(struct timespec){0, 300000000}, NULL);
		ranks_meet(0, 2);
		ranks_meet(1, 2);
		RANKS_OK(visitor_open(rank, &v));
	} else {
		RANKS_OK(visitor_open(rank, &v));
	}
	RANKS_OK(visitor_gather(v, 10000));
}

static void test_twice(void **state)
{
	(void)state;
	run(twice, 4, 10000);
}

/* Rank 1 is a stranger who knows the secret and joins, and then misbehaves. */
static void misbehave(struct rank *rank, void (*act)(int fd))
{
	const struct meeting *meeting = rank->arg;
	struct visitor *v;
	uint8_t body[512];

	if (rank->rank == 1) {
		const struct ferry_hello hello = {
			FERRY_BOOT_PROTOCOL, 1, 3, 10000, {0}};
		const int fd = stranger_connect(meeting->where);

		RANKS_EQ(stranger_introduce(fd, hello, "a secret").type,
		         FERRY_MSG_WELCOME);
		RANKS_EQ(stranger_read(fd, body).type, FERRY_MSG_GO);
		act(fd);
		RANKS_CHECK(stranger_is_closed(fd, 5000));
		ranks_meet(0, 3);
		close(fd);
		return;
	}
	RANKS_OK(visitor_open(rank, &v));
	ranks_meet(0, 3);
	RANKS_STATUS(visitor_gather(v, 10000), FERRY_PROTO);
	RANKS_CHECK(visitor_ms(v) < QUICK_MS);
	RANKS_TEXT(ferry_last_error(), "boot: rank 1 (127.0.0.1:");
	RANKS_TEXT(ferry_last_error(), "sent a malformed message");
}

static void send_give(int fd, uint64_t round, uint64_t bytes)
{
	static const uint8_t data[8 + 4] = {0xff, 0xff, 0xff, 0xff, 1};

	const struct ferry_msg head =
		ferry_msg_head(FERRY_MSG_GIVE, bytes, round);
	stranger_send(fd, &head, sizeof(head));
	stranger_send(fd, data, sizeof(data));
}

static void give_too_much(int fd)
{
	send_give(fd, 0, 8 + FERRY_BOOT_MAX_BYTES + 1);
}

static void give_nothing(int fd)
{
	send_give(fd, 0, 8);
}

static void give_other_round(int fd)
{
	send_give(fd, 1, 12);
}

static void give_twice(int fd)
{
	send_give(fd, 0, 12);
	send_give(fd, 0, 12);
}

static void say_hello_again(int fd)
{
	const struct ferry_hello hello = {FERRY_BOOT_PROTOCOL, 1, 3, 0, {0}};

	stranger_send_message(
		fd, ferry_msg_head(FERRY_MSG_HELLO, sizeof(hello), 0), &hello);
}

static void say_nonsense(int fd)
{
	stranger_send(fd, "nonsense nonsense nonsense", 26);
}

#define MISBEHAVIOUR(act)                                                      \
	static void act##_body(struct rank *rank)                              \
	{                                                                      \
		misbehave(rank, act);                                          \
	}                                                                      \
	static void test_##act(void **state)                                   \
	{                                                                      \
		(void)state;                                                   \
		run(act##_body, 3, 10000);                                     \
	}
MISBEHAVIOUR(give_too_much)
MISBEHAVIOUR(give_nothing)
MISBEHAVIOUR(give_other_round)
MISBEHAVIOUR(give_twice)
MISBEHAVIOUR(say_hello_again)
MISBEHAVIOUR(say_nonsense)

/* Rank 0 is somebody else, who treats every visitor in the same way. */
static void impostor(const char *where, void (*answer)(int fd), int for_ms)
{
	const int listener = stranger_listen(where);
	const uint64_t end_ns = ferry_deadline_ns(for_ms);

	while (ferry_now_ns() < end_ns) {
		struct pollfd wait = {listener, POLLIN, 0};

		if (poll(&wait, 1, 20) != 1)
			continue;
		const int fd = accept(listener, NULL, NULL);
		answer(fd);
		close(fd);
	}
	close(listener);
}

static void answer_nonsense(int fd)
{
	stranger_send(fd, "220 mail.example.org ESMTP ready\r\n", 34);
	(void)stranger_is_closed(fd, 50);
}

static void answer_nothing(int fd)
{
	(void)stranger_is_closed(fd, 2000);
}

/* Takes a message with a body of this size; the visitor may leave any time. */
static void swallow(int fd, size_t bytes)
{
	const struct timeval limit = {1, 0};
	uint8_t message[512];

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	(void)recv(fd, message, sizeof(struct ferry_msg) + bytes, MSG_WAITALL);
}

/* Lets everyone in without a proof of its own. */
static void answer_welcome(int fd)
{
	const uint8_t body[512] = {0};

	swallow(fd, sizeof(struct ferry_hello));
	stranger_send_message(
		fd, ferry_msg_head(FERRY_MSG_CHALLENGE, FERRY_NONCE_BYTES, 0),
		body);
	swallow(fd, FERRY_SHA256_BYTES);
	stranger_send_message(
		fd, ferry_msg_head(FERRY_MSG_WELCOME, FERRY_SHA256_BYTES, 0),
		body);
}

static void answer_new_protocol(int fd)
{
	swallow(fd, sizeof(struct ferry_hello));
	stranger_send_message(
		fd,
		ferry_msg_head(FERRY_MSG_REFUSE, 0,
	                       FERRY_REFUSE_PROTOCOL | UINT64_C(9) << 32),
		NULL);
}

static void visit_impostor(struct rank *rank, void (*answer)(int fd),
                           enum ferry_status status, const char *text)
{
	const struct meeting *meeting = rank->arg;
	struct visitor *v;

	if (rank->rank == 0) {
		impostor(meeting->where, answer, 2000);
		return;
	}
	RANKS_STATUS(visitor_open(rank, &v), status);
	RANKS_CHECK(visitor_ms(v) < QUICK_MS);
	RANKS_TEXT(ferry_last_error(), text);
}

static void nonsense(struct rank *rank)
{
	visit_impostor(rank, answer_nonsense, FERRY_TIMEOUT,
	               "boot: rank 0 did not come within 600 ms: 127.0.0.1:");
	if (rank->rank)
		RANKS_TEXT(ferry_last_error(),
		           ": what listens there is not ferry");
}

static void nothing(struct rank *rank)
{
	visit_impostor(rank, answer_nothing, FERRY_TIMEOUT,
	               ": it does not answer");
}

static void no_proof(struct rank *rank)
{
	visit_impostor(rank, answer_welcome, FERRY_TIMEOUT,
	               ": what listens there does not know the job secret");
}

static void new_protocol(struct rank *rank)
{
	visit_impostor(rank, answer_new_protocol, FERRY_MISMATCH,
	               "boot: rank 0 speaks boot protocol 9, rank 1 speaks 2: "
	               "the library versions differ");
}

static void test_impostors(void **state)
{
	(void)state;
	run(nonsense, 2, 600);
	run(nothing, 2, 600);
	run(no_proof, 2, 600);
	run(new_protocol, 2, 600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_secret),
		cmocka_unit_test(test_other_n_ranks),
		cmocka_unit_test(test_twice),
		cmocka_unit_test(test_give_too_much),
		cmocka_unit_test(test_give_nothing),
		cmocka_unit_test(test_give_other_round),
		cmocka_unit_test(test_give_twice),
		cmocka_unit_test(test_say_hello_again),
		cmocka_unit_test(test_say_nonsense),
		cmocka_unit_test(test_impostors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
