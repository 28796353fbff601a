/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/base.h: version and the world.
 *
 * A world is this rank among its peers. Everything else in Ferry hangs off
 * one: segments of symmetric memory (fabric.h) and dispatch/combine channels
 * (moe.h). Nothing here needs a GPU.
 */
#ifndef FERRY_BASE_H
#define FERRY_BASE_H

#include <ferry/status.h>

/* The single source of the version: the build reads these three lines. */
#define FERRY_VERSION_MAJOR 0
#define FERRY_VERSION_MINOR 1
#define FERRY_VERSION_PATCH 0
#define FERRY_VERSION                                                          \
	(FERRY_VERSION_MAJOR * 10000 + FERRY_VERSION_MINOR * 100 +             \
	 FERRY_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/** FERRY_VERSION of the library that is loaded, to compare with the header. */
FERRY_API int ferry_version(void);

/** Version and build as text, "0.1.0 (commit, compiler)"; static storage. */
FERRY_API const char *ferry_version_text(void);

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

/** Where the rows of a world lie, and who moves them. Values never change. */
enum ferry_device {
	FERRY_DEVICE_CPU = 0, /* host pointers; the calling thread works */
	/** Device pointers and a stream; kernels of one GPU a rank work. */
	FERRY_DEVICE_CUDA = 1,
};

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
	enum ferry_device device; /* equal on all ranks */
	/*
	 * FERRY_DEVICE_CUDA: the GPU of this rank as CUDA ordinal + 1; 0: the
	 * current device of the calling thread. Ranks may share a GPU.
	 */
	int32_t cuda_device;
};
#define FERRY_WORLD_CONFIG_INIT                                                \
	{                                                                      \
		sizeof(struct ferry_world_config), 0, 0, NULL, NULL, NULL, 0,  \
			0, NULL, NULL, NULL, FERRY_DEVICE_CPU, 0               \
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
 * failure. Close its segments and channels first; where some are still open,
 * the world ends with the last of them. NULL is accepted.
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
 * *error filled in. error may be NULL. A barrier, allgather or collective open
 * that failed because ranks died, did not come, aborted or did not fit together
 * counts, as every later one fails, too; one that was refused does not. Any
 * thread. INVAL where world is NULL, or error->size is not set.
 */
FERRY_API enum ferry_status ferry_world_poll(struct ferry_world *world,
                                             struct ferry_error *error);

/** This rank, 0..n_ranks-1; -1 for NULL. */
FERRY_API int32_t ferry_world_rank(const struct ferry_world *world);

/** Number of ranks; 0 for NULL. */
FERRY_API int32_t ferry_world_size(const struct ferry_world *world);

/** Number of hosts that the ranks run on; 0 for NULL. */
FERRY_API int32_t ferry_world_nodes(const struct ferry_world *world);

/** Where the rows of the world lie; FERRY_DEVICE_CPU for NULL. */
FERRY_API enum ferry_device ferry_world_device(const struct ferry_world *world);

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
	size_t size;
	const char *name; /* "FERRY_TIMEOUT_MS" */
	const char *type; /* "int", "string", "choice" */
	const char *default_text;
	const char *help;  /* one sentence, with unit and what is allowed */
	const char *value; /* in force now, NULL: unset; a secret: "(set)" */
};
#define FERRY_ENV_INIT                                                         \
	{                                                                      \
		sizeof(struct ferry_env), NULL, NULL, NULL, NULL, NULL         \
	}

/**
 * The i-th variable (0-based) into *env; false when i is past the last
 * or env->size is not set. Strings are static or belong to the environment.
 */
FERRY_API bool ferry_env_get(int i, struct ferry_env *env);

#ifdef __cplusplus
}
#endif
#endif
