/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and outputs of the harness, and their comparison with the oracle. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "cuda_harness_inner.h"
#include "proto/layout.h"

enum { POISON = 0xa5, GUARD = 64 };

enum {
	ROWS,
	SCALES,
	COUNTS,
	OFFSETS,
	ROW_EXPERT_SLOT,
	ROW_SOURCE,
	ROW_TOKEN,
	ROW_WEIGHT,
	INDEX,
	N_ROWS,
	N_DROPPED,
	TOKEN_SLOTS,
	TOKEN_WEIGHTS,
};

static const struct {
	const char *name;
	size_t at;
} fields[HARNESS_OUTPUTS] = {
#define FIELD(id, field)                                                       \
	[id] = {#field, offsetof(struct ferry_dispatch_out, field)}
	FIELD(ROWS, rows),
	FIELD(SCALES, scales),
	FIELD(COUNTS, counts),
	FIELD(OFFSETS, offsets),
	FIELD(ROW_EXPERT_SLOT, row_expert_slot),
	FIELD(ROW_SOURCE, row_source),
	FIELD(ROW_TOKEN, row_token),
	FIELD(ROW_WEIGHT, row_weight),
	FIELD(INDEX, index),
	FIELD(N_ROWS, n_rows),
	FIELD(N_DROPPED, n_dropped),
	FIELD(TOKEN_SLOTS, token_slots),
	FIELD(TOKEN_WEIGHTS, token_weights),
#undef FIELD
};

static void *get(const struct ferry_dispatch_out *out, int id)
{
	void *p;

	memcpy(&p, (const char *)out + fields[id].at, sizeof(p));
	return p;
}

static void set(struct ferry_dispatch_out *out, int id, void *p)
{
	memcpy((char *)out + fields[id].at, &p, sizeof(p));
}

void harness_free_want(struct ferry_dispatch_out *want)
{
	for (int id = 0; id < HARNESS_OUTPUTS; id++)
		free(get(want, id));
	memset(want, 0, sizeof(*want));
}

static void upload(struct harness *h, int32_t rank, struct harness_array *a,
                   const void *from, size_t bytes)
{
	harness_drop(h, rank, a);
	if (!from)
		return;
	harness_on(h, rank);
	CU(cudaMalloc((void **)&a->device, bytes + GUARD));
	CU(cudaMemcpy(a->device, from, bytes, cudaMemcpyDefault));
	a->bytes = bytes;
}

static int32_t first_of_group(const struct harness *h, int32_t rank)
{
	return rank - rank % h->shape[0].group_size;
}

static void fill_in(struct harness *h, int32_t rank, struct harness_op *op)
{
	const struct ferry_shape *s = &h->shape[rank];
	struct traffic_batch *b = &op->batch;
	struct ferry_dispatch_in *in = &op->in;
	const int32_t too_many = s->max_tokens + 1;

	upload(h, rank, &op->input[0], b->x, b->x_bytes);
	upload(h, rank, &op->input[1], b->scales, b->scales_bytes);
	upload(h, rank, &op->input[2], b->ids, b->ids_bytes);
	upload(h, rank, &op->input[3], b->weights, b->weights_bytes);
	upload(h, rank, &op->input[4],
	       h->form.miscount == rank + 1 ? &too_many : &b->n_tokens,
	       sizeof(b->n_tokens));
	*in = b->in;
	in->x = op->input[0].device;
	in->scales = op->input[1].device;
	in->topk_ids = op->input[2].device;
	in->topk_weights = (const float *)(const void *)op->input[3].device;
	if (in->n_tokens_ptr || h->form.miscount == rank + 1)
		in->n_tokens_ptr =
			(const int32_t *)(const void *)op->input[4].device;
	if (!in->hidden)
		in->hidden = s->hidden;
	if (!in->topk)
		in->topk = s->topk;
	if (!in->x_stride)
		in->x_stride =
			(size_t)in->hidden * ferry_dtype_bytes(s->in_dtype);
	if (!in->scales_stride)
		in->scales_stride = ferry_shape_scale_bytes(s, in->hidden);
	if (!in->ids_stride)
		in->ids_stride = (size_t)in->topk *
		                 (in->id_type == FERRY_ID_INT64 ? 8 : 4);
	if (!in->weights_stride)
		in->weights_stride = (size_t)in->topk * 4;
}

static size_t scales_out_bytes(const struct harness *h, int32_t rank,
                               struct ferry_dispatch_out *out, int32_t hidden)
{
	const struct ferry_shape *s = &h->shape[rank];
	const size_t bytes = ferry_shape_scale_bytes(s, hidden);
	const bool padded = s->layout == FERRY_EXPERT_PADDED;
	const int64_t rows = padded ? s->padded_rows : s->recv_rows;
	const size_t entry = ferry_scale_entry_bytes(s, out->scale_form);
	size_t columns = (bytes + entry - 1) / entry;

	if (out->scale_form == FERRY_SCALES_ROW_MAJOR) {
		out->scales_stride = bytes + h->form.slack;
		return (size_t)s->recv_rows * out->scales_stride;
	}
	out->scales_stride =
		round_up((size_t)rows * entry, 16) + (h->form.slack ? 16 : 0);
	if (padded)
		columns *= (size_t)s->own_expert_slots;
	return columns * out->scales_stride;
}

static size_t out_bytes(const struct harness *h, int32_t rank, int id,
                        struct harness_op *op)
{
	const struct ferry_shape *s = &h->shape[rank];
	const bool token = s->layout == FERRY_TOKEN;
	const size_t n = (size_t)s->recv_rows;

	switch (id) {
	case ROWS:
		return token ? 0 : n * op->out.row_stride;
	case SCALES:
		if (token || s->scale_type == FERRY_SCALE_NONE)
			return 0;
		return scales_out_bytes(h, rank, &op->out, op->in.hidden);
	case COUNTS:
		return 4 * (size_t)s->own_expert_slots + 1;
	case OFFSETS:
		return 8 * ((size_t)s->own_expert_slots + 1);
	case ROW_WEIGHT:
		return s->send_weights ? 4 * n : 0;
	case INDEX:
		return token ? 8 * n : 0;
	case N_ROWS:
	case N_DROPPED:
		return 8;
	case TOKEN_SLOTS:
	case TOKEN_WEIGHTS:
		if (!token || (id == TOKEN_WEIGHTS && !s->send_weights))
			return 0;
		return 4 * 2 * (size_t)s->n_ranks * (size_t)s->cap *
		       (size_t)s->topk;
	default:
		return 4 * n;
	}
}

static void make_outputs(struct harness *h, int32_t rank, struct harness_op *op)
{
	harness_free_want(&op->want);
	op->out = (struct ferry_dispatch_out)FERRY_DISPATCH_OUT_INIT;
	op->out.scale_form = h->form.scale_form;
	op->out.row_stride = (size_t)op->in.hidden *
	                             ferry_dtype_bytes(h->shape[rank].dtype) +
	                     h->form.slack;
	for (int id = 0; id < HARNESS_OUTPUTS; id++) {
		struct harness_array *a = &op->output[id];
		size_t bytes = out_bytes(h, rank, id, op);

		if (id != ROWS && h->form.leave >> id & 1)
			bytes = 0;
		harness_drop(h, rank, a);
		if (!bytes)
			continue;
		harness_on(h, rank);
		CU(cudaMalloc((void **)&a->device, bytes + GUARD));
		a->bytes = bytes + GUARD;
		set(&op->out, id, a->device);
	}
}

void harness_poison(struct harness *h, int32_t slot)
{
	for (int32_t r = 0; r < h->n_ranks; r++)
		for (int id = 0; id < HARNESS_OUTPUTS; id++) {
			struct harness_array *a = &h->ops[r][slot].output[id];

			harness_on(h, r);
			if (a->device)
				CU(cudaMemset(a->device, POISON, a->bytes));
		}
	for (int32_t r = 0; r < h->n_ranks; r++) {
		harness_on(h, r);
		CU(cudaDeviceSynchronize());
	}
}

void harness_batch(struct harness *h, int32_t slot,
                   const struct traffic_spec *specs)
{
	for (int32_t r = 0; r < h->n_ranks; r++) {
		struct harness_op *op = &h->ops[r][slot];
		const int32_t first = first_of_group(h, r);

		traffic_free(&op->batch);
		traffic_make(&op->batch, &h->config, h->placement, first,
		             &specs[first]);
		fill_in(h, r, op);
		make_outputs(h, r, op);
	}
	harness_poison(h, slot);
}

struct oracle *harness_oracle(struct harness *h, int32_t slot,
                              struct ferry_dispatch_in *in)
{
	for (int32_t r = 0; r < h->n_ranks; r++) {
		in[r] = h->ops[r][slot].batch.in;
		if (in[r].n_tokens_ptr)
			in[r].n_tokens_ptr = &h->ops[r][slot].batch.n_tokens;
	}
	return oracle_create(&(struct oracle_case){
		.config = &h->config,
		.need = &h->need,
		.placement = h->placement,
		.in = in,
		.half = (uint32_t)(h->epoch[slot] & 1),
	});
}

static int tell(int32_t rank, const char *what, int64_t at)
{
	printf("rank %d: %s differs at %lld\n", rank, what, (long long)at);
	return 1;
}

static void level_nans(uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i + 4 <= n; i += 4) {
		float value;

		memcpy(&value, bytes + i, 4);
		if (isnan(value))
			memset(bytes + i, 0x7f, 4);
	}
}

static uint8_t *download(struct harness *h, int32_t rank, const void *from,
                         size_t bytes)
{
	uint8_t *p = malloc(bytes + 1);

	harness_on(h, rank);
	CU(cudaMemcpy(p, from, bytes, cudaMemcpyDefault));
	return p;
}

static int compare(struct harness *h, int32_t rank, int id,
                   const struct harness_op *op)
{
	const struct harness_array *a = &op->output[id];
	uint8_t *want = get(&op->want, id);
	int wrong = 0;

	if (!a->device)
		return 0;
	uint8_t *got = download(h, rank, a->device, a->bytes);

	if (id == ROW_WEIGHT || id == TOKEN_WEIGHTS) {
		level_nans(got, a->bytes);
		level_nans(want, a->bytes);
	}
	for (size_t i = 0; i < a->bytes && !wrong; i++)
		if (got[i] != want[i]) {
			wrong = tell(rank, fields[id].name, (int64_t)i);
			printf("  0x%02x, expected 0x%02x, stride %zu\n",
			       got[i], want[i],
			       id == SCALES ? op->out.scales_stride
			                    : op->out.row_stride);
		}
	free(got);
	return wrong;
}

static int compare_view(struct harness *h, int32_t rank, int32_t slot,
                        const struct oracle *oracle)
{
	const struct ferry_cuda_channel *c = &h->channel[rank];
	const size_t bytes =
		2 * (size_t)c->n_ranks * (size_t)c->cap * c->row_stride;
	uint8_t *rows = download(
		h, rank,
		c->window[rank] + (size_t)slot * c->slot_bytes + c->row_offset,
		bytes);
	struct ferry_moe_view view = FERRY_MOE_VIEW_INIT;

	view.rows = rows;
	view.n_rows = 2 * (int64_t)c->n_ranks * c->cap;
	view.row_stride = c->row_stride;
	view.scales = c->scale_type ? rows + c->scale_offset : NULL;
	view.cap = c->cap;
	const int64_t row = oracle_view_differs(oracle, rank, &view);

	free(rows);
	return row >= 0 ? tell(rank, "the view", row) : 0;
}

static int check_rank(struct harness *h, int32_t rank, int32_t slot,
                      const struct oracle *oracle)
{
	struct harness_op *op = &h->ops[rank][slot];
	int wrong = 0;

	op->want.scale_form = op->out.scale_form;
	op->want.row_stride = op->out.row_stride;
	op->want.scales_stride = op->out.scales_stride;
	for (int id = 0; id < HARNESS_OUTPUTS; id++) {
		const size_t bytes = op->output[id].bytes;

		free(get(&op->want, id));
		set(&op->want, id, NULL);
		if (!op->output[id].device)
			continue;
		set(&op->want, id, malloc(bytes));
		memset(get(&op->want, id), POISON, bytes);
	}
	oracle_dispatch(oracle, rank, &op->want);
	for (int id = 0; id < HARNESS_OUTPUTS; id++)
		wrong |= compare(h, rank, id, op);
	if (h->shape[rank].layout == FERRY_TOKEN)
		wrong |= compare_view(h, rank, slot, oracle);
	return wrong;
}

static bool is_zero(struct harness *h, int32_t rank,
                    const struct harness_array *a)
{
	bool zero = true;

	if (!a->device)
		return true;
	uint8_t *got = download(h, rank, a->device, a->bytes);

	/* counts may have no entry, one byte is then there all the same. */
	for (size_t i = 0; i + GUARD + 1 < a->bytes; i++)
		zero = zero && got[i] == 0;
	free(got);
	return zero;
}

static int check_failure(struct harness *h, int32_t rank, int32_t slot,
                         enum ferry_status status, int32_t root)
{
	const struct ferry_cuda_record *r = &h->host[rank]->record;
	struct harness_op *op = &h->ops[rank][slot];
	int wrong = 0;

	/* ASKED: another rank was first to say; the hosts agree on whom. */
	if (r->detail != FERRY_CUDA_ASKED &&
	    (r->status != (int32_t)status || r->root != root)) {
		printf("rank %d: status %d root %d detail %d value %lld, "
		       "expected %d root %d\n",
		       rank, r->status, r->root, r->detail, (long long)r->value,
		       (int)status, root);
		wrong = 1;
	}
	if (!is_zero(h, rank, &op->output[COUNTS]) ||
	    !is_zero(h, rank, &op->output[OFFSETS]) ||
	    !is_zero(h, rank, &op->output[N_ROWS]) ||
	    !is_zero(h, rank, &op->output[N_DROPPED]))
		wrong = tell(rank, "counts after a failure", 0);
	return wrong;
}

int harness_check_dispatch(struct harness *h, int32_t slot)
{
	struct ferry_dispatch_in in[HARNESS_RANKS];
	struct oracle *oracle = harness_oracle(h, slot, in);
	int32_t root = -1;
	enum ferry_status status = oracle_status(oracle, &root);
	int wrong = 0;

	if (h->form.miscount) {
		status = FERRY_RANGE;
		root = h->form.miscount - 1;
	}
	harness_sync(h);
	for (int32_t r = 0; r < h->n_ranks; r++) {
		if (status != FERRY_OK) {
			wrong += check_failure(h, r, slot, status, root);
			continue;
		}
		if (h->host[r]->record.seal) {
			const struct ferry_cuda_record *e = &h->host[r]->record;

			printf("rank %d: failed with %d root %d detail %d "
			       "token %d choice %d value %lld limit %d\n",
			       r, e->status, e->root, e->detail, e->token,
			       e->choice, (long long)e->value, e->limit);
			wrong++;
			continue;
		}
		wrong += check_rank(h, r, slot, oracle);
	}
	oracle_destroy(oracle);
	return wrong;
}

static int64_t answer_at(const struct harness *h, const struct oracle_row *row)
{
	switch (h->form.from) {
	case FERRY_FROM_PADDED:
		return row->padded;
	case FERRY_FROM_PACKED:
		return row->packed;
	default:
		return row->view;
	}
}

static void answer_rank(struct harness *h, int32_t rank, int32_t slot,
                        const struct oracle *oracle)
{
	const struct ferry_shape *s = &h->shape[rank];
	struct harness_op *op = &h->ops[rank][slot];
	const size_t bytes =
		(size_t)op->in.hidden * ferry_dtype_bytes(s->combine_dtype);
	const size_t stride = bytes + h->form.slack;
	const struct oracle_row *rows;
	const int64_t n = oracle_rows(oracle, rank, &rows);
	int64_t n_answers = 1;

	for (int64_t i = 0; i < n; i++)
		n_answers = max_i64(n_answers, answer_at(h, &rows[i]) + 1);
	uint8_t *y = malloc(stride * (size_t)n_answers);
	uint8_t *payload = malloc(s->row_bytes + 1);

	memset(y, POISON, stride * (size_t)n_answers);
	for (int64_t i = 0; i < n; i++) {
		const uint8_t *scales;
		const int32_t expert = h->form.from == FERRY_FROM_PRESUMMED
		                               ? ORACLE_PRESUMMED(rank)
		                               : rows[i].expert;

		oracle_row_bits(oracle, &rows[i], payload, &scales);
		oracle_expert(y + stride * (size_t)answer_at(h, &rows[i]),
		              s->combine_dtype, (size_t)op->in.hidden, payload,
		              (size_t)op->in.hidden *
		                      ferry_dtype_bytes(s->dtype),
		              scales, ferry_shape_scale_bytes(s, op->in.hidden),
		              expert, h->form.values);
	}
	upload(h, rank, &op->y, y, stride * (size_t)n_answers);
	op->combine_in = (struct ferry_combine_in)FERRY_COMBINE_IN_INIT;
	op->combine_in.y = op->y.device;
	op->combine_in.y_stride = stride;
	op->combine_in.layout = h->form.from;
	free(y);
	free(payload);
}

static uint8_t *poisoned_sum(struct harness *h, int32_t rank, int32_t slot,
                             size_t *bytes, size_t *stride)
{
	const struct harness_op *op = &h->ops[rank][slot];
	const enum ferry_dtype dtype = h->shape[rank].out_dtype;
	const uint64_t seed = 5;

	*stride = (size_t)op->in.hidden * ferry_dtype_bytes(dtype) +
	          h->form.slack;
	*bytes = *stride * (size_t)op->batch.n_tokens + GUARD;
	uint8_t *p = malloc(*bytes);

	memset(p, POISON, *bytes);
	for (int32_t t = 0; h->form.residual && t < op->batch.n_tokens; t++)
		oracle_expert(p + *stride * (size_t)t, dtype,
		              (size_t)op->in.hidden, &seed, sizeof(seed), NULL,
		              0, t, h->form.values);
	return p;
}

/* The residual, where there is one, is the output itself. */
static void make_sum(struct harness *h, int32_t rank, int32_t slot)
{
	struct harness_op *op = &h->ops[rank][slot];
	size_t bytes, stride;
	uint8_t *p = poisoned_sum(h, rank, slot, &bytes, &stride);

	upload(h, rank, &op->sum, p, bytes);
	free(p);
	op->combine_out = (struct ferry_combine_out)FERRY_COMBINE_OUT_INIT;
	op->combine_out.out = op->sum.device;
	op->combine_out.out_stride = stride;
	op->combine_out.residual_stride = stride;
	if (h->form.residual)
		op->combine_out.residual = op->sum.device;
}

void harness_answer(struct harness *h, int32_t slot)
{
	struct ferry_dispatch_in in[HARNESS_RANKS];
	struct oracle *oracle = harness_oracle(h, slot, in);

	for (int32_t r = 0; r < h->n_ranks; r++) {
		answer_rank(h, r, slot, oracle);
		make_sum(h, r, slot);
	}
	oracle_destroy(oracle);
}

static int check_sum(struct harness *h, int32_t rank, int32_t slot,
                     const struct oracle *oracle)
{
	const struct harness_op *op = &h->ops[rank][slot];
	const struct oracle_combine_how how = {
		.presummed = h->form.from == FERRY_FROM_PRESUMMED,
		.values = h->form.values,
	};
	size_t bytes, stride;
	uint8_t *want = poisoned_sum(h, rank, slot, &bytes, &stride);
	uint8_t *got = download(h, rank, op->sum.device, bytes);
	struct ferry_combine_out out = op->combine_out;
	int wrong = 0;

	out.out = want;
	out.residual = h->form.residual ? want : NULL;
	oracle_combine(oracle, rank, &how, &out);
	for (size_t i = 0; i < bytes && !wrong; i++)
		if (got[i] != want[i]) {
			wrong = tell(rank, "the sum", (int64_t)i);
			printf("  token %zu byte %zu: 0x%02x, expected "
			       "0x%02x\n",
			       i / stride, i % stride, got[i], want[i]);
		}
	free(want);
	free(got);
	return wrong;
}

int harness_check_combine(struct harness *h, int32_t slot)
{
	struct ferry_dispatch_in in[HARNESS_RANKS];
	struct oracle *oracle = harness_oracle(h, slot, in);
	int wrong = 0;

	harness_sync(h);
	for (int32_t r = 0; r < h->n_ranks; r++) {
		const struct ferry_cuda_record *e = &h->host[r]->record;

		if (e->seal) {
			printf("rank %d: failed with %d root %d detail %d\n", r,
			       e->status, e->root, e->detail);
			wrong++;
			continue;
		}
		wrong += check_sum(h, r, slot, oracle);
	}
	oracle_destroy(oracle);
	return wrong;
}
