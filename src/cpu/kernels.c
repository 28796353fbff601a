/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernel tables this CPU and its operating system can run. The question
 * is asked anew each time: cheap, and no state to keep.
 */
#include "kern.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static bool always(void)
{
	return true;
}

#if defined(__x86_64__)

/* clang 14 does not know "f16c" as a feature of __builtin_cpu_supports. */
static bool has_f16c(void)
{
	unsigned eax, ebx, ecx, edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

/* __builtin_cpu_supports asks the operating system (XGETBV) too. */
static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") &&
	       __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}

#endif

/* Best first. */
static const struct {
	const struct ferry_kernels *table;
	bool (*usable)(void);
} candidates[] = {
#if defined(__x86_64__)
	{&ferry_kern_avx512, has_avx512},
	{&ferry_kern_avx2, has_avx2},
#elif defined(__aarch64__)
	{&ferry_kern_neon, always},
#endif
	{&ferry_kern_scalar, always},
};

enum { N_CANDIDATES = sizeof(candidates) / sizeof(candidates[0]) };

const struct ferry_kernels *ferry_kernels_at(int i)
{
	for (int c = 0; c < N_CANDIDATES; c++)
		if (candidates[c].usable() && i-- == 0)
			return candidates[c].table;
	return NULL;
}

const struct ferry_kernels *ferry_kernels_get(const char *isa)
{
	const struct ferry_kernels *table;

	if (strcmp(isa, "auto") == 0)
		return ferry_kernels_at(0);
	for (int i = 0; (table = ferry_kernels_at(i)) != NULL; i++)
		if (strcmp(isa, table->name) == 0)
			return table;
	return NULL;
}
