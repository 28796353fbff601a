/* SPDX-License-Identifier: Apache-2.0 */
/* The report's second question: are the outputs equal to the bit? */
#include "prefill_html.h"

static void verdict(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_report *const report = page->report;

	if (!report->bits_equal)
		html_put(h,
		         "<p class=\"verdict bad\"><span aria-hidden=\"true\">"
		         "\xe2\x9c\x97</span> No: some outputs differ. This is "
		         "an error.</p>\n");
	else if (!report->checked && page->n_runs == 1)
		html_put(h,
		         "<p class=\"verdict none\"><span aria-hidden=\"true\">"
		         "?</span> Not compared: this was a single run. "
		         "<code>--check</code> compares it with a run "
		         "without ranks.</p>\n");
	else
		html_put(h,
		         "<p class=\"verdict good\"><span aria-hidden=\"true\">"
		         "\xe2\x9c\x93</span> Yes, to the bit, in every "
		         "sequence.</p>\n");
}

static void how(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_shape *const shape = page->shape;

	if (!page->report->checked && page->n_runs == 1)
		return;
	html_put(h,
	         "<p>The model answers each sequence with logits, its scores "
	         "for the next token. Their bits, %s, were compared for all "
	         "%s sequences with those of ",
	         shape->all_logits ? "after every token"
	                           : "after the last token",
	         word_count(shape->n_sequences).text);
	if (page->report->checked)
		html_put(h, "a run of the whole model in one process, without "
		            "ranks and without Ferry");
	else {
		html_put(h, "the run ");
		page_run_name(page, 0);
	}
	html_put(h, ". No tolerance: whoever computes an expert, and wherever "
	            "a token goes, the result has to be the same.</p>\n");
}

/* Nats per token of all sequences, as the model itself judges the texts. */
static double loss(const struct page *page)
{
	return page->totals[0].nll_mean;
}

static void row(struct page *page, int32_t run)
{
	struct html *const h = &page->html;
	const int64_t n = page->shape->n_sequences;
	const int64_t differ = page->report->runs[run].n_differ;

	html_put(h, "<tr><th scope=\"row\">");
	page_run_name(page, run);
	html_put(h, "</th>");
	if (page_compares(page, run))
		html_put(h, "<td>%s</td><td>%s</td><td>%s</td>",
		         word_count(n).text, word_count(n - differ).text,
		         word_count(differ).text);
	else
		html_put(h, "<td colspan=\"3\">the reference"
		            "</td>");
	html_put(h, "</tr>\n");
}

void page_bits(struct page *page)
{
	static const char *const columns[] = {"policy", "sequences", "equal",
	                                      "differ", NULL};

	section_open(page, "bits", "Are the outputs equal?");
	verdict(page);
	how(page);
	if (loss(page) > 0)
		html_put(&page->html,
		         "<p class=\"soft\">The model's loss on these texts is "
		         "%.3f nats per token.</p>\n",
		         loss(page));
	table_open(page, "Sequences compared", "Sequences compared, by policy",
	           columns);
	for (int32_t i = 0; i < page->n_runs; i++)
		row(page, i);
	table_close(page);
	section_close(page);
}
