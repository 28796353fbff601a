/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of GPUs registered with libfabric, pretended on both sides: the GPUs
 * of fake_gpu.c, and FI_HMEM of libfabric_faults.so. Rows leave from there and
 * arrive there; where anything is missing or refused, on one rank or on all,
 * they bounce as ever, the reason is told, and nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <rdma/fi_errno.h>

#include "core/order.h"
#include "fabric/segment.h"
#include "fabric/world.h"
#include "fake_gpu.h"
#include "injected.h"

enum { RANKS = 4, PER_HOST = 2, ROW = 3000, ROWS = 40 };

/* What one run is to be like. */
struct trial {
	const char *options; /* behind those of all */
	struct ofi_faults faults;
	enum ranks_kind kind;
	uint32_t no_rdma; /* bits of GPUs */
	bool no_memory;   /* none is left on GPUs */
	enum ferry_status world_status, status;
	const char *says; /* of the world; or the error */
	uint32_t on_gpu;  /* bits of ranks whose rows are there */
	struct ofi_faults_done done;
};

/* GPUs 0 and 1 have NVLink; GPU 3 is reached by no other. */
static void configure(const struct rank *rank,
                      struct ferry_world_config *config)
{
	static const int32_t gpus[RANKS] = {0, 1, 3, 3};

	injected_rank(rank->rank);
	config->device = FERRY_DEVICE_CUDA;
	config->cuda_device = gpus[rank->rank] + 1;
}

static bool is_near(const struct rank *rank, int32_t r)
{
	return r / PER_HOST == rank->rank / PER_HOST;
}

static unsigned char row_byte(int32_t from, int32_t to, int i, size_t at)
{
	return (unsigned char)(from * 61 + to * 17 + i * 7 +
	                       (int)(at * 3 >> 2));
}

/* In the window of `to`, and behind it where `from` has them. */
static size_t row_at(int32_t from, int i)
{
	return ((size_t)from * ROWS + (size_t)i) * ROW;
}

static size_t source_at(int32_t to, int i)
{
	return row_at(RANKS + to, i);
}

static void put_rows(struct rank *rank, struct ferry_segment *s)
{
	unsigned char *base = ferry_segment_base(s);

	for (int32_t r = 0; r < RANKS; r++)
		for (int i = 0; !is_near(rank, r) && i < ROWS; i++) {
			unsigned char *from = base + source_at(r, i);

			for (size_t k = 0; k < ROW; k++)
				from[k] = row_byte(rank->rank, r, i, k);
			RANKS_OK(ferry_segment_put(s, r, row_at(rank->rank, i),
			                           from, ROW, 0));
		}
	RANKS_OK(ferry_segment_flush(s));
}

static void check_rows(struct rank *rank, struct ferry_segment *s)
{
	const unsigned char *base = ferry_segment_base(s);

	for (int32_t r = 0; r < RANKS; r++)
		for (int i = 0; i < ROWS; i++)
			for (size_t k = 0; k < ROW; k++)
				RANKS_EQ(base[row_at(r, i) + k],
				         is_near(rank, r)
				                 ? 0
				                 : row_byte(r, rank->rank, i,
				                            k));
}

/* Where it lies, and that nobody else of the host is told of it. */
static void look(struct rank *rank, struct ferry_segment *s, bool on_gpu)
{
	const uint32_t caps = ferry_segment_caps(s, rank->rank);
	unsigned char *base = ferry_segment_base(s);

	RANKS_EQ((caps & FERRY_CAP_DEVICE) != 0, on_gpu);
	RANKS_EQ((caps & FERRY_CAP_LDST) != 0, !on_gpu);
	RANKS_EQ(base == (unsigned char *)s->mem->control + s->data_offset,
	         !on_gpu);
	for (int32_t r = 0; r < RANKS; r++)
		if (r != rank->rank)
			RANKS_CHECK(ferry_segment_ptr(s, r) == NULL);
	RANKS_OK(ferry_segment_signal(s, rank->rank ^ 1, 1));
	RANKS_OK(ferry_segment_wait(s, 1, 1));
}

/* No kernel asks for it, and the host cannot store there. It ends all. */
static void put_near(struct rank *rank, struct ferry_segment *s)
{
	if (rank->rank == 0)
		RANKS_STATUS(
			ferry_segment_put(s, 1, 0, ferry_segment_base(s), 8, 1),
			FERRY_UNSUPPORTED);
	else
		RANKS_STATUS(ferry_segment_wait(s, 1, 2), FERRY_UNSUPPORTED);
	RANKS_TEXT(ferry_last_error(), "rank 1 is on the own host");
}

static void body(struct rank *rank)
{
	const struct trial *t = rank->arg;
	struct ferry_segment *s = NULL;

	RANKS_STATUS(rank->open_status, t->world_status);
	if (t->world_status != FERRY_OK) {
		RANKS_TEXT(ferry_last_error(), t->says);
		return;
	}
	RANKS_OK(ferry_world_barrier(rank->world));
	store_seq_u32(&fake_gpu_fails, t->no_memory);
	RANKS_OK(ferry_world_barrier(rank->world));
	RANKS_STATUS(
		ferry_segment_open_on(rank->world,
	                              ferry_fabric_network(rank->world->fabric),
	                              row_at(2 * RANKS, 0), 2, &s),
		t->status);
	if (t->status != FERRY_OK) {
		RANKS_TEXT(ferry_last_error(), t->says);
		return;
	}
	RANKS_TEXT(rank->world->fabric_says, t->says);
	look(rank, s, t->on_gpu >> rank->rank & 1);
	put_rows(rank, s);
	RANKS_OK(ferry_segment_wait(s, 0, (RANKS - PER_HOST) * ROWS));
	check_rows(rank, s);
	RANKS_OK(ferry_world_barrier(rank->world));
	put_near(rank, s);
	ferry_segment_close(s);
}

static void run(struct trial *t)
{
	char options[400];
	struct ranks how = {
		.n_ranks = RANKS,
		.kind = t->kind,
		.fabric = "p2p+ofi",
		.options = options,
		.configure = configure,
		.open_may_fail = true,
		.arg = t,
	};

	snprintf(options, sizeof(options),
	         "RANKS_PER_HOST=2;OFI_LIBRARY=" FAULTS_LIBRARY "%s",
	         t->options ? t->options : "");
	t->faults.hmem = 1;
	injected_set(&t->faults);
	fake_gpu_no_rdma = t->no_rdma;
	fake_gpu_no_host = t->no_memory; /* pages, then */
	ranks_run(&how, body);
	fake_gpu_no_rdma = 0;
	fake_gpu_no_host = 0;
	fake_gpu_fails = 0;
	injected_done(&t->done);
	injected_set(NULL);
	assert_int_equal(fake_gpu_memories, 0);
	assert_int_equal(t->done.n_open, 0);
	assert_int_equal(t->done.refused, 0);
}

#define VERBS .faults.as = "verbs;ofi_rxm"
#define EFA   .faults.as = "efa"

/* The provider is known to write straight from there. */
static void test_verbs(void **state)
{
	struct trial t = {VERBS, .says = ", rows in GPU memory", .on_gpu = 15};

	(void)state;
	run(&t);
	assert_int_equal(t.done.n_hmem, RANKS);
	assert_int_equal(t.done.hmem_devices, 1 | 2 | 8);
	assert_int_equal(t.done.promised, 0);
	/* All rows are written from there, some in one write. */
	assert_in_range(t.done.hmem_writes, RANKS * PER_HOST,
	                RANKS * PER_HOST * ROWS);
}

/* It may know other ways, and promises. */
static void test_efa(void **state)
{
	struct trial t = {EFA, .says = ", rows in GPU memory", .on_gpu = 15};

	(void)state;
	run(&t);
	assert_int_equal(t.done.n_hmem, RANKS);
	assert_int_equal(t.done.promised, RANKS);
}

static void test_no_promise(void **state)
{
	struct trial t = {
		EFA,
		.faults.call = OFI_CALL_SETOPT,
		.faults.nth = 1,
		.faults.times = RANKS,
		.faults.error = FI_EOPNOTSUPP,
		.says = "",
	};

	(void)state;
	run(&t);
	assert_int_equal(t.done.failed, RANKS);
	assert_int_equal(t.done.n_hmem, 0);
	t.options = ";OFI_HMEM=require";
	t.status = FERRY_FABRIC;
	t.says = "without calls of CUDA: Operation not supported";
	run(&t);
}

/*
 * One rank bounces, and the others, which write to it, do not: another of its
 * host, which maps its memory, among them.
 */
static void one_registration_is_refused(enum ranks_kind kind)
{
	struct trial t = {
		VERBS,
		.kind = kind,
		.faults.call = OFI_CALL_MR_REGATTR,
		.faults.nth = 1,
		.faults.ranks = RANKS_BIT(1),
		.faults.error = FI_ENOMEM,
		.says = "",
		.on_gpu = 15 - 2,
	};

	run(&t);
	assert_int_equal(t.done.failed, 1);
	assert_int_equal(t.done.n_hmem, RANKS - 1);
	t.options = ";OFI_HMEM=require";
	t.status = FERRY_NOMEM;
	t.says = "bytes of a GPU: Cannot allocate memory";
	run(&t);
}

static void test_one_registration_is_refused(void **state)
{
	(void)state;
	one_registration_is_refused(RANKS_THREADS);
	one_registration_is_refused(RANKS_PROCESSES);
}

static void test_no_memory(void **state)
{
	struct trial t = {VERBS, .no_memory = true, .says = ""};

	(void)state;
	run(&t);
	assert_int_equal(t.done.n_hmem, 0);
}

/* GPU 3, of ranks 2 and 3, cannot. */
static void test_some_gpus_cannot(void **state)
{
	struct trial t = {VERBS, .no_rdma = 8, .says = "rows ", .on_gpu = 3};

	(void)state;
	run(&t);
	assert_int_equal(t.done.n_hmem, 2);
	assert_int_equal(t.done.hmem_devices, 1 | 2);
	t.options = ";OFI_HMEM=require";
	t.world_status = FERRY_UNSUPPORTED;
	t.says = "FERRY_OFI_HMEM=require: GPU 3 has no pretended RDMA";
	run(&t);
}

static void test_off(void **state)
{
	struct trial t = {VERBS, .options = ";OFI_HMEM=off",
	                  .says = ", rows bounce: FERRY_OFI_HMEM=off"};

	(void)state;
	run(&t);
	assert_int_equal(t.done.n_hmem, 0);
}

/* Over sockets somebody would have to copy. */
static void test_tcp(void **state)
{
	struct trial t = {
		.says = ", rows bounce: tcp;ofi_rxm offers no FI_HMEM"};

	(void)state;
	run(&t);
	assert_int_equal(t.done.n_hmem, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_verbs),
		cmocka_unit_test(test_efa),
		cmocka_unit_test(test_no_promise),
		cmocka_unit_test(test_one_registration_is_refused),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_some_gpus_cannot),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_tcp),
	};

	injected_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
