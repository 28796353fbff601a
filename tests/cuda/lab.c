/* SPDX-License-Identifier: Apache-2.0 */
/* See lab.h. */
#include "lab.h"

#include "gpus.h"

void lab_ok_at(const char *file, int line, const char *call, int error)
{
	if (error != cudaSuccess)
		ranks_fail_at(file, line, "%s: %s", call,
		              cudaGetErrorString((cudaError_t)error));
}

int lab_device(const struct rank *rank)
{
	const int device = gpus_of_rank(rank->rank, rank->n_gpus);

	if (rank->n_gpus == 0)
		return 0;
	LAB_OK(cudaSetDevice(device));
	LAB_OK(lab_load());
	return device;
}

void lab_capture(struct CUstream_st *stream)
{
	LAB_OK(cudaStreamBeginCapture(stream,
	                              cudaStreamCaptureModeThreadLocal));
}

cudaGraphExec_t lab_instantiate(struct ferry_world *world, cudaGraph_t graph,
                                struct CUstream_st *stream)
{
	cudaGraphExec_t exec;

	LAB_OK(cudaGraphInstantiate(&exec, graph, 0));
	LAB_OK(cudaGraphUpload(exec, stream));
	LAB_OK(cudaStreamSynchronize(stream));
	RANKS_OK(ferry_world_barrier(world));
	return exec;
}

cudaGraphExec_t lab_captured(struct ferry_world *world,
                             struct CUstream_st *stream)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	LAB_OK(cudaStreamEndCapture(stream, &graph));
	exec = lab_instantiate(world, graph, stream);
	LAB_OK(cudaGraphDestroy(graph));
	return exec;
}

void lab_alive(struct rank_memory *memory)
{
	enum { N = 1000 };
	struct CUstream_st *stream = rank_memory_stream(memory, 0);
	struct mirror m = mirror_make(memory, 4 * N, 4 * N);
	uint32_t *numbers = (void *)m.host;

	for (uint32_t i = 0; i < N; i++)
		numbers[i] = 7 * i;
	mirror_push(memory, &m, stream);
	LAB_OK(lab_add((void *)m.device, N, 5, stream));
	mirror_pull(memory, &m, stream);
	rank_memory_sync(memory, stream);
	for (uint32_t i = 0; i < N; i++)
		RANKS_EQ(numbers[i], 7 * i + 5);
	mirror_drop(memory, &m);
	LAB_OK(cudaDeviceSynchronize());
	LAB_OK(cudaGetLastError());
}

void lab_read(int argc, char **argv)
{
	run_args.fabric = "p2p";
	run_args_read(argc, argv);
}
