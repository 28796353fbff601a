/* SPDX-License-Identifier: Apache-2.0 */
/* Load ratios by text: kinds of text use different experts. */
#include <math.h>

#include "prefill_html_plot.h"

/* Counted steps of a text. */
static int32_t n_steps(const struct page *page, int32_t text)
{
	int32_t n = 0;

	for (int32_t s = 0; s < page->shape->n_steps; s++)
		n += page->shape->steps[s].text == text && page_counts(page, s);
	return n;
}

/* The largest ratio of a text, of all texts and runs. */
static double scale_end(const struct page *page)
{
	struct prefill_totals t;
	double end = 1.1;

	for (int32_t i = 0; i < page->n_runs; i++)
		for (int32_t x = 0; x < page->shape->n_texts; x++) {
			page_sum(page, i, x, &t);
			end = fmax(end, fmax(t.ratio_before, t.ratio_after));
		}
	return end;
}

static void row(struct page *page, int32_t run, int32_t text, double end)
{
	const struct prefill_run *const r = &page->report->runs[run];
	struct prefill_totals t;
	char words[120], description[200];

	page_sum(page, run, text, &t);
	snprintf(words, sizeof(words),
	         "<span class=\"soft\">%s " ARROW "</span> %s",
	         word_ratio(t.ratio_before).text,
	         word_ratio(t.ratio_after).text);
	snprintf(description, sizeof(description), "ratio %s before, %s after",
	         word_ratio(t.ratio_before).text,
	         word_ratio(t.ratio_after).text);
	bar_open(page, run, 22, description);
	bar_ratios(page, (int)r->policy, t.ratio_before, t.ratio_after, end);
	bar_close(page, words);
}

static void panel(struct page *page, int32_t text, double end)
{
	struct html *const h = &page->html;
	const int32_t n = n_steps(page, text);

	html_put(h, "<div class=\"panel\"><h4>");
	html_element(h, "bdi class=\"file\"", page->shape->texts[text]);
	html_put(h, " <span class=\"soft\">%d step%s</span></h4>\n", n,
	         n == 1 ? "" : "s");
	for (int32_t i = 0; i < page->n_runs; i++)
		row(page, i, text, end);
	html_put(h, "</div>\n");
}

void page_by_text(struct page *page)
{
	struct html *const h = &page->html;
	int32_t n = 0;

	for (int32_t x = 0; x < page->shape->n_texts; x++)
		n += n_steps(page, x) > 0;
	html_put(h, "<h3>Text by text</h3>\n");
	if (!n) {
		html_put(h, "<p>Every step holds sequences of several texts, "
		            "so texts cannot be told apart here.</p>\n");
		return;
	}
	html_put(h,
	         "<p class=\"soft\">Circle: before; filled mark: after. "
	         "All panels have the same scale, from a perfect 1.00 on "
	         "the left to %s.</p>\n<div class=\"panels\">\n",
	         word_ratio(scale_end(page)).text);
	for (int32_t x = 0; x < page->shape->n_texts; x++)
		if (n_steps(page, x))
			panel(page, x, scale_end(page));
	html_put(h, "</div>\n");
}
