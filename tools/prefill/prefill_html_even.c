/* SPDX-License-Identifier: Apache-2.0 */
/* The report's third question: how even are the ranks? A card for each policy,
 * and ratios by layer and by text. */
#include <math.h>
#include <stdlib.h>

#include "alloc.h"
#include "prefill_html_plot.h"

static void card_bits(struct page *page, int32_t run)
{
	struct html *const h = &page->html;
	const struct prefill_run *const r = &page->report->runs[run];

	html_put(h, "<div><dt>outputs</dt><dd>");
	if (!page_compares(page, run))
		html_put(h,
		         page->n_runs > 1 ? "the reference" : "not compared");
	else if (r->bits_equal)
		html_put(h, "<span class=\"good\">\xe2\x9c\x93 equal</span>");
	else
		html_put(h, "<span class=\"bad\">\xe2\x9c\x97 %s differ</span>",
		         word_count(r->n_differ).text);
	html_put(h, "</dd></div>\n");
}

static void card_facts(struct page *page, int32_t run)
{
	struct html *const h = &page->html;
	const struct prefill_totals *const t = &page->totals[run];

	html_put(h, "<dl>\n");
	card_bits(page, run);
	html_put(h, "<div><dt>foreseen</dt><dd>%s</dd></div>\n",
	         word_percent(t->topk_hit).text);
	html_put(h, "<div><dt>exposed</dt><dd>%s</dd></div>\n",
	         page->report->runs[run].policy == FERRY_BALANCE_OFF
	                 ? DASH
	                 : word_time((double)t->exposed_ns).text);
	html_put(h, "<div><dt>total</dt><dd>%s",
	         word_time((double)t->total_ns).text);
	if (page->off >= 0 && page->off != run)
		html_put(h, " <span class=\"soft\">(%s)</span>",
		         word_change((double)t->total_ns,
		                     (double)page->totals[page->off].total_ns)
		                 .text);
	html_put(h, "</dd></div>\n</dl>\n");
}

static void card(struct page *page, int32_t run, double end)
{
	struct html *const h = &page->html;
	const struct prefill_totals *const t = &page->totals[run];
	const int policy = (int)page->report->runs[run].policy;

	html_put(h, "<li class=\"card p%d%s\"><h3>", policy,
	         run == page->best ? " best" : "");
	page_run_name(page, run);
	html_put(h,
	         "</h3>\n<p class=\"big\"><span class=\"soft\">%s "
	         "<span aria-label=\"to\">" ARROW "</span></span> %s</p>\n"
	         "<svg class=\"bar\" width=\"100%%\" height=\"22\" "
	         "aria-hidden=\"true\">",
	         word_ratio(t->ratio_before).text,
	         word_ratio(t->ratio_after).text);
	bar_ratios(page, policy, t->ratio_before, t->ratio_after, end);
	html_put(h, "</svg>\n");
	card_facts(page, run);
	html_put(h, "</li>\n");
}

static void cards(struct page *page)
{
	struct html *const h = &page->html;
	double end = 1.1;

	for (int32_t i = 0; i < page->n_runs; i++)
		end = fmax(end, fmax(page->totals[i].ratio_before,
		                     page->totals[i].ratio_after));
	html_put(h, "<ul class=\"cards\" style=\"--n:%d\">\n",
	         page->n_runs < 5   ? page->n_runs
	         : page->n_runs < 7 ? 3
	                            : 4);
	for (int32_t i = 0; i < page->n_runs; i++)
		card(page, i, end);
	html_put(h,
	         "</ul>\n<p class=\"soft small\">Large: the load ratio, mean "
	         "over steps and layers. Circle: before; filled mark: "
	         "after; the line on the left is a perfect 1.00. Foreseen: "
	         "how many of the router's choices were predicted. Exposed: "
	         "how much longer tokens waited because of what was foreseen "
	         "and moved. Total: time of all counted steps%s.</p>\n",
	         page->off >= 0 ? ", and its difference from off" : "");
}

static void ratio_table(struct page *page)
{
	static const char *const columns[] = {
		"policy",           "layer", "before", "after", "moves",
		"steps that moved", NULL};
	struct html *const h = &page->html;
	struct prefill_totals t;

	table_open(page, "The numbers", "Load ratio by policy and layer",
	           columns);
	for (int32_t i = 0; i < page->n_runs; i++)
		for (int32_t l = 0; l < page->shape->n_layers; l++) {
			page_sum_layer(page, i, l, &t);
			html_put(h, "<tr><th scope=\"row\">");
			page_run_name(page, i);
			html_put(h,
			         "</th><td>%d</td><td>%s</td><td>%s</td>"
			         "<td>%s</td><td>%d of %d</td></tr>\n",
			         l, word_ratio(t.ratio_before).text,
			         word_ratio(t.ratio_after).text,
			         word_fixed(t.moves_mean, 1).text,
			         (int)t.n_moved, (int)t.n_cells);
		}
	table_close(page);
}

static void fill_values(const struct page *page, int32_t run, double *before,
                        double *after)
{
	struct prefill_totals t;

	for (int32_t l = 0; l < page->shape->n_layers; l++) {
		page_sum_layer(page, run, l, &t);
		before[l] = t.ratio_before;
		after[l] = t.ratio_after;
	}
}

/* Largest ratio of all runs and layers, at least 1.1: where the scale ends. */
static double ratio_end(const struct page *page)
{
	double most = 1.1;
	struct prefill_totals t;

	for (int32_t i = 0; i < page->n_runs; i++)
		for (int32_t l = 0; l < page->shape->n_layers; l++) {
			page_sum_layer(page, i, l, &t);
			most = fmax(most, fmax(t.ratio_before, t.ratio_after));
		}
	return most;
}

static void ratio_by_layer(struct page *page)
{
	static const char *const classes[] = {"p0", "p1", "p2",
	                                      "p3", "p4", "p5"};
	const size_t n = (size_t)page->shape->n_layers;
	double *const values =
		alloc_or_exit(n * ((size_t)page->n_runs + 1), sizeof(double));
	struct plot_line lines[PREFILL_MAX_RUNS + 1] = {
		{"before", "before", -1, values}};
	struct plot_lines what = {
		.title = "Load ratio by layer",
		.description = "A line for each policy; the dashed line is "
			       "before balancing, 1 is perfect.",
		.unit = "busiest rank / average rank",
		.least = 1,
		.most = ratio_end(page),
		.n_layers = page->shape->n_layers,
		.n_lines = 1,
		.lines = lines,
	};

	for (int32_t i = 0; i < page->n_runs; i++) {
		const struct prefill_run *const run = &page->report->runs[i];
		double *const after = values + n * ((size_t)i + 1);

		fill_values(page, i, values, after);
		if (run->policy != FERRY_BALANCE_OFF)
			lines[what.n_lines++] = (struct plot_line){
				run->name, classes[run->policy],
				(int)run->policy, after};
	}
	html_put(&page->html, "<h3>Layer by layer</h3>\n<figure>\n");
	plot_lines(&page->html, &what);
	html_put(&page->html, "</figure>\n");
	free(values);
	ratio_table(page);
}

void page_even(struct page *page)
{
	section_open(page, "even", "How even are the ranks?");
	html_put(&page->html,
	         "<p>The <strong>load ratio</strong> is the load of the "
	         "busiest rank over the average of all ranks. At 1.00 all "
	         "have the same; at 2.00 the busiest has twice its share, and "
	         "the others wait for half of the time that experts "
	         "take.</p>\n");
	cards(page);
	ratio_by_layer(page);
	page_heat(page);
	page_by_text(page);
	section_close(page);
}
