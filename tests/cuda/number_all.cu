/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every float through cuda/number.cuh and through core/number.h, both on the
 * GPU. core/number.h is plain C; here its functions become device code, too.
 */
#include <stdint.h>
#include <string.h>

#define inline __host__ __device__ inline
#include "core/number.h"
#undef inline
#include "cuda/number.cuh"
#include "number_all.h"

/* Each result stands in the low and in the high half once. */
static __device__ bool pairs_differ(float x, float y)
{
	const uint32_t bf16 =
		(uint32_t)bf16_from_f32(y) << 16 | bf16_from_f32(x);
	const uint32_t fp16 =
		(uint32_t)fp16_from_f32(y) << 16 | fp16_from_f32(x);
	const uint32_t e4m3 =
		(uint32_t)e4m3_from_f32(y) << 8 | e4m3_from_f32(x);

	return bf16_pair(x, y) != bf16 || fp16_pair(x, y) != fp16 ||
	       e4m3_pair(x, y) != e4m3;
}

static __device__ bool singles_differ(uint32_t bits)
{
	const float x = __uint_as_float(bits);
	const uint16_t h = (uint16_t)bits;
	bool differ =
		f32_bits(f32_canonical_of(x)) != f32_bits(f32_canonical(x));

	differ |= f32_bits(f32_of_bf16_low(bits)) != f32_bits(f32_from_bf16(h));
	differ |= f32_bits(f32_of_bf16_high(bits)) !=
	          f32_bits(f32_from_bf16((uint16_t)(bits >> 16)));
	/* NaNs of fp16 keep their payload here and there, or become quiet. */
	differ |= f32_bits(f32_canonical_of(f32_of_fp16(h))) !=
	          f32_bits(f32_canonical(f32_from_fp16(h)));
	if (x >= 0 && x <= 0x1p127f * 1.9f)
		differ |=
			f32_bits(quant_scale_of(x)) != f32_bits(quant_scale(x));
	if (x >= 0x1p-126f)
		differ |= ue8m0_of(x) != ue8m0_from_f32(x);
	differ |= f32_bits(f32_of_ue8m0((uint8_t)bits)) !=
	          f32_bits(f32_from_ue8m0((uint8_t)bits));
	return differ;
}

static __global__ void compare(unsigned long long *n_wrong,
                               unsigned long long *first)
{
	const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t n = gridDim.x * blockDim.x;

	for (uint64_t i = thread; i < (uint64_t)1 << 32; i += n) {
		const uint32_t bits = (uint32_t)i;
		/* Something else in the other half, and each in each. */
		const float x = __uint_as_float(bits);
		const float y = __uint_as_float(bits * 2654435761u + 12345);

		if (!pairs_differ(x, y) && !pairs_differ(y, x) &&
		    !singles_differ(bits))
			continue;
		atomicAdd(n_wrong, 1);
		atomicMin(first, i);
	}
}

extern "C" int number_compare_all(uint64_t *n_wrong, uint64_t *first)
{
	unsigned long long start[2] = {0, ~0ull}, *d = NULL;
	cudaError_t error = cudaMalloc(&d, sizeof(start));

	if (error == cudaSuccess)
		error = cudaMemcpy(d, start, sizeof(start), cudaMemcpyDefault);
	if (error == cudaSuccess) {
		compare<<<1024, 256>>>(d, d + 1);
		error = cudaGetLastError();
	}
	if (error == cudaSuccess)
		error = cudaMemcpy(start, d, sizeof(start), cudaMemcpyDefault);
	cudaFree(d);
	*n_wrong = start[0];
	*first = start[1];
	return (int)error;
}
