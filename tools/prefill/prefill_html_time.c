/* SPDX-License-Identifier: Apache-2.0 */
/* The report's sixth question: where did the time go? */
#include <math.h>
#include <stdlib.h>

#include "prefill_html_plot.h"

/* Of stages of the main thread, or of the second one. */
static double lane_ns(const double *ns, bool second)
{
	double sum = 0;

	for (int s = 0; s < PREFILL_N_STAGES; s++)
		if (prefill_stage_is_second((enum prefill_stage)s) == second)
			sum += ns[s];
	return sum;
}

static void add_ranks(const struct page *page, int32_t run, int32_t step,
                      double *ns)
{
	const struct prefill_shape *const shape = page->shape;

	for (int32_t l = 0; l < shape->n_layers; l++)
		for (int32_t r = 0; r < shape->n_ranks; r++) {
			const struct prefill_rank_cell *const cell =
				prefill_rank_cell_at(shape,
			                             &page->report->runs[run],
			                             step, l, r);

			for (int s = 0; s < PREFILL_N_STAGES; s++)
				ns[s] += (double)(cell->spans[s].end_ns -
				                  cell->spans[s].begin_ns) /
				         shape->n_ranks;
		}
}

/* Of an average rank, whose stages add up to its time, unlike those of the
 * slowest ranks, which take turns at being slow. */
static void sum_stages(const struct page *page, int32_t run, double *ns)
{
	for (int s = 0; s < PREFILL_N_STAGES; s++)
		ns[s] = 0;
	for (int32_t i = 0; i < page->shape->n_steps; i++)
		if (page_counts(page, i))
			add_ranks(page, run, i, ns);
}

/* One after the other in two lanes, the second thread's below. */
static void stack(struct page *page, const double *ns, double most)
{
	double begins[2] = {0, 0};
	char title[80];

	for (int i = 0; i < PREFILL_N_STAGES; i++) {
		const enum prefill_stage s = (enum prefill_stage)i;
		const bool second = prefill_stage_is_second(s);
		const double width = most > 0 ? ns[s] / most : 0;

		snprintf(title, sizeof(title), "%s: %s", prefill_stage_names[s],
		         word_time(ns[s]).text);
		bar_part(page, &(struct bar_part){
				       .class = stage_class(s),
				       .begin = begins[second],
				       .width = width,
				       .y = second ? 20 : 0,
				       .height = second ? 8 : 18,
				       .title = title,
			       });
		begins[second] += width;
	}
}

static void row(struct page *page, int32_t run, double most)
{
	double ns[PREFILL_N_STAGES];
	char description[480];
	size_t n = 0;

	sum_stages(page, run, ns);
	for (int s = 0; s < PREFILL_N_STAGES && n < sizeof(description); s++)
		n += (size_t)snprintf(description + n, sizeof(description) - n,
		                      "%s%s %s", s ? ", " : "",
		                      prefill_stage_names[s],
		                      word_time(ns[s]).text);
	bar_open(page, run, 28, description);
	stack(page, ns, most);
	bar_close(page, word_time(lane_ns(ns, false)).text);
}

static void table_row(struct page *page, int32_t run, bool slowest)
{
	double ns[PREFILL_N_STAGES];

	sum_stages(page, run, ns);
	html_put(&page->html, "<tr><th scope=\"row\">");
	page_run_name(page, run);
	html_put(&page->html, "</th><td>%s</td>",
	         slowest ? "slowest" : "average");
	for (int s = 0; s < PREFILL_N_STAGES; s++)
		table_cell(
			page,
			word_time(
				slowest ? (double)page->totals[run].stage_ns[s]
					: ns[s])
				.text);
	html_put(&page->html, "</tr>\n");
}

static void table(struct page *page)
{
	const char *columns[PREFILL_N_STAGES + 3] = {"policy", "rank"};

	for (int s = 0; s < PREFILL_N_STAGES; s++)
		columns[s + 2] = prefill_stage_names[s];
	table_open(page, "The numbers",
	           "Time by policy and stage, of an average rank, and of the "
	           "slowest one in each layer and step",
	           columns);
	for (int32_t i = 0; i < page->n_runs; i++) {
		table_row(page, i, false);
		table_row(page, i, true);
	}
	table_close(page);
}

void page_time(struct page *page)
{
	double most = 0, ns[PREFILL_N_STAGES];

	for (int32_t i = 0; i < page->n_runs; i++) {
		sum_stages(page, i, ns);
		most = fmax(most, fmax(lane_ns(ns, false), lane_ns(ns, true)));
	}
	section_open(page, "time", "Where did the time go?");
	html_put(&page->html,
	         "<p>The time of an average rank in the layers of all counted "
	         "steps, by what it did. The thin bar below is the second "
	         "thread, which works beside attention. Dispatch and combine "
	         "are mostly waiting: for ranks that come later, and for those "
	         "whose experts have more to do.</p>\n");
	stage_legend(page);
	html_put(&page->html, "<div class=\"bars\">\n");
	for (int32_t i = 0; i < page->n_runs; i++)
		row(page, i, most);
	html_put(&page->html, "</div>\n");
	table(page);
	page_lanes(page);
	section_close(page);
}
