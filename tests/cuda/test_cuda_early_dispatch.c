/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that are launched early, behind a kernel of the caller's that lets
 * them start at once, and then takes its time: it writes the inputs of a
 * dispatch, and reads the outputs of the one before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lab.h"
#include "moe/drive_inner.h"

enum { MAX_TOKENS = 24, N_STEPS = 6, LATE_NS = 60000, GARBAGE = 0x7d };

/* Not asked for, so that the shortest kernels serve the calls. */
static const uint32_t LEFT_OUT =
	1u << DRIVE_ROW_EXPERT_SLOT | 1u << DRIVE_ROW_SOURCE |
	1u << DRIVE_ROW_TOKEN | 1u << DRIVE_ROW_WEIGHT |
	1u << DRIVE_TOKEN_SLOTS | 1u << DRIVE_TOKEN_WEIGHTS;

/* Dispatches of one slot into the same buffers, and what each had in them. */
struct chain {
	struct drive *d;
	struct drive_op *op;
	struct CUstream_st *stream;
	struct drive_step steps[N_STEPS];
	struct mirror in[N_STEPS][DRIVE_N_LENT];
	struct mirror out[N_STEPS][DRIVE_N_BUFFERS];
	struct mirror empty[DRIVE_N_BUFFERS]; /* outputs before a call */
};

static void add_copy(struct lab_copies *c, const struct mirror *to,
                     const struct mirror *from)
{
	if (!from->device || !from->bytes)
		return;
	c->of[c->n].to = to->device;
	c->of[c->n].from = from->device;
	c->of[c->n].bytes = from->bytes;
	c->n++;
}

static struct mirror twin(struct chain *c, const struct mirror *m)
{
	struct mirror made = mirror_make(c->d->memory, m->bytes + 1, 0);

	made.bytes = m->bytes;
	return made;
}

static void make_step(struct chain *c, int i, uint64_t *rng)
{
	struct drive_step *s = &c->steps[i];

	*s = (struct drive_step){
		.from = FERRY_FROM_PACKED, .leave = LEFT_OUT, .light = true};
	s->spec.seed = traffic_random(rng);
	for (int32_t r = 0; r < c->d->config.n_ranks; r++)
		s->n_tokens[r] = (int32_t)traffic_between(rng, 0, MAX_TOKENS);
}

/* The inputs of every step, somewhere else. */
static void keep_inputs(struct chain *c, int i)
{
	struct lab_copies copies = {0};

	drive_renew(c->op, &c->steps[i], (uint64_t)i);
	drive_refill(c->op, c->stream);
	for (int k = 0; k < DRIVE_N_LENT; k++) {
		c->in[i][k] = twin(c, &c->op->lent[k]);
		add_copy(&copies, &c->in[i][k], &c->op->lent[k]);
	}
	for (int k = 0; k < DRIVE_N_BUFFERS; k++) {
		const struct mirror *got = &c->op->buffers[k].got;

		c->out[i][k] = twin(c, got);
		if (i > 0)
			continue;
		c->empty[k] = twin(c, got);
		add_copy(&copies, &c->empty[k], got);
	}
	LAB_OK(lab_copy_late(&copies, 0, c->stream));
	rank_memory_sync(c->d->memory, c->stream);
}

/*
 * Between dispatch i - 1 and dispatch i. A thread copies the same bytes of all
 * arrays in turn, so outputs are kept before they are emptied.
 */
static void enqueue_late(struct chain *c, int i)
{
	struct lab_copies copies = {0};

	for (int k = 0; i > 0 && k < DRIVE_N_BUFFERS; k++)
		add_copy(&copies, &c->out[i - 1][k], &c->op->buffers[k].got);
	for (int k = 0; k < DRIVE_N_BUFFERS; k++)
		add_copy(&copies, &c->op->buffers[k].got, &c->empty[k]);
	for (int k = 0; i < N_STEPS && k < DRIVE_N_LENT; k++)
		add_copy(&copies, &c->op->lent[k], &c->in[i][k]);
	LAB_OK(lab_copy_late(&copies, LATE_NS, c->stream));
}

static void enqueue(struct chain *c)
{
	for (int i = 0; i < N_STEPS; i++) {
		enqueue_late(c, i);
		RANKS_OK(drive_issue(c->op, DRIVE_DISPATCH, c->stream));
	}
	enqueue_late(c, N_STEPS);
}

/* As if step i had been the only one. */
static void verify(struct chain *c, int i)
{
	struct lab_copies copies = {0};

	drive_renew(c->op, &c->steps[i], (uint64_t)i);
	drive_refill(c->op, c->stream);
	for (int k = 0; k < DRIVE_N_BUFFERS; k++)
		add_copy(&copies, &c->op->buffers[k].got, &c->out[i][k]);
	LAB_OK(lab_copy_late(&copies, 0, c->stream));
	drive_finish(c->op, false, c->stream);
}

static void spoil_inputs(struct chain *c)
{
	for (int k = 0; k < DRIVE_N_LENT; k++)
		if (c->op->lent[k].device)
			mirror_fill(c->d->memory, &c->op->lent[k], GARBAGE,
			            c->stream);
	rank_memory_sync(c->d->memory, c->stream);
}

static void try_layout(struct rank *rank, enum ferry_layout layout,
                       bool captured)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct chain c = {.d = NULL};
	uint64_t rng = run_args.seed + (uint64_t)layout;

	config.max_tokens = MAX_TOKENS;
	config.hidden = 1024;
	config.topk = 4;
	config.n_experts = 16;
	config.layout = layout;
	c.d = drive_open(rank, &config, NULL);
	c.stream = rank_memory_stream(c.d->memory, 0);
	for (int i = 0; i < N_STEPS; i++)
		make_step(&c, i, &rng);
	c.op = drive_begin_lasting(c.d, 0, &c.steps[0]);
	for (int i = 0; i < N_STEPS; i++)
		keep_inputs(&c, i);
	spoil_inputs(&c);
	if (captured) {
		lab_capture(c.stream);
		enqueue(&c);
		const cudaGraphExec_t exec =
			lab_captured(rank->world, c.stream);

		LAB_OK(cudaGraphLaunch(exec, c.stream));
		rank_memory_sync(c.d->memory, c.stream);
		LAB_OK(cudaGraphExecDestroy(exec));
	} else {
		enqueue(&c);
	}
	/* Rows of a view are gone with the second dispatch behind theirs. */
	for (int i = layout == FERRY_TOKEN ? N_STEPS - 1 : 0; i < N_STEPS; i++)
		verify(&c, i);
	for (int i = 0; i < N_STEPS; i++) {
		for (int k = 0; k < DRIVE_N_LENT; k++)
			mirror_drop(c.d->memory, &c.in[i][k]);
		for (int k = 0; k < DRIVE_N_BUFFERS; k++)
			mirror_drop(c.d->memory, &c.out[i][k]);
	}
	for (int k = 0; k < DRIVE_N_BUFFERS; k++)
		mirror_drop(c.d->memory, &c.empty[k]);
	drive_close(c.d);
}

static void plain_body(struct rank *rank)
{
	lab_device(rank);
	try_layout(rank, FERRY_EXPERT_PADDED, false);
	try_layout(rank, FERRY_EXPERT_PACKED, false);
	try_layout(rank, FERRY_TOKEN, false);
}

static void captured_body(struct rank *rank)
{
	lab_device(rank);
	try_layout(rank, FERRY_EXPERT_PADDED, true);
	try_layout(rank, FERRY_EXPERT_PACKED, true);
	try_layout(rank, FERRY_TOKEN, true);
}

static void behind_kernels_that_let_them_start(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, plain_body);
}

static void the_same_in_graphs(void **state)
{
	const struct ranks how = run_args_ranks(2);

	(void)state;
	ranks_run(&how, captured_body);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(behind_kernels_that_let_them_start),
		cmocka_unit_test(the_same_in_graphs),
	};

	lab_read(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
