/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the report: all totals, and each policy layer by layer. */
#include <math.h>

#include "prefill_html.h"

static void change(struct page *page, int32_t run)
{
	const double off =
		page->off < 0 ? NAN : (double)page->totals[page->off].total_ns;

	table_cell(
		page,
		run == page->off
			? DASH
			: word_change((double)page->totals[run].total_ns, off)
				  .text);
}

static void row(struct page *page, int32_t run)
{
	struct html *const h = &page->html;
	const struct prefill_totals *const t = &page->totals[run];
	const double seconds = (double)t->total_ns / 1e9;

	html_put(h, "<tr><th scope=\"row\">");
	page_run_name(page, run);
	html_put(h, "</th>");
	table_cell(page, word_ratio(t->ratio_before).text);
	table_cell(page, word_ratio(t->ratio_after).text);
	table_cell(page, word_ratio(t->ratio_before_worst).text);
	table_cell(page, word_ratio(t->ratio_after_worst).text);
	table_cell(page, word_percent(t->topk_hit).text);
	table_cell(page, word_fixed(t->logit_cosine, 3).text);
	table_cell(page, word_fixed(t->hidden_cosine, 3).text);
	table_cell(page, word_fixed(t->moves_mean, 1).text);
	table_cell(page, word_bytes((double)t->moved_bytes).text);
	table_cell(page, word_time((double)t->exposed_ns).text);
	table_cell(page, word_time((double)t->total_ns).text);
	change(page, run);
	table_cell(page,
	           word_count(seconds > 0
	                              ? (int64_t)((double)t->n_tokens / seconds)
	                              : 0)
	                   .text);
	html_put(h, "</tr>\n");
}

static struct word window_word(int64_t window_ns)
{
	return word_time(window_ns < 0 ? NAN : (double)window_ns);
}

static void layer_row(struct page *page, int32_t run, int32_t layer)
{
	struct prefill_totals t;

	page_sum_layer(page, run, layer, &t);
	const double n = (double)t.n_cells;

	html_put(&page->html, "<tr><th scope=\"row\">%d</th>", layer);
	table_cell(page, word_ratio(t.ratio_before).text);
	table_cell(page, word_ratio(t.ratio_after).text);
	table_cell(page, word_percent(t.topk_hit).text);
	table_cell(page, word_fixed(t.moves_mean, 1).text);
	table_cell(page, word_bytes((double)t.moved_bytes / n).text);
	table_cell(page,
	           word_time((double)t.stage_ns[PREFILL_ATTENTION] / n).text);
	table_cell(page, window_word(t.window_ns).text);
	table_cell(page, word_time((double)t.plan_ns / n).text);
	table_cell(page, word_time((double)t.migrate_ns / n).text);
	table_cell(page, word_time((double)t.exposed_ns / n).text);
	html_put(&page->html, "</tr>\n");
}

static void layers(struct page *page, int32_t run)
{
	static const char *const columns[] = {
		"layer",     "before", "after", "foreseen", "moves",   "moved",
		"attention", "window", "plan",  "moving",   "exposed", NULL};
	char summary[160];

	snprintf(summary, sizeof(summary), "%s, layer by layer",
	         page->report->runs[run].name);
	table_open(page, summary, "Means of a layer over counted steps",
	           columns);
	for (int32_t l = 0; l < page->shape->n_layers; l++)
		layer_row(page, run, l);
	table_close(page);
}

void page_numbers(struct page *page)
{
	static const char *const columns[] = {
		"policy",         "ratio before",    "after",
		"worst before",   "worst after",     "foreseen",
		"scores' cosine", "hidden cosine",   "moves a layer",
		"moved",          "exposed",         "total",
		"against off",    "tokens a second", NULL};

	section_open(page, "numbers", "All numbers");
	table_open_bare(page, "Totals of all counted steps", columns);
	for (int32_t i = 0; i < page->n_runs; i++)
		row(page, i);
	table_close_bare(page);
	for (int32_t i = 0; i < page->n_runs; i++)
		layers(page, i);
	section_close(page);
}
