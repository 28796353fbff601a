/* SPDX-License-Identifier: Apache-2.0 */
/* --help by the table of options. */
#ifndef FERRY_OPT_HELP_H
#define FERRY_OPT_HELP_H

#include "opt.h"

/* Usage, every option with default and range, examples; on stdout. */
void opt_help(const struct opt_command *command);

#endif
