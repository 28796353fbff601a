/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The best experts of a token, without guessing branches: a row of 128 logits
 * costs some 40 mispredicted ones where every expert is inserted into a list
 * (490 ns, and 250 so; 2-core EPYC VM, 2026-11).
 *
 * The keys are looked at as a table of 16 columns. The k-th largest of the 16
 * column maxima is a bar that at least k experts reach, so that who does not
 * is not among the best k. Those few who do are ranked by counting who is
 * better.
 */
#include "predict_row.h"

#include <string.h>

enum {
	COLUMNS = FERRY_PREDICT_COLUMNS,
	FEW = 32, /* candidates, to be compared with each other */
};

int64_t ferry_key_of_double(double x)
{
	int64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits < 0 ? -(bits & INT64_MAX) : bits;
}

static void column_maxima(const int32_t *key, int32_t n, int32_t *max)
{
	for (int c = 0; c < COLUMNS; c++)
		max[c] = key[c];
	for (int32_t e = COLUMNS; e < n; e += COLUMNS)
		for (int c = 0; c < COLUMNS; c++)
			max[c] = key[e + c] > max[c] ? key[e + c] : max[c];
}

/* At least topk experts that are not closed reach it, if so many there are. */
static int32_t bar_of(const int32_t *key, int32_t n, int32_t topk)
{
	int32_t max[COLUMNS];
	int32_t bar = INT32_MAX;

	if (topk > COLUMNS)
		return FERRY_KEY_NAN;
	column_maxima(key, n, max);
	for (int i = 0; i < COLUMNS; i++) {
		int32_t n_larger = 0;

		for (int j = 0; j < COLUMNS; j++)
			n_larger += max[j] > max[i];
		/* Of those with fewer than topk above them the least. */
		bar = n_larger < topk && max[i] < bar ? max[i] : bar;
	}
	return bar > FERRY_KEY_NAN ? bar : FERRY_KEY_NAN;
}

static int32_t list_candidates(const int32_t *key, int32_t n, int32_t bar,
                               int32_t *candidate)
{
	int32_t n_candidates = 0;

	for (int32_t e = 0; e < n; e++) {
		candidate[n_candidates] = e;
		n_candidates += key[e] >= bar;
	}
	return n_candidates;
}

static int64_t full_key(const struct predict_space *space, const double *score,
                        int32_t e)
{
	return score ? ferry_key_of_double(score[e]) : space->key[e];
}

/* Candidates rise: of equal ones those before are better. */
static void rank_few(const int64_t *key, const int32_t *candidate, int32_t n,
                     int32_t topk, int32_t *ids)
{
	for (int32_t i = 0; i < n; i++) {
		int32_t n_better = 0;

		for (int32_t j = 0; j < i; j++)
			n_better += key[j] >= key[i];
		for (int32_t j = i + 1; j < n; j++)
			n_better += key[j] > key[i];
		if (n_better < topk)
			ids[n_better] = candidate[i];
	}
}

/* Inserts each candidate into a list of the best. */
static void insert_many(const struct predict_space *space, const double *score,
                        int32_t n, int32_t topk, int32_t *ids)
{
	int64_t best[FERRY_PREDICT_TOPK];
	int32_t n_best = 0;

	for (int32_t i = 0; i < n; i++) {
		const int32_t id = space->candidate[i];
		const int64_t key = full_key(space, score, id);
		int32_t at = n_best;

		/* cppcheck-suppress uninitvar ; topk >= 1, so it is full */
		if (n_best == topk && key <= best[topk - 1])
			continue;
		if (n_best < topk)
			n_best++;
		else
			at--;
		for (; at > 0 && key > best[at - 1]; at--) {
			best[at] = best[at - 1];
			ids[at] = ids[at - 1];
		}
		best[at] = key;
		ids[at] = id;
	}
}

int32_t ferry_predict_select(const struct predict_rule *rule,
                             const struct predict_space *space,
                             const double *score, int32_t *ids)
{
	const int32_t topk = rule->topk;
	const int32_t bar = bar_of(space->key, rule->n_padded, topk);
	const int32_t n = list_candidates(space->key, rule->n_experts, bar,
	                                  space->candidate);
	int64_t key[FEW];

	for (int32_t i = 0; n <= FEW && i < n; i++)
		key[i] = full_key(space, score, space->candidate[i]);
	if (n <= FEW)
		rank_few(key, space->candidate, n, topk, ids);
	else
		insert_many(space, score, n, topk, ids);
	for (int32_t k = n; k < topk; k++)
		ids[k] = -1;
	return n < topk ? n : topk;
}
