/* SPDX-License-Identifier: Apache-2.0 */
/* The report's fourth question: what did balancing cost? */
#include <math.h>

#include "prefill_html_plot.h"

static double share(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* In words, for the best run. */
static void summary(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_totals *const t = &page->totals[page->best];

	if (page->report->runs[page->best].policy == FERRY_BALANCE_OFF) {
		html_put(h, "<p>Nothing: no policy of this run moves "
		            "experts.</p>\n");
		return;
	}
	html_put(h, "<p>");
	page_run_name(page, page->best);
	if (!t->n_moved) {
		html_put(h, " moved nothing.</p>\n");
		return;
	}
	html_put(h,
	         " moved %s of weights: in %s of %s cases, a layer in a step "
	         "each, of which %s became more even by it. Sending experts "
	         "took %s in all, of which %s passed beside attention. Tokens "
	         "waited %s longer because of what was foreseen and moved: "
	         "the time that is exposed, %s of the whole. Waiting for "
	         "other ranks is not in it.",
	         word_bytes((double)t->moved_bytes).text,
	         word_count(t->n_moved).text, word_count(t->n_cells).text,
	         word_percent(share((double)t->n_improved, (double)t->n_moved))
	                 .text,
	         word_time((double)t->migrate_ns).text,
	         word_time((double)t->hidden_ns).text,
	         word_time((double)t->exposed_ns).text,
	         word_percent(share((double)t->exposed_ns, (double)t->total_ns))
	                 .text);
	if (page->shape->n_ranks > page->n_cores)
		html_put(h, " Ranks share cores here: what the second threads "
		            "wait for their turn is in it.");
	html_put(h, "</p>\n");
}

static void row(struct page *page, int32_t run, double most)
{
	const struct prefill_totals *const t = &page->totals[run];
	const double total = (double)t->total_ns;
	const double exposed = fmin((double)t->exposed_ns, total);
	char words[200], title[120];

	snprintf(words, sizeof(words), "%s%s%s%s", word_time(total).text,
	         page->off >= 0 && run != page->off ? " <span class=\"soft\">"
	                                            : "<span>",
	         page->off >= 0 && run != page->off
	                 ? word_change(total,
	                               (double)page->totals[page->off].total_ns)
	                           .text
	                 : "",
	         "</span>");
	snprintf(title, sizeof(title), "%s in all, %s of it exposed",
	         word_time(total).text, word_time(exposed).text);
	bar_open(page, run, 22, title);
	bar_part(page, &(struct bar_part){
			       .class = "fill",
			       .width = share(total - exposed, most),
			       .y = 2,
			       .height = 18,
			       .title = title,
		       });
	bar_part(page, &(struct bar_part){
			       .class = "s3",
			       .begin = share(total - exposed, most),
			       .width = share(exposed, most),
			       .y = 2,
			       .height = 18,
			       .title = title,
		       });
	bar_close(page, words);
}

/* Against off, and the standard error of that. */
static void put_against(struct page *page, int32_t run)
{
	const struct prefill_run *const runs = page->report->runs;
	struct prefill_change change = {false, 0, 0};

	if (page->off >= 0 && run != page->off)
		change = prefill_compare_times(page->shape, &runs[run],
		                               &runs[page->off], -1);
	if (change.known)
		html_put(&page->html, "<td>%s \xc2\xb1 %s</td>",
		         word_change(1 + change.share, 1).text,
		         word_fixed(100 * change.error, 1).text);
	else
		html_put(&page->html, "<td>" DASH "</td>");
}

static void table(struct page *page)
{
	static const char *const columns[] = {
		"policy",
		"total",
		"against off, \xc2\xb1 standard error",
		"exposed",
		"of total",
		"moved",
		"moves a layer and step",
		"layers improved",
		NULL};
	struct html *const h = &page->html;

	table_open(page, "The numbers", "Cost by policy", columns);
	for (int32_t i = 0; i < page->n_runs; i++) {
		const struct prefill_totals *const t = &page->totals[i];
		html_put(h, "<tr><th scope=\"row\">");
		page_run_name(page, i);
		html_put(h, "</th><td>%s</td>",
		         word_time((double)t->total_ns).text);
		put_against(page, i);
		html_put(h,
		         "<td>%s</td><td>%s</td><td>%s</td><td>%s</td>"
		         "<td>%s of %s</td></tr>\n",
		         word_time((double)t->exposed_ns).text,
		         word_percent(share((double)t->exposed_ns,
		                            (double)t->total_ns))
		                 .text,
		         word_bytes((double)t->moved_bytes).text,
		         word_fixed(t->moves_mean, 1).text,
		         word_count(t->n_improved).text,
		         word_count(t->n_moved).text);
	}
	table_close(page);
}

void page_cost(struct page *page)
{
	double most = 0;

	for (int32_t i = 0; i < page->n_runs; i++)
		most = fmax(most, (double)page->totals[i].total_ns);
	section_open(page, "cost", "What did it cost?");
	summary(page);
	html_put(&page->html, "<h3>Time of all counted steps</h3>\n"
	                      "<div class=\"bars\">\n");
	for (int32_t i = 0; i < page->n_runs; i++)
		row(page, i, most);
	html_put(&page->html,
	         "</div>\n<p class=\"legend\"><span><svg class=\"key\" "
	         "width=\"24\" height=\"12\" aria-hidden=\"true\"><rect "
	         "class=\"s3\" width=\"24\" height=\"12\"/></svg>exposed: "
	         "attention is done, and tokens wait for what was foreseen and "
	         "moved</span></p>\n");
	table(page);
	section_close(page);
}
