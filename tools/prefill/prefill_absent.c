/* SPDX-License-Identifier: Apache-2.0 */
/* ferry prefill in a build without the libraries that it needs. */
#include <stdio.h>

#include "../commands.h"
#include "../opt.h"

int cmd_prefill(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	fprintf(stderr, "ferry prefill: not in this build: %s\n",
	        FERRY_PREFILL_TEXT);
	return EXIT_NOT_HERE;
}
