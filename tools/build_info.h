/* SPDX-License-Identifier: Apache-2.0 */
/* Commit and compiler, out of the library's version text. */
#ifndef FERRY_BUILD_INFO_H
#define FERRY_BUILD_INFO_H

struct build_info {
	char version[32];   /* "0.1.0" */
	char commit[64];    /* "443c50f12ab3", "no commit" */
	char compiler[128]; /* "gcc 12.2.0" */
};

void build_info_read(struct build_info *info);

#endif
