/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between ferry_fp_enter and ferry_fp_leave the caller's floating-point mode
 * has no influence, and afterwards it is there again, sticky flags included.
 */
#include "kern_cases.h"

#include <fenv.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { LEN = 200, N_ROWS = 5 };

/* All outputs of all kernels for one set of inputs. */
struct results {
	uint16_t bf16[LEN];
	uint16_t fp16[LEN];
	uint32_t fp32[LEN];
	uint16_t scaled[LEN];
	uint8_t q[LEN];
	float scales[2];
};

static uint16_t row_mem[N_ROWS][LEN];
static float weights[N_ROWS];

static void compute(const struct ferry_kernels *k, struct results *r)
{
	const void *rows[N_ROWS];

	for (int j = 0; j < N_ROWS; j++)
		rows[j] = row_mem[j];
	k->sum(r->bf16, FERRY_BF16, rows, FERRY_BF16, weights, N_ROWS, NULL,
	       LEN);
	k->sum(r->fp16, FERRY_FP16, rows, FERRY_FP16, weights, N_ROWS, NULL,
	       LEN);
	k->sum(r->fp32, FERRY_FP32, rows, FERRY_BF16, weights, N_ROWS, NULL,
	       LEN);
	k->scale(r->scaled, row_mem[0], FERRY_BF16, weights[0], LEN);
	k->quantize(r->q, r->scales, FERRY_SCALE_FP32, row_mem[1], LEN);
}

static void random_inputs(enum flavour flavour)
{
	for (int j = 0; j < N_ROWS; j++) {
		random_fill(row_mem[j], FERRY_BF16, LEN, flavour);
		weights[j] = random_weight(flavour);
	}
}

#if defined(__x86_64__)
enum { DEFAULT_MODE = 0x1f80 }; /* everything masked, nothing else */
#elif defined(__aarch64__)
enum { DEFAULT_MODE = 0 };
#else
enum { DEFAULT_MODE = FE_TONEAREST };
#endif

static uint32_t mode_get(void)
{
#if defined(__x86_64__)
	return _mm_getcsr();
#elif defined(__aarch64__)
	uint64_t mode;

	__asm__ volatile("mrs %0, fpcr" : "=r"(mode));
	return (uint32_t)mode;
#else
	return (uint32_t)fegetround();
#endif
}

static void mode_set(uint32_t mode)
{
#if defined(__x86_64__)
	_mm_setcsr(mode);
#elif defined(__aarch64__)
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)mode) : "memory");
#else
	fesetround((int)mode);
#endif
}

/* Rounding modes times flushing times traps times sticky flags. */
static uint32_t random_mode(void)
{
#if defined(__x86_64__)
	return random_u32() & 0xffff;
#elif defined(__aarch64__)
	return random_u32() & 0x07c00000; /* RMode, FZ, DN, AHP */
#else
	static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD,
	                            FE_TOWARDZERO};

	return (uint32_t)modes[random_below(4)];
#endif
}

static void any_mode(void **unused)
{
	const struct ferry_kernels *k;

	(void)unused;
	for (int t = 0; (k = ferry_kernels_at(t)) != NULL; t++)
		for (int i = 0; i < 500; i++) {
			const uint32_t usual = mode_get();
			const uint32_t mode = random_mode();
			struct results want = {0};
			struct results got = {0};
			uint32_t inside, after, old;

			random_inputs(random_below(N_FLAVOURS));
			compute(k, &want);
			mode_set(mode);
			old = ferry_fp_enter();
			inside = mode_get();
			compute(k, &got);
			ferry_fp_leave(old);
			after = mode_get();
			mode_set(usual);
			assert_int_equal(inside, DEFAULT_MODE);
			assert_int_equal(after, mode);
			assert_same_bytes(&got, &want, sizeof(got));
		}
}

/* The test would see a mode that was not set: FTZ and rounding do matter. */
static void mode_matters(void **unused)
{
#if defined(__x86_64__)
	const struct ferry_kernels *k = ferry_kernels_at(0);
	const uint32_t usual = mode_get();
	struct results want = {0};
	struct results got = {0};

	(void)unused;
	random_inputs(FLAVOUR_TINY);
	compute(k, &want);
	mode_set(0xffc0); /* FTZ, DAZ, towards zero */
	compute(k, &got);
	mode_set(usual);
	assert_memory_not_equal(&got, &want, sizeof(got));
#else
	(void)unused;
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_mode),
		cmocka_unit_test(mode_matters),
	};

	cases_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
