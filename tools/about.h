/* SPDX-License-Identifier: Apache-2.0 */
/* What figures are said to be of: build, machine, command, date. */
#ifndef FERRY_ABOUT_H
#define FERRY_ABOUT_H

#include <cjson/cJSON.h>

/* The first two lines of a table: "# ferry" and "# machine". */
void about_print(void);

/* Version, commit, compiler, date, command and machine. */
void about_json(cJSON *meta, int argc, char *const *argv);

#endif
