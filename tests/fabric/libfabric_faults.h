/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfabric_faults.so, which tests name as FERRY_OFI_LIBRARY: it passes every
 * call to the real libfabric, and fails, delays and reorders what it is told
 * to. Nothing is done that a provider might not do, but for one write that is
 * doubled where a test says so. What to do is told by ofi_faults_set in a
 * test's own process, before the ranks begin, or by OFI_FAULTS in the
 * environment: "again_every=3 late_us=50", the fields below.
 */
#ifndef LIBFABRIC_FAULTS_H
#define LIBFABRIC_FAULTS_H

#include <stdint.h>

enum { OFI_FAULTS_NAME = 32 };

/* Calls that can fail. */
enum ofi_call {
	OFI_CALL_GETINFO,
	OFI_CALL_FABRIC,
	OFI_CALL_DOMAIN,
	OFI_CALL_ENDPOINT,
	OFI_CALL_CQ_OPEN,
	OFI_CALL_AV_OPEN,
	OFI_CALL_EP_BIND,
	OFI_CALL_ENABLE,
	OFI_CALL_MR_REG,
	OFI_CALL_MR_REGATTR, /* memory of a GPU */
	OFI_CALL_SETOPT,
	OFI_CALL_GETNAME,
	OFI_CALL_AV_INSERT,
	OFI_N_CALLS,
};

/* What to do; zero: nothing. */
struct ofi_faults {
	/* From call number `nth` (1: first) on `times` (0: 1) answer -error. */
	enum ofi_call call;
	uint32_t nth;
	uint32_t times;
	int32_t error;
	/* Bits of the ranks that all of this is for; 0: everybody. */
	uint64_t ranks;
	/* Of all writes of an endpoint one in so many is answered FI_EAGAIN. */
	uint32_t again_every;
	/* All are, for so long from the first. */
	uint32_t again_ms;
	/* This write of an endpoint (1: first) completes with FI_EIO. */
	uint32_t fail_write;
	/* This one is not taken: FI_EINVAL. */
	uint32_t deny_write;
	/*
	 * This write of an endpoint with an immediate (1: first), or this one
	 * of bytes without, is lost with a connection that is then made anew
	 * in silence. One that is to be complete when it has arrived fails.
	 * Bytes are the last on theirs, and the next write is answered
	 * FI_EAGAIN, unless they go with the immediate that is lost, too.
	 */
	uint32_t lose_immediate;
	uint32_t lose_bytes;
	/* That write with an immediate arrives, and so it does once more. */
	uint32_t double_immediate;
	/* This arrival (1: first) is lost, the queue has overrun. */
	uint32_t overrun;
	/*
	 * Writes leave up to so much later and in any order. Not for providers
	 * whose order the library relies on: see `as`.
	 */
	uint32_t hold_us;
	/*
	 * Completions and arrivals are read up to so much later: the former
	 * in any order, the latter in theirs.
	 */
	uint32_t late_us;
	/*
	 * So many looks find nothing, and nobody may sleep, before what has
	 * come is read: a provider drops something else in each.
	 */
	uint32_t behind;
	/* Not 0: nobody may ever sleep on the descriptor (fi_trywait). */
	uint32_t restless;
	/*
	 * Not 0: memory of GPUs can be registered (FI_HMEM), which must be
	 * that of the host, as fake_gpu.c has it.
	 */
	uint32_t hmem;
	uint32_t seed;
	/* The name that tcp;ofi_rxm is given, such as efa: of no order. */
	char as[OFI_FAULTS_NAME];
};

/* What was done since ofi_faults_set, by all ranks. */
struct ofi_faults_done {
	uint32_t failed, again, errors, overruns, held, late, lost;
	uint32_t writes;       /* that were accepted */
	uint32_t n_open;       /* objects of libfabric that are open */
	uint32_t refused;      /* to be closed, for others depend on them */
	uint32_t n_hmem;       /* memories of GPUs that were registered */
	uint32_t hmem_devices; /* bits */
	uint32_t hmem_writes;  /* from there */
	uint32_t promised;     /* endpoints that are to call no CUDA */
};

#define OFI_FAULTS_API __attribute__((visibility("default")))

/* No rank may be in a call meanwhile. Processes forked later are told, too. */
OFI_FAULTS_API void ofi_faults_set(const struct ofi_faults *faults);
/* Who the calling thread is, for `ranks` and for counting calls. */
OFI_FAULTS_API void ofi_faults_rank(int32_t rank);
OFI_FAULTS_API void ofi_faults_done(struct ofi_faults_done *done);

#endif
