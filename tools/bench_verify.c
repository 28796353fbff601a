/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and sums recomputed by plain loops, and compared bit for bit. */
#include "bench_verify.h"

#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "bench_math.h"
#include "core/number.h"

/* A row as an expert must get it; the two buffers are [hidden] and [blocks]. */
static const void *expected_row(const struct bench_case *c, int32_t source,
                                uint64_t step, int32_t token, uint16_t *raw,
                                uint8_t *packed, float *scales)
{
	bench_make_row(c, source, step, token, raw);
	if (!c->fp8)
		return raw;
	bench_quantize(raw, c->hidden, packed, scales);
	return packed;
}

static int64_t count_wrong(const void *got, const void *want, size_t bytes,
                           size_t element)
{
	const uint8_t *a = got, *b = want;
	int64_t wrong = 0;

	if (!memcmp(got, want, bytes))
		return 0;
	for (size_t i = 0; i < bytes; i += element)
		wrong += memcmp(a + i, b + i, element) != 0;
	return wrong;
}

static const uint8_t *got_row(const struct bench_received *got, int64_t row,
                              const float **scales)
{
	const int64_t at = got->index ? got->index[row] : row;
	const uint8_t *const s = got->scales;

	*scales =
		s ? (const void *)(s + (size_t)at * got->scales_stride) : NULL;
	return (const uint8_t *)got->rows + (size_t)at * got->row_stride;
}

static int64_t check_counts(const struct bench_arrivals *a,
                            const struct bench_received *got)
{
	int64_t wrong = 0;

	for (int32_t s = 0; s < a->n_slots; s++)
		wrong += got->counts[s] != a->counts[s];
	for (int32_t s = 0; got->offsets && s <= a->n_slots; s++)
		wrong += got->offsets[s] != a->offsets[s];
	return wrong;
}

/* Does the arrival i of the order begin another token? */
static bool begins_token(const struct bench_arrivals *a, int64_t i)
{
	const struct bench_arrival *this = &a->list[a->order[i]];
	const struct bench_arrival *before =
		i > 0 ? &a->list[a->order[i - 1]] : NULL;

	return !before || this->source != before->source ||
	       this->token != before->token;
}

static int64_t check_rows(const struct bench_case *c, uint64_t step,
                          const struct bench_arrivals *arrivals,
                          const struct bench_received *got,
                          struct bench_share share)
{
	const size_t n_scales = (size_t)bench_scales(c);
	uint16_t *raw = alloc_or_exit((size_t)c->hidden, sizeof(*raw));
	uint8_t *packed = alloc_or_exit((size_t)c->hidden, 1);
	float *scales = alloc_or_exit(n_scales, sizeof(*scales));
	const void *want = NULL;
	int64_t wrong = 0;

	for (int64_t i = 0; i < arrivals->n; i++) {
		const struct bench_arrival *a =
			&arrivals->list[arrivals->order[i]];
		const float *its_scales;

		if (a->token % share.of != share.part)
			continue;
		if (begins_token(arrivals, i))
			want = expected_row(c, a->source, step, a->token, raw,
			                    packed, scales);
		const uint8_t *row = got_row(got, a->row, &its_scales);

		wrong += count_wrong(row, want, bench_row_bytes(c),
		                     c->fp8 ? 1 : 2);
		if (c->fp8)
			wrong += count_wrong(its_scales, scales,
			                     n_scales * sizeof(float),
			                     sizeof(float));
	}
	free(raw);
	free(packed);
	free(scales);
	return wrong;
}

int64_t bench_check_received(const struct bench_case *c, uint64_t step,
                             const struct bench_arrivals *arrivals,
                             const struct bench_received *got,
                             struct bench_share share)
{
	const int64_t wrong_counts = check_counts(arrivals, got);
	/* With wrong counts an index list may lead anywhere. */
	const int64_t wrong_rows =
		wrong_counts && got->index
			? 0
			: check_rows(c, step, arrivals, got, share);

	/* Counts are the first part's to report. */
	return share.part > 0 ? wrong_rows : wrong_rows + wrong_counts;
}

/* One row of y for each row that came. */
static void run_each(const struct bench_case *c,
                     const struct bench_arrivals *arrivals,
                     const struct bench_received *got, uint16_t *y,
                     struct bench_share share)
{
	for (int64_t i = share.part; i < arrivals->n; i += share.of) {
		const struct bench_arrival *a = &arrivals->list[i];
		const float *scales;
		const uint8_t *row = got_row(got, a->row, &scales);

		bench_expert(c, a->expert, row, scales, y + a->row * c->hidden);
	}
}

static void round_row(uint16_t *out, const float *sum, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = bf16_from_f32(sum[i]);
}

/* One row of y for each row of the view: this rank's part of the sum. */
static void run_presummed(const struct bench_case *c,
                          const struct bench_arrivals *arrivals,
                          const struct bench_received *got, uint16_t *y,
                          struct bench_share share)
{
	const size_t n = (size_t)c->hidden;
	float *sum = alloc_or_exit(n, sizeof(*sum));
	uint16_t *row = alloc_or_exit(n, sizeof(*row));

	for (int64_t i = 0; i < arrivals->n; i++) {
		const struct bench_arrival *a =
			&arrivals->list[arrivals->order[i]];
		const float *scales;
		const uint8_t *x = got_row(got, a->row, &scales);

		if (a->token % share.of != share.part)
			continue;
		if (begins_token(arrivals, i))
			memset(sum, 0, n * sizeof(*sum));
		bench_decode(c, x, scales, row);
		bench_add_weighted(sum, row, bench_pattern(a->expert),
		                   a->weight, c->hidden);
		if (i + 1 == arrivals->n || begins_token(arrivals, i + 1))
			round_row(y + got->index[a->row] * c->hidden, sum,
			          c->hidden);
	}
	free(sum);
	free(row);
}

void bench_run_experts(const struct bench_case *c,
                       const struct bench_arrivals *arrivals,
                       const struct bench_received *got, bool presummed,
                       uint16_t *y, struct bench_share share)
{
	if (presummed)
		run_presummed(c, arrivals, got, y, share);
	else
		run_each(c, arrivals, got, y, share);
}

/* Scratch for one token's sum. */
struct sum_scratch {
	uint16_t *raw, *y, *part; /* [hidden] */
	uint8_t *packed;
	float *sum, *part_sum, *host_sum;
	float *scales; /* [blocks] */
};

static void scratch_make(struct sum_scratch *s, const struct bench_case *c)
{
	const size_t n = (size_t)c->hidden;

	s->raw = alloc_or_exit(n, sizeof(*s->raw));
	s->y = alloc_or_exit(n, sizeof(*s->y));
	s->part = alloc_or_exit(n, sizeof(*s->part));
	s->packed = alloc_or_exit(n, sizeof(*s->packed));
	s->sum = alloc_or_exit(n, sizeof(*s->sum));
	s->part_sum = alloc_or_exit(n, sizeof(*s->part_sum));
	s->host_sum = alloc_or_exit(n, sizeof(*s->host_sum));
	s->scales = alloc_or_exit((size_t)bench_scales(c), sizeof(*s->scales));
}

static void scratch_free(struct sum_scratch *s)
{
	free(s->raw);
	free(s->y);
	free(s->part);
	free(s->packed);
	free(s->sum);
	free(s->part_sum);
	free(s->host_sum);
	free(s->scales);
}

/*
 * Adds the token's choices at `rank` (-1: at all) to sum, in choice order;
 * false when it has none there.
 */
static bool add_choices(const struct bench_case *c, const struct sum_scratch *s,
                        const int32_t *ids, const float *weights, int32_t rank,
                        float *sum)
{
	bool any = false;

	for (int32_t k = 0; k < c->topk; k++) {
		if (ids[k] < 0 || (rank >= 0 && bench_owner(c, ids[k]) != rank))
			continue;
		bench_add_weighted(sum, s->y, bench_pattern(ids[k]), weights[k],
		                   c->hidden);
		any = true;
	}
	return any;
}

/* Adds the rounded part of a rank to sum; false when it has none. */
static bool add_part(const struct bench_case *c, const struct sum_scratch *s,
                     const int32_t *ids, const float *weights, int32_t rank,
                     float *sum)
{
	memset(s->part_sum, 0, sizeof(float) * (size_t)c->hidden);
	if (!add_choices(c, s, ids, weights, rank, s->part_sum))
		return false;
	round_row(s->part, s->part_sum, c->hidden);
	bench_add_weighted(sum, s->part, 0, 1, c->hidden);
	return true;
}

/*
 * The same of all ranks of the host of `first`, rounded once more, in the place
 * of the first of them that has a part.
 */
static void add_host(const struct bench_case *c, const struct sum_scratch *s,
                     const int32_t *ids, const float *weights, int32_t first)
{
	const int32_t host = c->host[first];

	memset(s->host_sum, 0, sizeof(float) * (size_t)c->hidden);
	for (int32_t r = 0; r < c->n_ranks; r++)
		if (c->host[r] == host &&
		    add_part(c, s, ids, weights, r, s->host_sum) && r < first)
			return; /* it had its place before */
	round_row(s->part, s->host_sum, c->hidden);
	bench_add_weighted(s->sum, s->part, 0, 1, c->hidden);
}

static bool has_part(const struct bench_case *c, const int32_t *ids,
                     int32_t rank)
{
	for (int32_t k = 0; k < c->topk; k++)
		if (ids[k] >= 0 && bench_owner(c, ids[k]) == rank)
			return true;
	return false;
}

static void expected_sum(const struct bench_case *c, struct sum_scratch *s,
                         int32_t rank, const void *row, const int32_t *ids,
                         const float *weights)
{
	const bool hosts = c->combine == FERRY_PER_HOST && c->host;

	bench_decode(c, row, s->scales, s->y);
	memset(s->sum, 0, sizeof(float) * (size_t)c->hidden);
	if (c->combine == FERRY_EXACT) {
		add_choices(c, s, ids, weights, -1, s->sum);
		return;
	}
	for (int32_t r = 0; r < c->n_ranks; r++)
		if (!hosts || c->host[r] == c->host[rank])
			add_part(c, s, ids, weights, r, s->sum);
		else if (has_part(c, ids, r))
			add_host(c, s, ids, weights, r);
}

/* The sum of token t is what out has? */
static int64_t check_sum(const struct bench_case *c, struct sum_scratch *s,
                         int32_t rank, const void *row, const int32_t *ids,
                         const float *weights, const uint16_t *out)
{
	expected_sum(c, s, rank, row, ids, weights);
	round_row(s->part, s->sum, c->hidden);
	return count_wrong(out, s->part, (size_t)c->hidden * sizeof(*out),
	                   sizeof(*out));
}

int64_t bench_check_sums(const struct bench_case *c, int32_t rank,
                         uint64_t step, const uint16_t *out,
                         struct bench_share share)
{
	const size_t n = (size_t)c->tokens * (size_t)c->topk;
	int32_t *ids = alloc_or_exit(n, sizeof(*ids));
	float *weights = alloc_or_exit(n, sizeof(*weights));
	struct sum_scratch s;
	int64_t wrong = 0;

	scratch_make(&s, c);
	bench_make_routing(c, rank, step, ids, weights);
	for (int32_t t = share.part; t < bench_tokens(c, rank); t += share.of) {
		const int32_t first = t * c->topk;
		const void *row = expected_row(c, rank, step, t, s.raw,
		                               s.packed, s.scales);

		wrong += check_sum(c, &s, rank, row, ids + first,
		                   weights + first,
		                   out + (size_t)t * (size_t)c->hidden);
	}
	scratch_free(&s);
	free(ids);
	free(weights);
	return wrong;
}
