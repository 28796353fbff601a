/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry replay says, as text and as JSON. */
#ifndef FERRY_REPLAY_REPORT_H
#define FERRY_REPLAY_REPORT_H

#include "balance_args.h"
#include "replay.h"

/* A replay and the words for it. */
struct replay_report {
	const struct replay_config *config;
	const struct balance_args *args;
	const char *source, *note; /* file or generator; what is known of it */
	const char *start, *predict, *steps;
	int argc;
	char **argv;
};

void replay_print_header(const struct replay_report *report);
void replay_print_row(const struct replay_report *report,
                      const struct replay_row *row);

/* Writes the document to stdout; false after a complaint. */
bool replay_write_json(const struct replay_report *report,
                       const struct replay_row *rows, int n_rows);

#endif
