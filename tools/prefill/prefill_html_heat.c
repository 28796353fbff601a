/* SPDX-License-Identifier: Apache-2.0 */
/* Load of every rank in every layer of one step, before and after: shades with
 * numbers. */
#include <math.h>

#include "prefill_html_plot.h"

enum {
	SHADES = 9,
	LEFT = 30,
	RIGHT = 52,
	TOP = 40,
	MOST_NUMBERED = 20, /* ranks whose cells have room for numbers */
	MOST_RANKS = 64,    /* that the table has columns for */
	MOST_CELLS = 1000,  /* of a picture that every policy has */
};

/* Upper ends of shades, in shares of the mean. */
static const double ends[SHADES - 1] = {0.25, 0.5,  0.75, 0.95,
                                        1.05, 1.25, 1.5,  2};

static int shade_of(double share)
{
	int s = 0;

	while (s < SHADES - 1 && share >= ends[s])
		s++;
	return s;
}

struct heat {
	struct plot plot;
	int32_t n_ranks;
	double cell_width, cell_height;
	bool before;
};

/* Up to 8 ranks fit a phone; more scroll in a box of their own. */
static void size_up(struct heat *heat, const struct prefill_shape *shape)
{
	const int32_t n = shape->n_ranks;
	double width = n <= 8 ? 29 : n <= MOST_NUMBERED ? 27 : 14;

	if (n < 8)
		width = 232.0 / n;
	heat->n_ranks = n;
	heat->cell_width = width;
	heat->cell_height = shape->n_layers <= 16 ? 22 : 17;
	heat->plot.width = LEFT + n * width + RIGHT;
	heat->plot.height = TOP + shape->n_layers * heat->cell_height + 4;
}

static void draw_cell(const struct heat *heat, double x, double y, double share,
                      int64_t rows)
{
	struct html *const h = heat->plot.h;
	char text[16];

	html_put(h,
	         "<g class=\"q%d\"><rect x=\"%s\" y=\"%s\" width=\"%s\" "
	         "height=\"%s\"><title>%s rows</title></rect>",
	         shade_of(share), word_at(x).text, word_at(y).text,
	         word_at(heat->cell_width - 1).text,
	         word_at(heat->cell_height - 1).text, word_count(rows).text);
	if (heat->n_ranks <= MOST_NUMBERED) {
		snprintf(text, sizeof(text), "%.2f", share);
		plot_text(h, "m", x + (heat->cell_width - 1) / 2,
		          y + heat->cell_height / 2 + 3.5, text);
	}
	html_put(h, "</g>");
}

static int64_t rows_of(const struct prefill_rank_cell *cell, bool before)
{
	return before ? cell->tokens_fixed : cell->tokens;
}

static double mean_rows(const struct page *page, const struct prefill_run *run,
                        int32_t layer, bool before)
{
	int64_t sum = 0;

	for (int32_t r = 0; r < page->shape->n_ranks; r++)
		sum += rows_of(prefill_rank_cell_at(page->shape, run,
		                                    page->step, layer, r),
		               before);
	return (double)sum / page->shape->n_ranks;
}

static void draw_layer(const struct page *page, const struct prefill_run *run,
                       const struct heat *heat, int32_t layer)
{
	struct html *const h = heat->plot.h;
	const double y = TOP + layer * heat->cell_height;
	const double mean = mean_rows(page, run, layer, heat->before);
	const double middle = y + heat->cell_height / 2 + 4;
	double most = 0;
	char text[16];

	snprintf(text, sizeof(text), "%d", layer);
	plot_text(h, "e", LEFT - 8, middle, text);
	for (int32_t r = 0; r < heat->n_ranks; r++) {
		const int64_t rows =
			rows_of(prefill_rank_cell_at(page->shape, run,
		                                     page->step, layer, r),
		                heat->before);
		const double share = mean > 0 ? (double)rows / mean : 0;

		most = fmax(most, share);
		draw_cell(heat, LEFT + r * heat->cell_width, y, share, rows);
	}
	plot_text(h, "e strong", heat->plot.width - 4, middle,
	          word_ratio(most).text);
	html_put(h, "\n");
}

static void draw_head(const struct heat *heat)
{
	struct html *const h = heat->plot.h;
	const int32_t step = heat->cell_width < 16 ? 4 : 1;
	char text[16];

	plot_text(h, "", 0, 12, "layer");
	plot_text(h, "m", LEFT + heat->n_ranks * heat->cell_width / 2, 12,
	          "rank");
	plot_text(h, "e", heat->plot.width - 4, 12, "busiest");
	for (int32_t r = 0; r < heat->n_ranks; r += step) {
		snprintf(text, sizeof(text), "%d", r);
		plot_text(h, "m", LEFT + (r + 0.5) * heat->cell_width, 30,
		          text);
	}
	html_put(h, "\n");
}

/* Had it moved nothing by this step? */
static bool is_as_before(const struct page *page, const struct prefill_run *run)
{
	for (int32_t l = 0; l < page->shape->n_layers; l++)
		for (int32_t r = 0; r < page->shape->n_ranks; r++) {
			const struct prefill_rank_cell *const cell =
				prefill_rank_cell_at(page->shape, run,
			                             page->step, l, r);

			if (cell->tokens != cell->tokens_fixed)
				return false;
		}
	return true;
}

static void caption(struct page *page, int32_t run, bool before)
{
	const struct prefill_run *const r = &page->report->runs[run];

	html_put(&page->html, "<figure class=\"panel\"><figcaption>");
	if (before) {
		html_put(&page->html, "before");
	} else {
		page_run_name(page, run);
		if (is_as_before(page, r))
			html_put(&page->html,
			         " <span class=\"soft\">as before: nothing "
			         "had moved by this step</span>");
	}
	html_put(&page->html, "</figcaption>\n");
}

static void draw(struct page *page, int32_t run, bool before)
{
	struct html *const h = &page->html;
	const struct prefill_run *const r = &page->report->runs[run];
	struct heat heat = {.plot = {.h = h}, .before = before};
	const bool scrolls = page->shape->n_ranks > 8;
	char title[160];

	size_up(&heat, page->shape);
	snprintf(title, sizeof(title), "Load of ranks by layer, %s",
	         before ? "before balancing" : r->name);
	caption(page, run, before);
	if (scrolls) {
		html_put(h, "<div class=\"scroll\" role=\"region\" "
		            "tabindex=\"0\" aria-label=\"");
		html_text(h, title);
		html_put(h, "\" style=\"--w:%gpx\">", heat.plot.width);
	}
	plot_open(
		&heat.plot, "heat", title,
		"A row for each layer, a column for each rank; the number is "
		"the rank's load over the average, on the right the largest.");
	draw_head(&heat);
	for (int32_t l = 0; l < page->shape->n_layers; l++)
		draw_layer(page, r, &heat, l);
	plot_close(&heat.plot);
	html_put(h, "%s</figure>\n", scrolls ? "</div>" : "");
}

static void legend(struct page *page)
{
	struct html *const h = &page->html;
	struct plot p = {.h = h, .width = 320, .height = 50};
	const double width = 34;
	char text[16];

	plot_open(&p, "heat key-scale", "Shades",
	          "Nine shades from under 0.25 to over 2 times the average.");
	for (int i = 0; i < SHADES; i++)
		html_put(h,
		         "<g class=\"q%d\"><rect x=\"%g\" y=\"18\" "
		         "width=\"%g\" height=\"16\"/></g>",
		         i, 6 + i * width, width - 1);
	for (int i = 0; i < SHADES - 1; i++) {
		snprintf(text, sizeof(text), "%g", ends[i]);
		plot_text(h, "m", 6 + (i + 1) * width - 0.5, 47, text);
	}
	plot_text(h, "", 6, 12, "less than the average");
	plot_text(h, "e", 6 + SHADES * width, 12, "more");
	plot_close(&p);
}

static void table_row(struct page *page, int32_t run, bool before,
                      int32_t layer)
{
	struct html *const h = &page->html;
	const struct prefill_run *const r = &page->report->runs[run];

	html_put(h, "<tr><th scope=\"row\">");
	if (before)
		html_put(h, "before");
	else
		page_run_name(page, run);
	html_put(h, "</th><td>%d</td>", layer);
	for (int32_t i = 0; i < page->shape->n_ranks; i++)
		html_put(h, "<td>%s</td>",
		         word_count(rows_of(prefill_rank_cell_at(page->shape, r,
		                                                 page->step,
		                                                 layer, i),
		                            before))
		                 .text);
	html_put(h, "</tr>\n");
}

/* Is the run drawn besides the best one? A large picture is for one only. */
static bool is_other(const struct page *page, int32_t run)
{
	return run != page->best && run != page->off &&
	       page->shape->n_ranks * page->shape->n_layers <= MOST_CELLS;
}

static void table(struct page *page)
{
	char names[MOST_RANKS][16];
	const char *columns[MOST_RANKS + 3] = {"policy", "layer"};
	const int32_t n = page->shape->n_ranks;

	if (n > MOST_RANKS)
		return;
	for (int32_t i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "rank %d", i);
		columns[i + 2] = names[i];
	}
	table_open(page, "The numbers",
	           "Rows of tokens that each rank's experts got in this step",
	           columns);
	for (int32_t i = -1; i < page->n_runs; i++)
		for (int32_t l = 0; l < page->shape->n_layers; l++)
			if (i < 0 || i == page->best || is_other(page, i))
				table_row(page, i < 0 ? 0 : i, i < 0, l);
	table_close(page);
}

/* Other policies than the one that is shown at once. */
static void others(struct page *page)
{
	struct html *const h = &page->html;
	int32_t n = 0;

	for (int32_t i = 0; i < page->n_runs; i++)
		n += is_other(page, i);
	if (!n)
		return;
	html_put(h,
	         "<details class=\"data\"><summary>The other policies"
	         "</summary>\n<div class=\"panels%s\">\n",
	         page->shape->n_ranks > 8 ? " large" : "");
	for (int32_t i = 0; i < page->n_runs; i++)
		if (is_other(page, i))
			draw(page, i, false);
	html_put(h, "</div></details>\n");
}

void page_heat(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_step *const step = &page->shape->steps[page->step];

	html_put(h, "<h3>Rank by rank</h3>\n<p>Step %d, of ", page->step);
	if (step->text < 0)
		html_put(h, "several texts");
	else
		html_element(h, "bdi class=\"file\"", step->name);
	html_put(h, ": its imbalance before is the nearest to the average of "
	            "all steps. Each number is a rank's load over the average "
	            "of its layer.</p>\n");
	legend(page);
	html_put(h, "<div class=\"panels%s\">\n",
	         page->shape->n_ranks > 8 ? " large" : "");
	draw(page, 0, true);
	if (page->report->runs[page->best].policy != FERRY_BALANCE_OFF)
		draw(page, page->best, false);
	html_put(h, "</div>\n");
	others(page);
	table(page);
}
