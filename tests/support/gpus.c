/* SPDX-License-Identifier: Apache-2.0 */
/* Counts GPUs in a process of its own. */
#include "gpus.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/cuda_info.h"

struct answer {
	int32_t n;
	char reason[GPUS_REASON];
};

_Static_assert((int)GPUS_REASON >= (int)FERRY_CUDA_REASON_BYTES, "it fits");

_Noreturn static void ask(int out)
{
	struct answer a = {0};

	a.n = ferry_cuda_count(a.reason);
	_exit(write(out, &a, sizeof(a)) == (ssize_t)sizeof(a) ? 0 : 1);
}

int32_t gpus_count(char reason[GPUS_REASON])
{
	struct answer a = {.reason = "nobody could ask the driver"};
	int ends[2];

	if (pipe(ends) == 0) {
		const pid_t pid = fork();

		if (pid == 0)
			ask(ends[1]);
		close(ends[1]);
		if (read(ends[0], &a, sizeof(a)) != (ssize_t)sizeof(a))
			a.n = 0;
		close(ends[0]);
		if (pid > 0)
			waitpid(pid, NULL, 0);
	}
	snprintf(reason, GPUS_REASON, "%s", a.reason);
	return a.n < GPUS_MAX ? a.n : GPUS_MAX;
}
