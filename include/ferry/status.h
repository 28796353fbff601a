/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/status.h: what calls return, and what they say of a failure. Included
 * by base.h.
 */
#ifndef FERRY_STATUS_H
#define FERRY_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
	X(PEER, -7, "a peer died or is out of reach")                          \
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

#ifdef __cplusplus
}
#endif
#endif
