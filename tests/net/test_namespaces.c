/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hosts themselves: they reach each other and nobody else, cables can be
 * pulled, the bad network is as bad as asked for, and nothing is left behind,
 * not even when the program that made them is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>

#include "core/clock.h"
#include "core/order.h"
#include "namespaces.h"

enum { PORT = 4000, N_PINGS = 150 };

/* A socket on a host, made by a thread that goes there and ends. */
struct visit {
	const struct namespaces *ns;
	int host;
	int fd;
};

static void *visit(void *arg)
{
	struct visit *v = arg;
	struct sockaddr_in at = {.sin_family = AF_INET,
	                         .sin_port = htons(PORT)};

	if (!namespaces_enter(v->ns, v->host))
		abort();
	v->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (v->fd < 0 || bind(v->fd, (struct sockaddr *)&at, sizeof(at)))
		abort();
	return NULL;
}

static int socket_on(const struct namespaces *ns, int host)
{
	struct visit v = {ns, host, -1};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
	pthread_join(thread, NULL);
	return v.fd;
}

static bool send_to(int fd, int host, uint32_t number)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(PORT)};
	char address[16];

	namespaces_address(host, address);
	inet_pton(AF_INET, address, &to.sin_addr);
	return sendto(fd, &number, sizeof(number), 0, (struct sockaddr *)&to,
	              sizeof(to)) == sizeof(number);
}

/* The next number that comes, -1: none within that time. */
static int64_t receive(int fd, int ms)
{
	struct pollfd p = {fd, POLLIN, 0};
	uint32_t number;

	if (poll(&p, 1, ms) != 1 || recv(fd, &number, sizeof(number), 0) != 4)
		return -1;
	return number;
}

/* There may be veth, but no TUN. */
static void make(struct namespaces *ns, int n_hosts,
                 const struct rough_link *rough)
{
	char reason[NAMESPACES_TEXT];

	if (namespaces_make(ns, n_hosts, rough, reason))
		return;
	print_message("skipped: %s\n", reason);
	skip();
}

/* Each of them to each other one. */
static void all_reach_all(const struct namespaces *ns)
{
	int fds[NAMESPACES_MAX];

	for (int h = 0; h < ns->n_hosts; h++)
		fds[h] = socket_on(ns, h);
	for (int f = 0; f < ns->n_hosts; f++)
		for (int t = 0; t < ns->n_hosts; t++) {
			const uint32_t number = (uint32_t)(f * 10 + t);

			assert_true(send_to(fds[f], t, number));
			assert_int_equal(receive(fds[t], 2000), number);
		}
	for (int h = 0; h < ns->n_hosts; h++)
		close(fds[h]);
}

static void test_bridge(void **state)
{
	struct namespaces ns;

	(void)state;
	make(&ns, 4, NULL);
	all_reach_all(&ns);
	namespaces_end(&ns);
}

static void test_cable(void **state)
{
	struct namespaces ns;

	(void)state;
	make(&ns, 2, NULL);
	all_reach_all(&ns);
	const int a = socket_on(&ns, 0);
	const int b = socket_on(&ns, 1);

	assert_true(namespaces_cable(&ns, 1, false));
	send_to(a, 1, 1);
	assert_int_equal(receive(b, 50), -1);
	assert_true(namespaces_cable(&ns, 1, true));
	for (int i = 0; i < 50; i++) {
		send_to(a, 1, 2);
		if (receive(b, 100) == 2)
			break;
		assert_int_not_equal(i, 49);
	}
	close(a);
	close(b);
	namespaces_end(&ns);
}

/* Many numbers one way; how many came, and how many after a later one. */
static void ping(const struct namespaces *ns, int *n_came, int *n_overtaken)
{
	const int a = socket_on(ns, 0);
	const int b = socket_on(ns, 1);
	int64_t last = -1;

	*n_came = 0;
	*n_overtaken = 0;
	for (uint32_t i = 0; i < N_PINGS; i++)
		assert_true(send_to(a, 1, i));
	for (int64_t n; (n = receive(b, 300)) >= 0;) {
		++*n_came;
		*n_overtaken += n < last;
		last = n > last ? n : last;
	}
	close(a);
	close(b);
}

static void test_rough(void **state)
{
	const struct rough_link perfect = {.seed = 1};
	struct namespaces ns;
	int n_came;
	int n_overtaken;

	(void)state;
	make(&ns, 4, &perfect);
	all_reach_all(&ns);
	ping(&ns, &n_came, &n_overtaken);
	assert_int_equal(n_came, N_PINGS);
	assert_int_equal(n_overtaken, 0);

	store_release_u32(&ns.rough->jitter_us, 2000);
	ping(&ns, &n_came, &n_overtaken);
	assert_int_equal(n_came, N_PINGS);
	assert_true(n_overtaken > N_PINGS / 10);
	assert_true(load_acquire_u64(&ns.rough->n_overtook) > N_PINGS / 10);

	store_release_u32(&ns.rough->twice_ppm, 250000);
	ping(&ns, &n_came, &n_overtaken);
	assert_in_range(n_came, N_PINGS * 11 / 10, N_PINGS * 15 / 10);

	store_release_u32(&ns.rough->twice_ppm, 0);
	store_release_u32(&ns.rough->loss_ppm, 250000);
	ping(&ns, &n_came, &n_overtaken);
	assert_in_range(n_came, N_PINGS / 2, N_PINGS * 9 / 10);
	namespaces_end(&ns);
}

static void test_delay_and_rate(void **state)
{
	const struct rough_link slow = {.seed = 1, .delay_us = 30000};
	struct namespaces ns;
	int n_came;
	int n_overtaken;

	(void)state;
	make(&ns, 2, &slow);
	const int a = socket_on(&ns, 0);
	const int b = socket_on(&ns, 1);
	const uint64_t start_ns = ferry_now_ns();

	assert_true(send_to(a, 1, 7));
	assert_int_equal(receive(b, 2000), 7);
	assert_true(ferry_now_ns() - start_ns >= 30000000);
	close(a);
	close(b);
	/* 32 bytes each at 64 KiB/s and a queue of 50 ms: 102 of them fit. */
	store_release_u32(&ns.rough->delay_us, 0);
	store_release_u32(&ns.rough->kib_per_s, 64);
	ping(&ns, &n_came, &n_overtaken);
	assert_in_range(n_came, 90, 140);
	namespaces_end(&ns);
}

static void test_partition(void **state)
{
	const struct rough_link perfect = {.seed = 1};
	struct namespaces ns;
	int fds[4];

	(void)state;
	make(&ns, 4, &perfect);
	for (int h = 0; h < 4; h++)
		fds[h] = socket_on(&ns, h);
	rough_link_cut(ns.rough, 0x3);
	for (int f = 0; f < 4; f++)
		for (int t = 0; t < 4; t++) {
			const bool apart = f / 2 != t / 2;

			assert_true(send_to(fds[f], t, 5));
			assert_int_equal(receive(fds[t], apart ? 20 : 2000),
			                 apart ? -1 : 5);
		}
	assert_int_equal(load_acquire_u64(&ns.rough->n_cut), 8);
	rough_link_mend(ns.rough);
	for (int h = 0; h < 4; h++)
		close(fds[h]);
	all_reach_all(&ns);
	namespaces_end(&ns);
}

/* Processes in a namespace, by the number of its inode. */
static int count_in(ino_t inode)
{
	DIR *dir = opendir("/proc");
	int n = 0;

	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir));) {
		char path[300];
		struct stat st;

		snprintf(path, sizeof(path), "/proc/%s/ns/net", e->d_name);
		n += e->d_name[0] >= '0' && e->d_name[0] <= '9' &&
		     !stat(path, &st) && st.st_ino == inode;
	}
	closedir(dir);
	return n;
}

/* Makes hosts, puts a process on one, and is killed. */
_Noreturn static void make_and_wait(int to_parent)
{
	const struct rough_link perfect = {.seed = 1};
	struct namespaces ns;
	struct stat st;
	char reason[NAMESPACES_TEXT];

	if (!namespaces_make(&ns, 2, &perfect, reason) ||
	    fstat(ns.fds[1], &st) || !namespaces_enter(&ns, 1))
		_exit(1);
	dprintf(to_parent, "%llu %d\n", (unsigned long long)st.st_ino,
	        (int)ns.rough_pid);
	for (;;)
		pause();
}

static void test_killed(void **state)
{
	const struct rough_link perfect = {.seed = 1};
	struct namespaces probe;
	unsigned long long inode = 0;
	int rough_pid = 0;
	char line[64] = "";
	int ends[2];

	(void)state;
	make(&probe, 1, &perfect);
	namespaces_end(&probe);
	assert_int_equal(pipe(ends), 0);
	const pid_t pid = fork();

	if (pid == 0)
		make_and_wait(ends[1]);
	close(ends[1]);
	assert_true(read(ends[0], line, sizeof(line) - 1) > 0);
	assert_int_equal(sscanf(line, "%llu %d", &inode, &rough_pid), 2);
	assert_int_equal(count_in((ino_t)inode), 1);
	assert_int_equal(kill(rough_pid, 0), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (int i = 0; count_in((ino_t)inode) || !kill(rough_pid, 0); i++) {
		assert_true(i < 2000); /* the kernel does it in its own time */
		poll(NULL, 0, 10);
	}
	close(ends[0]);
}

static void test_listeners(void **state)
{
	struct namespaces ns;
	char text[200];

	(void)state;
	make(&ns, 2, NULL);
	const int fd = socket_on(&ns, 1);
	const pid_t pid = fork();

	if (pid == 0) {
		if (!namespaces_enter(&ns, 0) ||
		    !namespaces_listeners(text, sizeof(text)) || text[0])
			_exit(1);
		if (!namespaces_enter(&ns, 1) ||
		    !namespaces_listeners(text, sizeof(text)) ||
		    strcmp(text, "udp 0.0.0.0:4000\n"))
			_exit(2);
		_exit(0);
	}
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fd);
	namespaces_end(&ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bridge),
		cmocka_unit_test(test_cable),
		cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_rough),
		cmocka_unit_test(test_delay_and_rate),
		cmocka_unit_test(test_partition),
		cmocka_unit_test(test_killed),
	};
	struct namespaces ns;

	namespaces_need(&ns, 1, NULL);
	namespaces_end(&ns);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
