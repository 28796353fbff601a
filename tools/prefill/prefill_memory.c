/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of all ranks together. Each rank asks the machine for its own part,
 * and every part may fit where the sum of them would end other programs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bits.h"
#include "prefill.h"
#include "prefill_inner.h"
#include "prefill_words.h"

/* Bytes that the machine can still give; INT64_MAX where nobody knows. */
static int64_t available_bytes(void)
{
	FILE *const f = fopen("/proc/meminfo", "r");
	char line[128];
	int64_t kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "MemAvailable:", 13) ||
		    !strncmp(line, "SwapFree:", 9))
			kib += strtoll(strchr(line, ':') + 1, NULL, 10);
	if (f)
		fclose(f);
	return kib > 0 ? kib * 1024 : INT64_MAX;
}

int64_t prefill_pool_bytes(const struct prefill_shape *shape)
{
	const int64_t n_ranks = shape->n_ranks;
	const int64_t slots = shape->n_experts + n_ranks * shape->replicas;
	const int64_t most =
		(shape->n_experts + n_ranks - 1) / n_ranks + shape->replicas;
	const int64_t staging =
		n_ranks * prefill_staging(shape->n_ranks, (int32_t)most);

	return (slots * shape->n_layers + staging) * shape->expert_bytes;
}

bool prefill_memory_check(const struct prefill_job *job, struct fault *fault)
{
	const int64_t wanted = prefill_pool_bytes(job->shape);
	const int64_t available = available_bytes();
	char needs[32], left[32];

	if (wanted <= available)
		return true;
	prefill_bytes(wanted, needs);
	prefill_bytes(available, left);
	return fault_set(fault,
	                 "experts that can move are copied: %s of memory in "
	                 "all ranks, the machine has %s left; --balance off "
	                 "copies none",
	                 needs, left);
}
