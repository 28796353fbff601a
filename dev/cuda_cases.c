/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of tests/moe ask how they run: on GPUs of one host. */
#include "moe/run_args.h"

struct run_args run_args = {.device = FERRY_DEVICE_CUDA};
