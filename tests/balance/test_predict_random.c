/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry_predict_topk against the plain reference on random routers and logits,
 * and against a hash of its results that every machine must get.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include <ferry/predict.h>

#include "core/bits.h"
#include "core/number.h"
#include "predict_ref.h"
#include "test_seed.h"

enum {
	CASES = 600,
	TOKENS = 17,
	TOPK = 64,
};

static uint64_t seed;

static int32_t pick(uint64_t *rng, int32_t n)
{
	return (int32_t)(rng_next(rng) % (uint64_t)n);
}

static double uniform(uint64_t *rng)
{
	return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

/* Denormals become 0 wherever they are read or made; x86-64 only. */
static void set_flushing(bool on)
{
#ifdef __SSE2__
	const unsigned int bits = 0x8040;

	_mm_setcsr(on ? _mm_getcsr() | bits : _mm_getcsr() & ~bits);
#else
	(void)on;
#endif
}

static const int32_t sizes[] = {1,  2,  3,  5,   8,   15,  16,  17,  32,
                                60, 64, 96, 128, 160, 255, 256, 384, 512};

static void random_router(uint64_t *rng, struct ferry_router *r, float *bias)
{
	const int32_t n = sizes[pick(rng, sizeof(sizes) / sizeof(sizes[0]))];
	const int32_t most = n < TOPK ? n : TOPK;

	*r = (struct ferry_router)FERRY_ROUTER_INIT;
	r->n_experts = n;
	r->topk = 1 + pick(rng, pick(rng, 3) && most > 10 ? 10 : most);
	r->score = pick(rng, 2) ? FERRY_SCORE_SIGMOID : FERRY_SCORE_SOFTMAX;
	r->renormalise = pick(rng, 2);
	r->weight_scale = pick(rng, 2) ? 0 : 2.5f;
	if (pick(rng, 2)) {
		for (int32_t e = 0; e < n; e++)
			bias[e] = pick(rng, 8)
			                  ? (float)(uniform(rng) * 0.2 - 0.1)
			                  : 1e-40f;
		r->bias = bias;
	}
	if (pick(rng, 2))
		return;
	do
		r->n_groups = 1 + pick(rng, n < 16 ? n : 16);
	while (n % r->n_groups);
	r->topk_groups = pick(rng, r->n_groups + 1);
	r->group_score = pick(rng, 2) ? FERRY_GROUP_TOP2 : FERRY_GROUP_MAX;
}

/*
 * Some coarse, so that many are equal; some with what is not a number, not
 * finite, or not normal.
 */
static float random_logit(uint64_t *rng, int32_t kind)
{
	const float x =
		(float)((uniform(rng) + uniform(rng) + uniform(rng) - 1.5) * 8);
	static const float odd[] = {NAN,    -NAN, INFINITY, -INFINITY,
	                            1e-40f, 0,    -0.0f,    -1e-42f};

	if (kind == 1)
		return floorf(x);
	if (kind == 2 && pick(rng, 4) == 0)
		return odd[pick(rng, 8)];
	if (kind == 3)
		return 1; /* all alike */
	return x;
}

struct batch {
	struct ferry_logits in;
	unsigned char *bytes;
	float *x; /* [TOKENS][n_experts] as they were rounded */
	uint8_t valid[TOKENS];
};

static void put(struct batch *b, int32_t token, int32_t expert, int32_t n,
                float x)
{
	unsigned char *row = b->bytes + (size_t)token * b->in.stride;
	float *as = &b->x[(size_t)token * (size_t)n + (size_t)expert];
	uint16_t h;

	*as = x;
	if (b->in.dtype == FERRY_FP32) {
		memcpy(row + (size_t)expert * 4, &x, 4);
		return;
	}
	h = b->in.dtype == FERRY_BF16 ? bf16_from_f32(x) : fp16_from_f32(x);
	*as = b->in.dtype == FERRY_BF16 ? f32_from_bf16(h) : f32_from_fp16(h);
	memcpy(row + (size_t)expert * 2, &h, 2);
}

static void make_batch(uint64_t *rng, int32_t n, struct batch *b)
{
	static const enum ferry_dtype dtypes[] = {FERRY_FP32, FERRY_BF16,
	                                          FERRY_FP16};
	const int32_t kind = pick(rng, 4);

	*b = (struct batch){.in = FERRY_LOGITS_INIT};
	b->in.n_tokens = TOKENS;
	b->in.dtype = dtypes[pick(rng, 3)];
	b->in.stride = (size_t)n * (b->in.dtype == FERRY_FP32 ? 4 : 2) +
	               (size_t)pick(rng, 9);
	b->bytes = malloc(TOKENS * b->in.stride);
	b->x = malloc(TOKENS * (size_t)n * sizeof(*b->x));
	assert_true(b->bytes && b->x);
	b->in.logits = b->bytes;
	for (int32_t t = 0; t < TOKENS; t++) {
		b->valid[t] = (uint8_t)pick(rng, 5);
		for (int32_t e = 0; e < n; e++)
			put(b, t, e, n, random_logit(rng, kind));
	}
	if (pick(rng, 2))
		b->in.valid = b->valid;
}

static void free_batch(struct batch *b)
{
	free(b->bytes);
	free(b->x);
}

static void check_token(const struct ferry_router *r, const float *x,
                        const int32_t *ids, const float *weights)
{
	int32_t want[TOPK];
	double want_weights[TOPK];

	ref_topk(r, x, want, want_weights);
	for (int32_t k = 0; k < r->topk; k++) {
		assert_int_equal(ids[k], want[k]);
		if (fabs((double)weights[k] - want_weights[k]) >
		    want_weights[k] * 1e-6 + 1.2e-38)
			fail_msg("weight %d is %.9g, expected %.9g", k,
			         (double)weights[k], want_weights[k]);
	}
}

static void check_batch(const struct ferry_router *r, const struct batch *b)
{
	int32_t ids[TOKENS * TOPK];
	int32_t alone[TOKENS * TOPK];
	float weights[TOKENS * TOPK];

	assert_int_equal(ferry_predict_topk(r, &b->in, ids, weights), FERRY_OK);
	assert_int_equal(ferry_predict_topk(r, &b->in, alone, NULL), FERRY_OK);
	assert_memory_equal(ids, alone,
	                    (size_t)(TOKENS * r->topk) * sizeof(*ids));
	for (int32_t t = 0; t < TOKENS; t++) {
		const int32_t *row = ids + t * r->topk;

		if (!b->in.valid || b->valid[t]) {
			check_token(r, b->x + t * r->n_experts, row,
			            weights + t * r->topk);
			continue;
		}
		for (int32_t k = 0; k < r->topk; k++) {
			assert_int_equal(row[k], -1);
			assert_true(weights[t * r->topk + k] == 0);
		}
	}
}

static void test_against_reference(void **state)
{
	uint64_t rng = seed;

	(void)state;
	for (int i = 0; i < CASES; i++) {
		float bias[REF_EXPERTS];
		struct ferry_router router;
		struct batch batch;

		random_router(&rng, &router, bias);
		make_batch(&rng, router.n_experts, &batch);
		check_batch(&router, &batch);
		free_batch(&batch);
	}
}

/* Of fixed routers and logits: not of this run's seed. */
static uint64_t hash_of_results(bool flush)
{
	uint64_t rng = 20261130;
	uint64_t hash = 0;

	for (int i = 0; i < CASES; i++) {
		int32_t ids[TOKENS * TOPK];
		float weights[TOKENS * TOPK];
		float bias[REF_EXPERTS];
		struct ferry_router router;
		struct batch batch;

		random_router(&rng, &router, bias);
		make_batch(&rng, router.n_experts, &batch);
		set_flushing(flush);
		const enum ferry_status status =
			ferry_predict_topk(&router, &batch.in, ids, weights);

		set_flushing(false);
		assert_int_equal(status, FERRY_OK);
		for (int32_t k = 0; k < TOKENS * router.topk; k++) {
			hash = hash_u64(hash, (uint64_t)ids[k]);
			hash = hash_u64(hash, f32_bits(weights[k]));
		}
		free_batch(&batch);
	}
	return hash;
}

/* What any compiler on any machine must find. */
static void test_same_everywhere(void **state)
{
	(void)state;
	assert_int_equal(hash_of_results(false), UINT64_C(0xfa59a259da052b47));
}

/* Engines that run models often flush denormals. */
static void test_flushing_changes_nothing(void **state)
{
	(void)state;
	assert_int_equal(hash_of_results(true), hash_of_results(false));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_reference),
		cmocka_unit_test(test_same_everywhere),
		cmocka_unit_test(test_flushing_changes_nothing),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
