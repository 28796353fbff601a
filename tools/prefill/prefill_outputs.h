/* SPDX-License-Identifier: Apache-2.0 */
/* The files that ferry prefill is asked to write, looked at before it runs. */
#ifndef FERRY_PREFILL_OUTPUTS_H
#define FERRY_PREFILL_OUTPUTS_H

#include "prefill_options.h"

/*
 * Can all of them be written, each is another, and none is a text? A run must
 * not be lost at its end, nor what it reads. False after a complaint.
 */
bool prefill_outputs_check(const struct prefill_args *args);

/* Is none of them a file of the model? False after a complaint. */
bool prefill_outputs_spare(const struct prefill_args *args,
                           const struct lm_model *model);

#endif
