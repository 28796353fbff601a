/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's ids and weights, wherever they lie, and the expert slots that
 * serve the choices.
 */
#ifndef FERRY_DISPATCH_LINES_IDS_CUH
#define FERRY_DISPATCH_LINES_IDS_CUH

#include "dispatch_lines.cuh"

static __device__ __noinline__ uint64_t load_odd(const unsigned char *at,
                                                 uint32_t bytes)
{
	uint64_t v = 0;

#pragma unroll 1
	for (uint32_t i = 0; i < bytes; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

static __device__ __forceinline__ int64_t
id_at(const struct ferry_dispatch_in *in, int32_t token, int32_t choice)
{
	const bool wide = in->id_type == FERRY_ID_INT64;
	const uint32_t size = wide ? 8 : 4;
	const unsigned char *at = (const unsigned char *)in->topk_ids +
	                          (size_t)token * in->ids_stride +
	                          (size_t)choice * size;

	if (!is_aligned(at, size)) {
		const uint64_t v = load_odd(at, size);

		return wide ? (int64_t)v : (int32_t)(uint32_t)v;
	}
	return wide ? *(const int64_t *)at : *(const int32_t *)at;
}

static __device__ __forceinline__ int32_t
id_limit(const struct ferry_cuda_dispatch *d)
{
	return d->in.id_kind == FERRY_ID_SLOT ? d->ch.n_expert_slots
	                                      : d->ch.n_experts;
}

/* Apart: other splits and calls without a placement need no room for it. */
static __device__ __noinline__ int32_t
slot_by_quota(const struct ferry_cuda_dispatch *d, int32_t expert,
              int32_t token, int32_t choice)
{
	return resolve_by_quota(&d->ch, &d->placement, expert, token, choice);
}

/* Expert slot of a choice; -1: masked or skipped; -2: bad. */
static __device__ __forceinline__ int32_t
resolve_choice(const struct ferry_cuda_dispatch *d, int64_t id, int32_t token,
               int32_t choice)
{
	if (id < 0 || id >= id_limit(d))
		return id != -1 && d->ch.bad_id == FERRY_BAD_ID_ERROR ? -2 : -1;
	if (d->in.id_kind == FERRY_ID_SLOT)
		return (int32_t)id;
	if (d->placement.start)
		return slot_by_quota(d, (int32_t)id, token, choice);
	return resolve_evenly(&d->ch, &d->placement, (int32_t)id, token,
	                      choice);
}

/* Weight of a choice that is not masked. */
static __device__ __forceinline__ float
weight_at(const struct ferry_cuda_dispatch *d, int32_t token, int32_t choice)
{
	const unsigned char *at = (const unsigned char *)d->in.topk_weights +
	                          (size_t)token * d->in.weights_stride +
	                          (size_t)choice * 4;

	if (!d->in.topk_weights)
		return d->ch.routed_scale;
	const uint32_t v = is_aligned(at, 4) ? *(const uint32_t *)at
	                                     : (uint32_t)load_odd(at, 4);

	return __fmul_rn(__uint_as_float(v), d->ch.routed_scale);
}

static __device__ __forceinline__ bool
weights_travel(const struct ferry_cuda_dispatch *d)
{
	return d->ch.send_weights &&
	       (d->in.topk_weights || d->ch.routed_scale != 1.0f);
}

/* Words first.. of the table: experts become slots; ~0 and weights stay. */
static __device__ __noinline__ uint4 words_by_quota(const struct lines_args *a,
                                                    uint32_t first, uint32_t n,
                                                    uint4 words)
{
	uint32_t w[4] = {words.x, words.y, words.z, words.w};

#pragma unroll
	for (uint32_t k = 0; k < 4; k++) {
		const uint32_t i = first + k;
		const uint32_t token = quotient(i, &a->by_topk);

		if (i < n && w[k] != ~0u)
			w[k] = (uint32_t)resolve_by_quota(
				&a->d.ch, &a->d.placement, (int32_t)w[k],
				(int32_t)token,
				(int32_t)(i - token * a->by_topk.by));
	}
	return make_uint4(w[0], w[1], w[2], w[3]);
}

#endif
