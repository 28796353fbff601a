/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of lm_lanes.h with AVX2 and FMA. */
#include "lm_lanes.h"

#if defined(__x86_64__)
#define LM_LANES_TABLE lm_lanes_avx2
#include "lm_lanes.inc"
#endif
