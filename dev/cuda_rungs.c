/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels by name. */
#include "cuda_rungs.h"

#include <string.h>

static const struct {
	const char *name;
	enum ferry_path path;
	const struct ferry_cuda_dispatch_ops *dispatch;
	const struct ferry_cuda_combine_ops *combine;
} rungs[] = {
	{"lines", FERRY_PATH_LINES, &ferry_cuda_dispatch_lines,
         &ferry_cuda_combine_lines},
	{"chunks", FERRY_PATH_CHUNKS, &ferry_cuda_dispatch_chunks,
         &ferry_cuda_combine_chunks},
};

bool rungs_find(const char *name, struct harness_kernels *kernels)
{
	for (size_t i = 0; i < sizeof(rungs) / sizeof(*rungs); i++)
		if (strcmp(rungs[i].name, name) == 0) {
			*kernels = (struct harness_kernels){
				.dispatch = rungs[i].dispatch,
				.combine = rungs[i].combine,
				.path = rungs[i].path,
				.early = rungs[i].path == FERRY_PATH_LINES,
			};
			return true;
		}
	return false;
}
