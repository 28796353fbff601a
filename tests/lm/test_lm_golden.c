/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of models/ on a piece of each text, against what transformers'
 * Qwen3MoeForCausalLM says in fp32: golden_logits.json, written by
 * models/train/compare.py.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc.h"
#include "lm_blas.h"
#include "lm_layer.h"
#include "lm_tokenizer.h"
#include "tiny_model.h"

/* Of logits: sums have other orders there, and angles are of fp32. */
static const double tolerance = 1e-4;

static struct lm_model model;
static struct lm_tokenizer *tokenizer;
static cJSON *golden;

static const cJSON *item(const cJSON *object, const char *name)
{
	const cJSON *const found = cJSON_GetObjectItem(object, name);

	if (!found)
		fail_msg("no %s in golden_logits.json", name);
	return found;
}

static double number(const cJSON *array, int32_t i)
{
	return cJSON_GetArrayItem(array, i)->valuedouble;
}

/* What comes out for one piece of text. */
struct result {
	int32_t n;
	float *logits;           /* [n][vocab] */
	int32_t experts[64][64]; /* [layer][topk] of the last token */
};

/* An lm_visit. */
static void keep_last(void *arg, int32_t layer, const int32_t *ids)
{
	struct result *const r = arg;
	const int32_t topk = model.config.topk;

	memcpy(r->experts[layer], ids + (r->n - 1) * topk,
	       (size_t)topk * sizeof(*ids));
}

static void run(const int32_t *ids, struct result *r)
{
	const struct lm_batch batch = {1, &r->n, ids};
	const size_t n = (size_t)r->n;
	float *const h = alloc_or_exit(n * (size_t)model.config.hidden, 4);
	struct lm_work *work;
	struct fault fault;

	r->logits = alloc_or_exit(n * (size_t)model.config.vocab, 4);
	if (!lm_work_open(&model, r->n, r->n, &work, &fault) ||
	    !lm_forward(&model, work, &batch, h, keep_last, r, &fault))
		fail_msg("%s", fault.text);
	lm_head(&model, work, h, r->n, r->logits);
	lm_work_close(work);
	free(h);
}

static void assert_close(double x, double right, double bound, const char *what)
{
	if (!(fabs(x - right) <= bound))
		fail_msg("%s: %.7g, should be %.7g", what, x, right);
}

/* Logits of the last position, where the file has them. */
static void check_logits(const cJSON *domain, const struct result *r,
                         const char *ids_name, const char *logits_name)
{
	const cJSON *const ids = item(domain, ids_name);
	const cJSON *const logits = item(domain, logits_name);
	const float *const last =
		r->logits + (size_t)(r->n - 1) * (size_t)model.config.vocab;

	assert_true(cJSON_GetArraySize(ids) > 0);
	for (int32_t i = 0; i < cJSON_GetArraySize(ids); i++)
		assert_close((double)last[(int32_t)number(ids, i)],
		             number(logits, i), tolerance, logits_name);
}

static void check_sums(const cJSON *domain, const struct result *r,
                       const int32_t *ids)
{
	const int32_t vocab = model.config.vocab;
	double sum = 0;

	for (int32_t i = 0; i < vocab; i++)
		sum += (double)r->logits[(size_t)(r->n - 1) * (size_t)vocab +
		                         (size_t)i];
	assert_close(sum, item(domain, "sum")->valuedouble,
	             vocab * tolerance / 10, "sum of logits");
	assert_close(lm_nll(r->logits, r->n - 1, vocab, ids + 1) / (r->n - 1),
	             item(domain, "mean_nll")->valuedouble, 2e-5, "mean NLL");
}

/* Those of transformers that are not chosen here: near ties may be. */
static int32_t missing(const cJSON *experts, const struct result *r)
{
	int32_t n = 0;

	for (int32_t l = 0; l < model.config.n_layers; l++) {
		const cJSON *const right = cJSON_GetArrayItem(experts, l);

		assert_int_equal(cJSON_GetArraySize(right), model.config.topk);
		for (int32_t i = 0; i < model.config.topk; i++) {
			bool found = false;

			for (int32_t k = 0; k < model.config.topk; k++)
				found |= r->experts[l][k] ==
				         (int32_t)number(right, i);
			n += !found;
		}
	}
	return n;
}

/* Ids as the tokenizer gives them, and as the file has them. */
static int32_t *piece_ids(const cJSON *domain, int32_t *n)
{
	const char *const text = item(domain, "text")->valuestring;
	const cJSON *const right = item(domain, "ids");
	struct fault fault;
	int32_t *ids;
	int64_t n_ids;

	if (!lm_tokenizer_encode(tokenizer, "text", text, (int64_t)strlen(text),
	                         &ids, &n_ids, &fault))
		fail_msg("%s", fault.text);
	assert_int_equal(n_ids, cJSON_GetArraySize(right));
	for (int32_t i = 0; i < n_ids; i++)
		assert_int_equal(ids[i], (int32_t)number(right, i));
	*n = (int32_t)n_ids;
	return ids;
}

static void check_domain(const cJSON *domain)
{
	struct result r;
	int32_t *const ids = piece_ids(domain, &r.n);

	run(ids, &r);
	check_logits(domain, &r, "top_ids", "top_logits");
	check_logits(domain, &r, "fixed_ids", "fixed_logits");
	check_sums(domain, &r, ids);
	const int32_t n_missing = missing(item(domain, "experts"), &r);

	printf("%s: %d tokens, %d experts chosen differently\n", domain->string,
	       r.n, n_missing);
	assert_true(n_missing <= 1);
	free(r.logits);
	free(ids);
}

static void test_golden(void **state)
{
	const cJSON *domain;
	int32_t n = 0;

	(void)state;
	cJSON_ArrayForEach(domain, item(golden, "domains"))
	{
		check_domain(domain);
		n++;
	}
	assert_true(n >= 6);
}

static int open_all(void **state)
{
	static const char directory[] = FERRY_MODELS "/ferry-tiny-moe";
	struct fault fault;

	size_t n;
	char *const text =
		tiny_file_read(FERRY_LM_DATA, "golden_logits.json", &n);

	(void)state;
	golden = cJSON_ParseWithLength(text, n);
	free(text);
	assert_non_null(golden);
	if (!lm_model_open(directory, &model, &fault) ||
	    !lm_tokenizer_open(directory, &tokenizer, &fault)) {
		fprintf(stderr, "%s\n", fault.text);
		return 1;
	}
	assert_true(model.config.n_layers <= 64 && model.config.topk <= 64);
	return 0;
}

static int close_all(void **state)
{
	(void)state;
	cJSON_Delete(golden);
	lm_tokenizer_close(tokenizer);
	lm_model_close(&model);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
	};

	struct fault fault;

	if (!lm_blas_open(&fault)) {
		printf("%s\n", fault.text);
		return 1;
	}
	return cmocka_run_group_tests(tests, open_all, close_all);
}
