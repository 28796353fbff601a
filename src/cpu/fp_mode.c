/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floating-point mode of the calling thread. Callers may have set flush
 * to zero, another rounding or trapping exceptions; results must not depend
 * on it, and the caller gets its mode and its sticky flags back untouched.
 */
#include <fenv.h>

#include "kernels.h"

#if defined(__x86_64__)

#include <xmmintrin.h>

uint32_t ferry_fp_enter(void)
{
	const uint32_t old = _mm_getcsr();

	_mm_setcsr(0x1f80); /* all exceptions masked, nearest, no FTZ or DAZ */
	return old;
}

void ferry_fp_leave(uint32_t old)
{
	_mm_setcsr(old);
}

#elif defined(__aarch64__)

/* FPCR in use is 27 bits. FPSR, the sticky flags, is the caller's too. */
uint32_t ferry_fp_enter(void)
{
	uint64_t old;

	__asm__ volatile("mrs %0, fpcr" : "=r"(old));
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
	return (uint32_t)old;
}

void ferry_fp_leave(uint32_t old)
{
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)old) : "memory");
}

#else

/* Portable C knows the rounding mode only. */
uint32_t ferry_fp_enter(void)
{
	const int old = fegetround();

	fesetround(FE_TONEAREST);
	return (uint32_t)old;
}

void ferry_fp_leave(uint32_t old)
{
	fesetround((int)old);
}

#endif
