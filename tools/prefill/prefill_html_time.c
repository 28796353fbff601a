/* SPDX-License-Identifier: Apache-2.0 */
/* The report's sixth question: where did the time go? */
#include <math.h>
#include <stdlib.h>

#include "prefill_html_plot.h"

static double main_ns(const struct prefill_totals *t)
{
	double sum = 0;

	for (int s = 0; s < PREFILL_N_STAGES; s++)
		if (!stage_is_second((enum prefill_stage)s))
			sum += (double)t->stage_ns[s];
	return sum;
}

/* One after the other in two lanes, the second thread's below. */
static void stack(struct page *page, const struct prefill_totals *t,
                  double most)
{
	double begins[2] = {0, 0};
	char title[80];

	for (int i = 0; i < PREFILL_N_STAGES; i++) {
		const enum prefill_stage s = (enum prefill_stage)i;
		const bool second = stage_is_second(s);
		const double width =
			most > 0 ? (double)t->stage_ns[s] / most : 0;

		snprintf(title, sizeof(title), "%s: %s", prefill_stage_names[s],
		         word_time((double)t->stage_ns[s]).text);
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
	const struct prefill_totals *const t = &page->totals[run];
	char description[400];
	size_t n = 0;

	for (int s = 0; s < PREFILL_N_STAGES && n < sizeof(description); s++)
		n += (size_t)snprintf(description + n, sizeof(description) - n,
		                      "%s%s %s", s ? ", " : "",
		                      prefill_stage_names[s],
		                      word_time((double)t->stage_ns[s]).text);
	bar_open(page, run, 28, description);
	stack(page, t, most);
	bar_close(page, word_time(main_ns(t)).text);
}

static void table(struct page *page)
{
	const char *columns[PREFILL_N_STAGES + 2] = {"policy"};
	struct html *const h = &page->html;

	for (int s = 0; s < PREFILL_N_STAGES; s++)
		columns[s + 1] = prefill_stage_names[s];
	table_open(page, "The numbers", "Time by policy and stage", columns);
	for (int32_t i = 0; i < page->n_runs; i++) {
		html_put(h, "<tr><th scope=\"row\">");
		page_run_name(page, i);
		html_put(h, "</th>");
		for (int s = 0; s < PREFILL_N_STAGES; s++)
			table_cell(
				page,
				word_time((double)page->totals[i].stage_ns[s])
					.text);
		html_put(h, "</tr>\n");
	}
	table_close(page);
}

void page_time(struct page *page)
{
	double most = 0;

	for (int32_t i = 0; i < page->n_runs; i++) {
		const struct prefill_totals *const t = &page->totals[i];

		most = fmax(most, main_ns(t));
		most = fmax(most, (double)(t->stage_ns[PREFILL_PREDICT] +
		                           t->stage_ns[PREFILL_MIGRATE]));
	}
	section_open(page, "time", "Where did the time go?");
	html_put(&page->html,
	         "<p>The stages of a layer, as long as they took on the "
	         "slowest rank, summed over layers and counted steps. The "
	         "thin bar below is the second thread, which works beside "
	         "attention. Ranks are not slowest in all stages at once, so "
	         "the sum can exceed the total time.</p>\n");
	stage_legend(page);
	html_put(&page->html, "<div class=\"bars\">\n");
	for (int32_t i = 0; i < page->n_runs; i++)
		row(page, i, most);
	html_put(&page->html, "</div>\n");
	table(page);
	page_lanes(page);
	section_close(page);
}
