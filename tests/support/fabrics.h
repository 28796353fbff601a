/* SPDX-License-Identifier: Apache-2.0 */
/* What fabrics say of themselves on this machine. */
#ifndef FABRICS_H
#define FABRICS_H

#include <ferry/fabric.h>

/* Ends the program with status 2 where there is none of that name. */
struct ferry_fabric_info fabrics_get(const char *name);

/* Ends it with status 77 and the reason where it cannot be used. */
void fabrics_need(const char *name);

#endif
