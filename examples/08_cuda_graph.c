/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 08: a layer of experts in one CUDA graph. Two ranks, threads here, on two
 * GPUs, or both on one: dispatch, the experts as one batched matrix product of
 * cuBLAS, and combine are captured once and replayed with other numbers of
 * tokens, which the kernels read from device memory.
 *
 *     cc 08_cuda_graph.c $(pkg-config --cflags --libs ferry) -lcublas -lcudart
 * \ -lpthread -o 08_cuda_graph
 *     ./08_cuda_graph
 *
 * prints, in any order,
 *
 *     rank 0: batches of 5, 0, 8, 3 tokens by one graph, sums as expected
 *     rank 1: batches of 2, 8, 0, 7 tokens by one graph, sums as expected
 */
#include <pthread.h>
#include <string.h>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "example.h"

enum { RANKS = 2, TOKENS = 8, HIDDEN = 256, TOPK = 2, EXPERTS = 6 };
enum { SLOTS = EXPERTS / RANKS, ROWS = RANKS * TOKENS, BATCHES = 4 };

static const int32_t batches[RANKS][BATCHES] = {{5, 0, 8, 3}, {2, 8, 0, 7}};
static const float weights[TOKENS][TOPK] = {
	{0.5f, 0.25f}, {0.5f, 0.25f}, {0.5f, 0.25f}, {0.5f, 0.25f},
	{0.25f, 1.0f}, {0.25f, 1.0f}, {0.25f, 1.0f}, {0.25f, 1.0f}};

struct rank {
	pthread_t thread;
	int32_t rank, n_gpus;
	struct ferry_team *team;
	cudaStream_t stream;
	/* Device memory. */
	uint16_t *x, *rows, *y, *out, *matrices;
	int32_t *ids, *n_tokens;
	float *weights;
};

static void ok(cudaError_t error)
{
	check(error == cudaSuccess, cudaGetErrorString(error));
}

static void *on_gpu(size_t bytes)
{
	void *memory;

	ok(cudaMalloc(&memory, bytes));
	ok(cudaMemset(memory, 0, bytes));
	return memory;
}

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(bits >> 16); /* values here are exact in bf16 */
}

/* Small numbers, so that every product and sum is exact. */
static float sent(int32_t rank, int32_t batch, int32_t token, int32_t i)
{
	return (float)((rank + 2 * batch + 3 * token + i) % 8);
}

static int32_t expert_of(int32_t batch, int32_t token, int32_t k)
{
	return (batch + token + 3 * k) % EXPERTS;
}

/* Expert e moves every element by one place and multiplies it by this. */
static float factor(int32_t expert)
{
	return (float)(expert % 3 + 1);
}

static void make_matrices(struct rank *r)
{
	uint16_t(*w)[HIDDEN][HIDDEN] = allocate(SLOTS, sizeof(*w));

	for (int32_t s = 0; s < SLOTS; s++)
		for (int32_t i = 0; i < HIDDEN; i++)
			w[s][i][(i + 1) % HIDDEN] =
				to_bf16(factor(r->rank * SLOTS + s));
	ok(cudaMemcpy(r->matrices, w, SLOTS * sizeof(*w), cudaMemcpyDefault));
	free(w);
}

/* The experts: y = rows times matrix, for each slot, in one call. */
static void run_experts(struct rank *r, cublasHandle_t cublas)
{
	const float one = 1, zero = 0;

	check(cublasGemmStridedBatchedEx(
		      cublas, CUBLAS_OP_N, CUBLAS_OP_N, HIDDEN, ROWS, HIDDEN,
		      &one, r->matrices, CUDA_R_16BF, HIDDEN, HIDDEN * HIDDEN,
		      r->rows, CUDA_R_16BF, HIDDEN, ROWS * HIDDEN, &zero, r->y,
		      CUDA_R_16BF, HIDDEN, ROWS * HIDDEN, SLOTS,
		      CUBLAS_COMPUTE_32F,
		      CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS,
	      "cuBLAS");
}

static void enqueue_layer(struct rank *r, struct ferry_moe *moe,
                          cublasHandle_t cublas)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out got = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in back = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;

	in.n_tokens_ptr = r->n_tokens;
	in.x = r->x;
	in.topk_ids = r->ids;
	in.topk_weights = r->weights;
	got.rows = r->rows;
	back.y = r->y;
	sum.out = r->out;
	must(ferry_dispatch(moe, 0, &in, &got, r->stream));
	run_experts(r, cublas);
	must(ferry_combine(moe, 0, &back, &sum, r->stream));
}

static cudaGraphExec_t capture_layer(struct rank *r, struct ferry_moe *moe,
                                     cublasHandle_t cublas)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	enqueue_layer(r, moe, cublas);
	ok(cudaStreamEndCapture(r->stream, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphDestroy(graph));
	return exec;
}

static void load_batch(struct rank *r, int32_t batch)
{
	uint16_t x[TOKENS][HIDDEN];
	int32_t ids[TOKENS][TOPK];

	for (int32_t t = 0; t < TOKENS; t++) {
		for (int32_t i = 0; i < HIDDEN; i++)
			x[t][i] = to_bf16(sent(r->rank, batch, t, i));
		for (int32_t k = 0; k < TOPK; k++)
			ids[t][k] = expert_of(batch, t, k);
	}
	ok(cudaMemcpy(r->x, x, sizeof(x), cudaMemcpyDefault));
	ok(cudaMemcpy(r->ids, ids, sizeof(ids), cudaMemcpyDefault));
	ok(cudaMemcpy(r->n_tokens, &batches[r->rank][batch], sizeof(int32_t),
	              cudaMemcpyDefault));
}

static void check_batch(const struct rank *r, int32_t batch)
{
	uint16_t out[TOKENS][HIDDEN];

	ok(cudaMemcpy(out, r->out, sizeof(out), cudaMemcpyDefault));
	for (int32_t t = 0; t < batches[r->rank][batch]; t++)
		for (int32_t i = 0; i < HIDDEN; i++) {
			const float before = sent(r->rank, batch, t,
			                          (i + HIDDEN - 1) % HIDDEN);
			float sum = 0;

			for (int32_t k = 0; k < TOPK; k++)
				sum += weights[t][k] * before *
				       factor(expert_of(batch, t, k));
			check(out[t][i] == to_bf16(sum), "a sum");
		}
}

static struct ferry_moe *open_channel(struct ferry_world *world)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe *moe;

	config.max_tokens = TOKENS;
	config.hidden = HIDDEN;
	config.topk = TOPK;
	config.n_experts = EXPERTS;
	config.layout = FERRY_EXPERT_PADDED; /* [SLOTS][ROWS][HIDDEN] */
	must(ferry_moe_open(world, &config, &moe));
	return moe;
}

static void make_arrays(struct rank *r)
{
	r->x = on_gpu(TOKENS * HIDDEN * sizeof(*r->x));
	r->out = on_gpu(TOKENS * HIDDEN * sizeof(*r->out));
	r->rows = on_gpu(SLOTS * ROWS * HIDDEN * sizeof(*r->rows));
	r->y = on_gpu(SLOTS * ROWS * HIDDEN * sizeof(*r->y));
	r->matrices = on_gpu(SLOTS * HIDDEN * HIDDEN * sizeof(*r->matrices));
	r->ids = on_gpu(TOKENS * TOPK * sizeof(*r->ids));
	r->weights = on_gpu(sizeof(weights));
	r->n_tokens = on_gpu(sizeof(*r->n_tokens));
	ok(cudaMemcpy(r->weights, weights, sizeof(weights), cudaMemcpyDefault));
	make_matrices(r);
}

static void *run(void *arg)
{
	struct rank *r = arg;
	struct ferry_world_config config = FERRY_WORLD_CONFIG_INIT;
	struct ferry_world *world;
	cublasHandle_t cublas;

	ok(cudaSetDevice(r->rank % r->n_gpus));
	ok(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
	check(cublasCreate(&cublas) == CUBLAS_STATUS_SUCCESS &&
	              cublasSetStream(cublas, r->stream) ==
	                      CUBLAS_STATUS_SUCCESS,
	      "cuBLAS");
	make_arrays(r);
	config.device = FERRY_DEVICE_CUDA;
	config.cuda_device = r->rank % r->n_gpus + 1;
	config.team = r->team;
	config.rank = r->rank;
	must(ferry_world_open(&config, &world));
	struct ferry_moe *moe = open_channel(world);
	cudaGraphExec_t layer = capture_layer(r, moe, cublas);

	for (int32_t batch = 0; batch < BATCHES; batch++) {
		load_batch(r, batch);
		ok(cudaGraphLaunch(layer, r->stream));
		ok(cudaStreamSynchronize(r->stream));
		must(ferry_moe_poll(moe, NULL));
		check_batch(r, batch);
	}
	const int32_t *n = batches[r->rank];

	printf("rank %d: batches of %d, %d, %d, %d tokens by one graph, sums "
	       "as "
	       "expected\n",
	       r->rank, n[0], n[1], n[2], n[3]);
	must(ferry_world_barrier(world)); /* frees below may wait for a GPU */
	ok(cudaGraphExecDestroy(layer));
	ferry_moe_close(moe);
	ferry_world_close(world);
	cublasDestroy(cublas);
	return NULL;
}

int main(void)
{
	struct rank ranks[RANKS] = {0};
	struct ferry_team *team;
	int n_gpus = 0;

	if (cudaGetDeviceCount(&n_gpus) != cudaSuccess || n_gpus < 1) {
		printf("skipped: no GPU here\n");
		return 77;
	}
	must(ferry_team_create(RANKS, &team));
	for (int32_t i = 0; i < RANKS; i++) {
		ranks[i].rank = i;
		ranks[i].n_gpus = n_gpus;
		ranks[i].team = team;
		check(!pthread_create(&ranks[i].thread, NULL, run, &ranks[i]),
		      "a thread");
	}
	for (int32_t i = 0; i < RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	ferry_team_destroy(team);
	return 0;
}
