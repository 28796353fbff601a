/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the report of ferry prefill: a writer that escapes, numbers as words,
 * and what all sections of the page share. Pictures: prefill_html_plot.h.
 */
#ifndef FERRY_PREFILL_HTML_H
#define FERRY_PREFILL_HTML_H

#include <stdio.h>

#include "prefill.h"

/* No-break spaces: between thousands, before a unit. */
#define THIN   "\xe2\x80\xaf"
#define MINUS  "\xe2\x88\x92"
#define DASH   "\xe2\x80\x93"
#define ARROW  "\xe2\x86\x92"
#define HYPHEN "\xe2\x80\x91"

struct html {
	FILE *file;
	int n_ids; /* given to pictures and tables */
};

/* Markup as it is; strings among the arguments are the caller's own. */
__attribute__((format(printf, 2, 3))) void html_put(struct html *h,
                                                    const char *fmt, ...);
/* Text from outside: escaped, and what is no UTF-8 replaced. */
void html_text(struct html *h, const char *text);
/* <tag>text</tag>, escaped; attributes may follow the tag. */
void html_element(struct html *h, const char *tag, const char *text);

/* A number as people read it; "–" where there is none. */
struct word {
	char text[40];
};

struct word word_ratio(double value);            /* 1.08 */
struct word word_percent(double share);          /* 81.2 % */
struct word word_change(double now, double was); /* −4.0 % */
struct word word_time(double ns);                /* 1.23 ms */
struct word word_bytes(double bytes);            /* 1.50 MiB */
struct word word_count(int64_t n);               /* 12 345 */
struct word word_fixed(double value, int decimals);
struct word word_at(double value); /* of a picture: 12.3 */

/* What sections ask again and again. */
struct page {
	struct html html;
	const struct prefill_report *report;
	const struct prefill_shape *shape;
	struct prefill_totals totals[PREFILL_MAX_RUNS];
	int32_t n_runs;
	int32_t off;       /* run without a balancer; -1 */
	int32_t best;      /* run with the least ratio after */
	int32_t foreseer;  /* run whose predictions are drawn; -1 */
	int32_t step;      /* drawn alone: its imbalance is the usual one */
	int32_t n_counted; /* steps in totals; 0: all were warm-up */
	int n_cores;
};

/* Fills all but html. */
void page_open(struct page *page, const struct prefill_report *report);
/* prefill_sum and prefill_sum_layer, with NAN where there is no mean. */
void page_sum(const struct page *page, int32_t run, int32_t text,
              struct prefill_totals *totals);
void page_sum_layer(const struct page *page, int32_t run, int32_t layer,
                    struct prefill_totals *totals);
/* Is the step in totals? All are, where all were warm-up. */
bool page_counts(const struct page *page, int32_t step);
/* Is there another run to compare this one with? */
bool page_compares(const struct page *page, int32_t run);
/* The run's name behind the mark of its policy. */
void page_run_name(struct page *page, int32_t run);

/* Sections, in their order. */
void page_style(struct page *page);
void page_head(struct page *page);
void page_facts(struct page *page);
void page_bits(struct page *page);
void page_even(struct page *page);
void page_cost(struct page *page);
void page_foreseen(struct page *page);
void page_time(struct page *page);
void page_numbers(struct page *page);

/* Parts of them. */
void page_heat(struct page *page);
void page_by_text(struct page *page);
void page_scatter(struct page *page);
void page_lanes(struct page *page);

/* Opens a section with its question, and closes it. */
void section_open(struct page *page, const char *id, const char *question);
void section_close(struct page *page);

/* <details> with a table of these columns, NULL at the end; rows follow. */
void table_open(struct page *page, const char *summary, const char *caption,
                const char *const *columns);
void table_close(struct page *page);
/* A table that is there without being asked for. */
void table_open_bare(struct page *page, const char *caption,
                     const char *const *columns);
void table_close_bare(struct page *page);
void table_cell(struct page *page, const char *text);

#endif
