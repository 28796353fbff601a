/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels and worlds come and go: a thousand times, half-way, in another
 * order on every rank, across fork and exec. No file descriptor, mapping or
 * file of /dev/shm stays behind.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "descriptors.h"
#include "drive.h"
#include "run_args.h"
#include "shm_names.h"

static struct ferry_moe_config small(void)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;

	c.max_tokens = 4;
	c.hidden = 32;
	c.topk = 2;
	c.n_experts = 4;
	c.n_slots = 2;
	return c;
}

/* Mappings that are shared or have a name: no heap, no arenas, no stacks. */
static int n_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	if (file == NULL)
		RANKS_FAIL("/proc/self/maps cannot be read");
	while (fgets(line, sizeof(line), file) != NULL)
		n += strstr(line, "s ") != NULL && strchr(line, '/') != NULL;
	fclose(file);
	return n;
}

struct footprint {
	int n_fds, n_maps;
};

static struct footprint footprint(void)
{
	return (struct footprint){
		.n_fds = descriptors_count(),
		.n_maps = n_maps(),
	};
}

/* Threads have one process: its first rank counts while the others wait. */
static struct footprint footprint_of(struct rank *rank)
{
	struct footprint now = {0};

	RANKS_OK(ferry_world_barrier(rank->world));
	if (rank->kind == RANKS_PROCESSES || rank->rank == 0)
		now = footprint();
	RANKS_OK(ferry_world_barrier(rank->world));
	return now;
}

/* Fewer are welcome: a thread of the boot may have closed something. */
static void check_footprint(struct rank *rank, struct footprint before)
{
	const struct footprint now = footprint_of(rank);

	if (now.n_fds > before.n_fds || now.n_maps > before.n_maps)
		RANKS_FAIL("%d descriptors were %d, %d maps %d", now.n_fds,
		           before.n_fds, now.n_maps, before.n_maps);
}

static struct drive_step step_of(const struct rank *rank, uint64_t seed)
{
	struct drive_step step = {0};

	step.spec.seed = seed;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		step.n_tokens[r] = 1 + r % 4;
	return step;
}

/* pplx#20 */
static void thousand_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	/* Memory of GPUs is slower to map, and a network has to connect. */
	const int n = run_on_gpus() ? 300 : run_args.hosts ? 200 : 1000;
	struct footprint before = {0};

	for (int i = 0; i < n; i++) {
		struct drive *d = drive_open(rank, &config, NULL);

		if (i % 50 == 0) {
			const struct drive_step step =
				step_of(rank, run_args.seed + (uint64_t)i);

			drive_run(d, 1, &step);
		}
		drive_close(d);
		if (i == 100)
			before = footprint_of(rank);
	}
	check_footprint(rank, before);
}

static void a_thousand_channels_leave_nothing(void **state)
{
	struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, thousand_body);
}

static void open_and_close(struct rank *rank)
{
	struct ferry_world_config config;
	struct ferry_moe_config shape = small();
	struct ferry_moe *moe;

	ranks_config(&config);
	RANKS_OK(ferry_world_open(&config, &rank->world));
	RANKS_OK(ferry_moe_open(rank->world, &shape, &moe));
	ferry_moe_close(moe);
	/* The others may still need this rank to open. */
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_world_close(rank->world);
	rank->world = NULL;
}

static void worlds_body(struct rank *rank)
{
	open_and_close(rank);
}

static void many_worlds_leave_nothing(void **state)
{
	struct footprint before = {0};
	struct ranks how = run_args_ranks(3);
	struct shm_names names;

	(void)state;
	shm_names_take(&names);
	how.no_world = true;
	for (int i = 0; i < 60; i++) {
		how.options = i % 2 ? "SHM=file" : NULL;
		ranks_run(&how, worlds_body);
		if (i == 2)
			before = footprint();
	}
	assert_int_equal(footprint().n_fds, before.n_fds);
	assert_int_equal(footprint().n_maps, before.n_maps);
	assert_int_equal(shm_names_left(&names), 0);
}

/* Several channels, closed in another order on each rank, some in use. */
static void orders_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	const struct drive_step step = step_of(rank, run_args.seed);
	static const int orders[3][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
	struct drive *channels[3];
	struct drive *last;

	for (int i = 0; i < 3; i++)
		channels[i] = drive_open(rank, &config, NULL);
	/* One ends between send and recv, one between recv and combine. */
	drive_dispatch_send(drive_begin(channels[0], 0, &step));
	drive_dispatch(channels[1], 0, &step);
	for (int i = 0; i < 3; i++)
		drive_close(channels[orders[rank->rank % 3][i]]);
	last = drive_open(rank, &config, NULL);
	drive_run(last, 0, &step);
}

static void channels_close_in_any_order(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, orders_body);
}

/* A rank closes as soon as it is done; the others may still be at work. */
static void early_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	const struct drive_step step = step_of(rank, run_args.seed);

	for (int i = 0; i < 30; i++) {
		struct drive *d = drive_open(rank, &config, NULL);

		drive_run(d, 0, &step);
		drive_run(d, 1, &step);
		drive_close(d);
	}
}

static void who_is_done_may_close(void **state)
{
	const struct ranks how = run_args_ranks(4);

	(void)state;
	ranks_run(&how, early_body);
}

/* Opening fails half-way on every rank, in several ways, and works after. */
static void half_body(struct rank *rank)
{
	const struct ferry_moe_config good = small();
	const struct drive_step step = step_of(rank, run_args.seed);
	struct footprint before = {0};
	struct ferry_moe_config bad;
	struct ferry_moe *moe = NULL;

	for (int i = 0; i < 40; i++) {
		bad = good;
		if (rank->rank == 1)
			bad.hidden = i % 2 ? 33 : -1;
		RANKS_STATUS(ferry_moe_open(rank->world, &bad, &moe),
		             i % 2 ? FERRY_MISMATCH : FERRY_RANGE);
		RANKS_CHECK(moe == NULL);
		if (i == 3)
			before = footprint_of(rank);
	}
	check_footprint(rank, before);
	drive_run(drive_open(rank, &good, NULL), 0, &step);
	ferry_moe_close(NULL);
	ferry_placement_destroy(NULL);
	ferry_world_close(NULL);
}

static void a_failed_open_leaves_nothing(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, half_body);
}

static void run_child(bool exec)
{
	const pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (exec)
			execl("/bin/true", "true", (char *)NULL);
		_exit(0);
	}
	RANKS_CHECK(pid > 0);
	RANKS_EQ(waitpid(pid, &status, 0), pid);
	RANKS_EQ(status, 0);
}

/* A process beside: it inherits everything and disturbs nothing. */
static void fork_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);

	for (uint64_t i = 0; i < 6; i++) {
		const struct drive_step step = step_of(rank, run_args.seed + i);
		struct drive_op *op = drive_begin(d, 0, &step);

		drive_dispatch_send(op);
		if ((int32_t)i % rank->n_ranks == rank->rank)
			run_child(i % 2);
		drive_dispatch_recv(op);
		drive_combine_send(op);
		drive_combine_recv(op);
		drive_end(op);
	}
}

static void fork_and_exec_disturb_nothing(void **state)
{
	const struct ranks how = run_args_ranks(3);

	(void)state;
	ranks_run(&how, fork_body);
}

/* Shared memory of a world, and no file that merely lies in a folder ferry. */
static bool is_of_world(const char *target)
{
	static const char memfd[] = "/memfd:ferry", file[] = "/dev/shm/ferry-";

	return !strncmp(target, memfd, sizeof(memfd) - 1) ||
	       !strncmp(target, file, sizeof(file) - 1);
}

/* Nothing of a world is inherited by a program that is executed. */
static void exec_body(struct rank *rank)
{
	const struct ferry_moe_config config = small();
	struct drive *d = drive_open(rank, &config, NULL);
	DIR *dir = opendir("/proc/self/fd");

	(void)d;
	RANKS_CHECK(dir != NULL);
	for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
		char path[64];
		char target[256];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%.20s", e->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = 0;
		if (!is_of_world(target))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fdinfo/%.20s",
		         e->d_name);
		FILE *file = fopen(path, "r");
		unsigned flags = 0;

		if (file == NULL)
			continue;
		if (fscanf(file, "pos: %*d flags: %o", &flags) != 1)
			flags = 0;
		fclose(file);
		if (!(flags & 02000000)) /* O_CLOEXEC, as the kernel writes */
			RANKS_FAIL("%s stays open across exec", target);
	}
	closedir(dir);
}

static void descriptors_close_at_exec(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, exec_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_channels_leave_nothing),
		cmocka_unit_test(many_worlds_leave_nothing),
		cmocka_unit_test(channels_close_in_any_order),
		cmocka_unit_test(who_is_done_may_close),
		cmocka_unit_test(a_failed_open_leaves_nothing),
		cmocka_unit_test(fork_and_exec_disturb_nothing),
		cmocka_unit_test(descriptors_close_at_exec),
	};

	run_args_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
