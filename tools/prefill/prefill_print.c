/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of ferry prefill, in the manner of nccl-tests. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "../about.h"
#include "../shown.h"
#include "prefill.h"
#include "prefill_words.h"

/* A number in a column, or a dash where there is none. */
static void column(bool known, int width, int digits, double value)
{
	if (known)
		printf(" %*.*f", width, digits, value);
	else
		printf(" %*s", width, "-");
}

enum { NAME_COLUMNS = 24 };

/* As much of a name as has room, by characters, and blanks behind it. */
static void name_column(const char *name)
{
	size_t bytes = 0;
	int columns = 0;

	for (; columns < NAME_COLUMNS && name[bytes]; columns++) {
		const size_t n = shown_character(name + bytes);

		bytes += n ? n : 1;
	}
	printf("  %.*s%*s", (int)bytes, name, NAME_COLUMNS - columns, "");
}

static double mean_us(int64_t ns, int64_t n)
{
	return n ? (double)ns / 1e3 / (double)n : 0;
}

static void print_model(const struct prefill_report *r)
{
	const struct prefill_shape *const shape = r->job->shape;
	const struct lm_model *const model = r->job->model;
	char expert[32], file[32];

	prefill_bytes(shape->expert_bytes, expert);
	prefill_bytes(model->file_bytes, file);
	printf("# model    %s: %d layers, hidden %d, top-%d of %d experts of "
	       "%s\n#          %.2f M parameters, %s mapped, rope_theta %g, "
	       "norm_topk_prob %s\n",
	       shape->model, shape->n_layers, shape->hidden, shape->topk,
	       shape->n_experts, expert, (double)model->n_parameters / 1e6,
	       file, model->config.rope_theta,
	       model->config.norm_topk ? "true" : "false");
}

static void print_budget(const struct prefill_report *r)
{
	const struct prefill_job *const job = r->job;
	char budget[32], swaps[16];

	prefill_budget(job, budget);
	prefill_swaps(job, swaps);
	printf("# budget   window %s, %s swaps, replicas %d, split %s, "
	       "calibrate %s, margin %g\n",
	       budget, swaps, job->shape->replicas,
	       prefill_split_names[job->split],
	       prefill_switch_names[job->calibrate],
	       (double)job->margin_ppm / 1e6);
}

static void print_texts(const struct prefill_shape *shape,
                        const struct prefill_run *run)
{
	for (int32_t t = 0; t < shape->n_texts; t++) {
		const struct prefill_amount n =
			prefill_text_amount(shape, run, t);

		printf("# text     %s: %" PRId64 " tokens in %d sequence%s%s",
		       shape->texts[t], n.n_tokens, n.n_sequences,
		       n.n_sequences == 1 ? "" : "s",
		       n.n_counted ? "" : ", all warm-up: not counted");
		if (n.n_counted && n.n_counted < n.n_tokens)
			printf(", %" PRId64 " of them counted", n.n_counted);
		puts("");
	}
}

static void print_steps(const struct prefill_shape *shape)
{
	const int32_t warm_up = prefill_n_warm_up(shape);

	printf("# steps    %d (%s), of up to %d sequences of up to %d tokens",
	       shape->n_steps, prefill_order_names[shape->order], shape->batch,
	       shape->length);
	if (warm_up)
		printf(", warm-up %d", warm_up);
	puts("");
}

/* What bits are compared with; NULL: nothing. */
static const char *truth(const struct prefill_report *r)
{
	return r->checked      ? "a run without ranks"
	       : r->n_runs > 1 ? "the first run"
	                       : NULL;
}

static void print_bits(const struct prefill_report *r)
{
	const char *const with = truth(r);

	if (with)
		printf("# bits     %s of each sequence, compared with %s\n",
		       r->job->shape->all_logits
		               ? "logits"
		               : "hidden states and last logits",
		       with);
	else
		puts("# bits     not compared: one run, and no --check");
}

void prefill_print_header(const struct prefill_report *r)
{
	const struct prefill_job *const job = r->job;

	about_print();
	print_model(r);
	printf("# ranks    %d %s on fabric %s, experts start %s\n",
	       job->shape->n_ranks, job->threads ? "threads" : "processes",
	       prefill_fabric(job), prefill_start_names[job->start]);
	print_budget(r);
	print_texts(job->shape, &r->runs[0]);
	print_steps(job->shape);
	print_bits(r);
	fflush(stdout);
}

static void print_layer(const struct prefill_shape *shape,
                        const struct prefill_run *run, int32_t layer)
{
	static const enum prefill_stage stages[] = {
		PREFILL_ATTENTION, PREFILL_DISPATCH, PREFILL_EXPERTS,
		PREFILL_COMBINE};
	static const int widths[] = {9, 8, 8, 7};
	struct prefill_totals t;

	prefill_sum_layer(shape, run, layer, &t);
	const bool foreseen = t.n_predicted > 0;
	const bool pays = foreseen || t.migrate_ns || t.exposed_ns;
	const int64_t n = t.n_steps;

	printf("%7d", layer);
	column(true, 6, 3, t.ratio_before);
	column(true, 6, 3, t.ratio_after);
	column(foreseen, 7, 3, t.ratio_predicted_before);
	column(foreseen, 6, 3, t.ratio_predicted_after);
	column(foreseen, 7, 3, t.hidden_cosine);
	column(foreseen, 6, 3, t.logit_cosine);
	column(foreseen, 6, 3, t.topk_hit);
	column(true, 6, 2, t.moves_mean);
	column(t.window_ns >= 0, 7, 0, (double)t.window_ns / 1e3);
	column(pays, 7, 0, mean_us(t.hidden_ns, n));
	column(pays, 7, 0, mean_us(t.exposed_ns, n));
	for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++)
		column(true, widths[i], 0, mean_us(t.stage_ns[stages[i]], n));
	putchar('\n');
}

void prefill_print_run(const struct prefill_report *r,
                       const struct prefill_run *run)
{
	printf("#\n# %s: means over steps; times of the slowest rank, "
	       "microseconds\n",
	       run->name);
	puts("#       ratio         predicted      cosine         top-k       "
	     "          migration       stages\n"
	     "# layer before  after   found planned state  logit    hit  moves"
	     "  window  hidden exposed attention dispatch  experts combine");
	for (int32_t l = 0; l < r->job->shape->n_layers; l++)
		print_layer(r->job->shape, run, l);
	fflush(stdout);
}

/* "+3.1%" against the run that balances nothing, and its standard error. */
static void print_against(const struct prefill_report *r,
                          const struct prefill_run *run, int32_t text)
{
	struct prefill_change change = {false, 0, 0};

	for (int32_t i = 0; i < r->n_runs; i++)
		if (r->runs[i].policy == FERRY_BALANCE_OFF &&
		    run != &r->runs[i])
			change = prefill_compare_times(r->job->shape, run,
			                               &r->runs[i], text);
	if (change.known)
		printf(" %+6.1f%% %5.1f", 100 * change.share,
		       100 * change.error);
	else
		printf(" %7s %5s", "-", "-");
}

static void print_verdict(const struct prefill_report *r,
                          const struct prefill_run *run)
{
	if (!truth(r))
		puts(" -");
	else if (run->bits_equal)
		puts(" equal");
	else
		printf(" %" PRId64 " differ\n", run->n_differ);
}

static void print_total(const struct prefill_report *r,
                        const struct prefill_run *run)
{
	struct prefill_totals t;

	prefill_sum(r->job->shape, run, -1, &t);
	printf("  %-16s %6.3f %6.3f %6.3f %6.3f", run->name, t.ratio_before,
	       t.ratio_before_worst, t.ratio_after, t.ratio_after_worst);
	column(t.n_predicted > 0, 6, 3, t.topk_hit);
	column(true, 6, 2, t.moves_mean);
	column(true, 7, 2, prefill_fetched(r->job->shape, &t));
	printf(" %5.0f%%", 100 * prefill_share(t.n_moved, t.n_cells));
	column(t.n_moved > 0, 7, 1,
	       100 * prefill_share(t.n_improved, t.n_moved));
	printf("%s %8.2f %9.2f", t.n_moved ? "%" : " ",
	       (double)t.exposed_ns / 1e6, (double)t.total_ns / 1e6);
	print_against(r, run, -1);
	column(r->job->shape->all_logits, 7, 4, t.nll_mean);
	print_verdict(r, run);
}

static void print_text_row(const struct prefill_report *r, int32_t text,
                           const struct prefill_run *run)
{
	struct prefill_totals t;

	prefill_sum(r->job->shape, run, text, &t);
	name_column(r->job->shape->texts[text]);
	printf(" %-16s", run->name);
	column(t.n_cells > 0, 6, 3, t.ratio_before);
	column(t.n_cells > 0, 6, 3, t.ratio_after);
	column(t.n_predicted > 0, 6, 3, t.topk_hit);
	column(t.n_cells > 0, 6, 2, t.moves_mean);
	printf(" %8" PRId64, t.n_tokens);
	column(t.n_cells > 0, 9, 2, (double)t.total_ns / 1e6);
	print_against(r, run, text);
	column(r->job->shape->all_logits && t.n_tokens > 0, 7, 4, t.nll_mean);
	putchar('\n');
}

static void print_by_text(const struct prefill_report *r)
{
	if (r->job->shape->n_texts < 2)
		return;
	puts("#\n"
	     "#                                           ratio         top-k"
	     "                       ms                    nats/\n"
	     "# text                     policy           before  after    hit"
	     "  moves   tokens     total  vs off    +-   token");
	for (int32_t t = 0; t < r->job->shape->n_texts; t++)
		for (int32_t i = 0; i < r->n_runs; i++)
			print_text_row(r, t, &r->runs[i]);
}

/* Times of ranks without a core of their own. */
static void print_turns(const struct prefill_report *r)
{
	const int32_t n = r->job->shape->n_ranks;
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (cores > 0 && n > cores)
		printf("# %d ranks take turns on %ld core%s: times are no "
		       "measure of what balance saves\n",
		       n, cores, cores == 1 ? "" : "s");
}

void prefill_print_totals(const struct prefill_report *r)
{
	int64_t wrong = 0;

	print_by_text(r);
	puts("#\n"
	     "# ratio: fullest rank over mean, of all layers and counted "
	     "steps; moves: swaps and copies\n"
	     "# of plans; fetched: experts that ranks got of others, for "
	     "placements by history, too;\n"
	     "# both of a layer in a step; improved: of the layers that moved "
	     "some; +-: standard error\n"
	     "# of vs off, over steps");
	print_turns(r);
	puts("#\n"
	     "#                  ratio before  ratio after  top-k              "
	     "    layers          ms                               nats/\n"
	     "# policy             mean  worst   mean  worst    hit  moves "
	     "fetched  moved improved exposed     total  vs off    +-   token "
	     "bits");
	for (int32_t i = 0; i < r->n_runs; i++) {
		print_total(r, &r->runs[i]);
		wrong += r->runs[i].n_differ;
	}
	printf("# %" PRId64 " wrong\n", wrong);
}
