/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a prefill: its part of the model, the objects of the library that
 * it holds, its memory, and the second thread, which foresees the loads of a
 * layer and moves experts while the first one computes attention.
 */
#ifndef FERRY_PREFILL_RANK_H
#define FERRY_PREFILL_RANK_H

#include <pthread.h>

#include <ferry/ferry.h>

#include "prefill_inner.h"

#include "../crew.h"

/* The sequences of a rank in a step, one after the other. */
struct prefill_batch {
	struct lm_batch lm;
	int32_t *lengths; /* [n_sequences] */
	int32_t *tokens;
	int32_t *sequences; /* [n_sequences] which ones */
	int32_t n_tokens, longest;
};

/* What the second thread is asked, and what it answers. */
enum prefill_turn { PREFILL_IDLE, PREFILL_ASKED, PREFILL_DONE, PREFILL_END };

struct prefill_rank;

struct prefill_early {
	struct prefill_rank *rank;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* turn */
	pthread_cond_t turned;
	enum prefill_turn turn;
	/* The question: */
	int32_t layer;
	bool foresees; /* else history alone plans, without a router */
	int32_t n_tokens, longest;
	float *h; /* [max_tokens][hidden] after the layer before */
	/* The answer: */
	bool good;
	int64_t begin_ns, end_ns;
	float *x;        /* [max_tokens][hidden] */
	float *logits;   /* [max_tokens][n_experts] */
	int32_t *ids;    /* [max_tokens][topk] */
	int32_t *counts; /* [n_experts] */
	struct lm_work *work;
};

struct prefill_rank {
	const struct crew_member *me;
	const struct prefill_setup *setup;
	const struct prefill_job *job;
	const struct lm_model *model;
	int32_t step;
	struct prefill_batch batch;
	struct ferry_world *world;
	struct ferry_moe *moe;
	struct ferry_experts *experts;   /* NULL under OFF */
	struct ferry_balancer *balancer; /* the same */
	struct ferry_windows *windows;   /* NULL unless they are measured */
	struct ferry_splitter *splitter; /* NULL unless split EXACT */
	struct ferry_placement **first;  /* [n_layers] */
	/* Of the last step: [n_layers] rows that came here, [n_ranks][n_layers]
	 * to each rank, whether experts moved; and what follows from it. */
	int64_t *came, *came_to;
	bool *moved, *even;
	struct lm_work *work;
	struct prefill_logits head;
	struct prefill_early early;
	/* Of the own tokens: */
	float *h;       /* [max_tokens][hidden] residual stream */
	float *x;       /* the same, normed, as experts get it */
	float *logits;  /* [max_tokens][n_experts] */
	int32_t *ids;   /* [max_tokens][topk] */
	int32_t *slots; /* the same, with split EXACT */
	float *weights; /* the same */
	/* Of what arrives: */
	float *rows;      /* [recv_rows][hidden] */
	float *y;         /* the same, of experts */
	int32_t *counts;  /* [own slots] */
	int64_t *offsets; /* [own slots + 1] */
};

/* A crew_body; arg is the setup. */
int prefill_rank(const struct crew_member *me, void *arg);

/* Complains; returns false. */
bool prefill_rank_fail(const struct prefill_rank *rank,
                       const struct fault *fault);

/*
 * Meets the other ranks before a step, and finds the layers that were even in
 * the last one and need no prediction in this one, alike on all ranks.
 */
bool prefill_even_meet(struct prefill_rank *rank);

/* Time since the run began. */
int64_t prefill_now(const struct prefill_rank *rank);

/* Runs a layer on rank->h. False after a complaint. */
bool prefill_layer(struct prefill_rank *rank, int32_t layer);

/* Memory of both threads' parts, and the objects. False after a complaint. */
bool prefill_rank_open(struct prefill_rank *rank);
void prefill_rank_close(struct prefill_rank *rank);

/* Registers experts, copies the own ones into the pool; not under OFF. */
bool prefill_experts_open(struct prefill_rank *rank);

/* Rows that arrived, through the own experts of a placement: rank->y. */
void prefill_experts_run(struct prefill_rank *rank, int32_t layer,
                         const struct ferry_placement *placement);

/* Starts and ends the second thread. */
bool prefill_early_open(struct prefill_early *early, struct prefill_rank *rank);
void prefill_early_close(struct prefill_early *early);

/* Asks for a layer, with h as it is now. */
void prefill_early_ask(struct prefill_early *early, int32_t layer);

/* Waits for the answer; false where it has failed. */
bool prefill_early_wait(struct prefill_early *early);

/* How near the answer came: fills in the sums of a note. */
void prefill_early_judge(const struct prefill_early *early,
                         struct prefill_note *note);

#endif
