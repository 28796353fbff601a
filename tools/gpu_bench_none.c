/* SPDX-License-Identifier: Apache-2.0 */
/* ferry bench --device cuda in a build without CUDA. */
#include "gpu_bench.h"

int gpu_bench_main(struct bench_run *run, struct crew *crew)
{
	(void)run;
	(void)crew;
	opt_complain(&bench_command, "--device cuda: built without CUDA");
	return EXIT_NOT_HERE;
}
