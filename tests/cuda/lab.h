/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of this folder that drive channels share. */
#ifndef LAB_H
#define LAB_H

#include <cuda_runtime_api.h>

#include "lab_kernels.h"
#include "moe/drive_lasting.h"
#include "moe/run_args.h"

/* A CUDA call, or a launch of lab_kernels.h, that must be good. */
#define LAB_OK(call) lab_ok_at(__FILE__, __LINE__, #call, (int)(call))
void lab_ok_at(const char *file, int line, const char *call, int error);

/*
 * Makes the rank's GPU the current device of this thread; its number. On a
 * fabric of CPUs nothing is done: so a program can be tried without a GPU.
 */
int lab_device(const struct rank *rank);

/*
 * Begins and ends the capture of a stream; the graph is made to run. All ranks
 * meet when theirs are: cudaGraphInstantiate waits for all kernels of its GPU,
 * and keeps every launch waiting meanwhile. One that began early, and waits for
 * a rank that is still at it, would wait in vain.
 */
void lab_capture(struct CUstream_st *stream);
cudaGraphExec_t lab_captured(struct ferry_world *world,
                             struct CUstream_st *stream);
cudaGraphExec_t lab_instantiate(struct ferry_world *world, cudaGraph_t graph,
                                struct CUstream_st *stream);

/* The context computes and copies as before, and remembers no error. */
void lab_alive(struct rank_memory *memory);

/* Run arguments of a program that needs a GPU whatever the fabric is. */
void lab_read(int argc, char **argv);

#endif
