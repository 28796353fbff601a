/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of the element types. */
#ifndef FERRY_DTYPE_H
#define FERRY_DTYPE_H

#include <ferry/moe_config.h>

/* Bytes of an element; 0 for a value that is no type. */
static inline size_t ferry_dtype_bytes(enum ferry_dtype dtype)
{
	switch (dtype) {
	case FERRY_BF16:
	case FERRY_FP16:
		return 2;
	case FERRY_FP32:
		return 4;
	case FERRY_FP8_E4M3:
	case FERRY_FP8_E5M2:
	case FERRY_BYTES:
		return 1;
	case FERRY_DTYPE_NONE:
		break;
	}
	return 0;
}

#endif
