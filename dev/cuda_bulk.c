/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of bulk dispatch, one kernel without an engine: the figures of
 * dev/cuda-bulk.md.
 *
 *	cuda_bulk KERNEL CTAS TOKENS...
 *
 * KERNEL is chunks, or what cuda_rungs.h has beside it. CTAS 0: all
 * multiprocessors. Two ranks, hidden 7168, top-8 of 256. Before each time a few
 * smaller dispatches of the same kind are compared with the oracle; exit 1
 * where bits differ.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_figures.h"
#include "cuda_rungs.h"

/* Rows, scales, counts, offsets; TOKEN: the index lists, too. */
static const uint32_t LEFT_OUT = ~(1u << 1 | 1u << 2 | 1u << 3 | 1u << 8);

static void make_batch(struct harness *h, uint64_t seed, int32_t n_tokens)
{
	struct traffic_spec specs[2];

	for (int i = 0; i < 2; i++)
		specs[i] = (struct traffic_spec){.seed = seed + (uint64_t)i,
		                                 .n_tokens = n_tokens};
	h->form.leave = LEFT_OUT;
	harness_batch(h, 0, specs);
}

/* Both halves of the window and one again; the oracle is slow and large. */
static int check_figure(const struct harness_kernels *kernels,
                        const struct figure *f, int32_t n_tokens)
{
	const int32_t n = n_tokens < 128 ? n_tokens : 128;
	const struct ferry_moe_config config = figure_config(f, n);
	struct harness *h = harness_open(&config, NULL, kernels, 77);
	int wrong = 0;

	for (uint64_t i = 0; i < 3; i++) {
		make_batch(h, 100 + 2 * i, n);
		harness_dispatch(h, 0, FERRY_CUDA_SEND | FERRY_CUDA_RECV);
		wrong += harness_check_dispatch(h, 0);
	}
	harness_close(h);
	return wrong;
}

static int time_figure(const struct harness_kernels *kernels,
                       const struct figure *f, int32_t n_tokens)
{
	const int wrong = check_figure(kernels, f, n_tokens);
	const struct ferry_moe_config config = figure_config(f, n_tokens);
	struct harness *h = harness_open(&config, NULL, kernels, 77);
	struct harness_launch l = {0, FERRY_CUDA_SEND | FERRY_CUDA_RECV};
	double p99;

	make_batch(h, 11, n_tokens);
	harness_dispatch(h, 0, l.parts);
	harness_sync(h);
	const double p50 =
		harness_time(h, harness_dispatch_rank, &l, 20, 51, &p99);

	printf("%-22s %5d tokens, %3d blocks: %7.2f us, p99 %7.2f, %d wrong\n",
	       f->name, n_tokens, h->ctas, p50, p99, wrong);
	harness_close(h);
	return wrong;
}

int main(int argc, char **argv)
{
	struct harness_kernels kernels;
	int wrong = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4 || !rungs_find(argv[1], &kernels) ||
	    kernels.path != FERRY_PATH_CHUNKS) {
		printf("cuda_bulk KERNEL CTAS TOKENS...: see cuda_bulk.c\n");
		return 2;
	}
	kernels.combine = NULL;
	kernels.ctas = atoi(argv[2]);
	for (int i = 3; i < argc; i++)
		for (size_t f = 0; f < N_FIGURES; f++)
			wrong += time_figure(&kernels, &figures[f],
			                     atoi(argv[i]));
	return wrong != 0;
}
