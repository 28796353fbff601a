/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that recorded routing sends, step by step and layer by layer. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "model_run.h"
#include "route_parts.h"

struct counter {
	struct model_line *line;
	int64_t n_steps; /* layers count as steps of their own */
	int64_t ranks, hosts;
	struct model_rows *rows; /* [ranks] */
	int32_t *seen;           /* [ranks] */
	const char *name;
	const struct route_ids *ids;
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

static void read_token(const struct route_ids *in, int64_t token, int32_t layer,
                       int32_t *ids)
{
	const int64_t at = (token * in->n_layers + layer) * in->topk;

	for (int32_t k = 0; k < in->topk; k++)
		ids[k] = (int32_t)route_element(in->ids, in->type, at + k);
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
		read_token(c->ids, first + i, layer, ids);
		model_add_token(s, phase, (int32_t)(i / s->tokens),
		                i % s->tokens, ids, c->rows, c->seen);
		model_add_spread(s, ids, &ranks, &hosts, c->seen);
	}
	model_load_of(s, phase, c->rows, (double)ranks / (double)n, &load);
	add_load(&c->line->load[phase], &load);
	if (phase == MODEL_DISPATCH) {
		c->ranks += ranks;
		c->hosts += hosts;
	}
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
	if (n < 1 || n > ids->n_tokens)
		return fault_set(fault,
		                 "%s: %d ranks of %d tokens need %" PRId64
		                 " tokens, it has %" PRId64,
		                 ids->name, s->ranks, s->tokens, n < 1 ? 1 : n,
		                 ids->n_tokens);
	for (int64_t first = 0; first + n <= ids->n_tokens; first += n)
		for (int32_t layer = 0; layer < ids->n_layers; layer++) {
			for (int p = 0; p < MODEL_N_PHASES; p++)
				count_phase(c, first, layer,
				            (enum model_phase)p);
			c->n_steps++;
		}
	return true;
}

bool model_trace(const char *path, struct model_line *line, int64_t *n_steps,
                 struct fault *fault)
{
	const size_t n_ranks = (size_t)line->shape.ranks;
	struct counter c = {
		.line = line,
		.rows = alloc_or_exit(n_ranks, sizeof(*c.rows)),
		/* Before duplicates are known a token may have that many. */
		.seen = alloc_or_exit(n_ranks + ROUTE_MAX_TOPK,
	                              sizeof(*c.seen)),
	};
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
		const double steps = (double)c.n_steps;
		const double tokens =
			steps * (double)line->shape.ranks * line->shape.tokens;

		for (int p = 0; p < MODEL_N_PHASES; p++)
			divide_load(&line->load[p], steps);
		line->ranks_per_token = (double)c.ranks / tokens;
		line->hosts_per_token = (double)c.hosts / tokens;
		*n_steps = c.n_steps;
	}
	free(c.rows);
	free(c.seen);
	return good;
}
