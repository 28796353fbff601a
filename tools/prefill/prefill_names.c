/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a layer: their names, and whose they are. */
#include "prefill_result.h"

const char *const prefill_stage_names[PREFILL_N_STAGES] = {
	"predict", "migrate",  "attention", "commit",
	"router",  "dispatch", "experts",   "combine",
};

bool prefill_stage_is_second(enum prefill_stage stage)
{
	return stage == PREFILL_PREDICT || stage == PREFILL_MIGRATE;
}
