/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tests' own memory on a GPU: what is pushed, filled and pulled; and that
 * none of it waits for a kernel of another rank of the same GPU, as it may
 * wait for this one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "lab.h"

enum { BYTES = 100001 };

static void close_memory(void *memory)
{
	struct rank_memory *m = memory;

	m->ops->close(m);
}

/* Without a world: that is what this program is to come before. */
static struct rank_memory *open_memory(struct rank *rank)
{
	const struct rank_memory_ops *ops = rank_memory_cuda();
	struct rank_memory *m = ops->open(rank, 2);

	RANKS_CHECK(m != NULL);
	m->ops = ops;
	m->is_device = true;
	ranks_defer(close_memory, m);
	return m;
}

static void copies_body(struct rank *rank)
{
	struct rank_memory *m = open_memory(rank);
	struct CUstream_st *stream = rank_memory_next_stream(m);
	struct mirror a = mirror_make(m, 2 * BYTES, BYTES);
	uint8_t part[2];
	int before;

	for (int i = 0; i < BYTES; i++)
		a.host[i] = (uint8_t)(i * 7 + rank->rank);
	mirror_push(m, &a, stream);
	rank_memory_sync(m, stream);
	memset(a.host, 0, BYTES);
	mirror_pull(m, &a, stream);
	rank_memory_sync(m, stream);
	for (int i = 0; i < BYTES; i++)
		RANKS_EQ(a.host[i], (uint8_t)(i * 7 + rank->rank));
	rank_memory_write(m, a.device + BYTES, "xy", 2);
	mirror_fill(m, &a, 0xa5, stream);
	rank_memory_sync(m, NULL);
	rank_memory_read(m, part, a.device + BYTES - 1, 2);
	RANKS_EQ(part[0], 0xa5);
	RANKS_EQ(part[1], 'x'); /* behind the mirror nothing is touched */
	LAB_OK(cudaGetDevice(&before));
	RANKS_EQ(before, 0); /* of a new thread, whatever the rank's is */
	mirror_drop(m, &a);
	lab_device(rank);
	lab_alive(m);
}

static void copies_are_exact(void **state)
{
	struct ranks how = run_args_ranks(4);

	(void)state;
	how.no_world = true;
	ranks_run(&how, copies_body);
}

static const uint64_t hold_ns = UINT64_C(3000000000);

/* Rank 0's kernel waits for the others, which take memory meanwhile. */
static void busy_body(struct rank *rank)
{
	struct rank_memory *m = open_memory(rank);
	struct CUstream_st *stream = rank_memory_stream(m, 0);
	static uint32_t *go;
	uint64_t begin;

	lab_device(rank);
	if (rank->rank == 0) {
		LAB_OK(cudaHostAlloc((void **)&go, 4, cudaHostAllocPortable));
		*go = 0;
		LAB_OK(lab_hold(go, hold_ns, stream));
	}
	ranks_meet(0, rank->n_ranks);
	begin = ferry_now_ns();
	for (size_t i = 1; rank->rank > 0 && i < 200; i++) {
		struct mirror a = mirror_make(m, i << 12, i << 10);
		struct mirror b = mirror_make(m, 100 << 20, 0);

		memset(a.host, (int)i, a.bytes);
		mirror_push(m, &a, stream);
		mirror_fill(m, &a, (int)i + 1, stream);
		mirror_pull(m, &a, stream);
		rank_memory_sync(m, stream);
		RANKS_EQ(a.host[a.bytes - 1], (uint8_t)(i + 1));
		mirror_drop(m, &a);
		mirror_drop(m, &b);
	}
	if (ferry_now_ns() - begin > hold_ns / 2)
		RANKS_FAIL("memory of the tests waited for a kernel");
	ranks_meet(1, rank->n_ranks);
	if (rank->rank == 0)
		*go = 1;
	rank_memory_sync(m, NULL);
	if (ferry_now_ns() - begin > hold_ns)
		RANKS_FAIL("the kernel was not let go");
}

static void nothing_waits_for_kernels(void **state)
{
	struct ranks how = run_args_ranks(8);

	(void)state;
	how.no_world = true;
	how.kind = RANKS_THREADS;
	how.n_gpus = 1;
	ranks_run(&how, busy_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_are_exact),
		cmocka_unit_test(nothing_waits_for_kernels),
	};

	lab_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
