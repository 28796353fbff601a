/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of an interval in proportion to quotas; see quota.h. */
#include "quota.h"

void ferry_quota_starts(const int64_t *quota, const int32_t *slots, int32_t n,
                        uint32_t *start)
{
	__uint128_t sum = 0;
	__uint128_t before = 0;

	for (int32_t i = 0; i < n; i++)
		sum += (__uint128_t)quota[slots[i]];
	for (int32_t i = 0; i < n; i++) {
		const __uint128_t part = sum ? (__uint128_t)quota[slots[i]] : 1;

		start[i] = (uint32_t)(before * QUOTA_POINTS /
		                      (sum ? sum : (__uint128_t)n));
		before += part;
	}
}
