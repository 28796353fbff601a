/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libfabric_faults.so share.
 *
 *	libfabric_faults.c       what to do; the entry points of libfabric
 *	libfabric_faults_open.c  objects: opening, registering, closing
 *	libfabric_faults_ops.c   writes, completions and arrivals
 *
 * The calls of libfabric are inline ones through tables of an object. Each
 * table is replaced by a copy that lies in a record of the domain, so that a
 * call finds the record from the object it is for. The library has a domain
 * for each segment, and one lock for all that it calls there.
 */
#ifndef LIBFABRIC_FAULTS_INNER_H
#define LIBFABRIC_FAULTS_INNER_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "core/bits.h"
#include "core/clock.h"
#include "core/order.h"
#include "libfabric_faults.h"

enum {
	FAULTS_HELD = 256,
	FAULTS_LATE = 4096,
	FAULTS_ERRORS = 64,
	FAULTS_PEERS = 66,
	FAULTS_GONE = 64,
	PIECES = 4,
};

/* Address of an endpoint. */
struct faults_name {
	uint8_t bytes[32];
};

/* A write that has not left. */
struct held {
	struct fi_msg_rma message;
	struct iovec from;
	void *key;
	struct fi_rma_iov to[PIECES];
	uint64_t flags;
	uint64_t due_ns;
};

/* A completion or an arrival that has not been read. */
struct late {
	struct fi_cq_data_entry entry;
	uint64_t due_ns;
};

/* One domain and what is in it. */
struct faulty {
	int32_t rank;
	uint64_t rng;
	uint32_t n_tried, n_writes, n_immediates, n_bytes, n_arrivals;
	uint64_t again_ns; /* until when nothing is taken, 0: not yet */
	uint32_t n_held, n_late, n_errors;
	uint32_t n_behind;    /* looks until what is late is read */
	uint64_t last_due_ns; /* of arrivals */
	bool remakes;         /* a connection, when the next write comes */
	struct iovec hmem;    /* memory of a GPU, registered */
	struct fid_ep *ep;
	struct faults_name name;
	size_t name_bytes;
	struct faults_name peers[FAULTS_PEERS]; /* by fi_addr_t */
	struct fi_ops_domain domain, *real_domain;
	struct fi_ops_mr mr, *real_mr;
	struct fi_ops_rma rma, *real_rma;
	struct fi_ops_cm cm, *real_cm;
	struct fi_ops_cq cq, *real_cq;
	struct fi_ops_av av, *real_av;
	struct fi_ops domain_fid, *real_domain_fid;
	struct fi_ops ep_fid, *real_ep_fid;
	struct fi_ops_ep ep_ops, *real_ep_ops;
	struct fi_ops cq_fid, *real_cq_fid;
	struct fi_ops av_fid, *real_av_fid;
	struct fi_ops mr_fid, *real_mr_fid;
	struct fi_cq_err_entry errors[FAULTS_ERRORS];
	struct held held[FAULTS_HELD];
	struct late late[FAULTS_LATE];
};

/* The record whose `member` a table of an object is. */
#define FAULTY_OF(table, member)                                               \
	((struct faulty *)(void *)((char *)(table)-offsetof(struct faulty,     \
	                                                    member)))

/* Puts a copy of an object's table in its place. */
#define FAULTY_TAKE(slot, f, member)                                           \
	do {                                                                   \
		(f)->real_##member = (slot);                                   \
		memset(&(f)->member, 0, sizeof((f)->member));                  \
		memcpy(&(f)->member, (slot),                                   \
		       (slot)->size < sizeof((f)->member)                      \
		               ? (slot)->size                                  \
		               : sizeof((f)->member));                         \
		(slot) = &(f)->member;                                         \
	} while (0)

/* Shared by a test and the processes that it forks. */
struct faults_board {
	struct ofi_faults set;
	struct ofi_faults_done done;
	uint32_t calls[FAULTS_PEERS][OFI_N_CALLS]; /* of rank -1, 0, ... */
	/* The last endpoints that were closed: who writes there is told. */
	struct faults_name gone[FAULTS_GONE];
	uint32_t n_gone;
};

extern struct faults_board *faults_board;
extern _Thread_local int32_t faults_rank;

/* 0, or what the call is to answer. */
int faults_fail(int32_t rank, enum ofi_call call);
/* Is this rank among those it is all for? */
bool faults_chosen(int32_t rank);
/* Info with the provider's own name, to be freed; NULL: no memory. */
struct fi_info *faults_real_info(const struct fi_info *info);
void faults_free_info(struct fi_info *info);

/* Takes over a fabric that the real library has opened. */
int faults_take_fabric(struct fid_fabric *fabric);
/* Has the peer of this address closed? */
bool faults_gone(const struct faulty *f, fi_addr_t peer);
/* libfabric_faults_ops.c: takes over what an endpoint and a queue do. */
void faults_take_ep(struct faulty *f, struct fid_ep *ep);
void faults_take_cq(struct faulty *f, struct fid_cq *cq);
/* What is held back, or failed and not told: nobody may sleep. */
bool faults_busy(const struct fid_cq *cq);

#endif
