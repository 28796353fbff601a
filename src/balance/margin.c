/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a plan promises more than plans were wrong by. */
#include "margin.h"

#include "../core/bits.h"

__extension__ typedef __int128 wide;

/* Of max/mean in millionths, which is at most the number of ranks: in range
 * anyway. */
enum { MOST_GAIN = 1 << 30 };

static int64_t gain_in_range(int64_t ppm)
{
	return max_i64(-MOST_GAIN, min_i64(ppm, MOST_GAIN));
}

void ferry_margin_add(struct ferry_margin *margin, int64_t promised_ppm,
                      int64_t true_ppm)
{
	const int64_t off = gain_in_range(gain_in_range(true_ppm) -
	                                  gain_in_range(promised_ppm));

	if (margin->n_plans < MARGIN_PLANS)
		margin->n_plans++;
	margin->mean_square +=
		(off * off - margin->mean_square) / margin->n_plans;
}

bool ferry_margin_allows(const struct ferry_margin *margin,
                         int64_t promised_ppm, int64_t margin_ppm)
{
	const wide promised = (wide)gain_in_range(promised_ppm) * 1000000;
	const wide factor = margin_ppm;

	return promised * promised >= factor * factor * margin->mean_square;
}
