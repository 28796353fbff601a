/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Hungarian method (Kuhn 1955) by shortest augmenting paths. Rows and
 * columns have prices; row after row finds the cheapest chain of columns to
 * take over, and the prices follow. Number 0 stands for none.
 */
#include "assign.h"

#include <string.h>

/* Of a column that is not seen yet: the least slack; ties to the lower. */
static int32_t nearest_column(const struct assign_work *w, int32_t n)
{
	int32_t best = 0;

	for (int32_t j = 1; j <= n; j++)
		if (!w->seen[j] && (!best || w->slack[j] < w->slack[best]))
			best = j;
	return best;
}

/* The row of column `from` offers itself to all columns not seen yet. */
static void relax(const struct assign_work *w, const int64_t *gain, int32_t n,
                  int32_t from)
{
	const int32_t i = w->row_of[from];
	const int64_t *const row = gain + (size_t)(i - 1) * (size_t)n;

	for (int32_t j = 1; j <= n; j++) {
		if (w->seen[j])
			continue;
		const int64_t slack =
			-row[j - 1] - w->row_price[i] - w->column_price[j];

		if (slack < w->slack[j]) {
			w->slack[j] = slack;
			w->before[j] = from;
		}
	}
}

static void move_prices(const struct assign_work *w, int32_t n, int64_t by)
{
	for (int32_t j = 0; j <= n; j++) {
		if (w->seen[j]) {
			w->row_price[w->row_of[j]] += by;
			w->column_price[j] -= by;
		} else {
			w->slack[j] -= by;
		}
	}
}

static void add_row(const struct assign_work *w, const int64_t *gain, int32_t n,
                    int32_t row)
{
	int32_t at = 0;

	w->row_of[0] = row;
	memset(w->seen, 0, (size_t)n + 1);
	for (int32_t j = 0; j <= n; j++)
		w->slack[j] = INT64_MAX;
	do {
		w->seen[at] = 1;
		relax(w, gain, n, at);
		at = nearest_column(w, n);
		move_prices(w, n, w->slack[at]);
	} while (w->row_of[at]);
	while (at) {
		const int32_t from = w->before[at];

		w->row_of[at] = w->row_of[from];
		at = from;
	}
}

void ferry_assign(const struct assign_work *work, const int64_t *gain,
                  int32_t n, int32_t *column)
{
	const size_t bytes = ((size_t)n + 1) * sizeof(int64_t);

	memset(work->row_price, 0, bytes);
	memset(work->column_price, 0, bytes);
	memset(work->row_of, 0, ((size_t)n + 1) * sizeof(int32_t));
	for (int32_t i = 1; i <= n; i++)
		add_row(work, gain, n, i);
	for (int32_t j = 1; j <= n; j++)
		column[work->row_of[j] - 1] = j - 1;
}
