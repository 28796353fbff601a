/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speeds of ranks from what their experts have done. Rates are compared and
 * divided as fractions of 128 bits, so nothing rounds before the end: tokens
 * times ns are below 2^103, and times a million below 2^123.
 */
#include <ferry/balance.h>

#include "../core/range.h"

enum { SPEED_MOST = 1000000, PPM = 1000000 };

static enum ferry_status check_work(const struct ferry_work *work,
                                    int32_t n_ranks, int32_t tolerance_ppm)
{
	FERRY_TRY(check_range(NULL, "speeds", "tolerance_ppm", tolerance_ppm, 0,
	                      PPM));
	for (int32_t r = 0; r < n_ranks; r++)
		if (work[r].tokens < 0 || work[r].tokens > FERRY_MAX_LOAD ||
		    work[r].ns < 0)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "speeds: work[%d] is %lld tokens in "
			                  "%lld ns, allowed are 0..2^40 and "
			                  "0..",
			                  r, (long long)work[r].tokens,
			                  (long long)work[r].ns);
	return FERRY_OK;
}

static bool is_measured(const struct ferry_work *w)
{
	return w->tokens > 0 && w->ns > 0;
}

static bool is_slower(const struct ferry_work *a, const struct ferry_work *b)
{
	return (__int128_t)a->tokens * b->ns < (__int128_t)b->tokens * a->ns;
}

/* The lower median of the rates; NULL: nobody has measured anything. */
static const struct ferry_work *median(const struct ferry_work *work,
                                       int32_t n_ranks)
{
	int32_t n_measured = 0;

	for (int32_t r = 0; r < n_ranks; r++)
		n_measured += is_measured(&work[r]);
	for (int32_t r = 0; r < n_ranks; r++) {
		int32_t n_below = 0;
		int32_t n_equal = 0;

		for (int32_t i = 0; i < n_ranks && is_measured(&work[r]); i++) {
			if (!is_measured(&work[i]))
				continue;
			n_below += is_slower(&work[i], &work[r]);
			n_equal += !is_slower(&work[i], &work[r]) &&
			           !is_slower(&work[r], &work[i]);
		}
		if (n_below <= (n_measured - 1) / 2 &&
		    n_below + n_equal > (n_measured - 1) / 2)
			return &work[r];
	}
	return NULL;
}

/* Thousandths of normal, rounded to nearest. */
static int32_t speed_of(const struct ferry_work *work,
                        const struct ferry_work *normal, int32_t tolerance_ppm)
{
	if (!normal || !is_measured(work))
		return FERRY_SPEED_NORMAL;
	const __int128_t own = (__int128_t)work->tokens * normal->ns;
	const __int128_t theirs = (__int128_t)normal->tokens * work->ns;
	const __int128_t apart = own > theirs ? own - theirs : theirs - own;

	if (apart * PPM <= theirs * tolerance_ppm)
		return FERRY_SPEED_NORMAL;
	__int128_t speed = FERRY_SPEED_NORMAL * (own / theirs);

	speed += (FERRY_SPEED_NORMAL * (own % theirs) + theirs / 2) / theirs;
	if (speed < 1)
		return 1;
	return speed < SPEED_MOST ? (int32_t)speed : SPEED_MOST;
}

enum ferry_status ferry_speeds(const struct ferry_work *work, int32_t n_ranks,
                               int32_t tolerance_ppm, int32_t *speed)
{
	if (!work || !speed)
		return ferry_fail(NULL, FERRY_INVAL, "speeds: %s is NULL",
		                  work ? "speed" : "work");
	FERRY_TRY(check_range(NULL, "speeds", "n_ranks", n_ranks, 1,
	                      FERRY_MAX_RANKS));
	FERRY_TRY(check_work(work, n_ranks, tolerance_ppm));
	const struct ferry_work *normal = median(work, n_ranks);

	for (int32_t r = 0; r < n_ranks; r++)
		speed[r] = speed_of(&work[r], normal, tolerance_ppm);
	return FERRY_OK;
}
