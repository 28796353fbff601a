/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an early router gets wrong again and again: it foresees too much for
 * some experts of a layer and too little for others, and which ones hangs on
 * the text. Here are the last steps, as they were foreseen and as they came,
 * and predictions corrected by those of them that looked most alike. Integers
 * only, so that ranks with equal steps plan from equal loads.
 *
 * With P and T the predicted and true shares of an expert, averaged over the
 * steps of the past, a predicted load p becomes p (T + a) / (P + a), all of
 * them scaled to their old total. The prior a is a sixteenth of an even share:
 * an expert that was not seen yet keeps its share. In the averages a step
 * counts ((d0 + dmin) / (d0 + d))^4, where d is the sum over experts of how far
 * its predicted shares are from those at hand, dmin the least d of all steps,
 * and d0 is 1/64.
 */
#ifndef FERRY_CALIBRATION_H
#define FERRY_CALIBRATION_H

#include <stdbool.h>
#include <stdint.h>

enum { CALIBRATION_STEPS = 32 };

/* Of one layer. */
struct ferry_calibration {
	int32_t n_experts;
	int32_t n_steps;    /* known, up to CALIBRATION_STEPS */
	int32_t next;       /* the step that the next one takes the place of */
	int32_t *predicted; /* [CALIBRATION_STEPS][n_experts] shares */
	int32_t *truth;     /* the same */
	int32_t *now;       /* [n_experts] shares to correct */
	int64_t *sums;      /* [2 * n_experts] scratch */
};

/* For n_experts >= 1, without a past. false: no memory. */
bool ferry_calibration_init(struct ferry_calibration *calibration,
                            int32_t n_experts);
/* Also of one that is all 0. */
void ferry_calibration_destroy(struct ferry_calibration *calibration);

/*
 * Adds a step. Loads are 0..; more than FERRY_MAX_LOAD counts as that. A step
 * in which nothing was predicted, or nothing came, says nothing.
 */
void ferry_calibration_add(struct ferry_calibration *calibration,
                           const int64_t *predicted, const int64_t *truth);

/*
 * Corrects predicted[n_experts] into loads[n_experts], which may be the same
 * array. The total stays. As they are stay loads of FERRY_MAX_LOAD together
 * and more that no plan would take.
 */
void ferry_calibration_apply(struct ferry_calibration *calibration,
                             const int64_t *predicted, int64_t *loads);

#endif
