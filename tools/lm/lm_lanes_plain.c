/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of lm_lanes.h with what every machine has. */
#define LM_LANES_TABLE lm_lanes_plain
#include "lm_lanes.inc"
