/* SPDX-License-Identifier: Apache-2.0 */
/* Sections, tables and names: what all parts of the report look like. */
#include "prefill_html_plot.h"

void section_open(struct page *page, const char *id, const char *question)
{
	html_put(&page->html, "<section id=\"%s\">\n", id);
	html_element(&page->html, "h2", question);
	html_put(&page->html, "\n");
}

void section_close(struct page *page)
{
	html_put(&page->html, "</section>\n");
}

/* A box of its own scrolls, not the page; the keyboard reaches it. */
void table_open_bare(struct page *page, const char *caption,
                     const char *const *columns)
{
	struct html *const h = &page->html;

	html_put(h, "<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
	            "aria-label=\"");
	html_text(h, caption);
	html_put(h, "\"><table><caption>");
	html_text(h, caption);
	html_put(h, "</caption><thead><tr>");
	for (; *columns; columns++)
		html_element(h, "th scope=\"col\"", *columns);
	html_put(h, "</tr></thead>\n<tbody>\n");
}

void table_close_bare(struct page *page)
{
	html_put(&page->html, "</tbody></table></div>\n");
}

void table_open(struct page *page, const char *summary, const char *caption,
                const char *const *columns)
{
	html_put(&page->html, "<details class=\"data\">");
	html_element(&page->html, "summary", summary);
	html_put(&page->html, "\n");
	table_open_bare(page, caption, columns);
}

void table_close(struct page *page)
{
	table_close_bare(page);
	html_put(&page->html, "</details>\n");
}

void table_cell(struct page *page, const char *text)
{
	html_element(&page->html, "td", text);
}

void page_run_name(struct page *page, int32_t run)
{
	struct html *const h = &page->html;
	const struct prefill_run *const r = &page->report->runs[run];

	html_put(h,
	         "<span class=\"run p%d\"><svg class=\"key\" width=\"12\" "
	         "height=\"12\" aria-hidden=\"true\">",
	         (int)r->policy);
	plot_mark(h, (int)r->policy, 6, 6);
	html_put(h, "</svg>");
	html_text(h, r->name);
	html_put(h, "</span>");
}
