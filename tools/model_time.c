/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From rows to microseconds. A link takes alpha once and then, in each
 * direction at the same time, its bytes over its bandwidth, or a gap for each
 * message where that is more. Links and memory overlap at best, and follow
 * each other at worst.
 */
#include "core/bits.h"
#include "ep_model.h"

enum { BF16_BYTES = 2, QUANT_BLOCK = 128, TABLE_HEAD_BYTES = 128 };

double model_row_bytes(const struct model_shape *s, enum model_phase phase)
{
	if (phase == MODEL_COMBINE || !s->fp8)
		return (double)s->hidden * BF16_BYTES;
	return s->hidden +
	       (double)div_up(s->hidden, QUANT_BLOCK) * sizeof(float);
}

/* As in src/proto/table.h: weights go along where experts' ranks sum. */
double model_table_bytes(const struct model_shape *s, enum model_phase phase)
{
	const size_t choice = s->once[MODEL_COMBINE] == MODEL_ONCE_EXPERT
	                              ? sizeof(int32_t)
	                              : sizeof(int32_t) + sizeof(float);

	if (phase == MODEL_COMBINE || !s->tables)
		return 0;
	return TABLE_HEAD_BYTES + (double)s->tokens * s->topk * (double)choice;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/*
 * Read and written once. Dispatch: the rows that have arrived, and a row for
 * each (token, choice). Combine: a row for each choice, and the sums.
 */
static double memory_bytes(const struct model_shape *s, enum model_phase phase,
                           double ranks_per_token)
{
	const double others = phase == MODEL_DISPATCH ? ranks_per_token : 1;

	return s->tokens * (s->topk + others) * model_row_bytes(s, phase);
}

void model_load_of(const struct model_shape *s, enum model_phase phase,
                   const struct model_rows *rows, double ranks_per_token,
                   struct model_load *load)
{
	const double row = model_row_bytes(s, phase);
	const double table = model_table_bytes(s, phase);

	*load = (struct model_load){
		.memory_bytes = memory_bytes(s, phase, ranks_per_token)};
	for (int32_t r = 0; r < s->ranks; r++) {
		const int32_t first = r / s->per_host * s->per_host;
		const int32_t end =
			(int32_t)min_i64(s->ranks, first + s->per_host);
		const int32_t mates = end - first - 1;
		const int32_t others = s->ranks - (end - first);
		const double inside =
			larger(rows[r].inside_out, rows[r].inside_in);
		const double between =
			larger(rows[r].between_out, rows[r].between_in);

		load->inside_bytes = larger(load->inside_bytes,
		                            inside * row + mates * table);
		load->between_bytes = larger(load->between_bytes,
		                             between * row + others * table);
		load->inside_messages = larger(load->inside_messages, inside);
		load->between_messages =
			larger(load->between_messages, between);
	}
}

static double link_us(const struct model_link *link, double bytes,
                      double messages, double row_bytes)
{
	const double pieces =
		link->piece_bytes > 0
			? (double)div_up((int64_t)row_bytes,
	                                 (int64_t)link->piece_bytes)
			: 1;

	return larger(bytes / link->bytes_per_us,
	              messages * pieces * link->gap_us);
}

static const char *bound_of(const struct model_time *t)
{
	const double most =
		larger(larger(t->inside_us, t->between_us), t->memory_us);

	if (t->base_us + t->alpha_us >= most)
		return "latency";
	return most <= t->between_us  ? "between"
	       : most <= t->inside_us ? "inside"
	                              : "memory";
}

/* One flight; where rows go on from the rank that they landed on, two. */
static double alpha_us(const struct model_shape *s,
                       const struct model_machine *m, enum model_phase phase)
{
	if (s->ranks == 1)
		return 0;
	if (model_hosts(s) == 1)
		return m->inside.alpha_us;
	return m->between.alpha_us +
	       (s->once[phase] == MODEL_ONCE_HOST && s->per_host > 1
	                ? m->inside.alpha_us
	                : 0);
}

void model_time_of(const struct model_shape *s, const struct model_machine *m,
                   enum model_phase phase, const struct model_load *load,
                   struct model_time *t)
{
	const double row = model_row_bytes(s, phase);

	*t = (struct model_time){.base_us = m->base_us[phase],
	                         .alpha_us = alpha_us(s, m, phase)};
	t->inside_us = link_us(&m->inside, load->inside_bytes,
	                       load->inside_messages, row);
	t->between_us = link_us(&m->between, load->between_bytes,
	                        load->between_messages, row);
	if (m->memory_bytes_per_us > 0)
		t->memory_us = load->memory_bytes / m->memory_bytes_per_us;
	const double fixed = t->base_us + t->alpha_us;

	t->latency_us = fixed + larger(larger(t->inside_us, t->between_us),
	                               t->memory_us);
	t->serial_us = fixed + t->inside_us + t->between_us + t->memory_us;
	t->bound_by = bound_of(t);
}
