/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do in test_faults.c until one fails, and what survivors find. */
#ifndef FAULT_ROUNDS_H
#define FAULT_ROUNDS_H

#include "fabric/segment.h"
#include "fault_settings.h"

/* What survivors have seen, for the comparison among them. */
struct fault_board {
	int32_t roots[RANKS_MAX];
	uint64_t decided_ns[RANKS_MAX];
	uint64_t told_ns[RANKS_MAX];
	char texts[RANKS_MAX][256];
};

/* What fault_gpus() has said. */
extern int32_t fault_n_gpus;

/* One run; `fault` is a FERRY_FAULT or "". The usual timeout is not needed. */
void fault_run(const struct fault_setting *setting, struct ranks how,
               const char *fault, ranks_body *body);

/* fault_living.c */
void fault_test_slow_to_say(void **state);
void fault_test_in_turns(void **state);
void fault_test_cut(void **state);
void fault_test_cut_alone(void **state);

void fault_pause_ms(int64_t ms);
int64_t fault_ms_since(uint64_t ns);

/* A segment with a signal for each rank and one more; closed at the end. */
struct ferry_segment *fault_open_segment(struct rank *rank);

/* Signals everybody, waits for everybody: signal r is raised by rank r. */
enum ferry_status fault_meet_all(struct rank *rank, struct ferry_segment *s,
                                 uint64_t round);

/* Rounds until something fails; the time that the failing one took. */
enum ferry_status fault_rounds(struct rank *rank, struct ferry_segment *s,
                               int n, int64_t *took_ms);

/* What a survivor must find after a failure; root -1: any. */
void fault_expect_failure(struct rank *rank, struct ferry_segment *s,
                          enum ferry_status got, enum ferry_status want,
                          int32_t root);

#endif
