/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a number that a caller gave is one of those that are allowed. */
#ifndef FERRY_RANGE_H
#define FERRY_RANGE_H

#include "ctx.h"

/* RANGE outside least..most, by name; most INT64_MAX is no limit. */
static inline enum ferry_status check_range(struct ferry_ctx *ctx,
                                            const char *call, const char *field,
                                            int64_t value, int64_t least,
                                            int64_t most)
{
	if (value >= least && value <= most)
		return FERRY_OK;
	if (most == INT64_MAX)
		return ferry_fail(ctx, FERRY_RANGE,
		                  "%s: %s is %lld, allowed are %lld..", call,
		                  field, (long long)value, (long long)least);
	return ferry_fail(ctx, FERRY_RANGE,
	                  "%s: %s is %lld, allowed are %lld..%lld", call, field,
	                  (long long)value, (long long)least, (long long)most);
}

#endif
