/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and opens libferry_nvshmem.so, and says why there is none. */
#ifndef FERRY_NVSHMEM_LOAD_H
#define FERRY_NVSHMEM_LOAD_H

#include "../core/options.h"
#include "nvshmem_module.h"

/*
 * Opens the module for the life of the process: NVSHMEM_MODULE of the options,
 * else beside this library, else where the loader looks; before it the
 * NVSHMEM_LIBRARY that it is to use, where the options name one. NULL, with
 * the reason in why, where that cannot be or does not fit.
 */
const struct ferry_nvshmem_ops *
ferry_nvshmem_load(const struct ferry_options *opt,
                   char why[FERRY_NVSHMEM_WHY_BYTES]);

#endif
