/* SPDX-License-Identifier: Apache-2.0 */
/* See gpu_marks.h. */
#include "gpu_marks.h"

#include <stdlib.h>

#include "alloc.h"

bool gpu_compare(const struct gpu_seat *s, const char *at, size_t bytes,
                 int32_t r, int64_t *wrong)
{
	unsigned char *got = alloc_or_exit(bytes, 1);
	const bool copied = gpu_good(
		s->me, cudaMemcpy(got, at, bytes, cudaMemcpyDeviceToHost),
		"copying");

	for (size_t i = 0; copied && i < bytes; i++)
		*wrong += got[i] != gpu_mark(r, s->me->rank);
	free(got);
	return copied;
}
