/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far plans of a layer were wrong about what they gain, and whether another
 * one promises enough to be worth it. Gains are by how many millionths max/mean
 * falls. Integers only: ranks that have seen the same decide alike.
 *
 * The error is the root of the mean square of true gain - promised gain, over
 * all plans at first, then with a weight of 1/MARGIN_PLANS for the newest. It
 * is kept as its square, so that no root is taken.
 */
#ifndef FERRY_MARGIN_H
#define FERRY_MARGIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	MARGIN_PLANS = 16,
	MARGIN_MOST_PPM = 1000000000, /* of margin_ppm */
};

/* Of one layer, all 0 at first. */
struct ferry_margin {
	int32_t n_plans; /* that were judged, up to MARGIN_PLANS */
	int64_t mean_square;
};

/* Notes what a plan has promised, and what came of it or would have come. */
void ferry_margin_add(struct ferry_margin *margin, int64_t promised_ppm,
                      int64_t true_ppm);

/*
 * Is the promise at least margin_ppm (0..MARGIN_MOST_PPM) millionths of the
 * error? Always where nothing is known, and where no plan was wrong.
 */
bool ferry_margin_allows(const struct ferry_margin *margin,
                         int64_t promised_ppm, int64_t margin_ppm);

#endif
