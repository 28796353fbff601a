/* SPDX-License-Identifier: Apache-2.0 */
/* ferry info --links: what a transfer costs between any two ranks. */
#ifndef FERRY_INFO_LINKS_H
#define FERRY_INFO_LINKS_H

#include "opt.h"

enum { INFO_LINKS_RANKS = 256 };

struct info_links {
	int64_t n_ranks;
	int64_t max_bytes; /* as in struct ferry_cost_config */
	int64_t rounds;
	const char *fabric; /* NULL: best fit */
	bool json;
};

/* Starts the ranks, measures, prints; returns an exit status. */
int info_links(const struct opt_command *command, const struct info_links *o);

#endif
