/* SPDX-License-Identifier: Apache-2.0 */
/* Compares cuda/number.cuh with core/number.h for all 2^32 floats. */
#ifndef NUMBER_ALL_H
#define NUMBER_ALL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C"
#endif
	/* A CUDA error; *first is the bits of the first float that differs. */
	int
	number_compare_all(uint64_t *n_wrong, uint64_t *first);

#endif
