/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the parent of a prefill's ranks and the ranks: what is settled before
 * they start, and what they leave behind beside the result itself.
 */
#ifndef FERRY_PREFILL_INNER_H
#define FERRY_PREFILL_INNER_H

#include "../fault.h"
#include "prefill.h"

/* What a rank notes of a layer of a step; the parent makes cells of it. */
struct prefill_note {
	double hidden_cosine; /* sums over its tokens */
	double logit_cosine;
	int64_t n_hits; /* true choices that were foreseen */
	int64_t plan_ns, migrate_ns;
	int64_t late_ns;   /* from its end of attention until all was staged */
	int64_t switch_ns; /* its share of the commit, without waiting */
	int64_t moved_bytes; /* out of this rank */
};

/* A run before its ranks start, and the shared memory of its ranks. */
struct prefill_setup {
	const struct prefill_job *job;
	struct prefill_run *run;
	enum ferry_split split;
	int32_t n_slots;        /* of all ranks */
	int32_t *slots_of_rank; /* [n_ranks] */
	int32_t *first;         /* [n_layers][n_slots] experts, as opened */
	int32_t max_tokens;     /* of any rank and step, 1.. */
	int32_t max_length;     /* of any sequence */
	/* Shared: */
	struct prefill_note *notes; /* [n_steps][n_layers][n_ranks] */
	int32_t *counts;   /* [n_steps][n_layers][n_ranks][n_experts] */
	int32_t *foreseen; /* the same, of the early router */
	/* [n_steps][n_layers][n_slots] as served; rank 0 writes them. */
	int32_t *served;
	int64_t *quotas;                 /* with split QUOTA, else NULL */
	struct prefill_span *step_spans; /* [n_steps][n_ranks] */
	int64_t *start_ns;               /* [1] of the clock */
};

/* Place of a layer of a step among those of a run. */
static inline int64_t prefill_at(const struct prefill_shape *shape,
                                 int32_t step, int32_t layer)
{
	return (int64_t)step * shape->n_layers + layer;
}

/* The same of one rank of it. */
static inline int64_t prefill_rank_at(const struct prefill_shape *shape,
                                      int32_t step, int32_t layer, int32_t rank)
{
	return prefill_at(shape, step, layer) * shape->n_ranks + rank;
}

/* Tokens of a sequence. */
int32_t prefill_length(const struct prefill_job *job, int32_t sequence);

/* Shapes, places and shared memory of a run; false where it cannot be. */
bool prefill_setup_open(struct prefill_setup *setup,
                        const struct prefill_job *job, struct prefill_run *run,
                        struct fault *fault);
void prefill_setup_close(struct prefill_setup *setup);

/*
 * Room of a rank for experts on their way. A plan may bring it a new one in
 * each of its slots, and what it used is free after the next plan: twice the
 * slots of the largest rank, and no plan is held back.
 */
static inline int32_t prefill_staging(int32_t n_ranks, int32_t most_slots)
{
	return n_ranks > 1 ? 2 * most_slots : 1;
}

/* Fills setup->first, as the job wants experts to start. */
bool prefill_place(struct prefill_setup *setup, struct fault *fault);

/*
 * The placement that slot_expert[n_slots] is; quotas as in
 * ferry_placement_config, NULL: all alike.
 */
enum ferry_status prefill_placement(const struct prefill_setup *setup,
                                    const int32_t *slot_expert,
                                    const int64_t *quotas,
                                    struct ferry_placement **placement);

/* Turns what the ranks have left into cells, loads and spans. */
bool prefill_measure(const struct prefill_setup *setup, struct fault *fault);

/* True loads[n_layers][n_experts] of a step, by lm_forward. */
bool prefill_route_alone(const struct prefill_job *job, int32_t step,
                         int64_t *loads, struct fault *fault);

/* Memory for what ends a sequence, of one thread. */
struct prefill_logits {
	const struct prefill_job *job;
	struct lm_work *work;
	float *rows; /* [PREFILL_HEAD_ROWS][vocab] */
};

/* Rows of the head at a time: bounds memory where the vocabulary is large. */
enum { PREFILL_HEAD_ROWS = 64 };

void prefill_logits_open(struct prefill_logits *logits,
                         const struct prefill_job *job, struct lm_work *work);
void prefill_logits_close(struct prefill_logits *logits);

/*
 * Hash and loss of a sequence from h[tokens][hidden] after the last layer. What
 * is infinite or NaN is a fault that names the token: bits of it compare well,
 * and mean nothing.
 */
bool prefill_logits_of(const struct prefill_logits *logits, int32_t sequence,
                       const float *h, struct prefill_sequence *out,
                       struct fault *fault);

/* Puts the sequence before what is said of it, and its text where run is not
 * NULL; returns false. */
bool prefill_fault_in(const struct prefill_job *job,
                      const struct prefill_run *run, int32_t sequence,
                      struct fault *fault);

#endif
