/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of fibre_combine.h: random ones, made such that one way of combining
 * takes them. Each slot has two answers of its experts, and combine, dispatch,
 * dispatch (so that the epoch is odd or even as before), combine go one behind
 * the other: no rank waits for another but in kernels, and what an operation
 * leaves is in the way of the next.
 */
#include "fibre_combine.h"

#include <stdio.h>
#include <string.h>

#include "cuda_harness_inner.h"
#include "cuda_try_check.h"
#include "fibres.h"
#include "moe/random_case.h"

/* Digits of a way. */
enum { SUM_EXACT, SUM_REDUCED, SUM_PRESUMMED };
enum { ROWS_FEW, ROWS_MANY, ROWS_ODD };

/* MANY: more stripes than half of the warps, as the host asks. */
enum { CTAS_FEW = 4, CTAS_MANY = 2 };

struct answer {
	struct harness_array y, sum;
	struct ferry_combine_in in;
	struct ferry_combine_out out;
};

struct combine_case {
	struct random_case c;
	int sum, rows;
	struct harness *h;
	struct harness_form form[HARNESS_SLOTS];
	bool fused[HARNESS_SLOTS];
	struct answer spare[HARNESS_RANKS][HARNESS_SLOTS];
};

static void set_rows(struct ferry_moe_config *m, int rows, uint64_t seed)
{
	switch (rows) {
	case ROWS_FEW:
		m->hidden = 8 * (int32_t)(1 + seed % 70);
		m->max_tokens = m->max_tokens % 5 + 1;
		break;
	case ROWS_MANY:
		m->hidden = 1024 + 8 * (int32_t)(seed % 200);
		m->max_tokens = m->max_tokens % 5 + 8;
		break;
	default:
		m->hidden = m->hidden % 700 | 1;
		m->max_tokens = m->max_tokens % 12 + 1;
		if (seed % 3 == 0)
			m->topk = 33 + (int32_t)(seed % 32);
	}
	if (rows != ROWS_ODD && m->topk > 32)
		m->topk = 32;
}

static void make_case(struct combine_case *t, int way, uint64_t seed,
                      int32_t n_ranks)
{
	static const enum ferry_dtype types[] = {FERRY_BF16, FERRY_FP16,
	                                         FERRY_FP32};
	struct ferry_moe_config *m = &t->c.config;

	random_case_make(&t->c, seed, n_ranks);
	t->sum = way % 3;
	t->rows = way / 3 % 3;
	set_rows(m, t->rows, seed);
	m->combine = t->sum == SUM_EXACT ? FERRY_EXACT : FERRY_REDUCED;
	m->combine_dtype = types[way / 9];
	m->overflow = FERRY_OVERFLOW_DROP;
	if (m->n_slots > 2)
		m->n_slots = 2;
	if (t->sum != SUM_PRESUMMED)
		return;
	m->layout = FERRY_TOKEN;
	m->weight_use = FERRY_WEIGHT_OUTPUT;
}

static struct harness_form form_of(const struct combine_case *t,
                                   const struct drive_step *s)
{
	struct harness_form f = {
		.leave = s->leave,
		.slack = t->rows == ROWS_ODD ? s->slack : s->slack / 16 * 16,
		.scale_form = s->scale_form,
		.from = s->from,
		.residual = s->residual != DRIVE_NO_RESIDUAL,
		.values = s->values,
	};

	if (t->sum == SUM_PRESUMMED)
		f.from = FERRY_FROM_PRESUMMED;
	else if (f.from == FERRY_FROM_PRESUMMED)
		f.from = FERRY_FROM_PACKED;
	return f;
}

/* In two launches or in one. */
static void launch(struct combine_case *t, int32_t slot, bool combine)
{
	void (*const phase)(struct harness *, int32_t, int32_t) =
		combine ? harness_combine : harness_dispatch;

	if (t->fused[slot]) {
		phase(t->h, slot, FERRY_CUDA_SEND | FERRY_CUDA_RECV);
		return;
	}
	phase(t->h, slot, FERRY_CUDA_SEND);
	phase(t->h, slot, FERRY_CUDA_RECV);
}

#define SWAP(type, a, b)                                                       \
	do {                                                                   \
		const type swapped = a;                                        \
		a = b;                                                         \
		b = swapped;                                                   \
	} while (0)

/* The answers that are not launched change places with those that are. */
static void swap_answers(struct combine_case *t, int32_t slot)
{
	for (int32_t r = 0; r < t->h->n_ranks; r++) {
		struct harness_op *op = &t->h->ops[r][slot];
		struct answer *a = &t->spare[r][slot];

		SWAP(struct harness_array, op->y, a->y);
		SWAP(struct harness_array, op->sum, a->sum);
		SWAP(struct ferry_combine_in, op->combine_in, a->in);
		SWAP(struct ferry_combine_out, op->combine_out, a->out);
	}
	t->form[slot].values = t->form[slot].values == ORACLE_PLAIN
	                               ? ORACLE_SPECIAL
	                               : ORACLE_PLAIN;
	t->h->form = t->form[slot];
}

/* A batch, its dispatch and both of its answers. */
static int prepare(struct combine_case *t, int32_t slot)
{
	struct traffic_spec specs[HARNESS_RANKS];
	struct drive_step s;
	bool combine;

	random_case_step(&t->c, slot, 0, &s, &combine);
	if (t->c.config.bad_id == FERRY_BAD_ID_ERROR)
		s.spec.bad_percent = 0;
	if (t->rows != ROWS_ODD)
		s.spec.hidden = s.spec.hidden / 8 * 8;
	try_check_specs(&t->c, &s, specs);
	t->fused[slot] = s.fused;
	t->form[slot] = t->h->form = form_of(t, &s);
	harness_batch(t->h, slot, specs);
	launch(t, slot, false);
	const int wrong = harness_check_dispatch(t->h, slot);

	harness_answer(t->h, slot);
	swap_answers(t, slot);
	harness_answer(t->h, slot);
	return wrong;
}

/* Of all slots: each one's sends before any of them is received. */
static void combine_all(struct combine_case *t)
{
	const int32_t n = t->h->shape[0].n_slots;

	for (int32_t s = 0; s < n; s++)
		if (!t->fused[s])
			harness_combine(t->h, s, FERRY_CUDA_SEND);
	for (int32_t s = n - 1; s >= 0; s--)
		harness_combine(t->h, s,
		                t->fused[s] ? FERRY_CUDA_SEND | FERRY_CUDA_RECV
		                            : FERRY_CUDA_RECV);
}

/* Does `rank` serve the token of a group? */
static bool serves(const struct oracle *oracle, int32_t rank, int32_t group,
                   int32_t token)
{
	const struct oracle_row *rows;
	const int64_t n = oracle_rows(oracle, rank, &rows);

	for (int64_t i = 0; i < n; i++)
		if (rows[i].group == group && rows[i].token == token)
			return true;
	return false;
}

/*
 * Where a rank has a place of its own among what comes back: only those who
 * serve a token send a row for it. Of the same batch all along.
 */
static int check_strays(struct combine_case *t, int32_t slot,
                        const struct oracle *oracle, int32_t owner)
{
	const struct ferry_cuda_channel *ch = &t->h->channel[owner];
	const unsigned char *back = ch->window[owner] +
	                            (size_t)slot * ch->slot_bytes +
	                            ch->back_offset;
	int wrong = 0;

	for (int32_t token = 0; token < t->h->ops[owner][slot].batch.n_tokens;
	     token++)
		for (int32_t r = 0; r < ch->n_ranks; r++) {
			const int32_t j = r - (r > owner);
			const unsigned char *row =
				back + ((size_t)token * (size_t)ch->back_rows +
			                (size_t)j) *
					       ch->back_stride;

			if (r == owner || serves(oracle, r, ch->group, token))
				continue;
			for (size_t i = 0; i < ch->back_stride; i++)
				wrong |= row[i];
		}
	if (wrong)
		printf("rank %d: a row of a rank that has none to send\n",
		       owner);
	return wrong != 0;
}

static int check_back(struct combine_case *t, int32_t slot)
{
	const struct harness *h = t->h;
	int wrong = 0;

	if (t->sum == SUM_EXACT || h->channel[0].back_rows != h->n_ranks - 1)
		return 0;
	struct ferry_dispatch_in in[HARNESS_RANKS];
	struct oracle *oracle = harness_oracle(t->h, slot, in);

	for (int32_t r = 0; r < h->n_ranks; r++)
		wrong += check_strays(t, slot, oracle, r);
	oracle_destroy(oracle);
	return wrong;
}

static int check_all(struct combine_case *t)
{
	int wrong = 0;

	for (int32_t s = 0; s < t->h->shape[0].n_slots; s++) {
		t->h->form = t->form[s];
		wrong += harness_check_combine(t->h, s);
		wrong += check_back(t, s);
	}
	return wrong;
}

static void swap_all(struct combine_case *t)
{
	for (int32_t s = 0; s < t->h->shape[0].n_slots; s++)
		swap_answers(t, s);
}

/* Returns how much was wrong. */
static int run_case(struct combine_case *t)
{
	const int32_t n = t->h->shape[0].n_slots;
	int wrong = 0;

	for (int32_t s = 0; s < n && !wrong; s++)
		wrong = prepare(t, s);
	if (wrong)
		return wrong;
	combine_all(t);
	for (int32_t i = 0; i < 2 * n; i++)
		launch(t, i % n, false);
	swap_all(t);
	combine_all(t);
	wrong = check_all(t);
	swap_all(t);
	return wrong + check_all(t);
}

void combine_try(struct combine_tries *tries, int way, uint64_t seed,
                 int32_t n_ranks)
{
	struct combine_case t = {.h = NULL};
	const struct harness_kernels kernels = {
		.dispatch = tries->chunks ? &ferry_cuda_dispatch_chunks
	                                  : &ferry_cuda_dispatch_lines,
		.combine = tries->chunks ? &ferry_cuda_combine_chunks
	                                 : &ferry_cuda_combine_lines,
		.path = tries->chunks ? FERRY_PATH_CHUNKS : FERRY_PATH_LINES,
		.ctas = way / 3 % 3 == ROWS_MANY ? CTAS_MANY : CTAS_FEW,
		.early = tries->early,
	};

	make_case(&t, way, seed, n_ranks);
	printf("# way %d seed %llu\n", way, (unsigned long long)seed);
	const char *why = harness_refusal(&t.c.config, &kernels);

	if (why) {
		printf("refused: %s\n", why);
		return;
	}
	fibres_seed(seed);
	t.h = harness_open(&t.c.config, t.c.placed ? &t.c.placement : NULL,
	                   &kernels, seed * 0x9e3779b97f4a7c15u);
	const int wrong = run_case(&t);

	if (wrong)
		random_case_print(&t.c);
	tries->n_wrong += wrong;
	tries->n_sums += 2 * t.h->shape[0].n_slots;
	for (int32_t r = 0; r < n_ranks; r++)
		for (int32_t s = 0; s < HARNESS_SLOTS; s++) {
			harness_drop(t.h, r, &t.spare[r][s].y);
			harness_drop(t.h, r, &t.spare[r][s].sum);
		}
	harness_close(t.h);
}
