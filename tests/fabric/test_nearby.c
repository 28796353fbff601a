/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NIC a rank takes, on a machine that a directory of files pretends: two
 * sockets, each with two PCI switches, each switch with a NIC and two GPUs.
 */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/nearby.h"

enum { PATH_BYTES = 512 };

static char sys[] = "/tmp/ferry-nearby-XXXXXX";

static const char *const nics[] = {"0000:11:00.0", "0000:21:00.0",
                                   "0000:91:00.0", "0000:a1:00.0"};

static void make(const char *path, const char *text)
{
	char at[PATH_BYTES];

	snprintf(at, sizeof(at), "%s/%s", sys, path);
	for (char *slash = strchr(at + strlen(sys) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(at, 0700);
		*slash = '/';
	}
	if (!text) {
		mkdir(at, 0700);
		return;
	}
	FILE *file = fopen(at, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* A device of a switch: 10, 20 on socket 0; 90, a0 on socket 1. */
static void make_device(const char *bus, const char *device)
{
	const bool second = bus[0] == '9' || bus[0] == 'a';
	char path[128], link[PATH_BYTES], to[PATH_BYTES];

	snprintf(path, sizeof(path),
	         "devices/pci0000:%c0/0000:%c0:01.0/0000:%s:00.0/local_cpulist",
	         second ? '8' : '0', bus[0], device);
	make(path, second ? "4-7,12-15\n" : "0-3,8-11\n");
	make("bus/pci/devices", NULL);
	snprintf(link, sizeof(link), "%s/bus/pci/devices/0000:%s:00.0", sys,
	         device);
	snprintf(to, sizeof(to),
	         "%s/devices/pci0000:%c0/0000:%c0:01.0/0000:%s:00.0", sys,
	         second ? '8' : '0', bus[0], device);
	assert_int_equal(symlink(to, link), 0);
}

static int make_machine(void **state)
{
	static const char *const buses[] = {"10", "20", "90", "a0"};

	(void)state;
	if (!mkdtemp(sys))
		return -1;
	make("devices/system/node/online", "0-1\n");
	make("devices/system/node/node0/cpulist", "0-3,8-11\n");
	make("devices/system/node/node1/cpulist", "4-7,12-15\n");
	for (int i = 0; i < 4; i++)
		for (int d = 1; d <= 3; d++) {
			const char device[3] = {buses[i][0], (char)('0' + d),
			                        0};

			make_device(buses[i], device);
		}
	return 0;
}

static int remove_one(const char *path, const struct stat *status, int type,
                      struct FTW *where)
{
	(void)status;
	(void)type;
	(void)where;
	return remove(path);
}

static int remove_machine(void **state)
{
	(void)state;
	return nftw(sys, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static cpu_set_t cpus_from(int first, int last)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	for (int i = first; i <= last; i++)
		CPU_SET((size_t)i, &cpus);
	return cpus;
}

static int32_t nic_of(cpu_set_t cpus, const char *gpu, int32_t ordinal)
{
	const struct ferry_seat seat = {&cpus, gpu, ordinal};

	return ferry_nearby_nic(sys, nics, 4, &seat);
}

static void test_nodes(void **state)
{
	cpu_set_t cpus = cpus_from(0, 3);

	(void)state;
	assert_int_equal(ferry_nearby_node(sys, &cpus), 0);
	cpus = cpus_from(12, 12);
	assert_int_equal(ferry_nearby_node(sys, &cpus), 1);
	cpus = cpus_from(3, 4);
	assert_int_equal(ferry_nearby_node(sys, &cpus), -1);
	cpus = cpus_from(0, 16); /* one that no node has */
	assert_int_equal(ferry_nearby_node(sys, &cpus), -1);
	CPU_ZERO(&cpus);
	assert_int_equal(ferry_nearby_node(sys, &cpus), -1);
	cpus = cpus_from(0, 0);
	assert_int_equal(ferry_nearby_node("/nowhere", &cpus), -1);
}

/* Bound to a socket: its two NICs in turn; not bound: all four. */
static void test_by_cpus(void **state)
{
	(void)state;
	for (int32_t i = 0; i < 8; i++) {
		assert_int_equal(nic_of(cpus_from(0, 3), NULL, i), i % 2);
		assert_int_equal(nic_of(cpus_from(5, 5), NULL, i), 2 + i % 2);
		assert_int_equal(nic_of(cpus_from(0, 15), NULL, i), i % 4);
		/* Near none: no reason to prefer one. */
		assert_int_equal(nic_of(cpus_from(40, 41), NULL, i), i % 4);
	}
}

/* The NIC of its switch, whatever CPUs the rank has. */
static void test_by_gpu(void **state)
{
	static const char *const gpus[] = {
		"0000:12:00.0", "0000:13:00.0", "0000:22:00.0", "0000:23:00.0",
		"0000:92:00.0", "0000:93:00.0", "0000:a2:00.0", "0000:a3:00.0"};

	(void)state;
	for (int32_t i = 0; i < 8; i++)
		assert_int_equal(nic_of(cpus_from(0, 3), gpus[i], i), i / 2);
	/* A GPU that /sys does not know leaves the CPUs to decide. */
	assert_int_equal(nic_of(cpus_from(4, 4), "0000:ff:00.0", 1), 3);
}

/* NICs without an address are as far as can be, and all there is. */
static void test_unknown_nics(void **state)
{
	const char *const odd[] = {"", "0000:ee:00.0", ""};
	const char *const one_near[] = {"", "0000:91:00.0", ""};
	const cpu_set_t cpus = cpus_from(4, 4);
	struct ferry_seat seat = {&cpus, NULL, 0};

	(void)state;
	for (; seat.ordinal < 6; seat.ordinal++) {
		assert_int_equal(ferry_nearby_nic(sys, odd, 3, &seat),
		                 seat.ordinal % 3);
		assert_int_equal(ferry_nearby_nic(sys, one_near, 3, &seat), 1);
		assert_int_equal(ferry_nearby_nic("/nowhere", nics, 4, &seat),
		                 seat.ordinal % 4);
	}
}

/* Here, too, every rank gets one that there is. */
static void test_here(void **state)
{
	const char *const pci[] = {"", "0000:00:03.0"};
	cpu_set_t cpus;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	const struct ferry_seat seat = {&cpus, NULL, 5};

	assert_in_range(ferry_nearby_nic("/sys", pci, 2, &seat), 0, 1);
	assert_true(ferry_nearby_node("/sys", &cpus) >= -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_by_cpus),
		cmocka_unit_test(test_by_gpu),
		cmocka_unit_test(test_unknown_nics),
		cmocka_unit_test(test_here),
	};

	return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
