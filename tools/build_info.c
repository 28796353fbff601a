/* SPDX-License-Identifier: Apache-2.0 */
/* Commit and compiler, out of the library's version text. */
#include "build_info.h"

#include <stdio.h>

#include <ferry/base.h>

void build_info_read(struct build_info *info)
{
	*info = (struct build_info){0};
	sscanf(ferry_version_text(), "%31[^ ] (%63[^,], %127[^)]",
	       info->version, info->commit, info->compiler);
}
