/* SPDX-License-Identifier: Apache-2.0 */
/* The report's fifth question: was the prediction right? */
#include <math.h>
#include <stdlib.h>

#include "alloc.h"
#include "prefill_html_plot.h"

static void quality_table(struct page *page)
{
	static const char *const columns[] = {"layer",
	                                      "choices foreseen",
	                                      "scores' cosine",
	                                      "hidden cosine",
	                                      "ratio foreseen, before",
	                                      "true",
	                                      "ratio foreseen, after",
	                                      "true",
	                                      NULL};
	struct html *const h = &page->html;
	struct prefill_totals t;

	table_open(page, "The numbers", "Prediction by layer", columns);
	for (int32_t l = 0; l < page->shape->n_layers; l++) {
		page_sum_layer(page, page->foreseer, l, &t);
		html_put(h,
		         "<tr><th scope=\"row\">%d</th><td>%s</td><td>%s</td>"
		         "<td>%s</td><td>%s</td><td>%s</td><td>%s</td>"
		         "<td>%s</td></tr>\n",
		         l, word_percent(t.topk_hit).text,
		         word_fixed(t.logit_cosine, 3).text,
		         word_fixed(t.hidden_cosine, 3).text,
		         word_ratio(t.ratio_predicted_before).text,
		         word_ratio(t.ratio_before).text,
		         word_ratio(t.ratio_predicted_after).text,
		         word_ratio(t.ratio_after).text);
	}
	table_close(page);
}

/* The lower end of the scale: a round number below all values. */
static double least_of(const double *values, int32_t n)
{
	double least = 0.9;

	for (int32_t i = 0; i < n; i++)
		if (values[i] < least)
			least = values[i];
	return floor(fmax(least, 0) * 5) / 5;
}

static void quality(struct page *page)
{
	const int32_t n = page->shape->n_layers;
	double *const values = alloc_or_exit((size_t)n, 3 * sizeof(double));
	const struct plot_line lines[] = {
		{"scores' cosine", "c1", 2, values + n},
		{"hidden cosine", "c2", 1, values + 2 * (int64_t)n},
		{"choices foreseen", "c0", 0, values},
	};
	struct plot_lines what = {
		.title = "Quality of the prediction by layer",
		.description =
			"Share of the router's choices that were foreseen, and "
			"cosines of its scores and of its input; 1 is perfect.",
		.unit = "1 = the truth",
		.most = 1,
		.n_layers = n,
		.n_lines = 3,
		.lines = lines,
	};
	struct prefill_totals t;

	for (int32_t l = 0; l < n; l++) {
		page_sum_layer(page, page->foreseer, l, &t);
		values[l] = t.topk_hit;
		values[n + l] = t.logit_cosine;
		values[2 * n + l] = t.hidden_cosine;
	}
	what.least = least_of(values, 3 * n);
	html_put(&page->html, "<h3>Layer by layer</h3>\n<figure>\n");
	plot_lines(&page->html, &what);
	html_put(&page->html, "</figure>\n");
	quality_table(page);
	free(values);
}

void page_foreseen(struct page *page)
{
	struct html *const h = &page->html;

	section_open(page, "foreseen", "Was the prediction right?");
	if (page->foreseer < 0) {
		html_put(h, "<p>Nothing was predicted in this run.</p>\n");
		section_close(page);
		return;
	}
	const struct prefill_totals *const t = &page->totals[page->foreseer];

	html_put(h,
	         "<p>Before attention of a layer begins, a second thread asks "
	         "the layer's router early, with what enters the layer instead "
	         "of what attention will have made of it. <strong>%s</strong> "
	         "of the experts that tokens really visited were foreseen so "
	         "(policy ",
	         word_percent(t->topk_hit).text);
	page_run_name(page, page->foreseer);
	html_put(h, "). Only the true router decides where tokens go: a wrong "
	            "prediction costs evenness, never correctness.</p>\n");
	if (page->report->job->calibrate)
		html_put(h,
		         "<p>What earlier steps that looked alike got wrong, "
		         "expert by expert, corrects the loads before experts "
		         "are moved: ratios "
		         "foreseen are of those, dots of what the router "
		         "foresaw.</p>\n");
	quality(page);
	page_scatter(page);
	section_close(page);
}
