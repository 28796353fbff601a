/* SPDX-License-Identifier: Apache-2.0 */
/* libfabric, on loopback. */
#include "conformance.h"

const struct conf_setting conf_settings[] = {
	{"ofi", RANKS_PROCESSES, "", true},
	{"ofi", RANKS_THREADS, "", true},
	{NULL, RANKS_THREADS, NULL, false},
};

const int32_t conf_n_gpus = 0;

void conf_begin(void)
{
}

void conf_place(struct ranks *how)
{
	(void)how;
}
