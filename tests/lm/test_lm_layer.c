/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages of a layer against double arithmetic, and their bits: a token's
 * depend on its sequence up to itself and on nothing else.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc.h"
#include "core/bits.h"
#include "cpu/kernels.h"
#include "lm_blas.h"
#include "lm_double.h"
#include "lm_layer.h"
#include "lm_made.h"
#include "support/test_seed.h"

static uint64_t seed;

static const struct lm_config small = {
	.n_layers = 2,
	.hidden = 48,
	.n_heads = 6,
	.n_kv_heads = 2,
	.head_dim = 10,
	.n_experts = 7,
	.topk = 3,
	.expert_hidden = 20,
	.vocab = 101,
	.max_length = 100,
	.norm_eps = 1e-6f,
	.rope_theta = 10000,
	.norm_topk = true,
};

/* A model with memory for batches. */
struct rig {
	struct lm_model model;
	struct lm_work *work;
};

static void rig_open(struct rig *r, const struct lm_config *config,
                     enum lm_type type, int32_t max_tokens)
{
	struct fault fault;

	lm_made_open(&r->model, config, type, rng_next(&seed));
	if (!lm_work_open(&r->model, max_tokens, config->max_length, &r->work,
	                  &fault))
		fail_msg("%s", fault.text);
}

static void rig_close(struct rig *r)
{
	lm_work_close(r->work);
	lm_made_close(&r->model);
}

static float *random_rows(int32_t n, int32_t hidden)
{
	float *const h = alloc_or_exit((size_t)n * (size_t)hidden, sizeof(*h));

	for (int32_t i = 0; i < n * hidden; i++)
		h[i] = lm_random_float(&seed);
	return h;
}

static double *doubles(const float *x, int32_t n)
{
	double *const y = alloc_or_exit((size_t)n, sizeof(*y));

	for (int32_t i = 0; i < n; i++)
		y[i] = (double)x[i];
	return y;
}

static void assert_near(const float *x, const double *y, int32_t n,
                        double bound)
{
	for (int32_t i = 0; i < n; i++)
		if (!(fabs((double)x[i] - y[i]) <= bound))
			fail_msg("element %d of %d: %g, should be %g", i, n,
			         (double)x[i], y[i]);
}

static void attention_is_near(const struct lm_config *config, int32_t length)
{
	struct rig r;
	const struct lm_batch batch = {1, &length, NULL};

	rig_open(&r, config, LM_BF16, length);
	float *const h = random_rows(length, config->hidden);
	double *const y = doubles(h, length * config->hidden);

	lm_attention(&r.model, r.work, 1, &batch, h);
	double_attention(&r.model, 1, y, length);
	assert_near(h, y, length * config->hidden, 1e-5);
	free(h);
	free(y);
	rig_close(&r);
}

static void test_attention(void **state)
{
	static const int32_t lengths[] = {1, 2, 15, 16, 17, 33, 100};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		attention_is_near(&small, lengths[i]);
}

/* Elements from a type on: every type, and sizes that no vector fits. */
static void test_expert(void **state)
{
	enum { ROWS = 37 };

	(void)state;
	for (int32_t type = 0; type < LM_N_TYPES; type++) {
		struct rig r;

		rig_open(&r, &small, (enum lm_type)type, ROWS);
		const struct lm_matrix *const m = r.model.layers[1].experts[3];
		const void *const tensors[] = {m[LM_GATE].data, m[LM_UP].data,
		                               m[LM_DOWN].data};
		float *const x = random_rows(ROWS, small.hidden);
		float *const y = random_rows(ROWS, small.hidden);
		double *const in = doubles(x, ROWS * small.hidden);
		double row[64];

		lm_expert(&r.model, r.work, tensors, x, ROWS, y);
		for (int32_t i = 0; i < ROWS; i++) {
			double_expert(m, in + i * small.hidden, row);
			assert_near(y + i * small.hidden, row, small.hidden,
			            1e-5);
		}
		free(x);
		free(y);
		free(in);
		rig_close(&r);
	}
}

static void test_head(void **state)
{
	enum { ROWS = 19 };
	struct rig r;
	double row[128];

	(void)state;
	rig_open(&r, &small, LM_BF16, ROWS);
	float *const h = random_rows(ROWS, small.hidden);
	float *const logits = random_rows(ROWS, small.vocab);
	double *const in = doubles(h, ROWS * small.hidden);

	lm_head(&r.model, r.work, h, ROWS, logits);
	for (int32_t i = 0; i < ROWS; i++) {
		double_head(&r.model, in + i * small.hidden, row);
		assert_near(logits + i * small.vocab, row, small.vocab, 1e-5);
	}
	free(h);
	free(logits);
	free(in);
	rig_close(&r);
}

static void test_nll(void **state)
{
	static const float logits[] = {1, 2, 3, -5, 0, 700};
	static const int32_t targets[] = {1, 2};
	const double first = log(exp(1) + exp(2) + exp(3)) - 2;

	(void)state;
	assert_true(fabs(lm_nll(logits, 2, 3, targets) - first) < 1e-6);
	assert_true(fabs(lm_nll(logits, 1, 3, targets) - first) < 1e-6);
}

/* Chosen experts of all layers: ids[layer][n][topk]. */
struct chosen {
	int32_t *ids;
	int32_t per_layer;
};

static void keep_chosen(void *arg, int32_t layer, const int32_t *ids)
{
	const struct chosen *const c = arg;

	memcpy(c->ids + layer * c->per_layer, ids,
	       (size_t)c->per_layer * sizeof(*ids));
}

/* h of a batch, which the caller frees. */
static float *forward(struct rig *r, const struct lm_batch *batch,
                      const struct chosen *chosen)
{
	float *const h =
		random_rows(lm_batch_tokens(batch), r->model.config.hidden);
	struct fault fault;

	if (!lm_forward(&r->model, r->work, batch, h,
	                chosen ? keep_chosen : NULL, (void *)(uintptr_t)chosen,
	                &fault))
		fail_msg("%s", fault.text);
	return h;
}

static void forward_is_near(const struct lm_config *config, int32_t length)
{
	struct rig r;
	struct chosen chosen = {NULL, length * config->topk};
	const int32_t n = length * config->hidden;
	double gap;

	rig_open(&r, config, LM_BF16, length);
	chosen.ids =
		alloc_or_exit((size_t)(config->n_layers * chosen.per_layer), 4);
	int32_t *const tokens = lm_made_tokens(&seed, length, config->vocab);
	double *const y = alloc_or_exit((size_t)n, sizeof(*y));
	const struct lm_batch batch = {1, &length, tokens};
	float *const h = forward(&r, &batch, &chosen);

	double_forward(&r.model, tokens, length, chosen.ids, y, &gap);
	assert_near(h, y, n, 3e-5);
	/* Chosen are the best, or as good to fp32. */
	assert_true(gap < 1e-5);
	free(tokens);
	free(chosen.ids);
	free(h);
	free(y);
	rig_close(&r);
}

static void test_forward(void **state)
{
	struct lm_config plain = small;

	(void)state;
	forward_is_near(&small, 50);
	plain.norm_topk = false;
	plain.topk = 1;
	plain.n_kv_heads = plain.n_heads;
	forward_is_near(&plain, 21);
}

static void assert_bits(const float *x, const float *y, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		if (memcmp(x + i, y + i, sizeof(*x)) != 0)
			fail_msg("element %d of %d: %a, should be %a", i, n,
			         (double)x[i], (double)y[i]);
}

/* One token's choices by the combine of the CPU engine. */
static void combine(const struct rig *r, const float *x, const int32_t *ids,
                    const float *weights, float *h)
{
	const size_t hidden = (size_t)r->model.config.hidden;
	float *const y = alloc_or_exit(FERRY_SUM_MAX * hidden, sizeof(*y));
	const void *rows[FERRY_SUM_MAX];

	for (int32_t k = 0; k < r->model.config.topk; k++) {
		const struct lm_matrix *const m =
			r->model.layers[0].experts[ids[k]];
		const void *const tensors[] = {m[LM_GATE].data, m[LM_UP].data,
		                               m[LM_DOWN].data};

		rows[k] = y + (size_t)k * hidden;
		lm_expert(&r->model, r->work, tensors, x, 1,
		          y + (size_t)k * hidden);
	}
	ferry_kernels_at(0)->sum(h, FERRY_FP32, rows, FERRY_FP32, weights,
	                         r->model.config.topk, h, hidden);
	free(y);
}

/* lm_forward has the bits of stages that are called one by one, of experts that
 * get single rows, and of the library's own combine. */
static void test_combine(void **state)
{
	enum { LENGTH = 41 };
	const int32_t length = LENGTH;
	struct lm_config config = small;
	struct rig r;
	struct fault fault;

	(void)state;
	config.n_layers = 1;
	rig_open(&r, &config, LM_BF16, LENGTH);
	int32_t *const tokens = lm_made_tokens(&seed, LENGTH, config.vocab);
	const struct lm_batch batch = {1, &length, tokens};
	float *const whole = forward(&r, &batch, NULL);
	float *const h = random_rows(LENGTH, config.hidden);
	float *const x = random_rows(LENGTH, config.hidden);
	float *const logits = random_rows(LENGTH, config.n_experts);
	float *const weights = random_rows(LENGTH, config.topk);
	int32_t ids[LENGTH * 3];

	lm_embed(&r.model, &batch, h);
	lm_attention(&r.model, r.work, 0, &batch, h);
	lm_router(&r.model, r.work, 0, h, LENGTH, x, logits);
	assert_true(lm_choose(&r.model, logits, LENGTH, ids, weights, &fault));
	for (int32_t i = 0; i < LENGTH; i++)
		combine(&r, x + i * config.hidden, ids + i * config.topk,
		        weights + i * config.topk, h + i * config.hidden);
	assert_bits(h, whole, LENGTH * config.hidden);
	free(tokens);
	free(whole);
	free(h);
	free(x);
	free(logits);
	free(weights);
	rig_close(&r);
}

/* The first tokens' results are those of the sequence that ends there. */
static void test_causal(void **state)
{
	enum { LENGTH = 67 };
	const int32_t whole = LENGTH;
	struct rig r;

	(void)state;
	rig_open(&r, &small, LM_BF16, LENGTH);
	int32_t *const tokens = lm_made_tokens(&seed, LENGTH, small.vocab);
	const struct lm_batch batch = {1, &whole, tokens};
	float *const h = forward(&r, &batch, NULL);

	for (int32_t length = 1; length < LENGTH; length++) {
		const struct lm_batch start = {1, &length, tokens};
		float *const part = forward(&r, &start, NULL);

		assert_bits(part, h, length * small.hidden);
		free(part);
	}
	free(tokens);
	free(h);
	rig_close(&r);
}

/* A rank without tokens. */
static void test_empty(void **state)
{
	const struct lm_batch batch = {0, NULL, NULL};
	struct rig r;
	float h = 1, x = 2, logits = 3, weight = 4;
	int32_t id = 5;
	struct fault fault;

	(void)state;
	rig_open(&r, &small, LM_BF16, 1);
	const void *const tensors[LM_EXPERT_TENSORS] = {NULL};

	lm_embed(&r.model, &batch, &h);
	lm_attention(&r.model, r.work, 0, &batch, &h);
	lm_router(&r.model, r.work, 0, &h, 0, &x, &logits);
	assert_true(lm_choose(&r.model, &logits, 0, &id, &weight, &fault));
	lm_expert(&r.model, r.work, tensors, &x, 0, &h);
	lm_head(&r.model, r.work, &h, 0, &logits);
	assert_true(lm_nll(&logits, 0, small.vocab, &id) == 0);
	assert_true(
		lm_forward(&r.model, r.work, &batch, &h, NULL, NULL, &fault));
	assert_true(h == 1 && x == 2 && logits == 3 && weight == 4 && id == 5);
	rig_close(&r);
}

/* Each sequence of a batch has the bits that it has alone. */
static void company_does_not_matter(struct rig *r, int32_t n_sequences)
{
	int32_t lengths[16], n = 0;

	for (int32_t s = 0; s < n_sequences; s++)
		n += lengths[s] = 1 + lm_random_below(&seed, small.max_length);
	int32_t *const tokens = lm_made_tokens(&seed, n, small.vocab);
	const struct lm_batch batch = {n_sequences, lengths, tokens};
	float *const h = forward(r, &batch, NULL);

	for (int32_t s = 0, at = 0; s < n_sequences; at += lengths[s++]) {
		const struct lm_batch single = {1, &lengths[s], tokens + at};
		float *const alone = forward(r, &single, NULL);

		assert_bits(h + at * small.hidden, alone,
		            lengths[s] * small.hidden);
		free(alone);
	}
	free(tokens);
	free(h);
}

static void test_company(void **state)
{
	struct rig r;

	(void)state;
	/* Room for fewer tokens than some batches have: several groups. */
	rig_open(&r, &small, LM_BF16, 150);
	for (int32_t n = 1; n <= 16; n += 3)
		company_does_not_matter(&r, n);
	rig_close(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_expert),
		cmocka_unit_test(test_head),
		cmocka_unit_test(test_nll),
		cmocka_unit_test(test_forward),
		cmocka_unit_test(test_combine),
		cmocka_unit_test(test_causal),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_company),
	};

	struct fault fault;

	if (!lm_blas_open(&fault)) {
		printf("%s\n", fault.text);
		return 1;
	}
	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
