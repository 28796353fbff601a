/* SPDX-License-Identifier: Apache-2.0 */
/* What the sections of the report ask: totals, means, which run and step. */
#include <math.h>
#include <unistd.h>

#include "prefill_html.h"

bool page_counts(const struct page *page, int32_t step)
{
	return !page->n_counted || !page->shape->steps[step].warm_up;
}

bool page_compares(const struct page *page, int32_t run)
{
	return page->report->checked || run > 0;
}

/* Of a step, over layers, before anything moved. */
static double imbalance(const struct page *page, int32_t step)
{
	double sum = 0;

	for (int32_t l = 0; l < page->shape->n_layers; l++)
		sum += prefill_cell_at(page->shape, page->report->runs, step, l)
		               ->ratio_fixed;
	return sum / page->shape->n_layers;
}

/* The counted step whose imbalance is nearest to the mean of all. */
static int32_t usual_step(const struct page *page)
{
	double mean = 0, least = INFINITY;
	int32_t n = 0, found = 0;

	for (int32_t s = 0; s < page->shape->n_steps; s++)
		if (page_counts(page, s)) {
			mean += imbalance(page, s);
			n++;
		}
	mean /= n ? n : 1;
	for (int32_t s = 0; s < page->shape->n_steps; s++) {
		const double far = fabs(imbalance(page, s) - mean);

		if (page_counts(page, s) && far < least) {
			least = far;
			found = s;
		}
	}
	return found;
}

static bool foresees(const struct page *page, int32_t run, int32_t step)
{
	for (int32_t l = 0; l < page->shape->n_layers; l++)
		if (prefill_cell_at(page->shape, &page->report->runs[run], step,
		                    l)
		            ->predicted)
			return true;
	return false;
}

/* The best run, where it foresees the step; else another one that does. */
static int32_t find_foreseer(const struct page *page)
{
	if (foresees(page, page->best, page->step))
		return page->best;
	for (int32_t i = page->n_runs - 1; i >= 0; i--)
		if (foresees(page, i, page->step))
			return i;
	return -1;
}

static void choose_runs(struct page *page)
{
	const struct prefill_run *const runs = page->report->runs;
	const struct prefill_totals *const totals = page->totals;

	page->off = -1;
	page->best = -1;
	for (int32_t i = page->n_runs - 1; i >= 0; i--) {
		if (runs[i].policy == FERRY_BALANCE_OFF)
			page->off = i;
		else if (page->best < 0 ||
		         totals[i].ratio_after <=
		                 totals[page->best].ratio_after)
			page->best = i;
	}
	if (page->best < 0)
		page->best = 0;
}

/* A mean of nothing is no number. */
static void leave_out(struct prefill_totals *t)
{
	if (!t->n_cells)
		t->ratio_before = t->ratio_after = NAN;
	if (!t->n_predicted)
		t->ratio_predicted_before = t->ratio_predicted_after =
			t->topk_hit = t->hidden_cosine = t->logit_cosine = NAN;
}

void page_sum(const struct page *page, int32_t run, int32_t text,
              struct prefill_totals *totals)
{
	prefill_sum(page->shape, &page->report->runs[run], text, totals);
	leave_out(totals);
}

void page_sum_layer(const struct page *page, int32_t run, int32_t layer,
                    struct prefill_totals *totals)
{
	prefill_sum_layer(page->shape, &page->report->runs[run], layer, totals);
	leave_out(totals);
}

void page_open(struct page *page, const struct prefill_report *report)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);

	page->report = report;
	page->shape = report->job->shape;
	page->n_runs = report->n_runs < PREFILL_MAX_RUNS ? report->n_runs
	                                                 : PREFILL_MAX_RUNS;
	page->n_cores = cores > 0 ? (int)cores : 1;
	page->n_counted = 0;
	for (int32_t s = 0; s < page->shape->n_steps; s++)
		page->n_counted += !page->shape->steps[s].warm_up;
	for (int32_t i = 0; i < page->n_runs; i++)
		page_sum(page, i, -1, &page->totals[i]);
	choose_runs(page);
	page->step = usual_step(page);
	page->foreseer = find_foreseer(page);
}
