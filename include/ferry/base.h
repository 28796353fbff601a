/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/base.h: version, status codes, and the world.
 *
 * A world is this rank among its peers. Everything else in Ferry hangs off
 * one: segments of symmetric memory (fabric.h) and dispatch/combine channels
 * (moe.h). Nothing here needs a GPU.
 */
#ifndef FERRY_BASE_H
#define FERRY_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The single source of the version: the build reads these three lines. */
#define FERRY_VERSION_MAJOR 0
#define FERRY_VERSION_MINOR 1
#define FERRY_VERSION_PATCH 0
#define FERRY_VERSION                                                          \
	(FERRY_VERSION_MAJOR * 10000 + FERRY_VERSION_MINOR * 100 +             \
	 FERRY_VERSION_PATCH)

#if defined(__GNUC__)
#define FERRY_API        __attribute__((visibility("default")))
#define FERRY_MUST_CHECK __attribute__((warn_unused_result))
#else
#define FERRY_API
#define FERRY_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every status: enumerator suffix, value, text. Values never change.
 * Manual, names and bindings are made from this one list.
 */
#define FERRY_STATUS_MAP(X)                                                    \
	X(OK, 0, "success")                                                    \
	X(INVAL, -1, "an argument is not allowed")                             \
	X(RANGE, -2, "a value lies outside its range")                         \
	X(NOMEM, -3, "not enough memory")                                      \
	X(SYS, -4, "a system call failed")                                     \
	X(UNSUPPORTED, -5, "not supported here")                               \
	X(TIMEOUT, -6, "a peer did not come in time")                          \
	X(PEER, -7, "a peer died")                                             \
	X(MISMATCH, -8, "ranks disagree")                                      \
	X(STATE, -9, "not legal in the present state")                         \
	X(BROKEN, -10, "the channel is broken by an earlier failure")          \
	X(ABORTED, -11, "aborted by the caller")                               \
	X(OVERFLOW, -12, "more rows arrive than the capacity")                 \
	X(PROTO, -13, "a malformed message")                                   \
	X(FABRIC, -14, "the fabric failed")                                    \
	X(CUDA, -15, "a CUDA call failed")                                     \
	X(INTERNAL, -16, "a fault in ferry itself")

/** Result of every call that can fail. 0 is success, errors are negative. */
enum ferry_status {
#define FERRY_STATUS_ENUM_(name, value, text) FERRY_##name = value,
	FERRY_STATUS_MAP(FERRY_STATUS_ENUM_)
#undef FERRY_STATUS_ENUM_
};

/** Enumerator of a status, "FERRY_INVAL"; "FERRY_?" for an unknown value. */
FERRY_API const char *ferry_status_name(enum ferry_status status);

/** One line of English for a status; never NULL. */
FERRY_API const char *ferry_status_text(enum ferry_status status);

/** FERRY_VERSION of the library that is loaded, to compare with the header. */
FERRY_API int ferry_version(void);

/** Version and build as text, "0.1.0 (commit, compiler)"; static storage. */
FERRY_API const char *ferry_version_text(void);

/**
 * Message of the last call that failed on the calling thread: it names the
 * call, the argument, its value and what is allowed. Empty before the first
 * failure; valid until the next failing call of this thread. Never NULL.
 */
FERRY_API const char *ferry_last_error(void);

/** Phases of an operation, as reported in errors, traces and statistics. */
enum ferry_phase {
	FERRY_PHASE_NONE = 0,
	FERRY_PHASE_OPEN = 1,
	FERRY_PHASE_DISPATCH_SEND = 2,
	FERRY_PHASE_DISPATCH_RECV = 3,
	FERRY_PHASE_COMBINE_SEND = 4,
	FERRY_PHASE_COMBINE_RECV = 5,
};

/** Name of a phase, "dispatch_recv"; never NULL. */
FERRY_API const char *ferry_phase_name(enum ferry_phase phase);

/**
 * The first failure of a world or channel. All ranks that survive report the
 * same root_rank. -1 stands for "does not apply".
 */
struct ferry_error {
	size_t size; /* sizeof(struct ferry_error), by the caller */
	enum ferry_status status; /* what happened */
	int32_t root_rank;        /* rank that caused it */
	int32_t rank;             /* rank that reports it */
	enum ferry_phase phase;   /* where the reporter was */
	int32_t slot;             /* operation slot */
	uint64_t epoch;           /* dispatches of the slot before this one */
	char text[512];           /* the message */
};
#define FERRY_ERROR_INIT                                                       \
	{                                                                      \
		sizeof(struct ferry_error), FERRY_OK, -1, -1,                  \
			FERRY_PHASE_NONE, -1, 0,                               \
		{                                                              \
			0                                                      \
		}                                                              \
	}

/** Severity of a log line; FERRY_LOG_LEVEL names them in lower case. */
enum ferry_log_level {
	FERRY_LOG_ERROR = 0,
	FERRY_LOG_WARN = 1,
	FERRY_LOG_INFO = 2,
	FERRY_LOG_DEBUG = 3,
};

/**
 * Receives log lines instead of stderr. `line` has no newline and lives until
 * return. Called from any thread that uses the world, one at a time.
 */
typedef void ferry_log_fn(void *arg, enum ferry_log_level level,
                          const char *line);

/**
 * A caller's own way for ranks to meet, e.g. the store of an engine. Both
 * return 0 for success; any other value is reported as FERRY_FABRIC.
 * allgather: every rank gives `bytes` bytes, `out` receives n_ranks times
 * that, in rank order. barrier: returns when all ranks have entered. Both may
 * block; they are called by the thread that opens or closes, never by an
 * operation.
 */
struct ferry_boot_callbacks {
	void *arg;
	int (*allgather)(void *arg, const void *in, void *out, size_t bytes);
	int (*barrier)(void *arg);
};

/** Meeting point of ranks that are threads of one process. */
struct ferry_team;

/**
 * Makes a team of n_ranks threads (1..65536). Local, does not block. Destroy
 * it after the last world of the team is closed.
 * Errors: INVAL, NOMEM.
 */
FERRY_API enum ferry_status
ferry_team_create(int32_t n_ranks, struct ferry_team **team) FERRY_MUST_CHECK;

/** Destroys a team; NULL is accepted. Worlds of it must be closed. */
FERRY_API void ferry_team_destroy(struct ferry_team *team);

/**
 * How to open a world. All zero but size: ranks are found through the
 * environment (ferry run, torchrun, Open MPI, MPICH, SLURM); without any of
 * these, a world of one rank.
 */
struct ferry_world_config {
	size_t size;
	int32_t rank;            /* with team or callbacks: 0..n_ranks-1 */
	int32_t n_ranks;         /* with callbacks; 0 otherwise */
	struct ferry_team *team; /* ranks are threads */
	const struct ferry_boot_callbacks *callbacks; /* copied at open */
	const char *fabric;      /* as FERRY_FABRIC, which it overrides */
	int32_t timeout_ms;      /* per wait; 0: FERRY_TIMEOUT_MS (100 s) */
	int32_t open_timeout_ms; /* 0: FERRY_OPEN_TIMEOUT_MS (60 s) */
	/*
	 * NAME=VALUE pairs separated by ';' that override the environment,
	 * names without the FERRY_ prefix: "SPIN_US=5;FAULT=kill:rank=1".
	 */
	const char *options;
	ferry_log_fn *log; /* NULL: stderr or FERRY_LOG_FILE */
	void *log_arg;
};
#define FERRY_WORLD_CONFIG_INIT                                                \
	{                                                                      \
		sizeof(struct ferry_world_config), 0, 0, NULL, NULL, NULL, 0,  \
			0, NULL, NULL, NULL                                    \
	}

/** This rank among its peers. */
struct ferry_world;

/**
 * Opens a world. Collective; blocks until every rank came, at most
 * open_timeout_ms, and then names the absent ranks. Library versions are
 * compared. config may be NULL (all defaults). *world is written on success.
 * Errors: INVAL, NOMEM, SYS, TIMEOUT, PEER, MISMATCH, PROTO, UNSUPPORTED.
 */
FERRY_API enum ferry_status
ferry_world_open(const struct ferry_world_config *config,
                 struct ferry_world **world) FERRY_MUST_CHECK;

/**
 * Closes a world: local, does not wait for peers, never hangs, also after a
 * failure. Its segments and channels must be closed. NULL is accepted.
 */
FERRY_API void ferry_world_close(struct ferry_world *world);

/**
 * Ends all waits of this world on all ranks: they return FERRY_ABORTED with
 * this rank as root, and every channel is broken. May be called from any
 * thread at any time between open and close; does not block.
 */
FERRY_API void ferry_world_abort(struct ferry_world *world);

/**
 * First failure of the world and of its channels, without waiting for
 * anything: FERRY_OK and an untouched record, or the failure's status with
 * *error filled in. error may be NULL. Any thread. INVAL where world is NULL,
 * or error->size is not set.
 */
FERRY_API enum ferry_status ferry_world_poll(struct ferry_world *world,
                                             struct ferry_error *error);

/** This rank, 0..n_ranks-1; -1 for NULL. */
FERRY_API int32_t ferry_world_rank(const struct ferry_world *world);

/** Number of ranks; 0 for NULL. */
FERRY_API int32_t ferry_world_size(const struct ferry_world *world);

/** Number of hosts that the ranks run on; 0 for NULL. */
FERRY_API int32_t ferry_world_nodes(const struct ferry_world *world);

/**
 * Name of the fabric in use, with wrappers: "trace:shm". Lives as long as the
 * world; "" for NULL.
 */
FERRY_API const char *ferry_world_fabric(const struct ferry_world *world);

/**
 * Blocks until every rank has entered; at most open_timeout_ms. Collective,
 * for set-up and tests: it goes through the boot connection and is slow (tens
 * of us).
 * Errors: INVAL, TIMEOUT, PEER, ABORTED; FABRIC from the caller's callbacks.
 */
FERRY_API enum ferry_status
ferry_world_barrier(struct ferry_world *world) FERRY_MUST_CHECK;

/**
 * Gathers `bytes` bytes of every rank into out[n_ranks * bytes], in rank
 * order. Collective, for set-up; bytes 1..1 MiB and equal on all ranks. Blocks
 * at most open_timeout_ms.
 * Errors: INVAL, TIMEOUT, PEER, MISMATCH, ABORTED; FABRIC from the caller's
 * callbacks.
 */
FERRY_API enum ferry_status
ferry_world_allgather(struct ferry_world *world, const void *in, void *out,
                      size_t bytes) FERRY_MUST_CHECK;

/** One environment variable that the library reads. */
struct ferry_env {
	const char *name; /* "FERRY_TIMEOUT_MS" */
	const char *type; /* "int", "string", "choice" */
	const char *default_text;
	const char *help;  /* one sentence, with unit and what is allowed */
	const char *value; /* in force now, NULL: unset; a secret: "(set)" */
};

/**
 * The i-th variable (0-based) into *env; false when i is past the last.
 * Strings are static or belong to the environment.
 */
FERRY_API bool ferry_env_get(int i, struct ferry_env *env);

#ifdef __cplusplus
}
#endif
#endif
