/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's expert and its combine. One token at a time: the rows that its
 * choices gave to the experts, the experts' answers, the sum of DESIGN's
 * arithmetic, element by element.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle_float.h"
#include "oracle_inner.h"

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 33)) * 0xff51afd7ed558ccdu;
	z = (z ^ (z >> 33)) * 0xc4ceb9fe1a85ec53u;
	return z ^ (z >> 33);
}

static uint64_t hash_bytes(uint64_t h, const uint8_t *bytes, size_t n)
{
	uint64_t word;

	for (; n >= sizeof(word); n -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		h = (h ^ word) * 0x9fb21c651e98df25u;
		h ^= h >> 32;
	}
	for (; n > 0; n--, bytes++)
		h = (h ^ *bytes) * 0x100000001b3u;
	return mix(h);
}

/* Fields of the three formats that an expert may answer in. */
struct format {
	int man_bits;
	uint32_t sign, bias, max_exp;
};

static struct format format_of(enum ferry_dtype dtype)
{
	switch (dtype) {
	case FERRY_FP32:
		return (struct format){23, 0x80000000u, 127, 255};
	case FERRY_FP16:
		return (struct format){10, 0x8000, 15, 31};
	default:
		return (struct format){7, 0x8000, 127, 255};
	}
}

static uint32_t plain_bits(const struct format *f, uint64_t random)
{
	const uint32_t mantissa =
		(uint32_t)random & ((UINT32_C(1) << f->man_bits) - 1);
	const uint32_t exponent = f->bias - 5 + (uint32_t)(random >> 32) % 8;

	return (random >> 63 ? f->sign : 0) | exponent << f->man_bits |
	       mantissa;
}

/* One of the values that break careless arithmetic. */
static uint32_t special_bits(const struct format *f, uint64_t random)
{
	const uint32_t sign = random >> 63 ? f->sign : 0;
	const uint32_t infinity = f->max_exp << f->man_bits;
	const uint32_t mantissa =
		(uint32_t)random & ((UINT32_C(1) << f->man_bits) - 1);

	switch (random >> 32 & 7) {
	case 0:
		return sign | infinity;
	case 1:
		return sign | infinity | (mantissa | 1); /* NaN of any kind */
	case 2:
	case 3:
		return sign; /* +0 and -0 */
	case 4:
		return sign | mantissa; /* denormal */
	case 5:
		return sign | 1;
	case 6:
		return sign | (infinity - 1); /* largest finite */
	default:
		return sign | 1u << f->man_bits; /* smallest normal */
	}
}

void oracle_expert(void *y, enum ferry_dtype dtype, size_t n, const void *row,
                   size_t row_bytes, const void *scales, size_t scale_bytes,
                   int32_t expert, enum oracle_values values)
{
	const struct format f = format_of(dtype);
	const size_t bytes = oracle_dtype_bytes(dtype);
	uint64_t seed = (uint64_t)(int64_t)expert * 0x9e3779b97f4a7c15u;

	seed = hash_bytes(seed, row, row_bytes);
	seed = hash_bytes(seed, scales, scale_bytes);
	for (size_t i = 0; i < n; i++) {
		const uint64_t random = mix(seed + i * 0x9e3779b97f4a7c15u);
		const bool special =
			values == ORACLE_SPECIAL && (random >> 40 & 15) == 0;
		const uint32_t wide = special ? special_bits(&f, random)
		                              : plain_bits(&f, random);
		const uint16_t half = (uint16_t)wide;

		if (bytes == 4)
			memcpy((uint8_t *)y + 4 * i, &wide, 4);
		else
			memcpy((uint8_t *)y + 2 * i, &half, 2);
	}
}

/* Rows that go into one sum, and where they came from. */
struct terms {
	int32_t n;
	uint8_t *rows[64];
	float weights[64];
	int32_t ranks[64];
};

/* A workspace for one token: its answers, and their sums by rank. */
struct desk {
	const struct oracle *o;
	const struct oracle_combine_how *how;
	int32_t rank; /* that receives */
	size_t y_bytes;
	uint8_t *payload;
	uint8_t *memory; /* 3 * 64 rows of y_bytes */
	struct terms choices, parts, sums;
};

/* acc = fma(weight, row, acc) over the terms; residual last. */
static float sum_at(const struct terms *t, size_t i, enum ferry_dtype dtype,
                    const void *residual, enum ferry_dtype residual_dtype)
{
	float acc = 0;

	for (int32_t j = 0; j < t->n; j++)
		acc = fmaf(t->weights[j], oracle_load(t->rows[j], i, dtype),
		           acc);
	if (residual != NULL)
		acc += oracle_load(residual, i, residual_dtype);
	return acc;
}

static void answer_choice(struct desk *d, const struct oracle_row *row,
                          int32_t expert, float weight, int32_t rank)
{
	const struct oracle *o = d->o;
	struct terms *t = &d->choices;
	const uint8_t *scales;

	if (d->how->presummed) {
		for (int32_t j = 0; j < t->n; j++)
			if (t->ranks[j] == rank)
				return; /* one row per rank */
		expert = ORACLE_PRESUMMED(rank);
		weight = 1;
	}
	if (o->config.weight_use == FERRY_WEIGHT_INPUT)
		weight = 1;
	oracle_row_bits(o, row, d->payload, &scales);
	t->rows[t->n] = d->memory + (size_t)t->n * d->y_bytes;
	t->weights[t->n] = weight;
	t->ranks[t->n] = rank;
	oracle_expert(t->rows[t->n], o->config.combine_dtype, (size_t)o->hidden,
	              d->payload, o->row_bytes, scales, o->scale_bytes, expert,
	              d->how->values);
	t->n++;
}

static void answer_token(struct desk *d, int32_t group, int32_t token)
{
	d->choices.n = 0;
	for (int32_t k = 0; k < d->o->topk[group]; k++) {
		const struct oracle_choice *c =
			oracle_choice(d->o, group, token, k);
		const struct oracle_row row = {
			.group = group,
			.token = token,
			.choice = k,
			.weight = c->weight,
		};

		if (c->rank >= 0 && !c->dropped)
			answer_choice(d, &row, c->expert, c->weight, c->rank);
	}
}

/* The terms of one rank, in choice order, rounded to the wire's type. */
static void add_part(struct desk *d, int32_t rank)
{
	const enum ferry_dtype dtype = d->o->config.combine_dtype;
	struct terms mine = {.n = 0};
	struct terms *parts = &d->parts;
	uint8_t *to = d->memory + (size_t)(64 + parts->n) * d->y_bytes;

	for (int32_t j = 0; j < d->choices.n; j++) {
		if (d->choices.ranks[j] != rank)
			continue;
		mine.rows[mine.n] = d->choices.rows[j];
		mine.weights[mine.n++] = d->choices.weights[j];
	}
	if (mine.n == 0)
		return;
	if (d->how->presummed)
		to = mine.rows[0]; /* as the caller gave it */
	else
		for (size_t i = 0; i < (size_t)d->o->hidden; i++)
			oracle_store(to, i, dtype,
			             sum_at(&mine, i, dtype, NULL, dtype));
	parts->rows[parts->n] = to;
	parts->ranks[parts->n] = rank;
	parts->weights[parts->n++] = 1;
}

static void split_by_rank(struct desk *d)
{
	d->parts.n = 0;
	for (int32_t rank = 0; rank < d->o->n_ranks; rank++)
		add_part(d, rank);
}

/* Does any choice of a token, dropped or not, name a rank? */
static bool names(const struct desk *d, int32_t group, int32_t token,
                  int32_t rank)
{
	for (int32_t k = 0; k < d->o->topk[group]; k++)
		if (oracle_choice(d->o, group, token, k)->rank == rank)
			return true;
	return false;
}

static int32_t host_of(const struct desk *d, int32_t rank)
{
	return d->o->host ? d->o->host[rank] : 0;
}

static void take_part(struct desk *d, int32_t rank)
{
	for (int32_t j = 0; j < d->parts.n; j++)
		if (d->parts.ranks[j] == rank) {
			d->sums.rows[d->sums.n] = d->parts.rows[j];
			d->sums.weights[d->sums.n++] = 1;
		}
}

/* The parts of another host, ascending, rounded to the wire's type. */
static void add_host(struct desk *d, int32_t host)
{
	const enum ferry_dtype dtype = d->o->config.combine_dtype;
	struct terms *sums = &d->sums;
	struct terms mine = {.n = 0};
	uint8_t *to = d->memory + (size_t)(128 + sums->n) * d->y_bytes;

	for (int32_t j = 0; j < d->parts.n; j++) {
		if (host_of(d, d->parts.ranks[j]) != host)
			continue;
		mine.rows[mine.n] = d->parts.rows[j];
		mine.weights[mine.n++] = 1;
	}
	if (mine.n == 0)
		return;
	for (size_t i = 0; i < (size_t)d->o->hidden; i++)
		oracle_store(to, i, dtype,
		             sum_at(&mine, i, dtype, NULL, dtype));
	sums->rows[sums->n] = to;
	sums->weights[sums->n++] = 1;
}

/* In the order of ranks, another host in the place of its first one named. */
static void split_by_host(struct desk *d, int32_t group, int32_t token)
{
	bool done[64] = {false}; /* [first rank of a host] */

	split_by_rank(d);
	d->sums.n = 0;
	for (int32_t rank = 0; rank < d->o->n_ranks; rank++) {
		const int32_t host = host_of(d, rank);
		int32_t first = 0;

		if (!names(d, group, token, rank))
			continue;
		if (host == host_of(d, d->rank)) {
			take_part(d, rank);
			continue;
		}
		while (host_of(d, first) != host)
			first++;
		if (!done[first])
			add_host(d, host);
		done[first] = true;
	}
}

static void combine_token(struct desk *d, int32_t token,
                          const struct ferry_combine_out *out)
{
	const struct ferry_moe_config *config = &d->o->config;
	const int32_t group = d->rank / d->o->group_size;
	const size_t contiguous =
		(size_t)d->o->hidden * oracle_dtype_bytes(config->out_dtype);
	const size_t stride = out->out_stride ? out->out_stride : contiguous;
	const size_t residual_stride =
		out->residual_stride ? out->residual_stride : contiguous;
	uint8_t *to = (uint8_t *)out->out + stride * (size_t)token;
	const uint8_t *residual = NULL;
	const struct terms *terms = &d->choices;

	answer_token(d, group, token);
	if (config->combine == FERRY_REDUCED) {
		split_by_rank(d);
		terms = &d->parts;
	}
	if (config->combine == FERRY_PER_HOST) {
		split_by_host(d, group, token);
		terms = &d->sums;
	}
	if (out->residual != NULL)
		residual = (const uint8_t *)out->residual +
		           residual_stride * (size_t)token;
	for (size_t i = 0; i < (size_t)d->o->hidden; i++)
		oracle_store(to, i, config->out_dtype,
		             sum_at(terms, i, config->combine_dtype, residual,
		                    config->out_dtype));
}

void oracle_combine(const struct oracle *o, int32_t rank,
                    const struct oracle_combine_how *how,
                    const struct ferry_combine_out *out)
{
	const size_t y_bytes =
		(size_t)o->hidden * oracle_dtype_bytes(o->config.combine_dtype);
	struct desk desk = {.o = o, .how = how, .rank = rank};
	struct oracle_fp fp;

	desk.y_bytes = y_bytes;
	desk.payload = malloc(o->row_bytes);
	desk.memory = malloc(192 * y_bytes);
	if (desk.payload == NULL || desk.memory == NULL)
		abort();
	oracle_fp_enter(&fp);
	for (int32_t t = 0; t < o->n_tokens[rank / o->group_size]; t++)
		combine_token(&desk, t, out);
	oracle_fp_leave(&fp);
	free(desk.memory);
	free(desk.payload);
}
