/* SPDX-License-Identifier: Apache-2.0 */
/* Timeline of a few layers of one step: two lanes for each rank, one for each
 * of its threads. */
#include <math.h>
#include <string.h>

#include "prefill_html_plot.h"

enum {
	WIDTH = 1000,
	LEFT = 62,
	RIGHT = 10,
	TOP = 28,
	MAIN_LANE = 18,
	SECOND_LANE = 11,
	RANK = MAIN_LANE + SECOND_LANE + 8,
	MOST_LAYERS = 3,
	MOST_RANKS = 16,
};

/* Which layers, and the longest time they took in any run. */
struct lanes {
	struct page *page;
	int32_t first, n;
	int32_t n_ranks; /* that are drawn: the first ones */
	double most_ns;
};

static struct prefill_rank_cell *at(const struct lanes *l, int32_t run,
                                    int32_t layer, int32_t rank)
{
	return prefill_rank_cell_at(l->page->shape, &l->page->report->runs[run],
	                            l->page->step, layer, rank);
}

static bool ran(const struct prefill_span *span)
{
	return span->end_ns > span->begin_ns;
}

/* First begin and last end of stages in layers first..first+n-1. */
static struct prefill_span extent(const struct lanes *l, int32_t run,
                                  int32_t first, int32_t n)
{
	struct prefill_span all = {INT64_MAX, 0};

	for (int32_t i = first; i < first + n; i++)
		for (int32_t r = 0; r < l->n_ranks; r++)
			for (int s = 0; s < PREFILL_N_STAGES; s++) {
				const struct prefill_span *const span =
					&at(l, run, i, r)->spans[s];

				if (!ran(span))
					continue;
				if (span->begin_ns < all.begin_ns)
					all.begin_ns = span->begin_ns;
				if (span->end_ns > all.end_ns)
					all.end_ns = span->end_ns;
			}
	if (!ran(&all))
		all = (struct prefill_span){0, 0};
	return all;
}

/* The layer of the step where the best run moved most bytes, and the next. */
static void choose(struct lanes *l)
{
	const struct page *const page = l->page;
	const int32_t n = page->shape->n_layers;
	int64_t most = -1;

	l->n = n < MOST_LAYERS ? n : MOST_LAYERS;
	l->n_ranks = page->shape->n_ranks < MOST_RANKS ? page->shape->n_ranks
	                                               : MOST_RANKS;
	for (int32_t i = 0; i <= n - l->n; i++) {
		int64_t bytes = 0;

		for (int32_t j = i; j < i + l->n; j++)
			bytes +=
				prefill_cell_at(page->shape,
			                        &page->report->runs[page->best],
			                        page->step, j)
					->moved_bytes;
		if (bytes > most) {
			most = bytes;
			l->first = i;
		}
	}
	l->most_ns = 1;
	for (int32_t i = 0; i < page->n_runs; i++) {
		const struct prefill_span all = extent(l, i, l->first, l->n);

		l->most_ns =
			fmax(l->most_ns, (double)(all.end_ns - all.begin_ns));
	}
}

/* Its name, where there is room for it. */
static void draw_name(const struct plot *p, enum prefill_stage s, double x,
                      double y, double width)
{
	const char *const name = prefill_stage_names[s];

	if (s == PREFILL_COMMIT)
		return; /* stripes are no ground for letters */
	if (width >= 6.4 * (double)strlen(name) + 4)
		plot_text(p->h, "m", x, y, name);
	else if (width >= 17)
		plot_text(p->h, "m", x, y, stage_letters(s));
}

static void draw_span(const struct plot *p, const struct prefill_span *span,
                      enum prefill_stage s, double y, int32_t layer)
{
	struct html *const h = p->h;
	const bool second = prefill_stage_is_second(s);
	const double x = plot_x(p, (double)span->begin_ns);
	const double width = fmax(plot_x(p, (double)span->end_ns) - x, 0.6);
	const int height = second ? SECOND_LANE : MAIN_LANE;
	const double top = second ? y + MAIN_LANE + 1 : y;

	html_put(h,
	         "<g class=\"%s\"><rect x=\"%s\" y=\"%s\" width=\"%s\" "
	         "height=\"%d\"><title>layer %d, %s: %s</title></rect>",
	         stage_class(s), word_at(x).text, word_at(top).text,
	         word_at(width).text, height, layer, prefill_stage_names[s],
	         word_time((double)(span->end_ns - span->begin_ns)).text);
	draw_name(p, s, x + width / 2, top + height / 2.0 + 3.5, width);
	html_put(h, "</g>");
}

static void draw_rank(const struct lanes *l, const struct plot *p, int32_t run,
                      int32_t rank)
{
	const double y = TOP + rank * RANK;
	char text[24];

	snprintf(text, sizeof(text), "rank %d", rank);
	plot_text(p->h, "e", LEFT - 8, y + 13, text);
	html_put(p->h, "<path class=\"track\" d=\"M%d %gH%g\"/>\n", LEFT,
	         y + MAIN_LANE + SECOND_LANE + 4, p->right);
	for (int32_t i = l->first; i < l->first + l->n; i++)
		for (int s = 0; s < PREFILL_N_STAGES; s++) {
			const struct prefill_span *const span =
				&at(l, run, i, rank)->spans[s];

			if (ran(span))
				draw_span(p, span, (enum prefill_stage)s, y, i);
		}
	html_put(p->h, "\n");
}

static void draw_layers(const struct lanes *l, const struct plot *p,
                        int32_t run)
{
	char text[24];

	for (int32_t i = l->first; i < l->first + l->n; i++) {
		const struct prefill_span all = extent(l, run, i, 1);
		const double x = plot_x(p, (double)all.begin_ns);

		snprintf(text, sizeof(text), "layer %d", i);
		html_put(p->h, "<path class=\"grid\" d=\"M%s 4V%g\"/>",
		         word_at(x).text, p->bottom);
		plot_text(p->h, "strong", x + 5, 14, text);
	}
	html_put(p->h, "\n");
}

static void draw_axis(const struct lanes *l, const struct plot *p)
{
	const double unit = l->most_ns < 2e6 ? 1e3 : 1e6;
	const double step = plot_step(l->most_ns / unit, 10);
	char text[32];
	double v;

	for (int i = 0; plot_tick(0, l->most_ns / unit, step, i, &v); i++) {
		const double x = plot_x(p, p->x0 + v * unit);

		html_put(p->h, "<path class=\"grid\" d=\"M%s %gv5\"/>",
		         word_at(x).text, p->bottom);
		snprintf(text, sizeof(text), "%g", v);
		plot_text(p->h, "m", x, p->bottom + 18, text);
	}
	plot_text(p->h, "e", LEFT - 8, p->bottom + 18,
	          unit < 1e6 ? "\xc2\xb5s" : "ms");
}

static void draw(const struct lanes *l, int32_t run)
{
	struct html *const h = &l->page->html;
	const struct prefill_span all = extent(l, run, l->first, l->n);
	struct plot p = {
		.h = h,
		.width = WIDTH,
		.height = TOP + l->n_ranks * RANK + 26,
		.left = LEFT,
		.right = WIDTH - RIGHT,
		.top = TOP,
		.bottom = TOP + l->n_ranks * RANK,
		.x0 = (double)all.begin_ns,
		.x1 = (double)all.begin_ns + l->most_ns,
	};
	char title[160];

	snprintf(title, sizeof(title), "Timeline of policy %s",
	         l->page->report->runs[run].name);
	html_put(h, "<figure><figcaption>");
	page_run_name(l->page, run);
	html_put(h,
	         " <span class=\"soft\">%s</span>"
	         "<span class=\"soft small narrow\">scrolls sideways</span>"
	         "</figcaption>\n"
	         "<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
	         "style=\"--w:%dpx\" aria-label=\"",
	         word_time((double)(all.end_ns - all.begin_ns)).text, WIDTH);
	html_text(h, title);
	html_put(h, "\">\n");
	plot_open(&p, "lanes", title,
	          "Two lanes for each rank: its main thread above, the second "
	          "thread, which predicts and moves experts, below.");
	draw_layers(l, &p, run);
	for (int32_t r = 0; r < l->n_ranks; r++)
		draw_rank(l, &p, run, r);
	draw_axis(l, &p);
	plot_close(&p);
	html_put(h, "</div></figure>\n");
}

static void table(const struct lanes *l, int32_t run)
{
	const char *columns[PREFILL_N_STAGES + 3] = {"rank", "layer"};
	struct page *const page = l->page;
	struct html *const h = &page->html;

	for (int s = 0; s < PREFILL_N_STAGES; s++)
		columns[s + 2] = prefill_stage_names[s];
	table_open(page, "The numbers", "Time of stages by rank and layer",
	           columns);
	for (int32_t r = 0; r < l->n_ranks; r++)
		for (int32_t i = l->first; i < l->first + l->n; i++) {
			html_put(h, "<tr><th scope=\"row\">%d</th><td>%d</td>",
			         r, i);
			for (int s = 0; s < PREFILL_N_STAGES; s++) {
				const struct prefill_span *const span =
					&at(l, run, i, r)->spans[s];

				table_cell(
					page,
					ran(span)
						? word_time(
							  (double)(span->end_ns -
				                                   span->begin_ns))
							  .text
						: DASH);
			}
			html_put(h, "</tr>\n");
		}
	table_close(page);
}

/* Policies that are not shown at once. */
static void others(const struct lanes *l)
{
	struct page *const page = l->page;

	if (page->n_runs < 2 + (page->off >= 0 && page->off != page->best))
		return;
	html_put(&page->html, "<details class=\"data\"><summary>The other "
	                      "policies, on the same scale</summary>\n");
	for (int32_t i = 0; i < page->n_runs; i++)
		if (i != page->best && i != page->off)
			draw(l, i);
	html_put(&page->html, "</details>\n");
}

void page_lanes(struct page *page)
{
	struct html *const h = &page->html;
	struct lanes l = {.page = page};

	choose(&l);
	html_put(h, "<h3>A few layers, rank by rank</h3>\n<p>Step %d, ",
	         page->step);
	if (l.n > 1)
		html_put(h, "layers %d to %d. ", l.first, l.first + l.n - 1);
	else
		html_put(h, "layer %d. ", l.first);
	if (l.n_ranks < page->shape->n_ranks)
		html_put(h, "The first %d ranks are shown. ", l.n_ranks);
	html_put(h, "Each rank has two lanes: its main thread, and below it "
	            "the second thread, which predicts the layer's load and "
	            "sends experts while the main thread runs attention. "
	            "Striped: the main thread waits, until all ranks have "
	            "their experts. Ranks that are "
	            "done with their experts wait in combine for those that "
	            "are not.</p>\n");
	if (page->off >= 0 && page->off != page->best)
		draw(&l, page->off);
	draw(&l, page->best);
	others(&l);
	table(&l, page->best);
}
