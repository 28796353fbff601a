/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry_predict_counts. What engines got wrong is tried by name: padding that
 * a captured graph or a data-parallel batch adds must not count as load, nor
 * the dummy rows of idle ranks.
 */
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
#include "test_seed.h"

enum { EXPERTS = 12, TOKENS = 50, TOPK = 4 };

static uint64_t seed;

static struct ferry_ids ids_of(const void *ids, int32_t n_tokens, int32_t topk)
{
	struct ferry_ids in = FERRY_IDS_INIT;

	in.ids = ids;
	in.n_tokens = n_tokens;
	in.topk = topk;
	return in;
}

static void test_counts(void **state)
{
	const int32_t ids[] = {0, 3, 3, 11, -1, 3, -1, -1};
	const struct ferry_ids in = ids_of(ids, 4, 2);
	int32_t counts[EXPERTS] = {5};

	(void)state;
	assert_int_equal(ferry_predict_counts(&in, EXPERTS, counts), FERRY_OK);
	assert_int_equal(counts[0], 6);
	assert_int_equal(counts[3], 3);
	assert_int_equal(counts[11], 1);
	for (int e = 0; e < EXPERTS; e++)
		if (e != 0 && e != 3 && e != 11)
			assert_int_equal(counts[e], 0);
}

/* Both types, rows apart and not aligned, a fifth of the choices masked. */
static void test_random(void **state)
{
	uint64_t rng = seed;

	(void)state;
	for (int round = 0; round < 40; round++) {
		const bool wide = round % 2;
		const size_t id_bytes = wide ? 8 : 4;
		const size_t stride = TOPK * id_bytes + rng_next(&rng) % 8;
		unsigned char bytes[TOKENS * (TOPK * 8 + 8)];
		struct ferry_ids in = ids_of(bytes, TOKENS, TOPK);
		int32_t want[EXPERTS] = {0};
		int32_t counts[EXPERTS] = {0};

		in.type = wide ? FERRY_ID_INT64 : FERRY_ID_INT32;
		in.stride = stride;
		for (size_t i = 0; i < TOKENS * TOPK; i++) {
			const int64_t id =
				rng_next(&rng) % 5
					? (int64_t)(rng_next(&rng) % EXPERTS)
					: -1;
			const int32_t narrow = (int32_t)id;

			memcpy(bytes + i / TOPK * stride + i % TOPK * id_bytes,
			       wide ? (const void *)&id : (const void *)&narrow,
			       id_bytes);
			if (id >= 0)
				want[id]++;
		}
		assert_int_equal(ferry_predict_counts(&in, EXPERTS, counts),
		                 FERRY_OK);
		assert_memory_equal(counts, want, sizeof(want));
	}
}

/*
 * A batch of 5 tokens in a graph for 8, and an idle rank that runs a dummy
 * batch: whoever says so by `valid` gets rows of -1, and no load from them.
 */
static void test_padding_is_no_load(void **state)
{
	const uint8_t graph[] = {1, 1, 1, 1, 1, 0, 0, 0};
	const uint8_t idle[8] = {0};
	const float logits[8][EXPERTS] = {{0}};
	struct ferry_router router = FERRY_ROUTER_INIT;
	struct ferry_logits in = FERRY_LOGITS_INIT;
	int32_t ids[8 * TOPK];
	const struct ferry_ids chosen = ids_of(ids, 8, TOPK);
	int32_t counts[EXPERTS] = {0};
	int32_t zeros[EXPERTS] = {0};
	int64_t total = 0;

	(void)state;
	router.n_experts = EXPERTS;
	router.topk = TOPK;
	in.logits = logits;
	in.n_tokens = 8;
	in.valid = graph;
	assert_int_equal(ferry_predict_topk(&router, &in, ids, NULL), FERRY_OK);
	assert_int_equal(ferry_predict_counts(&chosen, EXPERTS, counts),
	                 FERRY_OK);
	for (int e = 0; e < EXPERTS; e++)
		total += counts[e];
	assert_int_equal(total, 5 * TOPK);
	assert_int_equal(counts[0], 5);
	in.valid = idle;
	assert_int_equal(ferry_predict_topk(&router, &in, ids, NULL), FERRY_OK);
	assert_int_equal(ferry_predict_counts(&chosen, EXPERTS, zeros),
	                 FERRY_OK);
	for (int e = 0; e < EXPERTS; e++)
		assert_int_equal(zeros[e], 0);
}

static void refuse(const struct ferry_ids *in, int32_t n_experts,
                   enum ferry_status want, const char *text)
{
	int32_t counts[EXPERTS] = {7, 7};

	assert_int_equal(ferry_predict_counts(in, n_experts, counts), want);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
	assert_int_equal(counts[0], 7);
	assert_int_equal(counts[1], 7);
}

static void test_bad_ids(void **state)
{
	int32_t ids[] = {0, 1, 1, 12};
	int64_t wide[] = {0, 1, INT64_C(1) << 32, 0};
	struct ferry_ids in = ids_of(ids, 2, 2);

	(void)state;
	refuse(&in, EXPERTS, FERRY_RANGE,
	       "ids[1][1] is 12, experts are 0..11, -1 is none");
	ids[3] = -2;
	refuse(&in, EXPERTS, FERRY_RANGE, "ids[1][1] is -2");
	in.ids = wide;
	in.type = FERRY_ID_INT64;
	refuse(&in, EXPERTS, FERRY_RANGE, "ids[1][0] is 4294967296");
}

static void test_refused(void **state)
{
	const int32_t ids[] = {0, 1, 1, 0};
	struct ferry_ids in = ids_of(ids, 2, 2);
	int32_t counts[EXPERTS] = {0, INT32_MAX - 3};

	(void)state;
	refuse(&in, 0, FERRY_RANGE, "n_experts is 0, allowed are 1..16777216");
	refuse(NULL, EXPERTS, FERRY_INVAL, "ids is NULL");
	in.stride = 7;
	refuse(&in, EXPERTS, FERRY_INVAL, "stride is 7, a row has 8 bytes");
	in = ids_of(ids, 2, 0);
	refuse(&in, EXPERTS, FERRY_RANGE, "topk is 0");
	in = ids_of(ids, -1, 2);
	refuse(&in, EXPERTS, FERRY_RANGE, "n_tokens is -1");
	in = ids_of(ids, INT32_MAX, 2);
	refuse(&in, EXPERTS, FERRY_RANGE, "allowed are 0..1073741823");
	in = ids_of(NULL, 1, 2);
	refuse(&in, EXPERTS, FERRY_INVAL, "ids.ids is NULL");
	in = ids_of(ids, 2, 2);
	in.type = (enum ferry_id_type)3;
	refuse(&in, EXPERTS, FERRY_INVAL, "ids.type is 3");
	in = ids_of(ids, 2, 2);
	assert_int_equal(ferry_predict_counts(&in, EXPERTS, NULL), FERRY_INVAL);
	assert_int_equal(ferry_predict_counts(&in, EXPERTS, counts),
	                 FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "counts[1] is 2147483644"));
	assert_int_equal(counts[0], 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_padding_is_no_load),
		cmocka_unit_test(test_bad_ids),
		cmocka_unit_test(test_refused),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
