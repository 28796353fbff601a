/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of outputs begin with: a made-up run on 8 ranks, and a file. */
#ifndef MADE_UP_FILE_H
#define MADE_UP_FILE_H

#include "made_up_run.h"

extern struct made_up made_up;
extern char made_up_path[]; /* of an empty file, at first */

/* For cmocka's groups. */
int made_up_set_up(void **state);
int made_up_tear_down(void **state);

/* Everything in a file, and a 0; free() frees it. NULL: it cannot be read. */
char *made_up_read(const char *path);

#endif
