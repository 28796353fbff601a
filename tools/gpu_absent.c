/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry bench and check do with --device cuda in a build without CUDA. */
#include <stdio.h>

#include "gpu_bench.h"
#include "gpu_check.h"

static const char why[] = "built without CUDA";

int gpu_bench_main(struct bench_run *run, struct crew *crew)
{
	(void)run;
	(void)crew;
	opt_complain(&bench_command, "--device cuda: %s", why);
	return EXIT_NOT_HERE;
}

void gpu_prepare(void)
{
}

bool gpu_facts_read(const struct crew *crew, bool yardsticks,
                    struct gpu_facts *facts)
{
	(void)crew;
	(void)yardsticks;
	*facts = (struct gpu_facts){0};
	snprintf(facts->reason, sizeof(facts->reason), "%s", why);
	return true;
}

int gpu_check_body(const struct crew_member *me, void *work)
{
	(void)me;
	(void)work;
	return EXIT_NOT_HERE;
}
