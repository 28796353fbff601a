/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of pictures: frame, axes, marks. */
#include "prefill_html_plot.h"

#include <math.h>

void plot_open(struct plot *p, const char *class, const char *title,
               const char *description)
{
	struct html *const h = p->h;
	const int id = h->n_ids++;

	html_put(h,
	         "<svg class=\"%s\" role=\"img\" viewBox=\"0 0 %g %g\" "
	         "aria-labelledby=\"t%d d%d\"><title id=\"t%d\">",
	         class, p->width, p->height, id, id, id);
	html_text(h, title);
	html_put(h, "</title><desc id=\"d%d\">", id);
	html_text(h, description);
	html_put(h, "</desc>\n");
}

void plot_close(struct plot *p)
{
	html_put(p->h, "</svg>\n");
}

static double between(double a, double b, double share)
{
	return a + (b - a) * share;
}

double plot_x(const struct plot *p, double value)
{
	return p->x1 > p->x0 ? between(p->left, p->right,
	                               (value - p->x0) / (p->x1 - p->x0))
	                     : (p->left + p->right) / 2;
}

double plot_y(const struct plot *p, double value)
{
	return p->y1 > p->y0 ? between(p->bottom, p->top,
	                               (value - p->y0) / (p->y1 - p->y0))
	                     : p->bottom;
}

double plot_step(double range, int n)
{
	if (!(range > 0) || !isfinite(range))
		return 1;
	const double rough = range / n;
	const double power = pow(10, floor(log10(rough)));
	const double digit = rough / power;

	/* A whole number of steps takes as many, whatever rounding says. */
	const double least = digit * (1 - 1e-9);

	return power * (least <= 1 ? 1 : least <= 2 ? 2 : least <= 5 ? 5 : 10);
}

double plot_end(double from, double to, int n)
{
	const double step = plot_step(to - from, n);

	return from + step * ceil((to - from) / step * (1 - 1e-9));
}

void plot_text(struct html *h, const char *class, double x, double y,
               const char *text)
{
	html_put(h, "<text class=\"%s\" x=\"%s\" y=\"%s\">", class,
	         word_at(x).text, word_at(y).text);
	html_text(h, text);
	html_put(h, "</text>");
}

bool plot_tick(double from, double to, double step, int i, double *value)
{
	*value = (ceil(from / step - 1e-9) + i) * step;
	if (fabs(*value) < step / 2)
		*value = 0; /* not -0 */
	return *value <= to + step * 1e-6;
}

void plot_rows(struct plot *p, int n)
{
	const double step = plot_step(p->y1 - p->y0, n);
	const int decimals = (int)fmax(0, ceil(-log10(step) - 1e-9));
	char text[32];
	double v;

	for (int i = 0; plot_tick(p->y0, p->y1, step, i, &v); i++) {
		const double y = plot_y(p, v);

		html_put(p->h, "<path class=\"grid\" d=\"M%s %sH%s\"/>",
		         word_at(p->left).text, word_at(y).text,
		         word_at(p->right).text);
		snprintf(text, sizeof(text), "%.*f", decimals, v);
		plot_text(p->h, "e", p->left - 6, y + 4, text);
	}
	html_put(p->h, "\n");
}

void plot_layers(struct plot *p, int32_t n)
{
	const double room = (p->right - p->left) / 26;
	const int32_t step =
		n > room ? (int32_t)fmax(1, plot_step(n, (int)room)) : 1;
	char text[16];

	for (int32_t i = 0; i < n; i += step) {
		snprintf(text, sizeof(text), "%d", i);
		plot_text(p->h, "m", plot_x(p, i), p->bottom + 18, text);
	}
	plot_text(p->h, "m", (p->left + p->right) / 2, p->bottom + 36, "layer");
	html_put(p->h, "\n");
}

void plot_mark(struct html *h, int mark, double x, double y)
{
	/* Of about the same area; drawn from the middle. */
	static const char *const shapes[PLOT_MARKS] = {
		"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
		"m-3.6-3.6h7.2v7.2h-7.2z",
		"m0-4.8l4.6 8.2h-9.2z",
		"m0 4.8l-4.6-8.2h9.2z",
		"m0-5.2l5.2 5.2l-5.2 5.2l-5.2-5.2z",
		"m-1.6-4.8h3.2v3.2h3.2v3.2h-3.2v3.2h-3.2v-3.2h-3.2v-3.2h3.2z",
	};

	html_put(h, "<path class=\"mark\" d=\"M%s %s%s\"/>", word_at(x).text,
	         word_at(y).text, shapes[mark % PLOT_MARKS]);
}
