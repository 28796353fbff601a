/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVLinks between GPUs, as NVIDIA's management library tells. It is opened at
 * run time, sees GPUs that CUDA_VISIBLE_DEVICES hides, and makes no context.
 */
#ifndef FERRY_NVML_LINKS_H
#define FERRY_NVML_LINKS_H

#include "gpu.h"

enum { FERRY_GPU_UUID_TEXT = 41 };

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
void ferry_gpu_uuid_text(const uint8_t uuid[FERRY_GPU_UUID_BYTES],
                         char text[FERRY_GPU_UUID_TEXT]);

/*
 * Links of the first GPU that lead to the second, over switches too; 0: none;
 * -1: it cannot be told. Takes milliseconds.
 */
int32_t ferry_nvml_links(const uint8_t from[FERRY_GPU_UUID_BYTES],
                         const uint8_t to[FERRY_GPU_UUID_BYTES]);

#endif
