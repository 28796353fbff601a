/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry plan says, as text and as JSON. */
#ifndef FERRY_PLAN_REPORT_H
#define FERRY_PLAN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/plan.h>

/* One plan and what it leads to. */
struct plan_report {
	const char *source, *step; /* file or generator, name of the step */
	const char *note;          /* of the generator; may be empty */
	const struct ferry_plan_in *in;
	const struct ferry_plan *plan;
	const struct ferry_placement *before, *after;
	int64_t *loads_before, *loads_after; /* [n_ranks] tokens */
	int64_t plan_ns;
};

void plan_print(const struct plan_report *report);

/* Writes the document to stdout; false after a complaint. */
bool plan_write_json(const struct plan_report *report);

/* The placement as text, to be freed. */
char *plan_placement_text(const struct ferry_placement *placement);

#endif
