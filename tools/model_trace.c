/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of routing that was recorded, or is drawn, step by step. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "core/bits.h"
#include "model_run.h"
#include "route_parts.h"

struct counter {
	struct model_line *line;
	int64_t n_steps; /* layers count as steps of their own */
	int64_t ranks, hosts;
	struct model_rows *rows; /* [ranks] */
	int32_t *seen;           /* [ranks] */
	/* Ids of a token of a step, in order: recorded, or drawn. */
	void (*read)(const struct counter *c, int64_t token, int32_t layer,
	             int32_t *ids);
	const struct route_ids *ids;
	uint64_t seed;
	int32_t *experts; /* [experts] of scratch, where they are drawn */
};

static void add_load(struct model_load *sum, const struct model_load *load)
{
	sum->inside_bytes += load->inside_bytes;
	sum->between_bytes += load->between_bytes;
	sum->memory_bytes += load->memory_bytes;
	sum->inside_messages += load->inside_messages;
	sum->between_messages += load->between_messages;
}

static void divide_load(struct model_load *sum, double n)
{
	sum->inside_bytes /= n;
	sum->between_bytes /= n;
	sum->memory_bytes /= n;
	sum->inside_messages /= n;
	sum->between_messages /= n;
}

static void read_token(const struct counter *c, int64_t token, int32_t layer,
                       int32_t *ids)
{
	const struct route_ids *const in = c->ids;
	const int64_t at = (token * in->n_layers + layer) * in->topk;

	for (int32_t k = 0; k < in->topk; k++)
		ids[k] = (int32_t)route_element(in->ids, in->type, at + k);
}

/* topk different ones, all equally likely: the head of a shuffle. */
static void draw_token(const struct counter *c, int64_t token, int32_t layer,
                       int32_t *ids)
{
	const struct model_shape *const s = &c->line->shape;
	uint64_t state = hash_u64(hash_u64(c->seed, (uint64_t)c->n_steps),
	                          (uint64_t)token);

	(void)layer;
	for (int32_t e = 0; token == 0 && e < s->experts; e++)
		c->experts[e] = e; /* so that both phases draw alike */
	for (int32_t k = 0; k < s->topk; k++) {
		const uint64_t left = (uint64_t)(s->experts - k);
		const int32_t at =
			k + (int32_t)((rng_next(&state) >> 32) * left >> 32);

		ids[k] = c->experts[at];
		c->experts[at] = c->experts[k];
		c->experts[k] = ids[k];
	}
}

/* The tokens from `first` on, those of rank 0 at first; one phase. */
static void count_phase(struct counter *c, int64_t first, int32_t layer,
                        enum model_phase phase)
{
	const struct model_shape *const s = &c->line->shape;
	const int64_t n = (int64_t)s->ranks * s->tokens;
	int64_t ranks = 0, hosts = 0;
	int32_t ids[ROUTE_MAX_TOPK];
	struct model_load load;

	memset(c->rows, 0, (size_t)s->ranks * sizeof(*c->rows));
	for (int64_t i = 0; i < n; i++) {
		c->read(c, first + i, layer, ids);
		model_add_token(s, phase, (int32_t)(i / s->tokens),
		                i % s->tokens, ids, c->rows, c->seen);
		model_add_spread(s, ids, &ranks, &hosts, c->seen);
	}
	model_load_of(s, phase, c->rows, n ? (double)ranks / (double)n : 0,
	              &load);
	add_load(&c->line->load[phase], &load);
	if (phase == MODEL_DISPATCH) {
		c->ranks += ranks;
		c->hosts += hosts;
	}
}

/* One step of one layer. */
static void count_step(struct counter *c, int64_t first, int32_t layer)
{
	for (int p = 0; p < MODEL_N_PHASES; p++)
		count_phase(c, first, layer, (enum model_phase)p);
	c->n_steps++;
}

static bool count(void *arg, const struct route_ids *ids, int32_t n_experts,
                  struct fault *fault)
{
	struct counter *const c = arg;
	struct model_shape *const s = &c->line->shape;
	const int64_t n = (int64_t)s->ranks * s->tokens;

	s->topk = ids->topk;
	s->experts = n_experts;
	c->ids = ids;
	c->read = read_token;
	if (n < 1 || n > ids->n_tokens)
		return fault_set(fault,
		                 "%s: %d ranks of %d tokens need %" PRId64
		                 " tokens, it has %" PRId64,
		                 ids->name, s->ranks, s->tokens, n < 1 ? 1 : n,
		                 ids->n_tokens);
	for (int64_t first = 0; first + n <= ids->n_tokens; first += n)
		for (int32_t layer = 0; layer < ids->n_layers; layer++)
			count_step(c, first, layer);
	return true;
}

static struct counter counter_make(struct model_line *line)
{
	const size_t n = (size_t)line->shape.ranks;

	return (struct counter){
		.line = line,
		.rows = alloc_or_exit(n, sizeof(struct model_rows)),
		/* Before duplicates are known a token may have that many. */
		.seen = alloc_or_exit(n + ROUTE_MAX_TOPK, sizeof(int32_t)),
	};
}

static void counter_free(struct counter *c)
{
	free(c->rows);
	free(c->seen);
	free(c->experts);
}

/* Sums to means. */
static void finish(struct counter *c)
{
	struct model_line *const line = c->line;
	const double steps = (double)c->n_steps;
	const double tokens = steps * line->shape.ranks * line->shape.tokens;

	for (int p = 0; p < MODEL_N_PHASES; p++)
		divide_load(&line->load[p], steps);
	line->ranks_per_token = tokens > 0 ? (double)c->ranks / tokens : 0;
	line->hosts_per_token = tokens > 0 ? (double)c->hosts / tokens : 0;
}

bool model_trace(const char *path, struct model_line *line, int64_t *n_steps,
                 struct fault *fault)
{
	struct counter c = counter_make(line);
	const struct route_ask ask = {.see = count, .see_arg = &c};
	struct route route;
	bool good = route_open(path, &ask, &route, fault);

	if (good) {
		route_close(&route);
		if (c.n_steps == 0)
			good = fault_set(fault,
			                 "%s: has loads and no expert ids of "
			                 "tokens",
			                 path);
	}
	if (good) {
		finish(&c);
		*n_steps = c.n_steps;
	}
	counter_free(&c);
	return good;
}

void model_draw(struct model_line *line, int64_t n_steps, uint64_t seed)
{
	struct counter c = counter_make(line);

	c.read = draw_token;
	c.seed = seed;
	c.experts =
		alloc_or_exit((size_t)line->shape.experts, sizeof(*c.experts));
	while (c.n_steps < n_steps)
		count_step(&c, 0, 0);
	finish(&c);
	counter_free(&c);
}
