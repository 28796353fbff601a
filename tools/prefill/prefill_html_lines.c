/* SPDX-License-Identifier: Apache-2.0 */
/* Lines over the layers of a model. */
#include <math.h>

#include "prefill_html_plot.h"

enum { LABEL_HEIGHT = 15, MARK_ROOM = 13, STEPS = 5 };

static void draw_line(const struct plot *p, const struct plot_lines *what,
                      const struct plot_line *line)
{
	struct html *const h = p->h;
	bool on = false;

	html_put(h, "<path class=\"line%s\" d=\"",
	         line->mark < 0 ? " dash" : "");
	for (int32_t i = 0; i < what->n_layers; i++) {
		if (isnan(line->values[i])) {
			on = false;
			continue;
		}
		html_put(h, "%s%s %s", on ? "L" : "M",
		         word_at(plot_x(p, i)).text,
		         word_at(plot_y(p, line->values[i])).text);
		on = true;
	}
	html_put(h, "\"/>");
}

/* Marks tell what they mean; not all of many layers have one. */
static void draw_marks(const struct plot *p, const struct plot_lines *what,
                       const struct plot_line *line)
{
	struct html *const h = p->h;
	const double room = (p->right - p->left) / MARK_ROOM;
	const int32_t step = (int32_t)fmax(1, ceil(what->n_layers / room));

	if (line->mark < 0)
		return;
	for (int32_t i = 0; i < what->n_layers; i += step) {
		if (isnan(line->values[i]))
			continue;
		html_put(h, "<g><title>");
		html_text(h, line->name);
		html_put(h, ", layer %d: %.3f</title>", i, line->values[i]);
		plot_mark(h, line->mark, plot_x(p, i),
		          plot_y(p, line->values[i]));
		html_put(h, "</g>");
	}
}

/* Where a line ends on the right; the bottom, where it is nowhere. */
static double end_of(const struct plot *p, const struct plot_lines *what, int i)
{
	for (int32_t l = what->n_layers - 1; l >= 0; l--)
		if (!isnan(what->lines[i].values[l]))
			return plot_y(p, what->lines[i].values[l]);
	return p->bottom;
}

/* Lines from the top down, by where they end. */
static void sort_ends(const double *ends, int *order, int n)
{
	for (int i = 0; i < n; i++) {
		int at = i;

		for (; at > 0 && ends[order[at - 1]] > ends[i]; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
}

/* Names beside the ends, moved apart and kept above the bottom. */
static void draw_names(const struct plot *p, const struct plot_lines *what)
{
	enum { MOST = PREFILL_MAX_RUNS + 1 };
	double ends[MOST], ys[MOST];
	int order[MOST];
	const int n = what->n_lines;

	for (int i = 0; i < n; i++)
		ends[i] = end_of(p, what, i);
	sort_ends(ends, order, n);
	for (int i = 0; i < n; i++)
		ys[i] = i ? fmax(ends[order[i]], ys[i - 1] + LABEL_HEIGHT)
		          : ends[order[i]];
	for (int i = n - 1; i >= 0; i--)
		ys[i] = fmin(ys[i], p->bottom - (n - 1 - i) * LABEL_HEIGHT);
	for (int i = 0; i < n; i++) {
		const struct plot_line *const line = &what->lines[order[i]];

		html_put(p->h,
		         "<g class=\"%s\"><path class=\"lead\" "
		         "d=\"M%s %sL%s %s\"/>",
		         line->class, word_at(p->right + 7).text,
		         word_at(ends[order[i]]).text,
		         word_at(p->right + 17).text, word_at(ys[i]).text);
		if (line->mark >= 0)
			plot_mark(p->h, line->mark, p->right + 25, ys[i]);
		plot_text(p->h, "name", p->right + 34, ys[i] + 4, line->name);
		html_put(p->h, "</g>\n");
	}
}

static void draw(struct plot *p, const struct plot_lines *what, bool wide)
{
	struct html *const h = p->h;

	plot_open(p, wide ? "wide" : "narrow", what->title, what->description);
	plot_text(h, "", 2, 14, what->unit);
	plot_rows(p, STEPS);
	plot_layers(p, what->n_layers);
	for (int i = 0; i < what->n_lines; i++) {
		html_put(h, "<g class=\"%s\">", what->lines[i].class);
		draw_line(p, what, &what->lines[i]);
		draw_marks(p, what, &what->lines[i]);
		html_put(h, "</g>\n");
	}
	if (wide)
		draw_names(p, what);
	plot_close(p);
}

static void legend(struct html *h, const struct plot_lines *what)
{
	html_put(h, "<p class=\"legend narrow\">");
	for (int i = 0; i < what->n_lines; i++) {
		const struct plot_line *const line = &what->lines[i];

		html_put(h,
		         "<span class=\"%s\"><svg class=\"key\" width=\"26\" "
		         "height=\"12\" aria-hidden=\"true\"><path "
		         "class=\"line%s\" "
		         "d=\"M1 6H25\"/>",
		         line->class, line->mark < 0 ? " dash" : "");
		if (line->mark >= 0)
			plot_mark(h, line->mark, 13, 6);
		html_put(h, "</svg>");
		html_text(h, line->name);
		html_put(h, "</span>\n");
	}
	html_put(h, "</p>\n");
}

void plot_lines(struct html *h, const struct plot_lines *what)
{
	struct plot p = {
		.h = h,
		.width = 860,
		.height = 330,
		.left = 40,
		.right = 690,
		.top = 28,
		.bottom = 286,
		.x1 = what->n_layers - 1,
		.y0 = what->least,
		.y1 = plot_end(what->least, what->most, STEPS),
	};

	draw(&p, what, true);
	p.width = 320;
	p.height = 270;
	p.right = 308;
	p.bottom = 226;
	draw(&p, what, false);
	legend(h, what);
}
