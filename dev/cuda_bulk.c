/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of bulk dispatch, one kernel without an engine: the figures of
 * dev/cuda-bulk.md.
 *
 *	cuda_bulk CTAS TOKENS...
 *
 * CTAS 0: all multiprocessors. Two ranks, hidden 7168, top-8 of 256.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_figures.h"
#include "cuda_harness.h"

static void time_figure(const struct harness_kernels *kernels,
                        const struct figure *f, int32_t n_tokens)
{
	const struct ferry_moe_config config = figure_config(f, n_tokens);
	struct harness *h = harness_open(&config, NULL, kernels, 77);
	struct harness_launch l = {0, FERRY_CUDA_SEND | FERRY_CUDA_RECV};
	struct traffic_spec specs[2];
	double p99;

	for (int i = 0; i < 2; i++)
		specs[i] = (struct traffic_spec){.seed = 11 + (uint64_t)i,
		                                 .n_tokens = n_tokens};
	/* Rows, scales, counts, offsets; TOKEN: the index lists, too. */
	h->form.leave = ~(1u << 1 | 1u << 2 | 1u << 3 | 1u << 8);
	harness_batch(h, 0, specs);
	harness_dispatch(h, 0, l.parts);
	harness_sync(h);
	const double p50 =
		harness_time(h, harness_dispatch_rank, &l, 20, 51, &p99);

	printf("%-22s %5d tokens, %3d blocks: %7.2f us, p99 %7.2f\n", f->name,
	       n_tokens, kernels->ctas, p50, p99);
	harness_close(h);
}

int main(int argc, char **argv)
{
	struct harness_kernels kernels = {
		.dispatch = &ferry_cuda_dispatch_chunks,
		.path = FERRY_PATH_CHUNKS,
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3) {
		printf("cuda_bulk CTAS TOKENS...\n");
		return 2;
	}
	kernels.ctas = atoi(argv[1]);
	for (int i = 2; i < argc; i++)
		for (size_t f = 0; f < N_FIGURES; f++)
			time_figure(&kernels, &figures[f], atoi(argv[i]));
	return 0;
}
