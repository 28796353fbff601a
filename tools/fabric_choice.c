/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to --fabric: known, usable here, threads or processes. */
#include "fabric_choice.h"

#include <stdlib.h>
#include <string.h>

#include <ferry/fabric.h>

#include "core/nearest.h"

enum { FABRICS_MAX = 32 };

static int complain_unknown(const struct opt_command *command, const char *name)
{
	struct ferry_fabric_info fabric = FERRY_FABRIC_INFO_INIT;
	const char *names[FABRICS_MAX];
	size_t n = 0;

	for (int i = 0; i < FABRICS_MAX && ferry_fabric_get(i, &fabric); i++)
		names[n++] = fabric.name;
	const char *near = ferry_nearest(name, names, n);

	return opt_complain(command, "unknown fabric '%s'%s%s%s", name,
	                    near ? ", did you mean '" : "", near ? near : "",
	                    near ? "'?" : "; ferry info lists them");
}

int fabric_choose(const struct opt_command *command, const char *name,
                  struct crew *crew)
{
	struct ferry_fabric_info fabric = FERRY_FABRIC_INFO_INIT;
	if (!name)
		name = getenv("FERRY_FABRIC");
	const char *colon = name ? strrchr(name, ':') : NULL;
	const char *inner = colon ? colon + 1 : name;

	crew->fabric = name;
	crew->threads = inner && !strcmp(inner, "local");
	if (!name || !strcmp(name, "auto"))
		return OPT_GO_ON;
	for (int i = 0; ferry_fabric_get(i, &fabric); i++) {
		if (strcmp(fabric.name, inner) != 0)
			continue;
		if (fabric.score > 0)
			return OPT_GO_ON;
		opt_complain(command, "fabric %s is not usable here: %s",
		             fabric.name, fabric.reason);
		return EXIT_NOT_HERE;
	}
	return complain_unknown(command, inner);
}
