/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry_predict_counts: ids to counts. All ids are looked at before anything
 * is counted, so that a bad one leaves the counts as they were.
 */
#include <string.h>

#include <ferry/placement.h>
#include <ferry/predict.h>

#include "../core/range.h"
#include "../core/sized.h"

static size_t id_bytes(const struct ferry_ids *in)
{
	return in->type == FERRY_ID_INT64 ? sizeof(int64_t) : sizeof(int32_t);
}

static int64_t id_at(const struct ferry_ids *in, const unsigned char *row,
                     int32_t choice)
{
	int64_t wide;
	int32_t narrow;

	if (in->type == FERRY_ID_INT64) {
		memcpy(&wide, row + (size_t)choice * sizeof(wide),
		       sizeof(wide));
		return wide;
	}
	memcpy(&narrow, row + (size_t)choice * sizeof(narrow), sizeof(narrow));
	return narrow;
}

static const unsigned char *row_at(const struct ferry_ids *in, int32_t token)
{
	return (const unsigned char *)in->ids + (size_t)token * in->stride;
}

static enum ferry_status check_shape(struct ferry_ids *in, int32_t n_experts)
{
	FERRY_TRY(check_range(NULL, "predict_counts", "n_experts", n_experts, 1,
	                      FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(NULL, "predict_counts", "ids.topk", in->topk, 1,
	                      INT64_MAX));
	if (in->n_tokens < 0 || (int64_t)in->n_tokens * in->topk > INT32_MAX)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "predict_counts: ids.n_tokens is %d with %d "
		                  "choices, allowed are 0..%d",
		                  in->n_tokens, in->topk, INT32_MAX / in->topk);
	if (in->type != FERRY_ID_INT32 && in->type != FERRY_ID_INT64)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "predict_counts: ids.type is %d, allowed are "
		                  "0 (int32) and 1 (int64)",
		                  (int)in->type);
	return FERRY_OK;
}

static enum ferry_status check_array(struct ferry_ids *in)
{
	const size_t row_bytes = (size_t)in->topk * id_bytes(in);

	if (in->n_tokens > 0 && !in->ids)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "predict_counts: ids.ids is NULL with %d "
		                  "tokens",
		                  in->n_tokens);
	if (in->stride == 0)
		in->stride = row_bytes;
	if (in->stride < row_bytes)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "predict_counts: ids.stride is %zu, a row "
		                  "has %zu bytes",
		                  in->stride, row_bytes);
	return FERRY_OK;
}

static enum ferry_status check_ids(const struct ferry_ids *in,
                                   int32_t n_experts)
{
	for (int32_t t = 0; t < in->n_tokens; t++) {
		const unsigned char *row = row_at(in, t);

		for (int32_t k = 0; k < in->topk; k++) {
			const int64_t id = id_at(in, row, k);

			if (id < -1 || id >= n_experts)
				return ferry_fail(
					NULL, FERRY_RANGE,
					"predict_counts: ids[%d][%d] is %lld, "
					"experts are 0..%d, -1 is none",
					t, k, (long long)id, n_experts - 1);
		}
	}
	return FERRY_OK;
}

/* Whatever is added, no count may overflow. */
static enum ferry_status check_counts(const struct ferry_ids *in,
                                      int32_t n_experts, const int32_t *counts)
{
	const int32_t most = INT32_MAX - in->n_tokens * in->topk;

	for (int32_t e = 0; e < n_experts; e++)
		if (counts[e] < 0 || counts[e] > most)
			return ferry_fail(NULL, FERRY_RANGE,
			                  "predict_counts: counts[%d] is %d "
			                  "before %d choices are added, "
			                  "allowed are 0..%d",
			                  e, counts[e], in->n_tokens * in->topk,
			                  most);
	return FERRY_OK;
}

static void add_counts(const struct ferry_ids *in, int32_t *counts)
{
	for (int32_t t = 0; t < in->n_tokens; t++) {
		const unsigned char *row = row_at(in, t);

		for (int32_t k = 0; k < in->topk; k++) {
			const int64_t id = id_at(in, row, k);

			if (id >= 0)
				counts[id]++;
		}
	}
}

enum ferry_status ferry_predict_counts(const struct ferry_ids *in,
                                       int32_t n_experts, int32_t *counts)
{
	struct ferry_ids ids;

	if (!in || !counts)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "predict_counts: %s is NULL",
		                  in ? "counts" : "ids");
	FERRY_TRY(
		ferry_sized_copy(&ids, sizeof(ids), in, "predict_counts: ids"));
	FERRY_TRY(check_shape(&ids, n_experts));
	FERRY_TRY(check_array(&ids));
	FERRY_TRY(check_ids(&ids, n_experts));
	FERRY_TRY(check_counts(&ids, n_experts, counts));
	add_counts(&ids, counts);
	return FERRY_OK;
}
