/* SPDX-License-Identifier: Apache-2.0 */
/* Bars that grow with the page: their SVG counts in per cent. */
#include <math.h>

#include "prefill_html_plot.h"

void bar_open(struct page *page, int32_t run, int height,
              const char *description)
{
	struct html *const h = &page->html;

	html_put(h, "<div class=\"row p%d\"><span class=\"who\">",
	         (int)page->report->runs[run].policy);
	page_run_name(page, run);
	html_put(h,
	         "</span><svg class=\"bar\" width=\"100%%\" height=\"%d\" "
	         "role=\"img\" aria-label=\"",
	         height);
	html_text(h, description);
	html_put(h, "\">");
}

void bar_close(struct page *page, const char *words)
{
	html_put(&page->html, "</svg><span class=\"what\">");
	html_put(&page->html, "%s", words);
	html_put(&page->html, "</span></div>\n");
}

void bar_part(struct page *page, const struct bar_part *part)
{
	struct html *const h = &page->html;

	if (!(part->width > 0))
		return;
	html_put(h,
	         "<rect class=\"%s\" x=\"%.2f%%\" y=\"%d\" width=\"%.2f%%\" "
	         "height=\"%d\"><title>",
	         part->class, 100 * part->begin, part->y, 100 * part->width,
	         part->height);
	html_text(h, part->title);
	html_put(h, "</title></rect>");
}

/* Where a ratio is, in per cent; marks at the ends need room. */
static double place(double ratio, double end)
{
	const double share = end > 1 ? (ratio - 1) / (end - 1) : 0;

	return 3 + 94 * fmin(fmax(share, 0), 1);
}

void bar_ratios(struct page *page, int mark, double before, double after,
                double end)
{
	struct html *const h = &page->html;
	const double from = place(before, end), to = place(after, end);

	html_put(
		h,
		"<line class=\"grid\" x1=\"3%%\" x2=\"97%%\" y1=\"11\" "
		"y2=\"11\"/><line class=\"one\" x1=\"3%%\" x2=\"3%%\" y1=\"2\" "
		"y2=\"20\"/><line class=\"line\" x1=\"%.2f%%\" x2=\"%.2f%%\" "
		"y1=\"11\" y2=\"11\"/><circle class=\"hollow\" cx=\"%.2f%%\" "
		"cy=\"11\" r=\"4\"/><svg x=\"%.2f%%\" y=\"11\" "
		"overflow=\"visible\">",
		from, to, from, to);
	plot_mark(h, mark, 0, 0);
	html_put(h, "</svg>");
}

const char *stage_class(enum prefill_stage stage)
{
	static const char *const classes[PREFILL_N_STAGES] = {
		"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};

	return classes[stage];
}

const char *stage_letters(enum prefill_stage stage)
{
	static const char *const letters[PREFILL_N_STAGES] = {
		"Pr", "Mi", "At", "", "Ro", "Di", "Ex", "Cb"};

	return letters[stage];
}

static const char *explain(enum prefill_stage stage)
{
	switch (stage) {
	case PREFILL_PREDICT:
		return "early router and plan";
	case PREFILL_MIGRATE:
		return "experts on their way";
	case PREFILL_COMMIT:
		return "waiting for them";
	case PREFILL_DISPATCH:
		return "tokens to their experts";
	case PREFILL_COMBINE:
		return "results back";
	default:
		return NULL;
	}
}

void stage_legend(struct page *page)
{
	struct html *const h = &page->html;

	html_put(h, "<ul class=\"legend\">\n");
	for (int i = 0; i < PREFILL_N_STAGES; i++) {
		const enum prefill_stage s = (enum prefill_stage)i;

		html_put(h,
		         "<li><svg class=\"key\" width=\"24\" height=\"16\" "
		         "aria-hidden=\"true\"><g class=\"%s\"><rect "
		         "width=\"24\" height=\"16\"/>",
		         stage_class(s));
		plot_text(h, "m", 12, 12, stage_letters(s));
		html_put(h, "</g></svg>%s", prefill_stage_names[s]);
		if (explain(s))
			html_put(h, " <span class=\"soft\">(%s)</span>",
			         explain(s));
		html_put(h, "</li>\n");
	}
	html_put(h, "</ul>\n");
}
