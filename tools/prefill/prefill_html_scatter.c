/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted loads of experts against true ones, in a few layers of one step. */
#include <stdlib.h>

#include "alloc.h"
#include "prefill_html_plot.h"

enum { MOST_PANELS = 3 };

static const struct prefill_run *run_of(const struct page *page)
{
	return &page->report->runs[page->foreseer];
}

static const struct prefill_cell *cell_of(const struct page *page,
                                          int32_t layer)
{
	return prefill_cell_at(page->shape, run_of(page), page->step, layer);
}

static const int64_t *loads_of(const struct page *page, const int64_t *loads,
                               int32_t layer)
{
	const struct prefill_shape *const s = page->shape;

	return loads +
	       ((int64_t)page->step * s->n_layers + layer) * s->n_experts;
}

static double largest(const struct page *page, int32_t layer)
{
	const int64_t *const truth = loads_of(page, run_of(page)->loads, layer);
	const int64_t *const seen =
		loads_of(page, run_of(page)->predicted, layer);
	int64_t most = 1;

	for (int32_t e = 0; e < page->shape->n_experts; e++) {
		most = truth[e] > most ? truth[e] : most;
		most = seen[e] > most ? seen[e] : most;
	}
	return (double)most;
}

static void columns(struct plot *p)
{
	const double step = plot_step(p->x1, 4);
	char text[32];
	double v;

	for (int i = 0; plot_tick(0, p->x1, step, i, &v); i++) {
		snprintf(text, sizeof(text), "%g", v);
		plot_text(p->h, "m", plot_x(p, v), p->bottom + 18, text);
	}
	plot_text(p->h, "m", (p->left + p->right) / 2, p->bottom + 36,
	          "true rows of tokens");
}

static void dots(const struct page *page, struct plot *p, int32_t layer)
{
	const int64_t *const truth = loads_of(page, run_of(page)->loads, layer);
	const int64_t *const seen =
		loads_of(page, run_of(page)->predicted, layer);

	for (int32_t e = 0; e < page->shape->n_experts; e++)
		html_put(p->h,
		         "<circle class=\"dot\" cx=\"%s\" cy=\"%s\" r=\"3\">"
		         "<title>expert %d: %lld foreseen, %lld true</title>"
		         "</circle>\n",
		         word_at(plot_x(p, (double)truth[e])).text,
		         word_at(plot_y(p, (double)seen[e])).text, e,
		         (long long)seen[e], (long long)truth[e]);
}

static void scatter(struct page *page, int32_t layer, const char *which)
{
	struct html *const h = &page->html;
	const double most = largest(page, layer) * 1.04;
	struct plot p = {
		.h = h,
		.width = 320,
		.height = 300,
		.left = 46,
		.right = 306,
		.top = 26,
		.bottom = 256,
		.x1 = most,
		.y1 = most,
	};
	char title[80];

	snprintf(title, sizeof(title), "Loads of experts in layer %d", layer);
	html_put(h,
	         "<figure class=\"panel\"><figcaption>layer %d "
	         "<span class=\"soft\">%s: %s</span></figcaption>\n",
	         layer, which,
	         word_percent(cell_of(page, layer)->topk_hit).text);
	plot_open(&p, "", title,
	          "A dot for each expert: true load to the right, predicted "
	          "load upwards; on the diagonal both are the same.");
	plot_text(h, "", 2, 12, "predicted rows of tokens");
	plot_rows(&p, 4);
	columns(&p);
	html_put(h, "<path class=\"line dash before\" d=\"M%g %gL%g %g\"/>\n",
	         p.left, p.bottom, p.right, p.top);
	dots(page, &p, layer);
	plot_close(&p);
	html_put(h, "</figure>\n");
}

/* Layers that were foreseen in this step, from the worst to the best. */
static int32_t sort_layers(const struct page *page, int32_t *layers)
{
	int32_t n = 0;

	for (int32_t l = 0; l < page->shape->n_layers; l++) {
		int32_t at = n;

		if (!cell_of(page, l)->predicted)
			continue;
		for (; at > 0 && cell_of(page, layers[at - 1])->topk_hit >
		                         cell_of(page, l)->topk_hit;
		     at--)
			layers[at] = layers[at - 1];
		layers[at] = l;
		n++;
	}
	return n;
}

static void load_table(struct page *page, const int32_t *layers, int32_t n)
{
	static const char *const heads[] = {"layer", "expert", "foreseen",
	                                    "true", NULL};
	struct html *const h = &page->html;

	table_open(page, "The numbers", "Loads of experts in these layers",
	           heads);
	for (int32_t i = 0; i < n; i++) {
		const int64_t *const truth =
			loads_of(page, run_of(page)->loads, layers[i]);
		const int64_t *const seen =
			loads_of(page, run_of(page)->predicted, layers[i]);

		for (int32_t e = 0; e < page->shape->n_experts; e++)
			html_put(h,
			         "<tr><th scope=\"row\">%d</th><td>%d</td>"
			         "<td>%s</td><td>%s</td></tr>\n",
			         layers[i], e, word_count(seen[e]).text,
			         word_count(truth[e]).text);
	}
	table_close(page);
}

void page_scatter(struct page *page)
{
	struct html *const h = &page->html;
	int32_t *const layers =
		alloc_or_exit((size_t)page->shape->n_layers, sizeof(*layers));
	const int32_t n = sort_layers(page, layers);
	static const char *const words[] = {"the least foreseen", "the median",
	                                    "the best foreseen"};
	const int32_t chosen[MOST_PANELS] = {layers[0], layers[n / 2],
	                                     layers[n - 1]};
	const int32_t shown = n < MOST_PANELS ? n : MOST_PANELS;

	html_put(h,
	         "<h3>Expert by expert</h3>\n<p>Step %d again. Not the "
	         "choices of single tokens decide how well ranks can be "
	         "evened out, but the sums over all tokens, and those are "
	         "foreseen better: a dot on the dashed line is an expert "
	         "whose load was known exactly.</p>\n"
	         "<div class=\"panels\">\n",
	         page->step);
	for (int32_t i = 0; i < shown; i++)
		scatter(page, n < MOST_PANELS ? layers[i] : chosen[i],
		        n < MOST_PANELS ? "choices foreseen" : words[i]);
	html_put(h, "</div>\n");
	load_table(page, n < MOST_PANELS ? layers : chosen, shown);
	free(layers);
}
