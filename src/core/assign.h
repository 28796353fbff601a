/* SPDX-License-Identifier: Apache-2.0 */
/* The assignment problem: every row gets a column of its own. */
#ifndef FERRY_ASSIGN_H
#define FERRY_ASSIGN_H

#include <stdint.h>

/* Memory for n rows and columns; the caller allocates each array. */
struct assign_work {
	int64_t *row_price;    /* [n + 1] */
	int64_t *column_price; /* [n + 1] */
	int64_t *slack;        /* [n + 1] */
	int32_t *row_of;       /* [n + 1] */
	int32_t *before;       /* [n + 1] */
	uint8_t *seen;         /* [n + 1] */
};

/*
 * column[n] such that the sum of gain[i * n + column[i]] is the largest that
 * there is; which one where there are several is fixed. Gains of
 * 2^48 either way at most. O(n^3).
 */
void ferry_assign(const struct assign_work *work, const int64_t *gain,
                  int32_t n, int32_t *column);

#endif
