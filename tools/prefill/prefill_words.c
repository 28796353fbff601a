/* SPDX-License-Identifier: Apache-2.0 */
/* What table and JSON say alike of a job. */
#include "prefill_words.h"

#include <inttypes.h>
#include <stdio.h>

const char *const prefill_order_names[] = {"by-text", "mixed", "blended", NULL};
const char *const prefill_start_names[] = {"even", "hot", NULL};
const char *const prefill_split_names[] = {"even", "quota", "exact", NULL};
const char *const prefill_logits_names[] = {"last", "all", NULL};
const char *const prefill_switch_names[] = {"off", "on", NULL};

void prefill_bytes(int64_t bytes, char text[32])
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB",
	                                    "TiB"};
	double value = (double)bytes;
	int unit = 0;

	for (; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	snprintf(text, 32, "%.*f %s", unit ? 1 : 0, value, units[unit]);
}

void prefill_budget(const struct prefill_job *job, char text[32])
{
	if (job->budget_ns < 0)
		snprintf(text, 32, "measured");
	else if (job->budget_ns == INT64_MAX)
		snprintf(text, 32, "unlimited");
	else
		snprintf(text, 32, "%" PRId64 " us", job->budget_ns / 1000);
}

void prefill_swaps(const struct prefill_job *job, char text[16])
{
	if (!job->max_swaps)
		snprintf(text, 16, "any");
	else if (job->max_swaps < 0)
		snprintf(text, 16, "no");
	else
		snprintf(text, 16, "%d", job->max_swaps);
}

const char *prefill_fabric(const struct prefill_job *job)
{
	const char *const usual = job->threads ? "local" : "shm";

	return job->fabric ? job->fabric : usual;
}

double prefill_share(int64_t part, int64_t of)
{
	return of ? (double)part / (double)of : 0;
}

double prefill_fetched(const struct prefill_shape *shape,
                       const struct prefill_totals *totals)
{
	const int64_t whole = totals->n_cells * shape->expert_bytes;

	return whole ? (double)totals->moved_bytes / (double)whole : 0;
}

int32_t prefill_n_warm_up(const struct prefill_shape *shape)
{
	int32_t n = 0;

	for (int32_t s = 0; s < shape->n_steps; s++)
		n += shape->steps[s].warm_up;
	return n;
}

struct prefill_amount prefill_text_amount(const struct prefill_shape *shape,
                                          const struct prefill_run *run,
                                          int32_t text)
{
	struct prefill_amount n = {0, 0, 0};

	for (int32_t s = 0; s < shape->n_sequences; s++)
		if (run->sequences[s].text == text) {
			n.n_tokens += run->sequences[s].n_tokens;
			if (!shape->steps[run->sequences[s].step].warm_up)
				n.n_counted += run->sequences[s].n_tokens;
			n.n_sequences++;
		}
	return n;
}
