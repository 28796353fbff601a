/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of the report: SVG that stands in the page, with words for those who
 * do not see it. */
#ifndef FERRY_PREFILL_HTML_PLOT_H
#define FERRY_PREFILL_HTML_PLOT_H

#include "prefill_html.h"

/* A picture of width x height, with data between four edges. */
struct plot {
	struct html *h;
	double width, height;
	double left, right, top, bottom; /* edges of the data */
	double x0, x1, y0, y1; /* values at left, right, bottom, top */
};

/* <svg> with a title and a description, of class `class`. */
void plot_open(struct plot *p, const char *class, const char *title,
               const char *description);
void plot_close(struct plot *p);

double plot_x(const struct plot *p, double value);
double plot_y(const struct plot *p, double value);

/* 1, 2 or 5 times a power of ten: about n of them make the range. */
double plot_step(double range, int n);
/* Where the last of such steps ends that reaches a value. */
double plot_end(double from, double to, int n);

/* The i-th multiple of a step in a range; false behind its end. */
bool plot_tick(double from, double to, double step, int i, double *value);

/* Lines across at round values, with numbers on the left. */
void plot_rows(struct plot *p, int n);
/* Numbers 0..n-1 below, as many as there is room for. */
void plot_layers(struct plot *p, int32_t n);
/* class: of CSS; "e" ends at x, "m" has its middle there. */
void plot_text(struct html *h, const char *class, double x, double y,
               const char *text);

enum { PLOT_MARKS = 6 };

/* Path of a mark of its own shape, 0..PLOT_MARKS-1. */
void plot_mark(struct html *h, int mark, double x, double y);

/* A line over layers; NAN where it has a gap. */
struct plot_line {
	const char *name;
	const char *class; /* of CSS: gives its colour */
	int mark;          /* its shape; -1: none, and dashed */
	const double *values;
};

struct plot_lines {
	const char *title, *description;
	const char *unit; /* what numbers on the left are */
	double least, most;
	int32_t n_layers;
	int n_lines;
	const struct plot_line *lines;
};

/* Twice: for wide screens with names at the lines, for phones with a legend. */
void plot_lines(struct html *h, const struct plot_lines *what);

/*
 * Rows of bars that are as wide as the page leaves them: a name, a bar, and
 * what it says in numbers. Open, put parts into it, close.
 */
void bar_open(struct page *page, int32_t run, int height,
              const char *description);
void bar_close(struct page *page, const char *words);
/* begin and width as shares of the whole; class: of CSS. */
struct bar_part {
	const char *class;
	double begin, width;
	int y, height;
	const char *title;
};
void bar_part(struct page *page, const struct bar_part *part);

/* From the ratio before to that after, on a scale from 1 to end; fills a bar
 * of height 22. */
void bar_ratios(struct page *page, int mark, double before, double after,
                double end);

/* Stages: class of CSS, and two letters where a name is too long; none on the
 * stripes of commit. */
const char *stage_class(enum prefill_stage stage);
const char *stage_letters(enum prefill_stage stage);
void stage_legend(struct page *page);

#endif
