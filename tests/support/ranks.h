/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One test body on N ranks, as threads of a team or as forked processes, each
 * with an opened world, and one verdict of all:
 *
 *	static void body(struct rank *rank)
 *	{
 *		RANKS_OK(ferry_world_barrier(rank->world));
 *		RANKS_EQ(ferry_world_size(rank->world), rank->n_ranks);
 *	}
 *	static void test_barrier(void **state)
 *	{
 *		ranks_run(&(struct ranks){.n_ranks = 4}, body);
 *	}
 *
 * A macro that fails ends the body of its rank, from any depth, and the test
 * fails with file, line and values of every rank that failed. Bodies must not
 * use cmocka's own assertions: these know nothing of threads and processes.
 */
#ifndef RANKS_H
#define RANKS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/base.h>

enum ranks_kind { RANKS_THREADS, RANKS_PROCESSES };

enum { RANKS_MAX = 64 };
#define RANKS_BIT(rank) (UINT64_C(1) << (rank))

/* A rank, as its body sees it. */
struct rank {
	int32_t rank;
	int32_t n_ranks;
	enum ranks_kind kind;
	int32_t n_gpus;            /* of struct ranks */
	struct ferry_world *world; /* NULL: no_world, or open has failed */
	enum ferry_status open_status;
	void *arg;    /* of struct ranks; a process has a copy of it */
	void *shared; /* of struct ranks; one memory for all */
};

typedef void ranks_body(struct rank *rank);

/*
 * Is a setting worth its time? ThreadSanitizer sees what threads do: with it
 * programs of many settings leave those of processes out.
 */
static inline bool ranks_worth(enum ranks_kind kind)
{
#ifdef __SANITIZE_THREAD__
	return kind == RANKS_THREADS;
#else
	return kind == RANKS_THREADS || kind == RANKS_PROCESSES;
#endif
}

/*
 * Where each step takes ten times as long, a random test has fewer, and one
 * that tries every place tries some of them, by its seed.
 */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { RANKS_STRIDE = 4 };
#else
enum { RANKS_STRIDE = 1 };
#endif
#define RANKS_STEPS(n) ((n) / RANKS_STRIDE)

/*
 * A death or a broken connection is told at once, in tens of milliseconds, or
 * with the timeout: a quarter tells them apart on a busy machine, too.
 */
enum {
	RANKS_LONG_MS = 20000, /* a timeout that must not be needed */
	RANKS_AT_ONCE_MS = RANKS_LONG_MS / 4,
};

/* How to run. Zero means default. */
struct ranks {
	enum ranks_kind kind;
	int32_t n_ranks; /* 1..RANKS_MAX */
	enum ferry_device device;
	int32_t n_gpus;          /* CUDA: that the ranks share, in turn */
	const char *fabric;      /* NULL: best fit */
	const char *options;     /* of every rank: "SPIN_US=0;WIRE_SEED=3" */
	int32_t timeout_ms;      /* per wait; 0: 10 s */
	int32_t open_timeout_ms; /* 0: 10 s */
	int32_t limit_ms;        /* longer is a hang, a failure; 0: 30 s */
	bool no_world;           /* the body opens what it wants */
	bool open_may_fail;      /* run the body with world NULL then */
	/*
	 * Ranks that will not end well, as RANKS_BIT: by ranks_die or by the
	 * fault kill. A process must die of SIGKILL; what a thread says is
	 * not looked at.
	 */
	uint64_t killed;
	/* Last word on the config of one rank, also with no_world. */
	void (*configure)(const struct rank *rank,
	                  struct ferry_world_config *config);
	/*
	 * Processes: called in that of each rank before all else. What ferry
	 * run sets is in the environment, and may be changed.
	 */
	void (*at_start)(const struct rank *rank);
	void *arg;
	/*
	 * Zeroed bytes that ranks and caller share: rank->shared. After
	 * ranks_run they are at *shared until ranks_free_shared.
	 */
	size_t shared_bytes;
	void **shared;
};

/* Runs the body on all ranks; a failure is a failure of the cmocka test. */
#define ranks_run(...) ranks_run_at(__FILE__, __LINE__, __VA_ARGS__)
void ranks_run_at(const char *file, int line, const struct ranks *how,
                  ranks_body *body);
void ranks_free_shared(const struct ranks *how);

/* The config that this rank's world is opened with, for bodies that open. */
void ranks_config(struct ferry_world_config *config);

/*
 * Calls fn(arg) when the body has ended, however it ends; last one first, and
 * before the world is closed. arg must not lie on the stack of the body. Of a
 * thread that died: when all have ended. A process that dies calls nothing.
 */
void ranks_defer(void (*fn)(void *arg), void *arg);

/* Dies: a process of SIGKILL; a thread only looks dead to its peers. */
_Noreturn void ranks_die(void);

/*
 * Waits until `n` ranks have come here, without any help of the library. Each
 * `meeting` (0..15) can be used once.
 */
void ranks_meet(int meeting, int n);

/* A fresh seed, or TEST_SEED of the environment; printed. */
uint64_t ranks_seed(void);

/* Ends the body of this rank as failed. */
__attribute__((format(printf, 3, 4))) _Noreturn void
ranks_fail_at(const char *file, int line, const char *fmt, ...);
void ranks_equal_at(const char *file, int line, const char *what, int64_t got,
                    int64_t want);
void ranks_status_at(const char *file, int line, const char *what,
                     enum ferry_status got, enum ferry_status want);
void ranks_text_at(const char *file, int line, const char *text,
                   const char *part);
void ranks_bytes_at(const char *file, int line, const void *got,
                    const void *want, size_t bytes);

#define RANKS_FAIL(...) ranks_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define RANKS_CHECK(condition)                                                 \
	do {                                                                   \
		if (!(condition))                                              \
			RANKS_FAIL("%s is false", #condition);                 \
	} while (0)
/* Whole numbers. */
#define RANKS_EQ(got, want)                                                    \
	ranks_equal_at(__FILE__, __LINE__, #got, (int64_t)(got),               \
	               (int64_t)(want))
/* The call returns FERRY_OK, or that other status. */
#define RANKS_OK(call) RANKS_STATUS(call, FERRY_OK)
#define RANKS_STATUS(call, want)                                               \
	ranks_status_at(__FILE__, __LINE__, #call, call, want)
/* Text contains part. */
#define RANKS_TEXT(text, part) ranks_text_at(__FILE__, __LINE__, text, part)
#define RANKS_BYTES(got, want, bytes)                                          \
	ranks_bytes_at(__FILE__, __LINE__, got, want, bytes)

#endif
