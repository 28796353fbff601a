/* SPDX-License-Identifier: Apache-2.0 */
/* Random channels and operations. Every choice that the headers allow. */
#include "random_case.h"

#include <stdio.h>
#include <string.h>

#include "run_args.h"

#define PICK(rng, ...)                                                         \
	((int[]){__VA_ARGS__})[traffic_random(rng) %                           \
	                       (sizeof((int[]){__VA_ARGS__}) / sizeof(int))]

/* Mostly small, at times large: low..usual, or up to `most`. */
static int32_t size_of(uint64_t *rng, int32_t low, int32_t usual, int32_t most)
{
	const bool large = traffic_chance(rng, 10);

	return (int32_t)traffic_between(rng, low, large ? most : usual);
}

static void pick_types(struct ferry_moe_config *c, uint64_t *rng)
{
	const bool quantise = traffic_chance(rng, 25);

	c->dtype = (enum ferry_dtype)PICK(
		rng, FERRY_DTYPE_NONE, FERRY_BF16, FERRY_FP16, FERRY_FP32,
		FERRY_FP8_E4M3, FERRY_FP8_E5M2, FERRY_BYTES);
	if (quantise) {
		c->in_dtype = FERRY_BF16;
		c->dtype = FERRY_FP8_E4M3;
		c->scale_type = (enum ferry_scale_type)PICK(
			rng, FERRY_SCALE_FP32, FERRY_SCALE_UE8M0);
	} else {
		c->scale_type = (enum ferry_scale_type)PICK(
			rng, FERRY_SCALE_NONE, FERRY_SCALE_NONE,
			FERRY_SCALE_FP32, FERRY_SCALE_UE8M0, FERRY_SCALE_BYTES);
		if (c->scale_type == FERRY_SCALE_BYTES)
			c->scale_bytes = PICK(rng, 1, 2, 4, 7, 16, 65);
		else if (c->scale_type != FERRY_SCALE_NONE)
			c->scale_block = PICK(rng, 0, 1, 7, 16, 32, 128);
	}
	c->combine_dtype = (enum ferry_dtype)PICK(
		rng, FERRY_DTYPE_NONE, FERRY_BF16, FERRY_FP16, FERRY_FP32);
	c->out_dtype = (enum ferry_dtype)PICK(rng, FERRY_DTYPE_NONE, FERRY_BF16,
	                                      FERRY_FP16, FERRY_FP32);
}

static void pick_rules(struct ferry_moe_config *c, uint64_t *rng)
{
	c->layout = (enum ferry_layout)PICK(rng, FERRY_EXPERT_PADDED,
	                                    FERRY_EXPERT_PACKED, FERRY_TOKEN);
	if (c->layout != FERRY_EXPERT_PADDED)
		c->alignment = PICK(rng, 0, 1, 2, 4, 16, 64);
	c->combine =
		(enum ferry_combine_mode)PICK(rng, FERRY_EXACT, FERRY_REDUCED);
	c->send_weights = traffic_chance(rng, 30);
	c->bad_id = (enum ferry_bad_id)PICK(rng, FERRY_BAD_ID_ERROR,
	                                    FERRY_BAD_ID_SKIP);
	if (traffic_chance(rng, 30))
		c->routed_scale = PICK(rng, 0, 1) ? 2.5f : 0.3f;
	if (c->layout != FERRY_TOKEN && c->dtype <= FERRY_FP32 &&
	    traffic_chance(rng, 25))
		c->weight_use = FERRY_WEIGHT_INPUT;
	if (traffic_chance(rng, 35)) {
		c->overflow = traffic_chance(rng, 70) ? FERRY_OVERFLOW_DROP
		                                      : FERRY_OVERFLOW_ERROR;
		c->max_recv_rows = (c->alignment ? c->alignment : 1) +
		                   traffic_between(rng, 0, 60);
	}
}

static void pick_sizes(struct ferry_moe_config *c, int32_t n_ranks,
                       uint64_t *rng)
{
	c->n_ranks = n_ranks;
	c->max_tokens = size_of(rng, 1, 12, 70);
	c->hidden = size_of(rng, 1, 200, 2000);
	c->topk = size_of(rng, 1, 8, 64);
	c->n_experts = size_of(rng, 1, 24, 200);
	c->n_slots = PICK(rng, 0, 1, 2, 3);
	c->group_size = 0;
	if (traffic_chance(rng, 40))
		do
			c->group_size =
				(int32_t)traffic_between(rng, 1, n_ranks);
		while (n_ranks % c->group_size != 0);
}

/* Every expert once, then replicas and empty slots, all over the ranks. */
static void fill_slots(struct random_case *c, uint64_t *rng)
{
	const int32_t n_ranks = c->config.n_ranks;
	const int32_t n_experts = c->config.n_experts;
	int32_t n = 0;
	int32_t first = 0;

	for (int32_t r = 0; r < n_ranks; r++)
		n += c->expert_slots[r];
	for (int32_t s = 0; s < n; s++)
		c->slot_expert[s] = -1;
	for (int32_t e = 0; e < n_experts; e++) {
		int32_t s = (int32_t)traffic_between(rng, 0, n - 1);

		while (c->slot_expert[s] >= 0)
			s = (s + 1) % n;
		c->slot_expert[s] = e;
	}
	for (int32_t r = 0; r < n_ranks; first += c->expert_slots[r++])
		for (int32_t s = first; s < first + c->expert_slots[r]; s++) {
			const int32_t e =
				(int32_t)traffic_between(rng, 0, n_experts - 1);
			bool here = c->slot_expert[s] >= 0;

			for (int32_t i = 0; i < c->expert_slots[r]; i++)
				here |= c->slot_expert[first + i] == e;
			if (!here && traffic_chance(rng, 70))
				c->slot_expert[s] = e;
		}
}

/* Shares of replicas: some of nothing, some of all, some very large. */
static void fill_quotas(struct random_case *c, uint64_t *rng)
{
	const size_t n = sizeof(c->quota) / sizeof(*c->quota);

	for (size_t s = 0; s < n; s++) {
		const int kind = PICK(rng, 0, 1, 1, 1, 2);

		c->quota[s] = kind == 0   ? 0
		              : kind == 1 ? (int64_t)traffic_between(rng, 1, 99)
		                          : INT64_MAX - (int64_t)s;
	}
	c->placement.split = FERRY_SPLIT_QUOTA;
	c->placement.quota = c->quota;
}

static void pick_slots(struct random_case *c, uint64_t *rng)
{
	struct ferry_moe_config *config = &c->config;
	int32_t left = config->n_experts +
	               (int32_t)traffic_between(rng, 0, config->n_experts);

	if (traffic_chance(rng, 35))
		return; /* as even as possible, expert e in slot e */
	memset(c->expert_slots, 0, sizeof(c->expert_slots));
	while (left-- > 0)
		c->expert_slots[traffic_between(rng, 0, config->n_ranks - 1)]++;
	config->expert_slots = c->expert_slots;
	if (traffic_chance(rng, 25))
		return; /* uneven, without a placement */
	c->placed = true;
	c->placement =
		(struct ferry_placement_config)FERRY_PLACEMENT_CONFIG_INIT;
	c->placement.n_experts = config->n_experts;
	c->placement.n_ranks = config->n_ranks;
	c->placement.expert_slots = c->expert_slots;
	c->placement.slot_expert = c->slot_expert;
	fill_slots(c, rng);
	if (traffic_chance(rng, 50))
		fill_quotas(c, rng);
	else
		c->placement.split = (enum ferry_split)PICK(
			rng, FERRY_SPLIT_EXACT, FERRY_SPLIT_EVEN,
			FERRY_SPLIT_EVEN, FERRY_SPLIT_EVEN);
}

/* Keeps the largest buffers at a few MiB. */
static void limit_sizes(struct random_case *c)
{
	struct ferry_moe_config *m = &c->config;
	const int64_t most = c->deep ? 1 << 22 : 1 << 19;
	int64_t slots = m->n_experts / m->n_ranks + 1;

	for (int32_t r = 0; m->expert_slots != NULL && r < m->n_ranks; r++)
		if (c->expert_slots[r] > slots)
			slots = c->expert_slots[r];
	for (;;) {
		const int64_t rows = (int64_t)m->n_ranks * m->max_tokens *
		                     (slots > m->topk ? slots : m->topk);

		if (rows * m->hidden <= most)
			return;
		if (m->hidden > 16)
			m->hidden /= 2;
		else
			m->max_tokens = m->max_tokens / 2 + 1;
		if (m->hidden <= 16 && m->max_tokens <= 2)
			return;
	}
}

/* Rows so many and so long that they travel in many pieces. */
static void make_deep(struct random_case *c, uint64_t *rng)
{
	c->deep = true;
	c->config.max_tokens = (int32_t)traffic_between(rng, 40, 300);
	c->config.hidden = (int32_t)traffic_between(rng, 1000, 9000);
	c->config.topk = (int32_t)traffic_between(rng, 1, 4);
	c->config.n_experts = (int32_t)traffic_between(rng, 1, 8);
}

/* Is every group on one host? */
static bool groups_stay(const struct random_case *c)
{
	const int32_t g = c->config.group_size ? c->config.group_size : 1;

	for (int32_t r = 0; r < c->config.n_ranks; r++)
		if (random_case_host(c, r) != random_case_host(c, r - r % g))
			return false;
	return true;
}

/* A stream of its own: with and without hosts the cases are the same. */
static void pick_hosts(struct random_case *c, uint64_t rng)
{
	c->n_hosts = (int32_t)traffic_between(&rng, 1, RANDOM_CASE_HOSTS);
	c->in_turn = traffic_chance(&rng, 30);
	if (traffic_chance(&rng, 50) && groups_stay(c))
		c->config.combine = FERRY_PER_HOST;
}

void random_case_make(struct random_case *c, uint64_t seed, int32_t n_ranks)
{
	uint64_t rng = seed;

	memset(c, 0, sizeof(*c));
	c->seed = seed;
	c->config = (struct ferry_moe_config)FERRY_MOE_CONFIG_INIT;
	pick_sizes(&c->config, n_ranks, &rng);
	if (traffic_chance(&rng, 5))
		make_deep(c, &rng);
	pick_types(&c->config, &rng);
	pick_rules(&c->config, &rng);
	pick_slots(c, &rng);
	limit_sizes(c);
	c->n_steps = 6;
	c->n_hosts = 1;
	if (run_args.any_hosts)
		pick_hosts(c, seed + 7);
}

const char *random_case_host(const struct random_case *c, int32_t rank)
{
	static const char *const hosts[RANDOM_CASE_HOSTS] = {
		"HOST=a", "HOST=b", "HOST=c", "HOST=d"};
	const int32_t each = (c->config.n_ranks + c->n_hosts - 1) / c->n_hosts;

	return hosts[c->in_turn ? rank % c->n_hosts : rank / each];
}

/* Under split EXACT ids are slots. */
static void pick_spec(const struct random_case *c, struct traffic_spec *spec,
                      uint64_t *rng)
{
	const struct ferry_moe_config *config = &c->config;

	spec->seed = traffic_random(rng);
	if (traffic_chance(rng, 30))
		spec->hidden = (int32_t)traffic_between(rng, 1, config->hidden);
	if (traffic_chance(rng, 30))
		spec->topk = (int32_t)traffic_between(rng, 1, config->topk);
	spec->routing = (enum traffic_routing)traffic_between(
		rng, 0, TRAFFIC_N_ROUTINGS - 1);
	spec->mask_percent = PICK(rng, 0, 0, 20, 100);
	if (config->bad_id == FERRY_BAD_ID_SKIP)
		spec->bad_percent = PICK(rng, 0, 20);
	else
		spec->bad_percent = PICK(rng, 0, 0, 0, 0, 0, 0, 0, 1);
	spec->duplicates = traffic_chance(rng, 40);
	spec->special = traffic_chance(rng, 40);
	if (traffic_chance(rng, 30) ||
	    (c->placed && c->placement.split == FERRY_SPLIT_EXACT))
		spec->id_kind = FERRY_ID_SLOT;
}

static void pick_counts(const struct random_case *c, struct drive_step *step,
                        uint64_t *rng)
{
	const int32_t max = c->config.max_tokens;
	const int how = PICK(rng, 0, 1, 2, 2, 2, 2);

	for (int32_t r = 0; r < c->config.n_ranks; r++) {
		step->n_tokens[r] = (int32_t)traffic_between(rng, 0, max);
		if (how == 0)
			step->n_tokens[r] = 0;
		else if (how == 1 || traffic_chance(rng, 10))
			step->n_tokens[r] = max;
		else if (traffic_chance(rng, 15))
			step->n_tokens[r] = 0;
	}
	/* A group has one batch. */
	for (int32_t r = 0; c->config.group_size > 1 && r < c->config.n_ranks;
	     r++)
		step->n_tokens[r] =
			step->n_tokens[r - r % c->config.group_size];
}

static bool presumable(const struct random_case *c)
{
	return c->config.layout == FERRY_TOKEN &&
	       c->config.combine != FERRY_EXACT;
}

/*
 * PRESUMMED sums are another arithmetic, so all ranks or none have them.
 * FROM_PADDED has a fixed number of rows for each slot.
 */
static enum ferry_combine_layout pick_from(const struct random_case *c,
                                           const struct traffic_spec *spec,
                                           uint64_t *rng)
{
	if (presumable(c) && traffic_chance(rng, 50))
		return FERRY_FROM_PRESUMMED;
	if (c->config.layout != FERRY_EXPERT_PADDED && spec->duplicates)
		return FERRY_FROM_PACKED;
	return (enum ferry_combine_layout)PICK(rng, FERRY_FROM_PADDED,
	                                       FERRY_FROM_PACKED);
}

static enum ferry_scale_form pick_form(const struct random_case *c,
                                       uint64_t *rng)
{
	const enum ferry_scale_type type = c->config.scale_type;

	if (type == FERRY_SCALE_FP32)
		return (enum ferry_scale_form)PICK(rng, FERRY_SCALES_ROW_MAJOR,
		                                   FERRY_SCALES_COL_MAJOR);
	if (type == FERRY_SCALE_UE8M0)
		return (enum ferry_scale_form)PICK(rng, FERRY_SCALES_ROW_MAJOR,
		                                   FERRY_SCALES_COL_MAJOR,
		                                   FERRY_SCALES_PACKED_UE8M0);
	return FERRY_SCALES_ROW_MAJOR;
}

void random_case_step(const struct random_case *c, int32_t i, int32_t rank,
                      struct drive_step *step, bool *combine)
{
	uint64_t rng = c->seed ^ (0x1234567u * (uint64_t)(i + 1));
	uint64_t own;

	memset(step, 0, sizeof(*step));
	pick_spec(c, &step->spec, &rng);
	pick_counts(c, step, &rng);
	step->vary = true;
	step->light = c->deep;
	step->values = step->spec.special ? ORACLE_SPECIAL : ORACLE_PLAIN;
	*combine = traffic_chance(&rng, 85);
	own = traffic_random(&rng) + (uint64_t)(uint32_t)rank;
	traffic_random(&own);
	step->fused = traffic_chance(&own, 30);
	step->leave =
		(uint32_t)traffic_random(&own) & (uint32_t)traffic_random(&own);
	step->slack = (size_t)PICK(&own, 0, 0, 1, 2, 16, 100);
	step->scale_form = pick_form(c, &own);
	step->residual = (enum drive_residual)traffic_between(
		&own, DRIVE_NO_RESIDUAL, DRIVE_IN_PLACE);
	step->from = pick_from(c, &step->spec, presumable(c) ? &rng : &own);
}

void random_case_print(const struct random_case *c)
{
	static const char *const placed[] = {" placed", " by quota", " exact"};
	const struct ferry_moe_config *m = &c->config;

	printf("# seed %llu: ranks %d/%d on %d%s tokens %d hidden %d topk %d "
	       "experts "
	       "%d%s slots %d dtype %d<-%d scales %d/%d/%d layout %d/%d rows "
	       "%lld/%d bad %d combine %d:%d->%d weights %d%d*%g\n",
	       (unsigned long long)c->seed, m->n_ranks, m->group_size,
	       c->n_hosts, c->in_turn ? " in turn" : "", m->max_tokens,
	       m->hidden, m->topk, m->n_experts,
	       !c->placed && m->expert_slots ? " uneven"
	       : !c->placed                  ? ""
	                                     : placed[c->placement.split],
	       m->n_slots, (int)m->dtype, (int)m->in_dtype, (int)m->scale_type,
	       m->scale_block, m->scale_bytes, (int)m->layout, m->alignment,
	       (long long)m->max_recv_rows, (int)m->overflow, (int)m->bad_id,
	       (int)m->combine, (int)m->combine_dtype, (int)m->out_dtype,
	       (int)m->weight_use, m->send_weights, (double)m->routed_scale);
}
