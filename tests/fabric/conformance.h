/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every fabric must do, as bodies over ferry/fabric.h alone. A new fabric
 * passes when it passes these; docs/fabric.md says the same in words.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <ferry/fabric.h>

#include "ranks.h"

/* A body and the numbers of ranks that it is run on; the list ends with 0. */
struct conf_case {
	const char *name;
	ranks_body *body;
	int32_t n_ranks[8];
	bool slow; /* on fabrics that are made slow, leave it out */
};

/* A way to run them all; the list ends with a NULL fabric. */
struct conf_setting {
	const char *fabric;
	enum ranks_kind kind;
	const char *options;
	bool is_slow;
};

extern const struct conf_setting conf_settings[];
/* That the ranks share; 0: they are worlds of the CPU. */
extern const int32_t conf_n_gpus;
/* Comes before all runs; may end the program with status 77 and the reason. */
void conf_begin(void);
/* The last word on how ranks run. */
void conf_place(struct ranks *how);

/* Lists end with a NULL name. */
extern const struct conf_case conf_memory_cases[];
extern const struct conf_case conf_signal_cases[];
extern const struct conf_case conf_traffic_cases[];
extern const struct conf_case conf_refusal_cases[];
extern const struct conf_case conf_life_cases[];

/* Opens a segment that is closed when the body ends. */
struct ferry_segment *conf_open(struct rank *rank, size_t bytes,
                                uint32_t n_signals);

/* put and signal, then kick. */
void conf_put(struct ferry_segment *segment, int32_t peer, size_t offset,
              const void *source, size_t bytes, uint32_t signal);
void conf_signal(struct ferry_segment *segment, int32_t peer, uint32_t signal);
/* Waits and checks that it was good. */
void conf_wait(struct ferry_segment *segment, uint32_t signal, uint64_t value);
void conf_flush(struct ferry_segment *segment);

/* Bytes that follow from a key; conf_is_filled says where they differ, -1. */
void conf_fill(void *bytes, size_t n, uint64_t key);
int64_t conf_is_filled(const void *bytes, size_t n, uint64_t key);

void conf_sleep_ms(int64_t ms);

#endif
