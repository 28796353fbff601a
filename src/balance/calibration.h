/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an early router gets wrong again and again: it foresees too much for
 * some experts of a layer and too little for others. Here are the sums of past
 * steps that show it, and predictions corrected by them. Integers only, so that
 * ranks with equal sums plan from equal loads.
 *
 * With T and P the true and predicted loads of an expert in past steps, a step
 * back counting 1 - 1/CALIBRATION_STEPS times the one after it, a predicted
 * load p becomes p (T + a t) / (P + a), all of them scaled to their old total.
 * The prior a is the mean of p over the experts, and t is sum T / sum P: an
 * expert that was not seen yet keeps its share.
 */
#ifndef FERRY_CALIBRATION_H
#define FERRY_CALIBRATION_H

#include <stdint.h>

enum { CALIBRATION_STEPS = 64 };

/* Of one layer; the arrays are the owner's, and 0 before the first step. */
struct ferry_calibration {
	int32_t n_experts;  /* 1.. */
	int64_t *predicted; /* [n_experts] P and T, in 1/256 tokens */
	int64_t *truth;
};

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
void ferry_calibration_apply(const struct ferry_calibration *calibration,
                             const int64_t *predicted, int64_t *loads);

#endif
