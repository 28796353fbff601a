/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other and agree on small things: an allgather and what
 * follows from it. Used to open and close, never by an operation. Knows no
 * fabric.
 */
#ifndef FERRY_BOOT_H
#define FERRY_BOOT_H

#include "../core/ctx.h"

enum { FERRY_BOOT_MAX_BYTES = 1 << 20 };

struct ferry_boot;

/* No slot is NULL. */
struct ferry_boot_ops {
	const char *name; /* "self", "team", "callbacks", "tcp", "unix" */
	/*
	 * Every rank gives `bytes` (equal everywhere, 1..FERRY_BOOT_MAX_BYTES)
	 * and gets n_ranks * bytes in rank order. Blocks until deadline_ns;
	 * TIMEOUT names the absent ranks on every rank that came, PEER a
	 * rank that died, MISMATCH a rank that gave another number of bytes.
	 * After a failure every later call fails too. All of them by
	 * ferry_boot_fail, but for INVAL, which is of one call alone.
	 */
	enum ferry_status (*allgather)(struct ferry_boot *boot, const void *in,
	                               void *out, size_t bytes,
	                               uint64_t deadline_ns);
	/*
	 * Ends every allgather of every rank, now and later, with ABORTED and
	 * this rank named. Any thread; does not block.
	 */
	void (*abort)(struct ferry_boot *boot);
	/* Has this peer been seen to die or close? Any thread; never blocks. */
	bool (*dead)(struct ferry_boot *boot, int32_t peer);
	/*
	 * Does this peer's host answer no more, so that the peer may live and
	 * is not reached? As `dead`.
	 */
	bool (*silent)(struct ferry_boot *boot, int32_t peer);
	/*
	 * Of a peer that is dead: is it known to have closed in good order? As
	 * `dead`.
	 */
	bool (*closed)(struct ferry_boot *boot, int32_t peer);
	/* Local; peers see an orderly end as a death if they still wait. */
	void (*close)(struct ferry_boot *boot);
};

/* Stubs of silent and closed. */
bool ferry_boot_never(struct ferry_boot *boot, int32_t peer);

/* First member of every implementation's own struct. */
struct ferry_boot {
	const struct ferry_boot_ops *ops;
	struct ferry_ctx *ctx;
	int32_t rank;
	int32_t n_ranks;
	/* First failure of allgather; what is below stands before failed. */
	uint32_t failed; /* enum ferry_status */
	int32_t root;    /* rank that caused it, -1 */
	char text[sizeof(((struct ferry_error *)0)->text)];
};

/*
 * Meets the peers as config and environment say: team, callbacks, ferry run,
 * torchrun, Open MPI, MPICH/PMI, SLURM, or alone. Blocks at most
 * open_timeout_ms. Sets ctx->rank.
 */
enum ferry_status ferry_boot_open(struct ferry_ctx *ctx,
                                  const struct ferry_world_config *config,
                                  struct ferry_boot **boot);
void ferry_boot_close(struct ferry_boot *boot);

/*
 * As ferry_fail; the first failure of a boot is remembered, with the rank that
 * caused it, the same for all ranks, or -1.
 */
__attribute__((format(printf, 4, 5))) enum ferry_status
ferry_boot_fail(struct ferry_boot *boot, enum ferry_status status, int32_t root,
                const char *fmt, ...);

/* Fills *error in where an allgather has failed. Any thread; never blocks. */
void ferry_boot_blame(const struct ferry_boot *boot, struct ferry_error *error);

/*
 * The step of every collective open. Each rank brings the status of its own
 * work so far and a blob; all get all blobs. When any rank brings a failure,
 * all return a failure: the rank itself its own status and message, the others
 * the same status with a message that names the first failed rank and quotes
 * its message.
 */
enum ferry_status ferry_agree(struct ferry_boot *boot, enum ferry_status mine,
                              const void *in, void *out, size_t bytes,
                              uint64_t deadline_ns);

#ifdef __clang_analyzer__
/* What the analyzer cannot see: who brings a failure gets that failure. */
#define ferry_boot_fail(boot, status, ...)                                     \
	(ferry_boot_fail(boot, status, __VA_ARGS__), (status))
#define ferry_agree(boot, mine, ...)                                           \
	((mine) == FERRY_OK ? ferry_agree(boot, mine, __VA_ARGS__)             \
	                    : (ferry_agree(boot, mine, __VA_ARGS__), (mine)))
#endif

#endif
