/* SPDX-License-Identifier: Apache-2.0 */
/* ferry info --world: where the ranks of a job are and how they reach. */
#ifndef FERRY_INFO_WORLD_H
#define FERRY_INFO_WORLD_H

#include <stdbool.h>

/*
 * Opens a world with the ranks that a launcher has started beside this one;
 * rank 0 prints. fabric NULL: FERRY_FABRIC, or the best fit. Returns an exit
 * status.
 */
int info_world(const char *fabric, bool json);

#endif
