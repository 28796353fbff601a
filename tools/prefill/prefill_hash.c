/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two runs have computed the same bits. */
#include <string.h>

#include "core/bits.h"
#include "prefill.h"

uint64_t prefill_hash(uint64_t hash, const float *values, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &values[i], sizeof(bits));
		hash = hash_u64(hash, bits);
	}
	return hash;
}

void prefill_compare(const struct prefill_shape *shape,
                     const struct prefill_run *truth, struct prefill_run *run)
{
	run->n_differ = 0;
	for (int32_t s = 0; s < shape->n_sequences; s++)
		run->n_differ +=
			run->sequences[s].hash != truth->sequences[s].hash;
	run->bits_equal = run->n_differ == 0;
}
