/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of ferry prefill: one HTML file that asks nobody for anything. It
 * answers six questions in the order in which a newcomer has them; pictures
 * are SVG in the page, the numbers behind them are in tables. No script.
 */
#include "prefill_file.h"
#include "prefill_html.h"

#include <ferry/base.h>

/* What a browser may do with the page: show it. */
static void head(struct page *page)
{
	struct html *const h = &page->html;

	html_put(h,
	         "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
	         "<meta charset=\"utf-8\" />\n"
	         "<meta http-equiv=\"Content-Security-Policy\" content=\""
	         "default-src 'none'; style-src 'unsafe-inline'; img-src "
	         "data:\" />\n"
	         "<meta name=\"viewport\" content=\"width=device-width, "
	         "initial-scale=1\" />\n"
	         "<meta name=\"generator\" content=\"ferry %s\" />\n"
	         "<link rel=\"icon\" href=\"data:,\" />\n<title>",
	         ferry_version_text());
	html_text(h, "ferry prefill: ");
	html_text(h, page->shape->model ? page->shape->model : "");
	html_put(h, ", %d ranks</title>\n", page->shape->n_ranks);
	page_style(page);
	html_put(h, "</head>\n");
}

/* Stripes of time that is waited, for all pictures. */
static void stripes(struct page *page)
{
	html_put(
		&page->html,
		"<svg width=\"0\" height=\"0\" aria-hidden=\"true\" "
		"style=\"position:absolute\"><defs><pattern id=\"stripes\" "
		"width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
		"patternTransform=\"rotate(45)\"><rect width=\"6\" "
		"height=\"6\" fill=\"#ffd9d4\"/><rect width=\"3\" height=\"6\" "
		"fill=\"#c8281c\"/></pattern></defs></svg>\n");
}

static void write_page(struct page *page)
{
	head(page);
	html_put(&page->html, "<body>\n");
	stripes(page);
	page_head(page);
	page_facts(page);
	page_bits(page);
	page_even(page);
	page_cost(page);
	page_foreseen(page);
	page_time(page);
	page_numbers(page);
	html_put(&page->html,
	         "</main>\n<footer>Written by ferry %s. This file is complete: "
	         "it loads nothing.</footer>\n</body>\n</html>\n",
	         ferry_version_text());
}

bool prefill_write_html(const struct prefill_report *report, const char *path)
{
	struct page page = {.html = {.file = prefill_file_begin(path)}};

	if (!page.html.file)
		return false;
	page_open(&page, report);
	write_page(&page);
	return prefill_file_end(page.html.file, path);
}
