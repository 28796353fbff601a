/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to say what was judged, on stdout. */
#ifndef FERRY_HOSTS_REPORT_H
#define FERRY_HOSTS_REPORT_H

#include "hosts_judge.h"

void hosts_print(const struct hosts_judged *j);

/* False after a complaint. */
bool hosts_print_json(const struct hosts_judged *j, int argc,
                      char *const *argv);

#endif
