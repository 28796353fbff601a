/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries the combine kernels of one path without any dispatch kernel: what
 * dispatch leaves in engine memory comes from the oracle's rows.
 *
 *	cuda_try_combine check PATH RANKS SEED CASES [CTAS]
 *	cuda_try_combine time|cold PATH CTAS TOKENS...
 *	cuda_try_combine recv PATH CTAS TOKENS...     recv alone, when all has
 *	            arrived: two ranks that have one GPU in turn
 *
 * PATH is lines or chunks. Few CTAS (6): small cases are many tokens to them.
 * cold: twice the rows in turn, so that they come from memory, as behind
 * experts. Exit 1 where bits differ.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda_harness.h"
#include "cuda_harness_inner.h"
#include "moe/random_case.h"
#include "proto/slot_state.h"

int bump_launch(struct ferry_cuda_slot *slot, uint64_t by,
                struct CUstream_st *stream);

enum { BOTH = FERRY_CUDA_SEND | FERRY_CUDA_RECV };

/* Host images of one rank's struct ferry_cuda_op. */
struct image {
	int32_t *own_slots, *n_tokens;
	float *own_weights, *weights;
	struct ferry_cuda_copy *copies;
	int64_t *offsets;
	uint8_t *dropped;
};

static void *filled(size_t n, size_t bytes, int value)
{
	void *p = malloc(n * bytes + 1);

	memset(p, value, n * bytes + 1);
	return p;
}

static void make_image(struct image *m, const struct ferry_cuda_channel *c)
{
	const size_t own = (size_t)c->max_tokens * (size_t)c->max_topk;
	const size_t all = own * (size_t)c->n_groups;

	m->own_slots = filled(own, 4, 0xff);
	m->own_weights = filled(own, 4, 0xff);
	m->weights = filled(all, 4, 0xff);
	m->copies = filled(all, sizeof(*m->copies), 0xff);
	m->n_tokens = filled((size_t)c->n_groups, 4, 0);
	m->offsets = filled((size_t)c->own_expert_slots + 1, 8, 0);
	m->dropped = filled(own, 1, 0);
}

/* What rank `of` keeps, as seen by all ranks of the token's group. */
static void enter_rows(struct harness *h, struct image *images, int32_t of,
                       const struct oracle_row *rows, int64_t n)
{
	const struct ferry_cuda_channel *c = &h->channel[of];
	const int32_t g = c->group_size;

	for (int64_t i = 0; i < n; i++) {
		const struct oracle_row *row = &rows[i];
		const size_t at =
			(size_t)(row->token * c->max_topk + row->choice);
		const size_t in_all = (size_t)row->group *
		                              (size_t)c->max_tokens *
		                              (size_t)c->max_topk +
		                      at;
		const int64_t index = row->padded - row->slot * c->padded_rows;

		images[of].copies[in_all].slot = row->slot;
		images[of].copies[in_all].index = (int32_t)index;
		images[of].weights[in_all] = row->weight;
		images[of].offsets[row->slot] = row->packed - index;
		for (int32_t r = row->group * g; r < (row->group + 1) * g;
		     r++) {
			images[r].own_slots[at] = c->first_slot[of] + row->slot;
			images[r].own_weights[at] = row->weight;
		}
	}
}

/* A choice that nobody kept may have been dropped. */
static void invent_drops(struct image *m, const struct ferry_cuda_channel *c)
{
	for (int32_t i = 0; i < c->max_tokens * c->max_topk; i++)
		if (m->own_slots[i] < 0 && i % 2) {
			m->own_slots[i] = i % c->n_expert_slots;
			m->dropped[i] = 1;
		}
}

static void put(void *device, const void *host, size_t bytes)
{
	if (device)
		CU(cudaMemcpy(device, host, bytes, cudaMemcpyDefault));
}

static void upload_image(struct harness *h, int32_t r, int32_t slot,
                         struct image *m)
{
	const struct ferry_cuda_channel *c = &h->channel[r];
	const struct ferry_cuda_op *op = &h->op[r][slot];
	const size_t own = (size_t)c->max_tokens * (size_t)c->max_topk;
	const size_t all = own * (size_t)c->n_groups;
	const uint32_t state = FERRY_SLOT_DISPATCHED;

	for (int32_t g = 0; g < c->n_groups; g++)
		m->n_tokens[g] = h->ops[g * c->group_size][slot].batch.n_tokens;
	if (op->dropped)
		invent_drops(m, c);
	harness_on(h, r);
	put(op->own_slots, m->own_slots, own * 4);
	put(op->own_weights, m->own_weights, own * 4);
	put(op->own_count, &m->n_tokens[c->group], 4);
	put(op->copies, m->copies, all * sizeof(*m->copies));
	put(op->weights, m->weights, all * 4);
	put(op->n_tokens, m->n_tokens, (size_t)c->n_groups * 4);
	put(op->offsets, m->offsets, (size_t)c->own_expert_slots * 8);
	put(op->dropped, m->dropped, own);
	put(&op->slot->epoch, &h->epoch[slot], 8);
	put(&op->slot->state, &state, 4);
	free(m->own_slots);
	free(m->own_weights);
	free(m->weights);
	free(m->copies);
	free(m->n_tokens);
	free(m->offsets);
	free(m->dropped);
}

/* As if the slot had dispatched its batch. False: it must fail. */
static bool pretend_dispatch(struct harness *h, int32_t slot)
{
	struct image images[HARNESS_RANKS];
	struct ferry_dispatch_in in[HARNESS_RANKS];
	struct oracle *oracle;
	int32_t root;

	h->epoch[slot]++;
	for (int32_t r = 0; r < h->n_ranks; r++) {
		make_image(&images[r], &h->channel[r]);
		in[r] = h->ops[r][slot].batch.in;
		if (in[r].n_tokens_ptr)
			in[r].n_tokens_ptr = &h->ops[r][slot].batch.n_tokens;
	}
	oracle = oracle_create(&(struct oracle_case){
		.config = &h->config,
		.need = &h->need,
		.placement = h->placement,
		.in = in,
		.half = (uint32_t)(h->epoch[slot] & 1),
	});
	const bool good = oracle_status(oracle, &root) == FERRY_OK;

	for (int32_t r = 0; good && r < h->n_ranks; r++) {
		const struct oracle_row *rows;
		const int64_t n = oracle_rows(oracle, r, &rows);

		enter_rows(h, images, r, rows, n);
	}
	for (int32_t r = 0; r < h->n_ranks; r++)
		upload_image(h, r, slot, &images[r]);
	oracle_destroy(oracle);
	return good;
}

static void make_specs(const struct random_case *c,
                       const struct drive_step *step,
                       struct traffic_spec *specs)
{
	for (int32_t r = 0; r < c->config.n_ranks; r++) {
		struct traffic_spec spec = step->spec;

		spec.favourite = spec.seed;
		spec.seed = traffic_group_seed(spec.seed, r);
		spec.n_tokens = step->n_tokens[r];
		specs[r] = spec;
	}
}

static void answer_and_launch(struct harness *h, int32_t slot, bool fused)
{
	harness_answer(h, slot);
	for (int32_t r = 0; r < h->n_ranks; r++) {
		harness_on(h, r);
		CU(cudaDeviceSynchronize());
	}
	if (fused) {
		harness_combine(h, slot, BOTH);
	} else {
		harness_combine(h, slot, FERRY_CUDA_SEND);
		harness_combine(h, slot, FERRY_CUDA_RECV);
	}
}

static int try_case(const struct harness_kernels *kernels, uint64_t seed,
                    int32_t n_ranks, int *n_steps)
{
	struct random_case c;
	int wrong = 0;

	random_case_make(&c, seed, n_ranks);
	c.config.n_ranks = n_ranks;
	struct harness *h =
		harness_open(&c.config, c.placed ? &c.placement : NULL, kernels,
	                     seed * 0x9e3779b97f4a7c15u);

	for (int32_t i = 0; i < c.n_steps && !wrong; i++) {
		struct traffic_spec specs[HARNESS_RANKS];
		struct drive_step s;
		bool combine;
		const int32_t slot = i % h->shape[0].n_slots;

		random_case_step(&c, i, 0, &s, &combine);
		make_specs(&c, &s, specs);
		h->form = (struct harness_form){
			.leave = ~0u,
			.slack = s.slack,
			.from = s.from,
			.residual = s.residual != DRIVE_NO_RESIDUAL,
			.values = s.values,
		};
		harness_batch(h, slot, specs);
		if (!pretend_dispatch(h, slot))
			continue;
		answer_and_launch(h, slot, s.fused);
		wrong += harness_check_combine(h, slot);
		++*n_steps;
		if (wrong)
			printf("  seed %llu step %d fused %d from %d of\n",
			       (unsigned long long)seed, i, s.fused, s.from);
	}
	if (wrong)
		random_case_print(&c);
	harness_close(h);
	return wrong;
}

static int check(const struct harness_kernels *kernels, char **argv)
{
	const int32_t n_ranks = atoi(argv[0]);
	const uint64_t seed = strtoull(argv[1], NULL, 0);
	const int n_cases = atoi(argv[2]);
	int wrong = 0, n_steps = 0;

	for (int i = 0; i < n_cases && wrong < 3; i++)
		wrong += try_case(kernels, seed + (uint64_t)i, n_ranks,
		                  &n_steps);
	printf("%d ranks, seeds %llu..: %d operations, %d wrong\n", n_ranks,
	       (unsigned long long)seed, n_steps, wrong);
	return wrong != 0;
}

static const struct figure {
	const char *name;
	enum ferry_combine_mode mode;
	enum ferry_combine_layout from;
} figures[] = {
	{"reduced packed", FERRY_REDUCED, FERRY_FROM_PACKED},
	{"presummed", FERRY_REDUCED, FERRY_FROM_PRESUMMED},
	{"exact packed", FERRY_EXACT, FERRY_FROM_PACKED},
};

static int32_t n_slots = 2;

static void bump(struct harness *h, int32_t slot, int32_t rank)
{
	harness_on(h, rank);
	CU(bump_launch(h->op[rank][slot].slot, 2, h->stream[rank]));
}

/* Slots in turn: the others' rows say that the peer has read. */
static void fused_pair(struct harness *h, void *arg, int32_t rank)
{
	const bool combine = *(const bool *)arg;

	for (int32_t slot = 0; slot < n_slots; slot++) {
		struct harness_launch l = {slot, BOTH};

		bump(h, slot, rank);
		if (combine)
			harness_combine_rank(h, &l, rank);
	}
}

/* What stands between: 20 us of other work. *arg: with recv? */
static void split_pair(struct harness *h, void *arg, int32_t rank)
{
	const bool recv = *(const bool *)arg;

	for (int32_t slot = 0; slot < n_slots; slot++) {
		struct harness_launch l = {slot, FERRY_CUDA_SEND};

		bump(h, slot, rank);
		if (recv)
			harness_combine_rank(h, &l, rank);
		harness_spin(h, rank, 20000);
		l.parts = FERRY_CUDA_RECV;
		if (recv)
			harness_combine_rank(h, &l, rank);
	}
}

/* Of ranks in turn: what dispatch leaves, and a phase. */
static void one_phase(struct harness *h, void *arg, int32_t rank)
{
	const struct harness_launch *l = arg;

	if (l->parts == FERRY_CUDA_SEND)
		bump(h, l->slot, rank);
	harness_combine_rank(h, arg, rank);
}

/* Rows for times only: the oracle's experts are slow. */
static void answer_anything(struct harness *h, int32_t rank, int32_t slot)
{
	struct harness_op *op = &h->ops[rank][slot];
	const size_t stride = (size_t)op->in.hidden * 2;
	const size_t n = (size_t)op->batch.n_tokens;
	const size_t rows = n * 16;

	harness_on(h, rank);
	harness_drop(h, rank, &op->y);
	harness_drop(h, rank, &op->sum);
	op->y.bytes = rows * stride;
	CU(cudaMalloc((void **)&op->y.device, op->y.bytes));
	CU(cudaMemset(op->y.device, 0x3c, op->y.bytes));
	op->sum.bytes = n * stride;
	CU(cudaMalloc((void **)&op->sum.device, op->sum.bytes));
	CU(cudaDeviceSynchronize());
	op->combine_in = (struct ferry_combine_in)FERRY_COMBINE_IN_INIT;
	op->combine_in.y = op->y.device;
	op->combine_in.y_stride = stride;
	op->combine_in.layout = h->form.from;
	op->combine_out = (struct ferry_combine_out)FERRY_COMBINE_OUT_INIT;
	op->combine_out.out = op->sum.device;
	op->combine_out.out_stride = stride;
}

static void time_figure(const struct harness_kernels *kernels,
                        const struct figure *f, int32_t n_tokens)
{
	struct ferry_moe_config c = FERRY_MOE_CONFIG_INIT;
	struct traffic_spec specs[2];
	double p99, recv = 0;
	bool yes = true, no = false;
	int wrong = 0;

	c.n_ranks = 2;
	c.max_tokens = n_tokens;
	c.hidden = 7168;
	c.topk = 8;
	c.n_experts = 256;
	c.n_slots = n_slots;
	c.dtype = FERRY_BF16;
	c.combine = f->mode;
	c.layout = f->from == FERRY_FROM_PRESUMMED ? FERRY_TOKEN
	                                           : FERRY_EXPERT_PACKED;
	struct harness *h = harness_open(&c, NULL, kernels, 77);

	h->form = (struct harness_form){.leave = ~0u, .from = f->from};
	for (int32_t slot = 0; slot < n_slots; slot++) {
		for (int i = 0; i < 2; i++)
			specs[i] = (struct traffic_spec){
				.seed = 11 + (uint64_t)(slot * 2 + i),
				.n_tokens = n_tokens,
				.hidden = 7168,
			};
		harness_batch(h, slot, specs);
		pretend_dispatch(h, slot);
		if (n_tokens <= 128) {
			answer_and_launch(h, slot, !kernels->in_turn);
			wrong += harness_check_combine(h, slot);
			continue;
		}
		for (int r = 0; r < 2; r++)
			answer_anything(h, r, slot);
		if (!kernels->in_turn)
			harness_combine(h, slot, BOTH);
	}
	if (kernels->in_turn) {
		printf("%-16s %5d tokens, %3d ctas: recv %7.2f us; %d wrong\n",
		       f->name, n_tokens, h->ctas,
		       harness_time_alone(
			       h, one_phase,
			       (struct harness_launch){0, FERRY_CUDA_RECV}, 20,
			       51),
		       wrong);
		harness_close(h);
		return;
	}
	const int32_t n = n_tokens > 512 ? 5 : 50 / n_slots;
	const double base =
		harness_time(h, fused_pair, &no, n, 51, NULL) / n_slots;
	const double p50 =
		harness_time(h, fused_pair, &yes, n, 101, &p99) / n_slots;

	if (n_tokens <= 128)
		recv = (harness_time(h, split_pair, &yes, 10, 51, NULL) - 23) /
		       n_slots;
	for (int32_t r = 0; r < 2; r++)
		if (h->host[r]->record.seal)
			printf("rank %d failed: status %d detail %d\n", r,
			       h->host[r]->record.status,
			       h->host[r]->record.detail);
	printf("%-16s %5d tokens, %3d ctas: %7.2f us, p99 %7.2f (bump %.2f); "
	       "split %.2f; %d wrong\n",
	       f->name, n_tokens, h->ctas, p50 - base, p99 / n_slots - base,
	       base, recv, wrong);
	harness_close(h);
}

int main(int argc, char **argv)
{
	struct harness_kernels kernels = {
		.combine = &ferry_cuda_combine_lines,
		.path = FERRY_PATH_LINES,
		.early = true,
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 5) {
		printf("see cuda_try_combine.c\n");
		return 2;
	}
	if (strcmp(argv[2], "chunks") == 0) {
		kernels.combine = &ferry_cuda_combine_chunks;
		kernels.path = FERRY_PATH_CHUNKS;
	}
	if (strcmp(argv[1], "check") == 0 && argc > 5) {
		kernels.ctas = argc > 6 ? atoi(argv[6]) : 0;
		return check(&kernels, argv + 3);
	}
	if (strcmp(argv[1], "cold") == 0)
		n_slots = 4;
	kernels.in_turn = strcmp(argv[1], "recv") == 0;
	if (kernels.in_turn)
		n_slots = 1;
	kernels.ctas = atoi(argv[3]);
	for (int i = 4; i < argc; i++)
		for (size_t f = 0; f < 3; f++)
			time_figure(&kernels, &figures[f], atoi(argv[i]));
	return 0;
}
