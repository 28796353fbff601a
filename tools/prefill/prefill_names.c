/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the parts of a prefill. */
#include "prefill_result.h"

const char *const prefill_stage_names[PREFILL_N_STAGES] = {
	"predict", "migrate",  "attention", "commit",
	"router",  "dispatch", "experts",   "combine",
};
