/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for CUDA's header of that name. */
#include <cuda_runtime_api.h>
