/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous across hosts: ranks meet over TCP with the secret of the job,
 * whoever is no rank is refused and logged with his address, and nothing
 * listens but what was asked for, as long as it was asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "boot/hub.h"
#include "core/bits.h"
#include "core/order.h"
#include "hosted.h"
#include "meeting.h"
#include "stranger.h"

enum { N_HOSTS = 4, QUICK_MS = 3000 };

static struct namespaces hosts;

/* What rank 0 logged, in memory of all ranks. */
struct book {
	pthread_mutex_t lock;
	char lines[1 << 15];
};

static void write_down(void *arg, enum ferry_log_level level, const char *line)
{
	struct book *b = arg;
	const size_t n = strlen(b->lines);

	(void)level;
	pthread_mutex_lock(&b->lock);
	snprintf(b->lines + n, sizeof(b->lines) - n, "%s\n", line);
	pthread_mutex_unlock(&b->lock);
}

/* A line of the log has both. */
static void check_log(const struct book *b, const char *who, const char *what)
{
	char line[600];

	for (const char *p = b->lines; *p; p += strcspn(p, "\n") + 1) {
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(p, "\n"), p);
		if (strstr(line, who) && strstr(line, what))
			return;
	}
	RANKS_FAIL("no line with '%s' and '%s' in '%s'", who, what, b->lines);
}

/* The meeting of a run, as its ranks have it. */
static struct meeting meeting_of(struct rank *rank)
{
	struct meeting m = {.kind = MEET_TCP,
	                    .secret = "a secret",
	                    .log = write_down,
	                    .log_arg = rank->shared};

	snprintf(m.where, sizeof(m.where), "%s", hosted_meeting());
	return m;
}

static enum ferry_status open_as(struct rank *rank, struct meeting *m,
                                 struct visitor **v)
{
	rank->arg = m;
	return visitor_open(rank, v);
}

static void run(ranks_body *body, int32_t n_ranks)
{
	struct ranks how = {.n_ranks = n_ranks,
	                    .no_world = true,
	                    .shared_bytes = sizeof(struct book)};

	hosted_ranks(&how);
	ranks_run(&how, body);
}

static void meet(struct rank *rank)
{
	struct meeting m = meeting_of(rank);
	struct visitor *v;

	RANKS_OK(open_as(rank, &m, &v));
	RANKS_TEXT(v->boot->ops->name, "tcp");
	for (int i = 0; i < 20; i++)
		RANKS_OK(visitor_gather(v, 10000));
}

static void test_meets(void **state)
{
	(void)state;
	run(meet, 4);
	run(meet, 2);
	run(meet, 16);
}

static void send_garbage(const char *where)
{
	uint64_t seed = 3;
	uint8_t data[512];

	for (int i = 0; i < 3; i++) {
		const int fd = stranger_connect(where);

		for (size_t j = 0; j < sizeof(data); j++)
			data[j] = (uint8_t)rng_next(&seed);
		stranger_send(fd, data, sizeof(data));
		RANKS_CHECK(stranger_is_closed(fd, 2000));
		close(fd);
	}
	const int fd = stranger_connect(where);

	stranger_send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
	RANKS_CHECK(stranger_is_closed(fd, 2000));
	close(fd);
}

static void come_wrongly(const char *where)
{
	struct ferry_hello hello = {.protocol = FERRY_BOOT_PROTOCOL,
	                            .rank = 2,
	                            .n_ranks = N_HOSTS,
	                            .patience_ms = 10000};

	stranger_refused(where, hello, "a secre", FERRY_REFUSE_SECRET);
	stranger_refused(where, hello, "", FERRY_REFUSE_SECRET);
	/* Who does not know the secret learns nothing about the job. */
	hello.n_ranks = 77;
	stranger_refused(where, hello, "x", FERRY_REFUSE_SECRET);
	hello.n_ranks = N_HOSTS;
	hello.protocol++;
	stranger_refused(where, hello, "a secret", FERRY_REFUSE_PROTOCOL);
	hello.protocol--;
	hello.rank = N_HOSTS;
	stranger_refused(where, hello, "a secret", FERRY_REFUSE_RANGE);
	hello.rank = 0;
	stranger_refused(where, hello, "a secret", FERRY_REFUSE_TAKEN);
}

static void say_nothing(const char *where)
{
	const int fd = stranger_connect(where);

	RANKS_CHECK(stranger_is_closed(fd, 2 * FERRY_HUB_INTRODUCTION_MS));
	close(fd);
}

/* From three hosts at once; then the ranks of these hosts come. */
static void strangers(struct rank *rank)
{
	static void (*const acts[N_HOSTS])(const char *where) = {
		NULL, send_garbage, come_wrongly, say_nothing};
	struct meeting m = meeting_of(rank);
	const struct book *b = rank->shared;
	struct visitor *v;
	int half_open = -1;

	if (rank->rank)
		acts[rank->rank](m.where);
	if (rank->rank == 3) /* and stays in the door */
		half_open = stranger_connect(m.where);
	RANKS_OK(open_as(rank, &m, &v));
	if (rank->rank)
		RANKS_CHECK(visitor_ms(v) < 2 * FERRY_HUB_INTRODUCTION_MS);
	RANKS_OK(visitor_gather(v, 10000));
	if (half_open >= 0)
		close(half_open);
	if (rank->rank)
		return;
	check_log(b, "boot: stranger 10.77.0.2:",
	          "it does not speak this protocol");
	check_log(b, "boot: stranger 10.77.0.3:",
	          "it does not know the job secret (says it is rank 2 of 77)");
	check_log(b, "boot: stranger 10.77.0.3:",
	          "another boot protocol (3, not 2)");
	check_log(b, "boot: stranger 10.77.0.3:", "its rank is out of range");
	check_log(b, "boot: stranger 10.77.0.3:", "its rank is taken");
	check_log(b, "boot: stranger 10.77.0.4:", "it took too long");
	check_log(b, "boot: stranger 10.77.0.4:", "all ranks have come");
	RANKS_CHECK(!strstr(b->lines, "a secret"));
}

static void test_strangers(void **state)
{
	(void)state;
	run(strangers, N_HOSTS);
}

/* A rank with another secret is told so; the rank with the right one comes. */
static void other_secret(struct rank *rank)
{
	struct meeting wrong = meeting_of(rank);
	struct meeting m = meeting_of(rank);
	struct visitor *v;

	wrong.secret = "of another job";
	if (rank->rank == 3) {
		RANKS_STATUS(open_as(rank, &wrong, &v), FERRY_MISMATCH);
		RANKS_TEXT(ferry_last_error(),
		           "boot: rank 3 has another job secret than rank 0 "
		           "at 10.77.0.1:");
	}
	wrong.secret = "";
	if (rank->rank == 3) {
		RANKS_STATUS(open_as(rank, &wrong, &v), FERRY_INVAL);
		RANKS_TEXT(ferry_last_error(), "FERRY_SECRET");
	}
	RANKS_OK(open_as(rank, &m, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == 0)
		check_log(rank->shared, "boot: stranger 10.77.0.4:",
		          "it does not know the job secret (says it is rank 3 "
		          "of 4)");
}

static void test_other_secret(void **state)
{
	(void)state;
	run(other_secret, 4);
}

/* Who knows the secret is of the job: all are told what does not fit. */
static void other_n_ranks(struct rank *rank)
{
	struct meeting m = meeting_of(rank);
	struct visitor *v;

	if (rank->rank == 2)
		rank->n_ranks = 5;
	RANKS_STATUS(open_as(rank, &m, &v), FERRY_MISMATCH);
	RANKS_CHECK(visitor_ms(v) < QUICK_MS);
	RANKS_TEXT(ferry_last_error(), "boot: rank 2 was started with 5 "
	                               "ranks, rank 0 with 4");
	if (rank->rank == 0)
		check_log(rank->shared, "boot: stranger 10.77.0.3:",
		          "another number of ranks (says it is rank 2 of 5)");
}

static void test_other_n_ranks(void **state)
{
	(void)state;
	run(other_n_ranks, 4);
}

static void listens(const char *want)
{
	char text[400];

	RANKS_CHECK(namespaces_listeners(text, sizeof(text)));
	if (strcmp(text, want))
		RANKS_FAIL("there listens '%s', expected '%s'", text, want);
}

static void wait_for_listener(void)
{
	const uint64_t end_ns = ferry_deadline_ns(5000);
	char text[400];

	do
		RANKS_CHECK(namespaces_listeners(text, sizeof(text)));
	while (!text[0] && ferry_now_ns() < end_ns);
}

/* Where the ranks meet, if not as usual. */
static const char *listen_where;

/*
 * All ranks are held back until everyone has looked round on his host: rank 0
 * by those who do not come.
 */
static void listeners(struct rank *rank)
{
	struct meeting m = meeting_of(rank);
	const bool at_home = hosted_host(rank->rank, rank->n_ranks) == 0;
	char want[100];
	struct visitor *v;

	if (listen_where)
		snprintf(m.where, sizeof(m.where), "%s", listen_where);
	snprintf(want, sizeof(want), "tcp %s\n", m.where);
	if (rank->rank) {
		if (at_home)
			wait_for_listener();
		ranks_meet(0, rank->n_ranks - 1);
		listens(at_home ? want : "");
		ranks_meet(1, rank->n_ranks - 1);
	}
	RANKS_OK(open_as(rank, &m, &v));
	RANKS_OK(visitor_gather(v, 10000));
	/* Everyone has come: the door is shut. */
	listens("");
	RANKS_OK(visitor_gather(v, 10000));
}

static void test_listeners(void **state)
{
	(void)state;
	listen_where = NULL;
	run(listeners, 8);
	/* What cannot be reached from elsewhere is not listened for there. */
	const struct namespaces all = hosts;

	hosts.n_hosts = 1;
	listen_where = "127.0.0.1:4321";
	run(listeners, 3);
	hosts = all;
}

static void pause_ms(int64_t ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* The cable of host 3 is out: its rank is missed, and knows where it was. */
static void unplugged(struct rank *rank)
{
	struct meeting m = meeting_of(rank);
	struct visitor *v;

	m.open_timeout_ms = 600;
	RANKS_STATUS(open_as(rank, &m, &v), FERRY_TIMEOUT);
	RANKS_CHECK(visitor_ms(v) < 600 + 1000);
	if (rank->rank == 3)
		RANKS_TEXT(ferry_last_error(), "boot: rank 0 did not come "
		                               "within 600 ms: 10.77.0.1:");
	else
		RANKS_TEXT(ferry_last_error(), "boot: rank 3 did not come");
}

/* It is put in while the ranks wait. */
static void plugged_late(struct rank *rank)
{
	struct meeting m = meeting_of(rank);
	struct visitor *v;

	if (rank->rank == 0 && fork() == 0) {
		pause_ms(300);
		_exit(namespaces_cable(&hosts, 3, true) ? 0 : 1);
	}
	RANKS_OK(open_as(rank, &m, &v));
	RANKS_OK(visitor_gather(v, 10000));
}

static void test_cable(void **state)
{
	(void)state;
	assert_true(namespaces_cable(&hosts, 3, false));
	run(unplugged, 4);
	run(plugged_late, 4);
}

/* A process of another host is killed; everybody is told at once. */
static void killed(struct rank *rank)
{
	struct meeting m = meeting_of(rank);
	struct visitor *v;

	RANKS_OK(open_as(rank, &m, &v));
	RANKS_OK(visitor_gather(v, 10000));
	if (rank->rank == 3)
		ranks_die();
	RANKS_STATUS(visitor_gather(v, 10000), FERRY_PEER);
	RANKS_CHECK(visitor_ms(v) < QUICK_MS);
	RANKS_TEXT(ferry_last_error(), "boot: rank 3 died");
	RANKS_CHECK(v->boot->ops->dead(v->boot, 3));
	ranks_meet(0, 3);
}

static void test_killed(void **state)
{
	struct ranks how = {.n_ranks = 4,
	                    .no_world = true,
	                    .killed = RANKS_BIT(3),
	                    .shared_bytes = sizeof(struct book)};

	(void)state;
	hosted_ranks(&how);
	ranks_run(&how, killed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_meets),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_other_secret),
		cmocka_unit_test(test_other_n_ranks),
		cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_cable),
		cmocka_unit_test(test_killed),
	};

	namespaces_need(&hosts, N_HOSTS, NULL);
	hosted_use(&hosts);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
