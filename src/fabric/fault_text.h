/* SPDX-License-Identifier: Apache-2.0 */
/* The words of FERRY_FAULT. */
#ifndef FERRY_FAULT_TEXT_H
#define FERRY_FAULT_TEXT_H

#include "world.h"

/* What shall happen to one rank. */
struct ferry_faults {
	bool kill;
	int64_t kill_after; /* puts of the rank before it */
	int64_t stall_ms;   /* 0: none */
	int64_t stall_after;
	int64_t delay_us; /* before every put */
	bool reorder;
	int32_t cut_peer; /* the connection with it breaks, -1: none does */
	int64_t cut_after;
};

/*
 * Reads faults separated by spaces or ';', and keeps those for `rank`:
 * kill:rank=R[,after=N] stall:rank=R,ms=N[,after=N] delay:us=N[,rank=R]
 * reorder[:rank=R] cut:rank=R,peer=P[,after=N], of which both ends are told.
 * Errors: INVAL, which says what is allowed.
 */
enum ferry_status ferry_faults_read(struct ferry_ctx *ctx, const char *text,
                                    int32_t rank, int32_t n_ranks,
                                    struct ferry_faults *faults);

#endif
