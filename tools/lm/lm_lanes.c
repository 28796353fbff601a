/* SPDX-License-Identifier: Apache-2.0 */
/* Which tables of lm_lanes.h this CPU can run. */
#include "lm_lanes.h"

const struct lm_lanes *lm_lanes_at(int32_t i)
{
	const struct lm_lanes *tables[4] = {NULL};
	int32_t n = 0;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		tables[n++] = &lm_lanes_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		tables[n++] = &lm_lanes_avx2;
#endif
	tables[n++] = &lm_lanes_plain;
	return i < n ? tables[i] : NULL;
}
