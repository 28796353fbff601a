/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry_predict_topk: the rules of the models that we know, worked out by hand;
 * ties, NaN and infinities; padding; what is refused.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/placement.h>
#include <ferry/predict.h>

#include "core/bits.h"
#include "core/number.h"

enum { MOST = 64 };

static const float nan_ = NAN;
static const float inf = INFINITY;

struct found {
	int32_t ids[MOST];
	float weights[MOST];
};

static struct ferry_router router_of(int32_t n_experts, int32_t topk)
{
	struct ferry_router router = FERRY_ROUTER_INIT;

	router.n_experts = n_experts;
	router.topk = topk;
	return router;
}

static struct ferry_logits logits_of(const float *x, int32_t n_tokens)
{
	struct ferry_logits in = FERRY_LOGITS_INIT;

	in.logits = x;
	in.n_tokens = n_tokens;
	return in;
}

/* One token. */
static struct found find(const struct ferry_router *router, const float *x)
{
	const struct ferry_logits in = logits_of(x, 1);
	struct found found;

	assert_int_equal(
		ferry_predict_topk(router, &in, found.ids, found.weights),
		FERRY_OK);
	return found;
}

static void expect_ids(const struct found *found, const int32_t *ids, int32_t n)
{
	for (int32_t k = 0; k < n; k++)
		assert_int_equal(found->ids[k], ids[k]);
}

static void expect_weight(float got, double want)
{
	if (fabs((double)got - want) > want * 1e-6)
		fail_msg("weight is %.9g, expected %.9g", (double)got, want);
}

#define EXPECT_IDS(found, ...)                                                 \
	expect_ids(&(found), (const int32_t[]){__VA_ARGS__},                   \
	           (int32_t)(sizeof((const int32_t[]){__VA_ARGS__}) /          \
	                     sizeof(int32_t)))

/*
 * Mixtral and Qwen3 take the softmax over all experts, choose, and divide by
 * the sum; gpt-oss chooses on the logits and takes the softmax over the chosen:
 * the same numbers.
 */
static void test_softmax_renormalised(void **state)
{
	const float x[] = {1, 2, 3, 0};
	struct ferry_router router = router_of(4, 2);

	(void)state;
	router.renormalise = true;
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 2, 1);
	expect_weight(found.weights[0], exp(3) / (exp(3) + exp(2)));
	expect_weight(found.weights[1], exp(2) / (exp(3) + exp(2)));
}

static void test_softmax_over_all(void **state)
{
	const float x[] = {1, 2, 3, 0};
	const double sum = exp(1) + exp(2) + exp(3) + exp(0);
	const struct ferry_router router = router_of(4, 2);

	(void)state;
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 2, 1);
	expect_weight(found.weights[0], exp(3) / sum);
	expect_weight(found.weights[1], exp(2) / sum);
}

/*
 * DeepSeek-V2: the groups with the best experts; weights are the softmax over
 * all experts times 16. Expert 4 is better than 1 and out of reach.
 */
static void test_deepseek_v2(void **state)
{
	const float x[] = {5, 1, 0, 0, 4, 3, 4.5f, 0};
	struct ferry_router router = router_of(8, 3);
	double sum = 0;

	(void)state;
	router.n_groups = 4;
	router.topk_groups = 2;
	router.weight_scale = 16;
	for (int e = 0; e < 8; e++)
		sum += exp((double)x[e]);
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 0, 6, 1);
	expect_weight(found.weights[0], 16 * exp(5) / sum);
	expect_weight(found.weights[1], 16 * exp(4.5) / sum);
	expect_weight(found.weights[2], 16 * exp(1) / sum);
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/*
 * DeepSeek-V3: sigmoid; groups by the sum of their best two with the bias;
 * weights without it, normalised, times 2.5. The bias brings expert 3 in.
 */
static void test_deepseek_v3(void **state)
{
	const float x[] = {2, -3, 1, 0.5f, 1.5f, 1, -1, -1};
	const float bias[] = {0, 0, 0, 0.4f, 0, 0, 0, 0};
	struct ferry_router router = router_of(8, 2);
	const double chosen = sigmoid(1) + sigmoid(0.5);

	(void)state;
	router.score = FERRY_SCORE_SIGMOID;
	router.bias = bias;
	router.n_groups = 4;
	router.topk_groups = 1;
	router.group_score = FERRY_GROUP_TOP2;
	router.renormalise = true;
	router.weight_scale = 2.5f;
	/* sums: .881 + .047; .731 + 1.022; .818 + .731; .269 + .269 */
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 3, 2);
	expect_weight(found.weights[0], 2.5 * sigmoid(0.5) / chosen);
	expect_weight(found.weights[1], 2.5 * sigmoid(1) / chosen);
}

/* A negative score plus bias is still better than a closed group's experts. */
static void test_closed_groups_stay_closed(void **state)
{
	const float x[] = {1, 0, -1, -1};
	const float bias[] = {-5, -5, -9, -9};
	struct ferry_router router = router_of(4, 3);

	(void)state;
	router.score = FERRY_SCORE_SIGMOID;
	router.bias = bias;
	router.n_groups = 2;
	router.topk_groups = 1;
	router.group_score = FERRY_GROUP_TOP2;
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 0, 1, -1);
	expect_weight(found.weights[0], sigmoid(1));
	expect_weight(found.weights[1], 0.5);
	assert_true(found.weights[2] == 0);
}

/* Softmax with a bias: chosen by the sum, weighed without it. */
static void test_softmax_with_bias(void **state)
{
	const float x[] = {3, 2, 1, 0};
	const float bias[] = {0, 0, 0, 1};
	struct ferry_router router = router_of(4, 2);

	(void)state;
	router.bias = bias;
	router.renormalise = true;
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 3, 0);
	expect_weight(found.weights[0], exp(0) / (exp(0) + exp(3)));
	expect_weight(found.weights[1], exp(3) / (exp(0) + exp(3)));
}

static void test_ties_go_to_the_lower_id(void **state)
{
	float x[MOST] = {0};
	float bias[MOST] = {0};
	struct ferry_router router = router_of(MOST, 8);
	struct found found;

	(void)state;
	x[5] = -0.0f; /* equals 0 */
	x[40] = 1;
	found = find(&router, x);
	EXPECT_IDS(found, 40, 0, 1, 2, 3, 4, 5, 6);
	router.bias = bias;
	found = find(&router, x);
	EXPECT_IDS(found, 40, 0, 1, 2, 3, 4, 5, 6);
	router.bias = NULL;
	router.n_groups = 8;
	router.topk_groups = 2;
	found = find(&router, x);
	EXPECT_IDS(found, 40, 0, 1, 2, 3, 4, 5, 6);
	router.group_score = FERRY_GROUP_TOP2;
	found = find(&router, x);
	EXPECT_IDS(found, 40, 0, 1, 2, 3, 4, 5, 6);
}

/* Logits that differ by the last bit are no tie, whatever their scores are. */
static void test_compared_on_logits(void **state)
{
	const float x[] = {90, nextafterf(90, 91), 50, nextafterf(50, 51)};
	struct ferry_router router = router_of(4, 4);

	(void)state;
	router.score = FERRY_SCORE_SIGMOID; /* all 1 in double */
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 1, 0, 3, 2);
	assert_true(found.weights[0] == 1 && found.weights[3] == 1);
}

static void test_nan_is_last(void **state)
{
	const float x[] = {nan_, -inf, 2, -nan_, -1};
	const float bias[] = {9, 0, 0, 9, 0};
	struct ferry_router router = router_of(5, 5);
	struct found found;

	(void)state;
	router.renormalise = true;
	found = find(&router, x);
	EXPECT_IDS(found, 2, 4, 1, 0, 3);
	expect_weight(found.weights[0], exp(2) / (exp(2) + exp(-1)));
	assert_true(found.weights[2] == 0);
	assert_true(found.weights[3] == 0);
	router.bias = bias;
	found = find(&router, x);
	EXPECT_IDS(found, 2, 4, 1, 0, 3);
	router.score = FERRY_SCORE_SIGMOID;
	router.renormalise = false;
	found = find(&router, x);
	EXPECT_IDS(found, 2, 4, 1, 0, 3);
	expect_weight(found.weights[1], sigmoid(-1));
	assert_true(found.weights[4] == 0);
}

static void test_all_nan(void **state)
{
	const float x[] = {nan_, nan_, nan_, nan_};
	struct ferry_router router = router_of(4, 2);

	(void)state;
	for (int i = 0; i < 8; i++) {
		router.score =
			i % 2 ? FERRY_SCORE_SIGMOID : FERRY_SCORE_SOFTMAX;
		router.renormalise = i & 2;
		router.n_groups = i & 4 ? 2 : 1;
		router.topk_groups = 1;
		const struct found found = find(&router, x);

		EXPECT_IDS(found, 0, 1);
		assert_true(found.weights[0] == 0 && found.weights[1] == 0);
	}
}

static void test_infinities(void **state)
{
	const float up[] = {1, inf, 0, inf};
	const float down[] = {-inf, -inf, -inf, -inf};
	struct ferry_router router = router_of(4, 3);
	struct found found;

	(void)state;
	found = find(&router, up);
	EXPECT_IDS(found, 1, 3, 0);
	expect_weight(found.weights[0], 0.5);
	expect_weight(found.weights[1], 0.5);
	assert_true(found.weights[2] == 0);
	found = find(&router, down);
	EXPECT_IDS(found, 0, 1, 2);
	expect_weight(found.weights[2], 0.25);
	router.score = FERRY_SCORE_SIGMOID;
	found = find(&router, up);
	EXPECT_IDS(found, 1, 3, 0);
	assert_true(found.weights[0] == 1);
	found = find(&router, down);
	assert_true(found.weights[0] == 0);
}

/* Weights that fp32 would hold as denormals are 0 on every machine. */
static void test_tiny_weights(void **state)
{
	const float x[] = {0, -87, -88, -100, -700};
	struct ferry_router router = router_of(5, 5);
	const struct found found = find(&router, x);

	(void)state;
	EXPECT_IDS(found, 0, 1, 2, 3, 4);
	expect_weight(found.weights[1], exp(-87));
	for (int k = 2; k < 5; k++)
		assert_int_equal(f32_bits(found.weights[k]), 0);
}

/* A bias that some machines take for 0 is 0 on all. */
static void test_tiny_bias(void **state)
{
	const float x[] = {-inf, -inf, -inf};
	const float bias[] = {0, 1e-40f, FLT_MIN};
	struct ferry_router router = router_of(3, 3);

	(void)state;
	router.score = FERRY_SCORE_SIGMOID;
	router.bias = bias;
	const struct found found = find(&router, x);

	EXPECT_IDS(found, 2, 0, 1);
}

static void test_one_expert(void **state)
{
	const float x[] = {-4};
	const struct ferry_router router = router_of(1, 1);
	const struct found found = find(&router, x);

	(void)state;
	EXPECT_IDS(found, 0);
	assert_true(found.weights[0] == 1);
}

/* Rows apart, two bytes an element, and rows that are padding. */
static void test_strides_types_padding(void **state)
{
	const enum ferry_dtype dtypes[] = {FERRY_BF16, FERRY_FP16};
	const float x[3][4] = {{0, 1, 2, 3}, {9, 9, 9, 9}, {3, -2, -1, 0}};
	const uint8_t valid[] = {1, 0, 7};
	const struct ferry_router router = router_of(4, 2);

	(void)state;
	for (int d = 0; d < 2; d++) {
		/* Rows 11 bytes apart: not aligned either. */
		unsigned char rows[3 * 11];
		struct ferry_logits in = logits_of(NULL, 3);
		float weights[6];
		int32_t ids[6];

		for (int i = 0; i < 12; i++) {
			const float v = x[i / 4][i % 4];
			const uint16_t h =
				d ? fp16_from_f32(v) : bf16_from_f32(v);

			memcpy(rows + i / 4 * 11 + i % 4 * 2, &h, 2);
		}
		in.logits = rows;
		in.stride = 11;
		in.dtype = dtypes[d];
		in.valid = valid;
		assert_int_equal(ferry_predict_topk(&router, &in, ids, weights),
		                 FERRY_OK);
		const int32_t want[] = {3, 2, -1, -1, 0, 3};

		assert_memory_equal(ids, want, sizeof(want));
		assert_true(weights[2] == 0 && weights[3] == 0);
		assert_true(weights[0] > 0 && weights[5] > 0);
	}
}

static void test_no_tokens(void **state)
{
	const struct ferry_router router = router_of(4, 2);
	const struct ferry_logits in = logits_of(NULL, 0);
	int32_t ids[1] = {77};

	(void)state;
	assert_int_equal(ferry_predict_topk(&router, &in, ids, NULL), FERRY_OK);
	assert_int_equal(ids[0], 77);
}

static void refuse(const struct ferry_router *router,
                   const struct ferry_logits *in, enum ferry_status want,
                   const char *text)
{
	int32_t ids[MOST] = {77};
	float weights[MOST] = {55};

	assert_int_equal(ferry_predict_topk(router, in, ids, weights), want);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
	assert_int_equal(ids[0], 77);
	assert_true(weights[0] == 55);
}

static void test_refused_routers(void **state)
{
	const float x[16] = {0};
	const float bias[16] = {0, 0, 0, NAN};
	const struct ferry_logits in = logits_of(x, 1);
	struct ferry_router r;

	(void)state;
#define REFUSED(field, value, text)                                            \
	do {                                                                   \
		r = router_of(12, 2);                                          \
		r.field = value;                                               \
		refuse(&r, &in, FERRY_RANGE, text);                            \
	} while (0)
	REFUSED(n_experts, 0, "router.n_experts is 0, allowed are 1..16777216");
	REFUSED(n_experts, -3, "router.n_experts is -3");
	REFUSED(topk, 0, "router.topk is 0, allowed are 1..12");
	REFUSED(topk, 13, "router.topk is 13, allowed are 1..12");
	REFUSED(n_groups, 5,
	        "router.n_groups is 5, allowed are divisors of the 12 experts");
	REFUSED(n_groups, -1, "router.n_groups is -1, allowed are 1..12");
	REFUSED(topk_groups, 2, "router.topk_groups is 2, allowed are 1..1");
	REFUSED(score, (enum ferry_score)2, "router.score is 2");
	REFUSED(group_score, (enum ferry_group_score)7,
	        "router.group_score is 7, allowed are 0..1");
	REFUSED(weight_scale, -1, "router.weight_scale is -1");
	REFUSED(weight_scale, NAN, "router.weight_scale is nan");
	REFUSED(bias, bias, "router.bias[3] is nan, allowed are finite");
#undef REFUSED
	r = router_of(100, 65);
	refuse(&r, &in, FERRY_RANGE, "router.topk is 65, allowed are 1..64");
	r = router_of(12, 2);
	r.size = 1;
	refuse(&r, &in, FERRY_INVAL, "router");
	refuse(NULL, &in, FERRY_INVAL, "router is NULL");
}

static void test_refused_logits(void **state)
{
	const float x[16] = {0};
	const struct ferry_router router = router_of(12, 2);
	struct ferry_logits in = logits_of(x, -1);

	(void)state;
	refuse(&router, &in, FERRY_RANGE, "logits.n_tokens is -1");
	in = logits_of(NULL, 1);
	refuse(&router, &in, FERRY_INVAL, "logits.logits is NULL");
	in = logits_of(x, 1);
	in.stride = 47;
	refuse(&router, &in, FERRY_INVAL, "stride is 47, a row has 48 bytes");
	in = logits_of(x, 1);
	in.dtype = FERRY_FP8_E4M3;
	refuse(&router, &in, FERRY_INVAL, "logits.dtype is 4");
	refuse(&router, NULL, FERRY_INVAL, "logits is NULL");
	in = logits_of(x, 1);
	assert_int_equal(ferry_predict_topk(&router, &in, NULL, NULL),
	                 FERRY_INVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_softmax_renormalised),
		cmocka_unit_test(test_softmax_over_all),
		cmocka_unit_test(test_deepseek_v2),
		cmocka_unit_test(test_deepseek_v3),
		cmocka_unit_test(test_closed_groups_stay_closed),
		cmocka_unit_test(test_softmax_with_bias),
		cmocka_unit_test(test_ties_go_to_the_lower_id),
		cmocka_unit_test(test_compared_on_logits),
		cmocka_unit_test(test_nan_is_last),
		cmocka_unit_test(test_all_nan),
		cmocka_unit_test(test_infinities),
		cmocka_unit_test(test_tiny_weights),
		cmocka_unit_test(test_tiny_bias),
		cmocka_unit_test(test_one_expert),
		cmocka_unit_test(test_strides_types_padding),
		cmocka_unit_test(test_no_tokens),
		cmocka_unit_test(test_refused_routers),
		cmocka_unit_test(test_refused_logits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
