/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases against the oracle, on the harness: cuda_try_check.h. */
#include "cuda_try_check.h"

#include <stdio.h>

#include <cuda_runtime_api.h>

#include "cuda/dispatch_lean.h"
#include "moe/random_case.h"

/* Of the launches; mixed: every third one is not of the lean kernel. */
static int n_lean, n_launches;
static bool mixed;

static int launch_lean(const struct ferry_cuda_dispatch *args, int32_t ctas,
                       struct CUstream_st *stream)
{
	static int32_t *unwanted[HARNESS_RANKS];
	struct ferry_cuda_dispatch d = *args;

	if (mixed && n_launches++ % 3 == 0) {
		if (!unwanted[d.ch.rank] &&
		    cudaMalloc((void **)&unwanted[d.ch.rank], 16 << 20))
			return 1;
		d.out.row_token = unwanted[d.ch.rank];
		/* Only recv looks at it, and the lean kernel not at so much. */
		if (d.parts == FERRY_CUDA_SEND)
			d.ch.alignment = 1 << 20;
	}
	if (!ferry_dispatch_lean_fits(&d, ctas))
		return ferry_cuda_dispatch_lines.launch(&d, ctas, stream);
	n_lean++;
	return ferry_dispatch_lean_launch(&d, ctas, stream);
}

/* A case as the lean kernel wants it. */
static void make_lean(struct random_case *c)
{
	struct ferry_moe_config *m = &c->config;
	const bool quantise = c->seed % 3 == 0;

	m->layout = c->seed % 2   ? FERRY_EXPERT_PADDED
	            : c->seed % 4 ? FERRY_TOKEN
	                          : FERRY_EXPERT_PACKED;
	m->group_size = 1;
	m->overflow = 0;
	m->max_recv_rows = 0;
	m->weight_use = FERRY_WEIGHT_OUTPUT;
	m->scale_bytes = m->scale_block = 0;
	m->hidden = (m->hidden % (c->seed % 5 ? 4 : 17) + 1) * 512;
	if (c->seed % 5 == 1) /* about as long as what is guessed of a row */
		m->hidden = (m->hidden / 512 + 13) * 512;
	m->topk = m->topk > 16 ? 16 : m->topk;
	m->dtype = quantise || c->seed % 3 == 1 ? FERRY_FP8_E4M3 : FERRY_BF16;
	m->in_dtype = quantise ? FERRY_BF16 : FERRY_DTYPE_NONE;
	m->scale_type =
		m->dtype == FERRY_BF16 ? FERRY_SCALE_NONE : FERRY_SCALE_FP32;
	if (quantise && c->seed % 5 == 0) {
		m->scale_type = FERRY_SCALE_UE8M0;
		m->hidden = 2048 * (m->hidden / 2048 + 1);
	}
	if (m->layout != FERRY_EXPERT_PADDED)
		return;
	m->alignment = 0;
	/* Room that some batches exceed. */
	if (c->seed % 4 == 1)
		m->max_recv_rows = (int64_t)m->n_ranks * m->max_tokens / 2 + 1;
}

/* Odd seeds: many rows; even ones: long ones, as many as are not too big. */
static void make_crowded(struct random_case *c)
{
	struct ferry_moe_config *m = &c->config;
	const uint64_t draw = c->seed / 2;
	int32_t most;

	m->topk = m->topk % 4 + 1;
	if (c->seed % 2) {
		m->max_tokens = 60 + (int32_t)(draw % 90);
		m->hidden = m->hidden % 300 + 1;
		return;
	}
	m->hidden = 6000 + (int32_t)(draw % 9000) / (draw % 3 ? 16 : 1) * 16;
	most = (1 << 21) / (m->hidden * m->n_experts) + 4;
	m->max_tokens = most < 24 ? most : 24;
}

static void step_lean(struct drive_step *s, const struct ferry_moe_config *m)
{
	s->spec.hidden = s->spec.hidden > 512 ? m->hidden / 2048 * 1024 : 0;
	s->leave = (s->leave & 0x70c) | 0x18f0;
	s->slack = s->slack / 16 * 16 % 96;
	s->scale_form = FERRY_SCALES_ROW_MAJOR;
}

/* Shares of an expert's replicas: none, one has all, some, large ones. */
static int64_t quota_of(int32_t expert, int32_t rank, uint64_t *rng)
{
	switch (expert % 4) {
	case 0:
		return 0;
	case 1:
		return rank == 1;
	case 2:
		return traffic_between(rng, 0, 3);
	}
	return INT64_MAX - rank;
}

static void make_quotas(struct random_case *c)
{
	struct ferry_moe_config *m = &c->config;
	struct ferry_placement_config *p = &c->placement;
	const int32_t n = m->n_experts = m->n_experts % 8 + 1;
	uint64_t rng = c->seed;

	*p = (struct ferry_placement_config)FERRY_PLACEMENT_CONFIG_INIT;
	for (int32_t s = 0; s < n * m->n_ranks; s++) {
		c->expert_slots[s / n] = n;
		c->slot_expert[s] = s % n;
		c->quota[s] = quota_of(s % n, s / n, &rng);
	}
	p->n_experts = n;
	p->n_ranks = m->n_ranks;
	p->expert_slots = m->expert_slots = c->expert_slots;
	p->slot_expert = c->slot_expert;
	p->split = FERRY_SPLIT_QUOTA;
	p->quota = c->quota;
	c->placed = true;
}

void try_check_specs(const struct random_case *c, const struct drive_step *step,
                     struct traffic_spec *specs)
{
	for (int32_t r = 0; r < c->config.n_ranks; r++) {
		struct traffic_spec spec = step->spec;
		uint64_t rng;

		spec.favourite = spec.seed;
		spec.seed = traffic_group_seed(spec.seed, r);
		spec.n_tokens = step->n_tokens[r];
		rng = spec.seed + 1;
		spec.id_type = traffic_chance(&rng, 50) ? FERRY_ID_INT64
		                                        : FERRY_ID_INT32;
		spec.count_by_pointer = traffic_chance(&rng, 30);
		spec.slack = (size_t)traffic_between(&rng, 0, 3);
		spec.no_weights = traffic_chance(&rng, 20);
		specs[r] = spec;
	}
}

static bool both_parts(struct try_check *run, struct harness *h, int32_t slot,
                       bool fused, bool combine)
{
	const int32_t both = FERRY_CUDA_SEND | FERRY_CUDA_RECV;
	void (*const phase)(struct harness *, int32_t, int32_t) =
		combine ? harness_combine : harness_dispatch;

	if (fused) {
		phase(h, slot, both);
	} else {
		phase(h, slot, FERRY_CUDA_SEND);
		phase(h, slot, FERRY_CUDA_RECV);
	}
	const int wrong = combine ? harness_check_combine(h, slot)
	                          : harness_check_dispatch(h, slot);

	run->n_steps++;
	run->n_wrong += wrong;
	return wrong == 0;
}

/* Rank + 1 whose count is refused, where cases are to be; 0: ids are. */
static int32_t miscounts(const struct random_case *c)
{
	const uint64_t n = (uint64_t)c->config.n_ranks;

	return c->seed % 3 ? 0 : 1 + (int32_t)(c->seed / 3 % n);
}

static bool step(struct try_check *run, struct harness *h,
                 const struct random_case *c, int32_t i)
{
	struct traffic_spec specs[HARNESS_RANKS];
	struct drive_step s;
	bool combine;

	random_case_step(c, i, 0, &s, &combine);
	if (run->lean)
		step_lean(&s, &c->config);
	if (run->quotas)
		s.spec.id_kind = FERRY_ID_LOGICAL;
	if (run->refused)
		s.spec.bad_percent = miscounts(c) ? 0 : 30;
	try_check_specs(c, &s, specs);
	for (int32_t r = 0; run->lean && r < c->config.n_ranks; r++)
		specs[r].slack = specs[r].slack / 3 * 16;
	h->form = (struct harness_form){
		.leave = s.leave,
		.slack = s.slack,
		.scale_form = s.scale_form,
		.from = s.from,
		.residual = s.residual != DRIVE_NO_RESIDUAL,
		.values = s.values,
		.miscount = run->refused ? miscounts(c) : 0,
	};
	const int32_t slot = i % h->shape[0].n_slots;

	harness_batch(h, slot, specs);
	if (!both_parts(run, h, slot, s.fused, false))
		return false;
	if (h->host[0]->record.seal) {
		run->n_failed++;
		return false;
	}
	if (!run->kernels.combine || !combine)
		return true;
	harness_answer(h, slot);
	return both_parts(run, h, slot, s.fused, true);
}

void try_check_case(struct try_check *run, uint64_t seed, int32_t n_ranks)
{
	struct random_case c;

	mixed = run->mixed;
	n_launches = n_lean = 0;
	printf("# seed %llu\n", (unsigned long long)seed);
	random_case_make(&c, seed, n_ranks);
	c.config.n_ranks = n_ranks;
	if (run->lean)
		make_lean(&c);
	if (run->crowded)
		make_crowded(&c);
	if (run->refused)
		c.config.bad_id = FERRY_BAD_ID_ERROR;
	if (run->quotas)
		make_quotas(&c);
	const char *why = harness_refusal(&c.config, &run->kernels);

	if (why) {
		printf("seed %llu: refused: %s\n", (unsigned long long)seed,
		       why);
		return;
	}
	const int wrong = run->n_wrong;
	struct harness *h =
		harness_open(&c.config, c.placed ? &c.placement : NULL,
	                     &run->kernels, seed * 0x9e3779b97f4a7c15u);
	int32_t i = 0;

	while (i < c.n_steps && step(run, h, &c, i))
		i++;
	if (run->n_wrong != wrong) {
		printf("  step %d of\n", i);
		random_case_print(&c);
	}
	harness_close(h);
	run->n_lean += n_lean;
}

void try_check_lean(struct try_check *run)
{
	static struct ferry_cuda_dispatch_ops ops;

	ops = ferry_cuda_dispatch_lines;
	ops.launch = launch_lean;
	run->kernels.dispatch = &ops;
	run->lean = true;
}
