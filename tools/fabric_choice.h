/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to --fabric: known, usable here, threads or processes. */
#ifndef FERRY_FABRIC_CHOICE_H
#define FERRY_FABRIC_CHOICE_H

#include "crew.h"
#include "opt.h"

/*
 * Sets crew->fabric and crew->threads for a name, also behind a wrapper
 * ("trace:shm"). NULL: FERRY_FABRIC, and without it the best fit for
 * processes. Returns OPT_GO_ON,
 * EXIT_USAGE for an unknown name, EXIT_NOT_HERE with the fabric's reason.
 */
int fabric_choose(const struct opt_command *command, const char *name,
                  struct crew *crew);

#endif
