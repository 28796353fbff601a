/* SPDX-License-Identifier: Apache-2.0 */
/* The top of the report: what came out, and the questions below. */
#include "prefill_html.h"

static void headline(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_totals *const best = &page->totals[page->best];
	const bool balanced =
		page->report->runs[page->best].policy != FERRY_BALANCE_OFF;
	const char *const tag =
		best->ratio_after < best->ratio_before ? "strong" : "span";

	html_put(h, "<h1>");
	if (!page->report->bits_equal)
		html_put(h, "Outputs differ");
	else if (page->shape->n_ranks == 1)
		html_put(h, "One rank, and so nothing to balance");
	else if (!balanced)
		html_put(h, "The busiest rank has %s times the average load",
		         word_ratio(best->ratio_after).text);
	else
		html_put(h,
		         "The busiest rank: from %s to <%s>%s</%s> times the "
		         "average load",
		         word_ratio(best->ratio_before).text, tag,
		         word_ratio(best->ratio_after).text, tag);
	html_put(h, "</h1>\n");
}

static void lead(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_shape *const shape = page->shape;
	const int64_t counted = page->totals[page->best].n_tokens;

	html_put(h,
	         "<p class=\"lead\">A language model of the "
	         "Mixture-of-Experts kind has read %s tokens of text on ",
	         word_count(shape->n_tokens).text);
	if (shape->n_ranks == 1)
		html_put(h, "one rank, which holds all of its experts. ");
	else
		html_put(h, "%d ranks, workers that share its experts. ",
		         shape->n_ranks);
	if (page->n_counted && counted < shape->n_tokens)
		html_put(h,
		         "Numbers below are of %s of them, after a warm-up. ",
		         word_count(counted).text);
	html_put(h,
	         "In each layer, a token visits only the %d of %d experts that "
	         "the model picks for it",
	         shape->topk, shape->n_experts);
	if (shape->n_ranks == 1)
		html_put(h, ".</p>\n");
	else
		html_put(h, "; so some ranks have more to do than others, and "
		            "all wait for the busiest. Ferry predicts the load "
		            "and moves experts while the ranks are busy with "
		            "attention.</p>\n");
}

void page_head(struct page *page)
{
	html_put(&page->html, "<header>\n<p class=\"kicker\">ferry prefill"
	                      "</p>\n");
	headline(page);
	lead(page);
	html_put(&page->html,
	         "<nav aria-label=\"Questions\"><ol>"
	         "<li><a href=\"#run\">What was run?</a></li>"
	         "<li><a href=\"#bits\">Are the outputs equal?</a></li>"
	         "<li><a href=\"#even\">How even are the ranks?</a></li>"
	         "<li><a href=\"#cost\">What did it cost?</a></li>"
	         "<li><a href=\"#foreseen\">Was the prediction right?</a></li>"
	         "<li><a href=\"#time\">Where did the time go?</a></li>"
	         "<li><a href=\"#numbers\">All numbers</a></li>"
	         "</ol></nav>\n</header>\n<main>\n");
}
