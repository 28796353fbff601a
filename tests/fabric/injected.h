/* SPDX-License-Identifier: Apache-2.0 */
/* Tests' way to libfabric_faults.so, and to worlds that stand on it. */
#ifndef INJECTED_H
#define INJECTED_H

#include <ferry/fabric.h>

#include "libfabric_faults.h"
#include "ranks.h"

/* Loads the library; before anything else. */
void injected_begin(void);

/* What it is to do from here on; NULL: nothing. */
void injected_set(const struct ofi_faults *faults);
void injected_done(struct ofi_faults_done *done);
/* This thread is that rank, for what concerns some ranks only. */
void injected_rank(int32_t rank);

/* Fills in fabric ofi over that library. */
void injected_ranks(struct ranks *how);

/* Opens a segment that is closed when the body ends. */
struct ferry_segment *injected_open(struct rank *rank, size_t bytes,
                                    uint32_t n_signals);

#endif
