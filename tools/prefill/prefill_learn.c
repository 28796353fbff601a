/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank learns of its early router. Whether an expert is chosen changes
 * between what goes into an attention and what comes out of it, and not by
 * chance alone: some experts lose by it in every batch, and others gain. So
 * what is foreseen of an expert is multiplied by what came of it in the last
 * batches, over what was foreseen then. FreeBalance takes it as it is.
 */
#include "prefill_rank.h"

/* Of the sums, an eighth is forgotten with each batch. */
enum { FORGET = 8, DOUBT = 2 };

static int64_t first_of(const struct prefill_early *e)
{
	return (int64_t)e->layer * e->rank->model->config.n_experts;
}

/*
 * Both sums begin with twice the mean of the experts, so that few tokens do not
 * count for much.
 */
void prefill_learn_correct(struct prefill_early *early)
{
	const struct lm_config *c = &early->rank->model->config;
	const int64_t first = first_of(early);
	const int64_t doubt =
		1 + DOUBT * (int64_t)early->n_tokens * c->topk / c->n_experts;

	for (int32_t e = 0; e < c->n_experts; e++) {
		const int64_t came = early->came[first + e] + doubt;
		const int64_t expected = early->expected[first + e] + doubt;

		early->counts[e] =
			(int32_t)((early->raw[e] * came + expected / 2) /
		                  expected);
	}
}

void prefill_learn_truth(struct prefill_early *early, const int32_t *truth)
{
	const int64_t first = first_of(early);

	for (int32_t e = 0; e < early->rank->model->config.n_experts; e++) {
		int64_t *came = &early->came[first + e];
		int64_t *expected = &early->expected[first + e];

		*came += truth[e] - *came / FORGET;
		*expected += early->raw[e] - *expected / FORGET;
	}
}
