/* SPDX-License-Identifier: Apache-2.0 */
/* See fabrics.h. */
#include "fabrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Without them an endpoint over TCP begins with 64 MiB of receive buffers.
 * libfabric reads the second when it is loaded, by whomever.
 */
__attribute__((constructor)) static void keep_endpoints_small(void)
{
	setenv("FI_OFI_RXM_USE_SRX", "0", 0);
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "8", 0);
}

struct ferry_fabric_info fabrics_get(const char *name)
{
	struct ferry_fabric_info info = FERRY_FABRIC_INFO_INIT;

	for (int i = 0; ferry_fabric_get(i, &info); i++)
		if (!strcmp(info.name, name))
			return info;
	fprintf(stderr, "there is no fabric '%s'\n", name);
	exit(2);
}

void fabrics_need(const char *name)
{
	const struct ferry_fabric_info info = fabrics_get(name);

	if (info.score > 0)
		return;
	printf("skipped: fabric %s: %s\n", name, info.reason);
	exit(77);
}
