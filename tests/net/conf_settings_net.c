/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics of several hosts, on hosts of network namespaces. */
#include "fabric/conformance.h"
#include "fabrics.h"
#include "hosted.h"

const struct conf_setting conf_settings[] = {
	{"shm+ofi", RANKS_PROCESSES, "", true},
	{NULL, RANKS_THREADS, NULL, false},
};

const int32_t conf_n_gpus = 0;

static struct namespaces hosts;

void conf_begin(void)
{
	fabrics_need("shm+ofi");
	namespaces_need(&hosts, hosted_count(2), NULL);
	hosted_use(&hosts);
}

void conf_place(struct ranks *how)
{
	hosted_ranks(how);
}
