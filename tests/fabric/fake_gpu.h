/* SPDX-License-Identifier: Apache-2.0 */
/* What tests may ask of the pretended GPUs. */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <stdint.h>

enum { FAKE_GPUS = 4 };

/* Mappings of this process that are not freed. */
extern int32_t fake_gpu_memories;

/* 1: from here on every map and share fails. */
extern uint32_t fake_gpu_fails;

/* 1: copies wait; 2: the GPU says that it has failed, too. */
extern uint32_t fake_gpu_stuck;

/* 1: streams of the caller's have work that does not end. */
extern uint32_t fake_gpu_busy;

/* 1: memory of the host is not a GPU's. */
extern uint32_t fake_gpu_no_host;
/* Bit g: NICs do not reach GPU g. */
extern uint32_t fake_gpu_no_rdma;

#endif
