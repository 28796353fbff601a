/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds of GPUs on the pretended ones of fake_gpu.c: what is refused and who
 * is named, how ranks share GPUs, and that every mapping goes in the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <ferry/fabric.h>

#include "core/clock.h"
#include "core/order.h"
#include "fabric/world.h"
#include "fake_gpu.h"
#include "ranks.h"

/* GPU of each rank, and how a world is to open. */
struct plan {
	int32_t gpu[8];
	const char *text; /* of the refusal, NULL: it opens */
	enum ferry_status status;
	enum ferry_device device_of_last;
};

static void configure(const struct rank *rank,
                      struct ferry_world_config *config)
{
	const struct plan *plan = rank->arg;

	config->device = FERRY_DEVICE_CUDA;
	if (rank->rank == rank->n_ranks - 1)
		config->device = plan->device_of_last;
	config->cuda_device = plan->gpu[rank->rank] + 1;
}

static struct ranks ranks_of(enum ranks_kind kind, int32_t n_ranks,
                             struct plan *plan)
{
	return (struct ranks){
		.kind = kind,
		.n_ranks = n_ranks,
		.configure = configure,
		.open_may_fail = true,
		.arg = plan,
	};
}

static void is_refused(struct rank *rank)
{
	const struct plan *plan = rank->arg;

	RANKS_STATUS(rank->open_status, plan->status);
	RANKS_TEXT(ferry_last_error(), plan->text);
	RANKS_EQ(fake_gpu_memories, 0);
}

static void refuse(int32_t n_ranks, struct plan *plan)
{
	const enum ranks_kind kinds[] = {RANKS_PROCESSES, RANKS_THREADS};

	for (int i = 0; i < 2; i++) {
		const struct ranks how = ranks_of(kinds[i], n_ranks, plan);

		ranks_run(&how, is_refused);
	}
}

static void test_bad_ordinals(void **state)
{
	struct plan plan = {
		.gpu = {0, 4},
		.text = "cuda_device is 5, allowed are 1..4 (CUDA ordinal + 1)",
		.status = FERRY_RANGE,
		.device_of_last = FERRY_DEVICE_CUDA,
	};

	(void)state;
	refuse(2, &plan);
	plan.gpu[1] = -2;
	plan.text = "cuda_device is -1, allowed are 1..4";
	refuse(2, &plan);
}

static void test_devices_differ(void **state)
{
	struct plan plan = {
		.text = "rank 2 opens a CPU world, rank 0 a CUDA world",
		.status = FERRY_MISMATCH,
		.device_of_last = FERRY_DEVICE_CPU,
	};

	(void)state;
	refuse(3, &plan);
	plan.device_of_last = (enum ferry_device)7;
	plan.text = "device is 7, allowed are 0 (CPU) and 1 (CUDA)";
	plan.status = FERRY_INVAL;
	refuse(3, &plan);
}

/* The pair is named by ranks and by GPUs. */
static void test_no_reach(void **state)
{
	struct plan plan = {
		.gpu = {0, 1, 3},
		.text = "does not reach rank",
		.status = FERRY_UNSUPPORTED,
		.device_of_last = FERRY_DEVICE_CUDA,
	};

	(void)state;
	refuse(3, &plan);
	plan.text = "the driver grants no peer access from GPU";
	refuse(3, &plan);
}

static void opens(enum ferry_device device, const char *fabric,
                  enum ferry_status status, const char *text)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world = NULL;

	config.device = device;
	config.fabric = fabric;
	assert_int_equal(ferry_world_open(&config, &world), status);
	if (status == FERRY_OK)
		assert_string_equal(ferry_world_fabric(world), text);
	else if (!strstr(ferry_last_error(), text))
		fail_msg("'%s' lacks '%s'", ferry_last_error(), text);
	ferry_world_close(world);
}

static void test_fabrics_by_device(void **state)
{
	(void)state;
	opens(FERRY_DEVICE_CUDA, NULL, FERRY_OK, "p2p");
	opens(FERRY_DEVICE_CUDA, "auto", FERRY_OK, "p2p");
	opens(FERRY_DEVICE_CUDA, "trace:p2p", FERRY_OK, "trace:p2p");
	opens(FERRY_DEVICE_CPU, "auto", FERRY_OK, "local");
	opens(FERRY_DEVICE_CPU, "p2p", FERRY_UNSUPPORTED,
	      "world_open: fabric p2p: is for worlds on GPUs");
	opens(FERRY_DEVICE_CUDA, "local", FERRY_UNSUPPORTED,
	      "world_open: fabric local: is for worlds on the CPU");
	opens(FERRY_DEVICE_CUDA, "shm", FERRY_UNSUPPORTED,
	      "world_open: fabric shm: is for worlds on the CPU");
	opens(FERRY_DEVICE_CUDA, "wire", FERRY_UNSUPPORTED,
	      "world_open: fabric wire: is for worlds on the CPU");
}

static void shares(struct rank *rank)
{
	const struct plan *plan = rank->arg;
	int32_t n = 0;

	RANKS_OK(rank->open_status);
	for (int32_t r = 0; r < rank->n_ranks; r++)
		n += plan->gpu[r] == plan->gpu[rank->rank];
	RANKS_EQ(rank->world->n_gpu_ranks, n);
	RANKS_EQ(rank->world->cuda_device, plan->gpu[rank->rank]);
	RANKS_EQ(ferry_world_device(rank->world), FERRY_DEVICE_CUDA);
}

static void test_gpus_are_shared(void **state)
{
	struct plan plan = {
		.gpu = {0, 1, 0, 2, 0, 1},
		.device_of_last = FERRY_DEVICE_CUDA,
	};

	(void)state;
	for (int32_t n = 1; n <= 6; n++) {
		struct ranks how = ranks_of(RANKS_PROCESSES, n, &plan);

		ranks_run(&how, shares);
		how.kind = RANKS_THREADS;
		ranks_run(&how, shares);
	}
}

/* Each rank says what it can to each: NVLink, or only PCIe. */
static void capabilities(struct rank *rank)
{
	const struct plan *plan = rank->arg;
	const int32_t own = plan->gpu[rank->rank];
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, 1, 1, &s));
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		const int32_t gpu = plan->gpu[r];
		const uint32_t caps = ferry_segment_caps(s, r);
		const bool pcie = gpu != own && (gpu == 2 || own == 2);

		RANKS_EQ((caps & FERRY_CAP_NVLINK) == 0, pcie);
		RANKS_CHECK(caps & FERRY_CAP_DEVICE);
		RANKS_CHECK(!(caps & FERRY_CAP_LDST));
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_segment_close(s);
}

static void test_capabilities(void **state)
{
	struct plan plan = {
		.gpu = {0, 1, 2, 0},
		.device_of_last = FERRY_DEVICE_CUDA,
	};
	struct ranks how = ranks_of(RANKS_PROCESSES, 4, &plan);

	(void)state;
	ranks_run(&how, capabilities);
	how.kind = RANKS_THREADS;
	ranks_run(&how, capabilities);
}

/* One rank cannot map what the others have: all learn it, nothing stays. */
static void half_opened(struct rank *rank)
{
	const bool fails = rank->rank == rank->n_ranks - 1;
	const bool threads = rank->kind == RANKS_THREADS;
	struct ferry_segment *s = NULL, *kept = NULL;

	RANKS_OK(ferry_segment_open(rank->world, 100, 1, &kept));
	RANKS_OK(ferry_world_barrier(rank->world));
	if (fails)
		store_seq_u32(&fake_gpu_fails, 1);
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_CHECK(ferry_segment_open(rank->world, 1000, 1, &s) != FERRY_OK);
	RANKS_TEXT(ferry_last_error(), "p2p:");
	if (!threads && !fails)
		RANKS_TEXT(ferry_last_error(), "rank 2: p2p: a pretended map");
	RANKS_CHECK(!s);
	RANKS_OK(ferry_world_barrier(rank->world));
	if (fails)
		store_seq_u32(&fake_gpu_fails, 0);
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(fake_gpu_memories, rank->n_ranks);
	RANKS_OK(ferry_segment_open(rank->world, 1000, 1, &s));
	RANKS_OK(ferry_segment_signal(kept, rank->rank, 0));
	ferry_segment_close(kept);
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(fake_gpu_memories, rank->n_ranks);
	RANKS_OK(ferry_world_barrier(rank->world));
	ferry_segment_close(s);
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_EQ(fake_gpu_memories, 0);
}

static void test_half_opened(void **state)
{
	struct plan plan = {
		.gpu = {0, 1, 2},
		.device_of_last = FERRY_DEVICE_CUDA,
	};
	struct ranks how = ranks_of(RANKS_PROCESSES, 3, &plan);

	(void)state;
	ranks_run(&how, half_opened);
	how.kind = RANKS_THREADS;
	ranks_run(&how, half_opened);
}

/* What a peer has mapped lives until the peer closes. */
static void closes_first(struct rank *rank)
{
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, 4096, 2, &s));
	if (rank->rank == 0) {
		ferry_segment_close(s);
		RANKS_OK(ferry_world_barrier(rank->world));
		return;
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	uint8_t *peer = ferry_segment_ptr(s, 0);

	RANKS_EQ(peer[90 + rank->rank], 0);
	peer[90 + rank->rank] = 1;
	RANKS_OK(ferry_segment_put(s, 0, 1000 * (size_t)rank->rank,
	                           ferry_segment_base(s), 90, 1));
	RANKS_OK(ferry_segment_flush(s));
	ferry_segment_close(s);
}

static void test_closes_first(void **state)
{
	struct plan plan = {
		.gpu = {0, 1, 0},
		.device_of_last = FERRY_DEVICE_CUDA,
	};
	struct ranks how = ranks_of(RANKS_PROCESSES, 3, &plan);

	(void)state;
	ranks_run(&how, closes_first);
	how.kind = RANKS_THREADS;
	ranks_run(&how, closes_first);
	assert_int_equal(fake_gpu_memories, 0);
}

static double seconds_since(uint64_t ns)
{
	return (double)(ferry_now_ns() - ns) / 1e9;
}

/*
 * A copy that never ends: flush gives up in time, and so does close, which
 * leaves the memory alone as long as something may be copied there.
 */
static int use_stuck(uint32_t how)
{
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world = NULL;
	struct ferry_segment *s = NULL;
	const uint64_t begin = ferry_now_ns();

	config.device = FERRY_DEVICE_CUDA;
	config.timeout_ms = 500;
	if (ferry_world_open(&config, &world) ||
	    ferry_segment_open(world, 64, 1, &s))
		return 1;
	store_seq_u32(&fake_gpu_stuck, how);
	if (ferry_segment_put(s, 0, 0, ferry_segment_base(s), 8, 0) ||
	    ferry_segment_flush(s) != FERRY_TIMEOUT || seconds_since(begin) > 2)
		return 2;
	ferry_segment_close(s);
	if (seconds_since(begin) > 5 || fake_gpu_memories != (how == 1))
		return 3;
	if (how == 1) /* what comes late finds all that it needs */
		store_seq_u32(&fake_gpu_stuck, 0);
	usleep(20000);
	return 0;
}

static void test_copies_that_never_end(void **state)
{
	(void)state;
	fflush(NULL);
	for (uint32_t how = 1; how <= 2; how++) {
		int status = -1;
		const pid_t pid = fork();

		if (pid == 0)
			_exit(use_stuck(how));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_ordinals),
		cmocka_unit_test(test_devices_differ),
		cmocka_unit_test(test_no_reach),
		cmocka_unit_test(test_fabrics_by_device),
		cmocka_unit_test(test_gpus_are_shared),
		cmocka_unit_test(test_capabilities),
		cmocka_unit_test(test_half_opened),
		cmocka_unit_test(test_closes_first),
		cmocka_unit_test(test_copies_that_never_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
