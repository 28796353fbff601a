/* SPDX-License-Identifier: Apache-2.0 */
/* Work that takes a known time, to stand between send and recv. */
#include <stdint.h>

static __global__ void spin(uint32_t ns)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < ns);
}

extern "C" int harness_launch_spin(uint32_t ns, int32_t ctas,
                                   cudaStream_t stream)
{
	spin<<<ctas, 32, 0, stream>>>(ns);
	return (int)cudaGetLastError();
}
