/* SPDX-License-Identifier: Apache-2.0 */
/* See fabrics.h. */
#include "fabrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
