/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows into stages of shared memory and out of them: by the bulk copy engine
 * where addresses and sizes are multiples of 16, by the lanes of the warp
 * where they are not, or where elements change on the way.
 */
#ifndef FERRY_DISPATCH_CHUNKS_STAGE_CUH
#define FERRY_DISPATCH_CHUNKS_STAGE_CUH

#include "dispatch_chunks.cuh"
#include "rows.cuh"

static __device__ __forceinline__ bool is_wide(const void *p, size_t stride,
                                               size_t bytes)
{
	return (((uintptr_t)p | stride | bytes) & 15) == 0;
}

/* How rows of x and their scales can be read; uniform. */
struct x_form {
	bool payload_wide, scales_wide;
};

static __device__ __forceinline__ struct x_form
x_form_of(const struct ferry_cuda_dispatch *a)
{
	struct x_form f;

	f.payload_wide = !a->ch.quantize &&
	                 is_wide(a->in.x, a->in.x_stride, a->row_bytes);
	f.scales_wide =
		!a->ch.quantize &&
		is_wide(a->in.scales, a->in.scales_stride, a->scale_row_bytes);
	return f;
}

enum { QUANT_LOADS = 7 };

/*
 * As quantize_part, by one warp that has nobody beside it to fill the time:
 * seven loads of a lane fly together, 14 blocks of 128 elements. 4096 tokens of
 * 7168, padded, took 195 instead of 230 us (two H200s, November 2026).
 */
static __device__ inline void quantize_ahead(const struct quant_part *q,
                                             const unsigned char *x,
                                             uint32_t lane)
{
	const uint32_t all = (q->hidden + ROW_QUANT_BLOCK - 1) & ~127u;

#pragma unroll 1
	for (uint32_t at = lane * 8; at - lane * 8 < all;
	     at += QUANT_LOADS * 32 * 8) {
		uint4 v[QUANT_LOADS];

#pragma unroll
		for (uint32_t i = 0; i < QUANT_LOADS; i++) {
			const uint32_t from = at + i * 32 * 8;

			v[i] = load_bf16_8(x + (size_t)from * 2,
			                   (int32_t)q->hidden - (int32_t)from);
		}
#pragma unroll
		for (uint32_t i = 0; i < QUANT_LOADS; i++)
			quantize_8(q, at + i * 32 * 8, v[i]);
	}
}

/* What the lanes read of it; the bulk engine may still bring the rest. */
static __device__ __noinline__ void
load_x_lanes(const struct chunks c, const struct x_form f, unsigned char *stage,
             int32_t token, const struct piece p, int32_t lane)
{
	const struct ferry_cuda_dispatch *a = c.a;
	const struct row_image image = row_image_of(a, 0);
	const uint32_t begin = p.payload ? p.begin : p.scale_begin + c.payload;
	const unsigned char *x =
		(const unsigned char *)a->in.x + (size_t)token * a->in.x_stride;
	const unsigned char *scales = (const unsigned char *)a->in.scales +
	                              (size_t)token * a->in.scales_stride;

	const struct quant_part q = {stage,
	                             image.row_bytes,
	                             image.scale_offset,
	                             begin,
	                             begin + p.payload + p.scales,
	                             a->ch.scale_type == FERRY_SCALE_UE8M0};

	if (a->ch.quantize)
		quantize_ahead(&q, x, (uint32_t)lane);
	else if (!f.payload_wide && p.payload)
		fetch_bytes(stage, x + p.begin,
		            min(p.payload, image.row_bytes - p.begin),
		            (uint32_t)lane, 32);
	if (!a->ch.quantize && !f.scales_wide && p.scales)
		fetch_bytes(stage + p.payload, scales + p.scale_begin,
		            min(p.scales, image.scale_bytes - p.scale_begin),
		            (uint32_t)lane, 32);
	fence_proxy_async_shared();
	__syncwarp();
}

/* A piece of an own token as it travels, into a stage. */
static __device__ inline void load_x(const struct chunks *c, struct mover *m,
                                     const struct x_form *f, int32_t stage,
                                     int32_t token, int32_t index)
{
	const struct ferry_cuda_dispatch *a = c->a;
	const struct piece p = piece_of(c, index);
	unsigned char *to = stage_at(c, m, stage);
	const uint32_t payload = f->payload_wide ? p.payload : 0;
	const uint32_t scales = f->scales_wide ? p.scales : 0;

	if (payload + scales) {
		m->loading |= 1u << stage;
		if (m->lane == 0) {
			uint64_t *barrier = &m->barriers[stage];

			barrier_expect(barrier, payload + scales);
			if (payload)
				bulk_load(to,
				          (const unsigned char *)a->in.x +
				                  (size_t)token *
				                          a->in.x_stride +
				                  p.begin,
				          payload, barrier);
			if (scales)
				bulk_load(to + p.payload,
				          (const unsigned char *)a->in.scales +
				                  (size_t)token *
				                          a->in.scales_stride +
				                  p.scale_begin,
				          scales, barrier);
		}
	}
	if (payload != p.payload || scales != p.scales)
		load_x_lanes(*c, *f, to, token, p, m->lane);
}

/* A piece of a row of the own window; its flag has been seen. */
static __device__ inline void load_row(const struct chunks *c, struct mover *m,
                                       int32_t stage, const unsigned char *row,
                                       int32_t index)
{
	const struct piece p = piece_of(c, index);
	unsigned char *to = stage_at(c, m, stage);
	uint64_t *barrier = &m->barriers[stage];

	m->loading |= 1u << stage;
	if (m->lane != 0)
		return;
	barrier_expect(barrier, p.payload + p.scales);
	if (p.payload)
		bulk_load(to, row + p.begin, p.payload, barrier);
	if (p.scales)
		bulk_load(to + p.payload,
		          row + c->a->ch.scale_offset + p.scale_begin, p.scales,
		          barrier);
}

/*
 * A stage to a row of a window, own or a peer's; lane 0. Whole lines of 128
 * bytes, as far as the row's stride goes: a link carries them faster, 365
 * instead of 331 GB/s (two H200s, November 2026).
 */
static __device__ inline void store_row(const struct chunks *c,
                                        const unsigned char *stage,
                                        unsigned char *row,
                                        const struct piece *p)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const uint32_t scale_offset = (uint32_t)ch->scale_offset;
	const bool one = !p->scales || scale_offset == c->payload;
	const uint32_t to =
		p->payload ? p->begin : scale_offset + p->scale_begin;
	const uint32_t left = (uint32_t)ch->row_stride - to;

	if (one || !p->payload)
		bulk_store(row + to, stage,
		           min((p->payload + p->scales + 127) & ~127u, left));
	else
		bulk_store(row + to, stage, p->payload);
	if (!one && p->payload)
		bulk_store(row + scale_offset, stage + p->payload, p->scales);
}

/* How rows of the output can be written; uniform. */
struct out_form {
	bool rows, rows_wide, weighted;
	bool scales, scales_wide;
	bool lanes; /* some of it not by bulk stores */
};

static __device__ __forceinline__ struct out_form
out_form_of(const struct ferry_cuda_dispatch *a)
{
	struct out_form f;

	f.rows = a->out.rows != NULL;
	f.weighted = a->ch.weight_use == FERRY_WEIGHT_INPUT;
	f.rows_wide = f.rows && !f.weighted &&
	              is_wide(a->out.rows, a->out.row_stride, a->row_bytes);
	f.scales = a->out.scales && a->scale_row_bytes;
	f.scales_wide = f.scales &&
	                a->out.scale_form == FERRY_SCALES_ROW_MAJOR &&
	                is_wide(a->out.scales, a->out.scales_stride,
	                        a->scale_row_bytes);
	f.lanes = (f.rows && !f.rows_wide) || (f.scales && !f.scales_wide);
	return f;
}

/* What the bulk engine cannot store, by the lanes. */
static __device__ __noinline__ void store_out_lanes(const struct chunks c,
                                                    const struct out_form f,
                                                    const unsigned char *stage,
                                                    int64_t row, float weight,
                                                    const struct piece p)
{
	const struct ferry_cuda_dispatch *a = c.a;
	const uint32_t thread = threadIdx.x % 32;
	unsigned char *to = (unsigned char *)a->out.rows +
	                    (size_t)row * a->out.row_stride + p.begin;

	if (f.rows && p.payload) {
		const uint32_t bytes =
			min(p.payload, (uint32_t)a->row_bytes - p.begin);

		if (f.weighted)
			row_store_weighted(to, stage, bytes, a->ch.dtype,
			                   weight, make_uint2(thread, 32));
		else if (!f.rows_wide)
			row_store(to, stage, bytes, thread, 32);
	}
	if (f.scales && !f.scales_wide && p.scales)
		scales_store(
			a, row, stage + p.payload,
			make_uint2(p.scale_begin,
		                   min(p.scales, (uint32_t)a->scale_row_bytes -
		                                         p.scale_begin)),
			thread, 32);
}

/* A stage to one row of the output; all lanes. */
static __device__ __forceinline__ void store_out(const struct chunks *c,
                                                 const struct out_form *f,
                                                 const unsigned char *stage,
                                                 int64_t row, float weight,
                                                 const struct piece *p)
{
	const struct ferry_cuda_dispatch *a = c->a;

	if (threadIdx.x % 32 == 0) {
		if (f->rows_wide && p->payload)
			bulk_store_away((unsigned char *)a->out.rows +
			                        (size_t)row *
			                                a->out.row_stride +
			                        p->begin,
			                stage, p->payload);
		if (f->scales_wide && p->scales)
			bulk_store((unsigned char *)a->out.scales +
			                   (size_t)row * a->out.scales_stride +
			                   p->scale_begin,
			           stage + p->payload, p->scales);
	}
	if (f->lanes)
		store_out_lanes(*c, *f, stage, row, weight, *p);
}

#endif
