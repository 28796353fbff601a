/* SPDX-License-Identifier: Apache-2.0 */
/* SLURM's node lists: names with bracketed ranges, as in "gpu[07-12,15],x1". */
#include <string.h>

#include "launch.h"

bool ferry_nodelist_first(const char *list, char *host, size_t bytes)
{
	char name[FERRY_ADDRESS_BYTES];
	size_t n = 0;

	for (const char *p = list; *p && *p != ',';) {
		size_t part = strcspn(p, "[],");

		if (*p == ']')
			return false;
		if (*p == '[') {
			const char *end = strchr(++p, ']');

			part = strcspn(p, "[-,]");
			if (!end || !part || p[part] == '[')
				return false;
			if (n + part >= sizeof(name))
				return false;
			memcpy(name + n, p, part);
			p = end + 1;
		} else {
			if (n + part >= sizeof(name))
				return false;
			memcpy(name + n, p, part);
			p += part;
		}
		n += part;
	}
	if (!n || n >= bytes)
		return false;
	memcpy(host, name, n);
	host[n] = 0;
	return true;
}
