/* SPDX-License-Identifier: Apache-2.0 */
/* The report's first question: what was run? */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "prefill_html.h"
#include "prefill_words.h"

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

static void fact_open(struct page *page, const char *what)
{
	html_put(&page->html, "<div>");
	html_element(&page->html, "dt", what);
	html_put(&page->html, "<dd>");
}

static void fact_close(struct page *page)
{
	html_put(&page->html, "</dd></div>\n");
}

static const char *type_text(enum lm_type type)
{
	switch (type) {
	case LM_F32:
		return "fp32";
	case LM_BF16:
		return "bf16";
	case LM_F16:
		return "fp16";
	default:
		return "";
	}
}

static void fact_model(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_shape *const shape = page->shape;
	const struct lm_model *const model = page->report->job->model;

	fact_open(page, "Model");
	html_element(h, "bdi class=\"file\"", shape->model ? shape->model : "");
	html_put(h,
	         "<br />%d layer%s with %d experts each, top" HYPHEN
	         "%d, hidden "
	         "%d, "
	         "vocabulary %s",
	         shape->n_layers, plural(shape->n_layers), shape->n_experts,
	         shape->topk, shape->hidden, word_count(shape->vocab).text);
	if (model)
		html_put(h,
		         "; %s parameters, %s in files; an expert has %s as %s",
		         word_count(model->n_parameters).text,
		         word_bytes((double)model->file_bytes).text,
		         word_bytes((double)shape->expert_bytes).text,
		         type_text(model->expert_type));
	fact_close(page);
}

static const char *order_text(enum prefill_order order)
{
	switch (order) {
	case PREFILL_BY_TEXT:
		return ", one text after the other";
	case PREFILL_MIXED:
		return ", texts in turn";
	case PREFILL_BLENDED:
		return ", each with sequences of several texts";
	}
	return "";
}

static void fact_texts(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_shape *const shape = page->shape;
	const int32_t warm = shape->n_steps - page->n_counted;

	fact_open(page, "Texts");
	for (int32_t i = 0; i < shape->n_texts; i++) {
		html_put(h, "%s", i ? ", " : "");
		html_element(h, "bdi class=\"file\"", shape->texts[i]);
		if (page->n_counted &&
		    !prefill_text_amount(shape, page->report->runs, i)
		             .n_counted)
			html_put(h, " (warm-up only)");
	}
	html_put(h,
	         "<br />%d step%s of up to %d sequence%s, at most %d "
	         "tokens each%s",
	         shape->n_steps, plural(shape->n_steps), shape->batch,
	         plural(shape->batch), shape->length, order_text(shape->order));
	if (!page->n_counted)
		html_put(h, "; all are warm-up, so that there are no totals");
	else if (warm)
		html_put(h, "; the first %s not counted below",
		         warm == 1 ? "one, to warm up, is"
		                   : "ones, to warm up, are");
	fact_close(page);
}

static void fact_ranks(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_job *const job = page->report->job;
	const int32_t n = page->shape->n_ranks;

	fact_open(page, "Ranks");
	html_put(h, "%d %s over ", n,
	         job->threads ? n == 1 ? "thread" : "threads"
	         : n == 1     ? "process"
	                      : "processes");
	html_text(h, prefill_fabric(job));
	html_put(h, ", on %d core%s", page->n_cores, plural(page->n_cores));
	if (job->start == PREFILL_START_HOT)
		html_put(h, "; a bad start on purpose: the hottest experts "
		            "together on the first ranks");
	fact_close(page);
}

static void fact_window(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_job *const job = page->report->job;
	const int32_t spare = page->shape->replicas;

	fact_open(page, "May move");
	if (job->budget_ns < 0)
		html_put(h,
		         "what fits into the time of attention, as measured");
	else if (job->budget_ns == INT64_MAX)
		html_put(h, "as much as pays, without a limit of time");
	else
		html_put(h, "what fits into %s a layer",
		         word_time((double)job->budget_ns).text);
	if (spare)
		html_put(h,
		         "; %d spare slot%s on each rank and layer for "
		         "copies of hot experts",
		         spare, plural(spare));
	fact_close(page);
}

/* What a policy does, in one line. */
static const char *policy_text(enum ferry_balance_policy policy)
{
	switch (policy) {
	case FERRY_BALANCE_OFF:
		return "experts stay where they were at the start";
	case FERRY_BALANCE_EPLB:
		return "now and then experts are placed anew, from loads of "
		       "the "
		       "past; hot ones get copies where there are spare slots";
	case FERRY_BALANCE_FREEBALANCE:
		return "experts swap ranks in every layer, from predicted "
		       "loads, by the rule of the FreeBalance paper";
	case FERRY_BALANCE_EPLB_FREEBALANCE:
		return "eplb, and the swaps of freebalance in between";
	case FERRY_BALANCE_FERRY:
		return "experts swap ranks in every layer, from predicted "
		       "loads, by Ferry's own planner; hot ones get copies "
		       "where there are spare slots";
	case FERRY_BALANCE_EPLB_FERRY:
		return "eplb, and the swaps and copies of ferry in between";
	}
	return "";
}

static void fact_policies(struct page *page)
{
	struct html *const h = &page->html;

	fact_open(page, page->n_runs == 1 ? "Policy" : "Policies");
	html_put(h, "<ul class=\"policies\">\n");
	for (int32_t i = 0; i < page->n_runs; i++) {
		html_put(h, "<li>");
		page_run_name(page, i);
		html_put(h, " <span class=\"soft\">%s</span></li>\n",
		         policy_text(page->report->runs[i].policy));
	}
	html_put(h, "</ul>");
	fact_close(page);
}

/* As a shell takes it again, to be freed. */
static char *quoted(const char *text)
{
	static const char special[] = " \t\n\"'\\$`<>|&;()*?[]#~!{}";
	char *const out = alloc_or_exit(4 * strlen(text) + 3, 1);
	char *to = out;

	if (*text && !text[strcspn(text, special)])
		return strcpy(out, text);
	*to++ = '\'';
	for (; *text; text++) {
		if (*text == '\'')
			to = stpcpy(to, "'\\'");
		*to++ = *text;
	}
	*to = '\'';
	return out;
}

static void fact_command(struct page *page)
{
	struct html *const h = &page->html;
	const struct prefill_report *const report = page->report;

	fact_open(page, "Command");
	html_put(h, "<code>");
	html_text(h, report->job->name ? report->job->name : "ferry prefill");
	for (int i = 1; i < report->argc; i++) {
		char *const word = quoted(report->argv[i]);

		html_put(h, " ");
		html_element(h, "span", word);
		free(word);
	}
	html_put(h, "</code>");
	fact_close(page);
}

/* What times of ranks that share cores do not say. */
static void note_cores(struct page *page)
{
	struct html *const h = &page->html;
	const int n = page->shape->n_ranks;

	if (n == 1 || 2 * n <= page->n_cores)
		return;
	html_put(h, "<p class=\"note\"><strong>About the times:</strong> ");
	if (n > page->n_cores)
		html_put(h,
		         "%d ranks share %d core%s here and take turns. Even "
		         "ranks cannot make that faster: the work of all "
		         "ranks together stays the same, and balancing adds "
		         "some. What else runs on the machine shows, too. "
		         "Read the times as costs, and the load ratios as "
		         "what ranks with cores of their own would gain.",
		         n, page->n_cores, plural(page->n_cores));
	else
		html_put(h,
		         "each rank has a core, but not a second one for the "
		         "thread that predicts and moves experts: that work "
		         "is not hidden here, it takes time from attention.");
	html_put(h, "</p>\n");
}

void page_facts(struct page *page)
{
	section_open(page, "run", "What was run?");
	html_put(&page->html, "<dl class=\"facts\">\n");
	fact_model(page);
	fact_texts(page);
	fact_ranks(page);
	fact_policies(page);
	fact_window(page);
	fact_command(page);
	html_put(&page->html, "</dl>\n");
	note_cores(page);
	section_close(page);
}
