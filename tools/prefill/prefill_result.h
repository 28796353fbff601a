/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ferry prefill has measured: one contract between the ranks, which write
 * it into shared memory, and the table, JSON, trace and report, which read it.
 * A run is the whole input under one policy; all runs of a command have the
 * same steps. Times are ns; times of day count from the start of the run.
 */
#ifndef FERRY_PREFILL_RESULT_H
#define FERRY_PREFILL_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/balancer.h>

enum { PREFILL_NAME_BYTES = 96, PREFILL_MAX_RUNS = 8 };

/* Stages of a layer on a rank, in the order in which they begin. */
enum prefill_stage {
	PREFILL_PREDICT,   /* second thread: early router, counts, plan */
	PREFILL_MIGRATE,   /* second thread: pushing experts */
	PREFILL_ATTENTION, /* with its norm and projections */
	PREFILL_COMMIT,    /* waiting until all is staged, switching */
	PREFILL_ROUTER,    /* true router, and the split of replicas */
	PREFILL_DISPATCH,
	PREFILL_EXPERTS,
	PREFILL_COMBINE,
	PREFILL_N_STAGES,
};

extern const char *const prefill_stage_names[PREFILL_N_STAGES];

/* Does the second thread do it, beside the others? */
bool prefill_stage_is_second(enum prefill_stage stage);

struct prefill_span {
	int64_t begin_ns, end_ns; /* both 0: the stage did not run */
};

/* A layer of a step on one rank. */
struct prefill_rank_cell {
	struct prefill_span spans[PREFILL_N_STAGES];
	int64_t tokens_fixed; /* (token, choice) rows, had it stayed as opened */
	int64_t tokens;       /* that it got */
};

/* A layer of a step, of all ranks together. Ratios are max/mean of ranks. */
struct prefill_cell {
	double ratio_fixed; /* true loads, placement as opened: "before" */
	double ratio_stay;  /* true loads, placement that the step found */
	double ratio;       /* true loads as they were served: "after" */
	double ratio_predicted_before; /* predicted loads, the same two */
	double ratio_predicted_after;
	bool predicted;       /* else the next three are 0 */
	double hidden_cosine; /* mean over tokens: normed h(l-1) and h(l) */
	double logit_cosine;  /* of router logits */
	double topk_hit;      /* share of true choices that were foreseen */
	int32_t n_swaps, n_copies;
	bool by_history;     /* experts were placed anew */
	int64_t moved_bytes; /* of all ranks */
	int64_t window_ns;   /* least of all ranks; INT64_MAX: no limit */
	int64_t plan_ns, migrate_ns; /* longest of all ranks */
	/* Of migrate_ns: while the rank computed attention. */
	int64_t hidden_ns;
	/* How much later tokens went to their experts because of what was
	 * foreseen and moved; waiting for other ranks is not in it. */
	int64_t exposed_ns;
	int64_t wait_ns; /* of it: all were done with attention, and not all
	                  * was staged; the rest is the switch */
};

/* A batch of sequences, all of one text or of several. */
struct prefill_step {
	char name[PREFILL_NAME_BYTES]; /* of the text; "mixed" of several */
	int32_t text;                  /* index; -1 of several */
	bool warm_up;                  /* not in totals */
	int32_t n_sequences, n_tokens; /* of all ranks */
};

/* One sequence, for comparing bits and for the loss of the texts. */
struct prefill_sequence {
	int32_t text, step;
	int32_t n_tokens;
	/* Of the bits of its logits; where those are the last token's only, of
	 * its hidden states, too. */
	uint64_t hash;
	double nll; /* sum over its tokens but the first; 0 with last */
};

/* Which sequences are together, and which steps follow each other. */
enum prefill_order {
	PREFILL_BY_TEXT, /* all steps of the first text, of the next ... */
	PREFILL_MIXED,   /* texts take turns, step by step */
	PREFILL_BLENDED, /* texts take turns, sequence by sequence */
};

/* What is the same in all runs. */
struct prefill_shape {
	int32_t n_ranks, n_layers, n_experts, topk, hidden, vocab;
	int32_t n_steps, n_sequences, n_texts;
	int32_t batch, length; /* sequences of a step, tokens of a sequence */
	int32_t replicas;      /* spare slots of each rank and layer */
	int64_t n_tokens;      /* of all steps */
	int64_t expert_bytes;
	bool all_logits;          /* of all tokens, not of the last one only */
	const char *model;        /* directory */
	const char *const *texts; /* [n_texts] names */
	enum prefill_order order;
	struct prefill_step *steps;
};

/* One policy. Arrays in shared memory. */
struct prefill_run {
	enum ferry_balance_policy policy;
	const char *name;
	struct prefill_cell *cells;           /* [n_steps][n_layers] */
	struct prefill_rank_cell *rank_cells; /* [n_steps][n_layers][n_ranks] */
	int64_t *loads;     /* [n_steps][n_layers][n_experts] true, summed */
	int64_t *predicted; /* the same, foreseen; 0 where nothing was */
	struct prefill_sequence *sequences; /* [n_sequences] step by step */
	struct prefill_span *step_spans;    /* [n_steps] first to last rank */
	/* --record: [n_tokens][n_layers][topk], else NULL; tokens step by step,
	 * in the order of the sequences. */
	int32_t *topk_ids, *predicted_ids;
	bool bits_equal;  /* to the reference, or to the first run */
	int64_t n_differ; /* sequences that are not */
};

/* Totals of a run, or of a text or layer in it, warm-up left out. */
struct prefill_totals {
	int64_t n_steps, n_cells;         /* cells: (step, layer) */
	double ratio_before, ratio_after; /* means over cells */
	double ratio_before_worst, ratio_after_worst;
	double ratio_stay;
	/* Means over the cells that were predicted; 0 where none was. */
	int64_t n_predicted;
	double ratio_predicted_before, ratio_predicted_after;
	double topk_hit, hidden_cosine, logit_cosine;
	int64_t n_moved;    /* cells whose experts moved */
	int64_t n_improved; /* of them: ratio < ratio_stay */
	double moves_mean;  /* swaps + copies of a cell */
	int64_t moved_bytes;
	/* Mean over the predicted cells with a limit; -1: there was none. */
	int64_t window_ns;
	int64_t plan_ns, migrate_ns; /* sums over cells, as all below */
	int64_t hidden_ns;           /* of migrate: beside attention */
	int64_t exposed_ns, wait_ns;
	int64_t total_ns; /* of the steps, first rank's begin to last's end */
	int64_t stage_ns[PREFILL_N_STAGES]; /* longest rank of each, summed */
	int64_t n_tokens;
	double nll_mean; /* nats per token; 0 with last logits only */
};

/* Of steps whose text is `text`; -1: of all. Tokens and nll of a text also
 * count its sequences in steps of several texts. */
void prefill_sum(const struct prefill_shape *shape,
                 const struct prefill_run *run, int32_t text,
                 struct prefill_totals *totals);

/* Of one layer, all texts; times of the steps, tokens and nll are the run's. */
void prefill_sum_layer(const struct prefill_shape *shape,
                       const struct prefill_run *run, int32_t layer,
                       struct prefill_totals *totals);

/* Of one step, warm-up or not. */
void prefill_sum_step(const struct prefill_shape *shape,
                      const struct prefill_run *run, int32_t step,
                      struct prefill_totals *totals);

/*
 * Time of a run over that of another, of counted steps of a text (-1: all),
 * less 1; and the standard error of that, from how much steps differ. One step
 * says nothing of its own error: known is false.
 */
struct prefill_change {
	bool known;
	double share, error;
};

struct prefill_change prefill_compare_times(const struct prefill_shape *shape,
                                            const struct prefill_run *run,
                                            const struct prefill_run *other,
                                            int32_t text);

/* Cell of a step and layer, and of a rank in it. */
static inline struct prefill_cell *
prefill_cell_at(const struct prefill_shape *shape,
                const struct prefill_run *run, int32_t step, int32_t layer)
{
	return &run->cells[(int64_t)step * shape->n_layers + layer];
}

static inline struct prefill_rank_cell *
prefill_rank_cell_at(const struct prefill_shape *shape,
                     const struct prefill_run *run, int32_t step, int32_t layer,
                     int32_t rank)
{
	return &run->rank_cells[((int64_t)step * shape->n_layers + layer) *
	                                shape->n_ranks +
	                        rank];
}

#endif
