/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of ferry prefill; its manual page describes every member. */
#include "../about.h"
#include "../json.h"
#include "prefill.h"
#include "prefill_words.h"

static void add_us(cJSON *o, const char *name, int64_t ns)
{
	json_add_rounded(o, name, (double)ns / 1e3);
}

/* A ratio, or null where there is none. */
static void add_known(cJSON *o, const char *name, bool known, double value)
{
	if (known)
		json_add_ratio(o, name, value);
	else
		cJSON_AddNullToObject(o, name);
}

static void add_predictions(cJSON *o, const struct prefill_totals *t)
{
	const bool known = t->n_predicted > 0;

	json_add_ratio(o, "predicted_share",
	               prefill_share(t->n_predicted, t->n_cells));
	add_known(o, "ratio_predicted_before", known,
	          t->ratio_predicted_before);
	add_known(o, "ratio_predicted_after", known, t->ratio_predicted_after);
	add_known(o, "topk_hit", known, t->topk_hit);
	add_known(o, "hidden_cosine", known, t->hidden_cosine);
	add_known(o, "logit_cosine", known, t->logit_cosine);
}

static void add_times(cJSON *o, const struct prefill_totals *t)
{
	if (t->window_ns >= 0)
		add_us(o, "window_us", t->window_ns);
	else
		cJSON_AddNullToObject(o, "window_us");
	add_us(o, "plan_us", t->plan_ns);
	add_us(o, "migrate_us", t->migrate_ns);
	add_us(o, "hidden_us", t->hidden_ns);
	add_us(o, "exposed_us", t->exposed_ns);
	add_us(o, "wait_us", t->wait_ns);
	json_add_rounded(o, "total_ms", (double)t->total_ns / 1e6);
	cJSON *const stages = cJSON_AddObjectToObject(o, "stage_us");

	for (int s = 0; s < PREFILL_N_STAGES; s++)
		add_us(stages, prefill_stage_names[s], t->stage_ns[s]);
}

/* Sums and means of a run or of a text in it. */
static void add_totals(cJSON *o, const struct prefill_shape *shape,
                       const struct prefill_totals *t)
{
	const bool known = t->n_cells > 0;

	cJSON_AddNumberToObject(o, "steps", (double)t->n_steps);
	cJSON_AddNumberToObject(o, "tokens", (double)t->n_tokens);
	add_known(o, "ratio_before", known, t->ratio_before);
	add_known(o, "ratio_after", known, t->ratio_after);
	add_known(o, "ratio_before_worst", known, t->ratio_before_worst);
	add_known(o, "ratio_after_worst", known, t->ratio_after_worst);
	add_known(o, "ratio_stay", known, t->ratio_stay);
	add_predictions(o, t);
	json_add_ratio(o, "moves_mean", t->moves_mean);
	json_add_ratio(o, "experts_fetched_mean", prefill_fetched(shape, t));
	json_add_ratio(o, "layers_moved_share",
	               prefill_share(t->n_moved, t->n_cells));
	add_known(o, "layers_improved_share", t->n_moved > 0,
	          prefill_share(t->n_improved, t->n_moved));
	cJSON_AddNumberToObject(o, "moved_bytes", (double)t->moved_bytes);
	add_times(o, t);
	add_known(o, "nll_mean", shape->all_logits && t->n_tokens > 0,
	          t->nll_mean);
}

/* Arrays over layers: each layer's members become elements. */
static void append(cJSON *arrays, cJSON *one)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, one)
	{
		cJSON *array = cJSON_GetObjectItem(arrays, item->string);

		if (cJSON_IsObject(item)) {
			if (!array)
				array = cJSON_AddObjectToObject(arrays,
				                                item->string);
			append(array, cJSON_GetObjectItem(one, item->string));
			continue;
		}
		if (!array)
			array = cJSON_AddArrayToObject(arrays, item->string);
		cJSON_AddItemToArray(array, cJSON_Duplicate(item, true));
	}
}

/* Of a layer in a step: what is the run's, as tokens, is left out. */
static cJSON *layer_json(const struct prefill_totals *t)
{
	struct prefill_totals mean = *t;
	cJSON *const o = cJSON_CreateObject();
	int64_t *const sums[] = {&mean.plan_ns, &mean.migrate_ns,
	                         &mean.hidden_ns, &mean.exposed_ns,
	                         &mean.wait_ns};

	for (size_t i = 0; t->n_steps && i < sizeof(sums) / sizeof(*sums); i++)
		*sums[i] /= t->n_steps;
	for (int s = 0; t->n_steps && s < PREFILL_N_STAGES; s++)
		mean.stage_ns[s] /= t->n_steps;
	json_add_ratio(o, "ratio_before", t->ratio_before);
	json_add_ratio(o, "ratio_after", t->ratio_after);
	add_predictions(o, t);
	json_add_ratio(o, "moves_mean", t->moves_mean);
	add_times(o, &mean);
	cJSON_DeleteItemFromObject(o, "total_ms");
	return o;
}

static void add_layers(cJSON *o, const struct prefill_shape *shape,
                       const struct prefill_run *run)
{
	cJSON *const layers = cJSON_AddObjectToObject(o, "layers");

	for (int32_t l = 0; l < shape->n_layers; l++) {
		struct prefill_totals t;

		prefill_sum_layer(shape, run, l, &t);
		cJSON *const one = layer_json(&t);

		append(layers, one);
		cJSON_Delete(one);
	}
}

static void add_steps(cJSON *o, const struct prefill_shape *shape,
                      const struct prefill_run *run)
{
	cJSON *const steps = cJSON_AddObjectToObject(o, "steps_each");

	for (int32_t s = 0; s < shape->n_steps; s++) {
		struct prefill_totals t;
		cJSON *const one = cJSON_CreateObject();

		prefill_sum_step(shape, run, s, &t);
		json_add_ratio(one, "ratio_before", t.ratio_before);
		json_add_ratio(one, "ratio_after", t.ratio_after);
		json_add_rounded(one, "total_ms", (double)t.total_ns / 1e6);
		append(steps, one);
		cJSON_Delete(one);
	}
}

static void add_texts(cJSON *o, const struct prefill_shape *shape,
                      const struct prefill_run *run)
{
	cJSON *const array = cJSON_AddArrayToObject(o, "texts");

	for (int32_t i = 0; i < shape->n_texts; i++) {
		struct prefill_totals t;
		cJSON *const one = cJSON_CreateObject();

		prefill_sum(shape, run, i, &t);
		cJSON_AddStringToObject(one, "text", shape->texts[i]);
		add_totals(one, shape, &t);
		cJSON_AddItemToArray(array, one);
	}
}

/* Nothing was compared when there is one run only. */
static void add_bits(cJSON *o, const struct prefill_report *r, bool equal,
                     int64_t n_differ)
{
	if (!r->checked && r->n_runs < 2) {
		cJSON_AddNullToObject(o, "bits_equal");
		return;
	}
	cJSON_AddBoolToObject(o, "bits_equal", equal);
	cJSON_AddNumberToObject(o, "sequences_differ", (double)n_differ);
}

static cJSON *run_json(const struct prefill_report *r,
                       const struct prefill_run *run)
{
	const struct prefill_shape *const shape = r->job->shape;
	struct prefill_totals t;
	cJSON *const o = cJSON_CreateObject();

	prefill_sum(shape, run, -1, &t);
	cJSON_AddStringToObject(o, "balance", run->name);
	add_bits(o, r, run->bits_equal, run->n_differ);
	add_totals(o, shape, &t);
	add_layers(o, shape, run);
	add_texts(o, shape, run);
	add_steps(o, shape, run);
	return o;
}

static void add_model(cJSON *meta, const struct prefill_report *r)
{
	const struct lm_model *const model = r->job->model;
	const struct prefill_shape *const shape = r->job->shape;
	cJSON *const o = cJSON_AddObjectToObject(meta, "model");

	cJSON_AddStringToObject(o, "directory", shape->model);
	cJSON_AddNumberToObject(o, "layers", shape->n_layers);
	cJSON_AddNumberToObject(o, "hidden", shape->hidden);
	cJSON_AddNumberToObject(o, "experts", shape->n_experts);
	cJSON_AddNumberToObject(o, "topk", shape->topk);
	cJSON_AddNumberToObject(o, "expert_hidden",
	                        model->config.expert_hidden);
	cJSON_AddNumberToObject(o, "vocab", shape->vocab);
	cJSON_AddNumberToObject(o, "rope_theta", model->config.rope_theta);
	cJSON_AddBoolToObject(o, "norm_topk_prob", model->config.norm_topk);
	cJSON_AddNumberToObject(o, "expert_bytes", (double)shape->expert_bytes);
	cJSON_AddNumberToObject(o, "parameters", (double)model->n_parameters);
	cJSON_AddNumberToObject(o, "mapped_bytes", (double)model->file_bytes);
}

static void add_inputs(cJSON *meta, const struct prefill_report *r)
{
	const struct prefill_shape *const shape = r->job->shape;
	cJSON *const texts = cJSON_AddArrayToObject(meta, "texts");
	cJSON *const steps = cJSON_AddArrayToObject(meta, "steps");

	for (int32_t t = 0; t < shape->n_texts; t++) {
		const struct prefill_amount n =
			prefill_text_amount(shape, &r->runs[0], t);
		cJSON *const o = cJSON_CreateObject();

		cJSON_AddStringToObject(o, "text", shape->texts[t]);
		cJSON_AddNumberToObject(o, "tokens", (double)n.n_tokens);
		cJSON_AddNumberToObject(o, "sequences", n.n_sequences);
		cJSON_AddItemToArray(texts, o);
	}
	for (int32_t s = 0; s < shape->n_steps; s++) {
		const struct prefill_step *const step = &shape->steps[s];
		cJSON *const o = cJSON_CreateObject();

		cJSON_AddStringToObject(o, "text", step->name);
		cJSON_AddBoolToObject(o, "warm_up", step->warm_up);
		cJSON_AddNumberToObject(o, "tokens", step->n_tokens);
		cJSON_AddNumberToObject(o, "sequences", step->n_sequences);
		cJSON_AddItemToArray(steps, o);
	}
}

/* null: any. */
static void add_swaps(cJSON *meta, const struct prefill_job *job)
{
	if (job->max_swaps)
		cJSON_AddNumberToObject(
			meta, "swaps", job->max_swaps < 0 ? 0 : job->max_swaps);
	else
		cJSON_AddNullToObject(meta, "swaps");
}

/* "measured"; null: no limit. */
static void add_budget(cJSON *meta, const struct prefill_job *job)
{
	if (job->budget_ns < 0)
		cJSON_AddStringToObject(meta, "budget_us", "measured");
	else if (job->budget_ns == INT64_MAX)
		cJSON_AddNullToObject(meta, "budget_us");
	else
		add_us(meta, "budget_us", job->budget_ns);
}

static void add_question(cJSON *meta, const struct prefill_report *r)
{
	const struct prefill_job *const job = r->job;
	const struct prefill_shape *const shape = job->shape;

	cJSON_AddNumberToObject(meta, "ranks", shape->n_ranks);
	cJSON_AddStringToObject(meta, "fabric", prefill_fabric(job));
	cJSON_AddBoolToObject(meta, "threads", job->threads);
	cJSON_AddNumberToObject(meta, "batch", shape->batch);
	cJSON_AddNumberToObject(meta, "length", shape->length);
	cJSON_AddStringToObject(meta, "order",
	                        prefill_order_names[shape->order]);
	cJSON_AddNumberToObject(meta, "warm_up", prefill_n_warm_up(shape));
	add_budget(meta, job);
	add_swaps(meta, job);
	cJSON_AddNumberToObject(meta, "replicas", shape->replicas);
	cJSON_AddStringToObject(meta, "split", prefill_split_names[job->split]);
	json_add_ratio(meta, "threshold", (double)job->threshold_ppm / 1e6);
	cJSON_AddNumberToObject(meta, "recheck", job->recheck_steps);
	cJSON_AddNumberToObject(meta, "eplb_every", job->eplb_every);
	json_add_ratio(meta, "gamma",
	               job->gamma_milli > 0 ? job->gamma_milli / 1e3 : 0);
	cJSON_AddBoolToObject(meta, "calibrate", job->calibrate);
	json_add_ratio(meta, "margin", (double)job->margin_ppm / 1e6);
	cJSON_AddStringToObject(meta, "start", prefill_start_names[job->start]);
	cJSON_AddStringToObject(meta, "logits",
	                        prefill_logits_names[shape->all_logits]);
	cJSON_AddBoolToObject(meta, "check", r->checked);
}

/* What a script for one policy wants, without a loop. */
static void add_figures(cJSON *document, const struct prefill_report *r)
{
	const struct prefill_run *const last = &r->runs[r->n_runs - 1];
	int64_t n_differ = 0;
	struct prefill_totals t;

	prefill_sum(r->job->shape, last, -1, &t);
	for (int32_t i = 0; i < r->n_runs; i++)
		n_differ += r->runs[i].n_differ;
	add_bits(document, r, r->bits_equal, n_differ);
	cJSON_AddStringToObject(document, "balance", last->name);
	add_totals(document, r->job->shape, &t);
}

bool prefill_write_json(const struct prefill_report *r, const char *path)
{
	cJSON *const document = json_document("ferry-prefill-1");
	cJSON *const meta = cJSON_AddObjectToObject(document, "meta");

	about_json(meta, r->argc, r->argv);
	add_model(meta, r);
	add_question(meta, r);
	add_inputs(meta, r);
	add_figures(document, r);
	cJSON *const runs = cJSON_AddArrayToObject(document, "runs");

	for (int32_t i = 0; i < r->n_runs; i++)
		cJSON_AddItemToArray(runs, run_json(r, &r->runs[i]));
	return json_write(document, path);
}
