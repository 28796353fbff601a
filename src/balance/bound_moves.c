/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many moves windows let through, at most: each takes at least as long as
 * the smallest expert on the fastest link. Costs are thereby only ever turned
 * into a number of moves that is proven not to be exceeded.
 */
#include "bound_inner.h"

static int64_t least_bytes(const struct ferry_problem *p)
{
	int64_t least = p->cost.all_bytes;

	if (p->cost.expert_bytes)
		least = p->cost.expert_bytes[0];
	for (int32_t e = 1; p->cost.expert_bytes && e < p->n_experts; e++)
		least = min_i64(least, p->cost.expert_bytes[e]);
	return least;
}

/*
 * ns that a move of the smallest experts keeps the outgoing and the incoming
 * side of rank r busy, at least. Half-duplex, both are one; a swap then starts
 * once, and may take less than a copy.
 */
static void pair_times(const struct ferry_bound *b,
                       const struct ferry_problem *p, int32_t r, int32_t other,
                       int64_t *out_ns, int64_t *in_ns)
{
	const int64_t *const alpha = p->cost.alpha_ns;
	const int64_t n = p->n_ranks;
	const int64_t out =
		ferry_problem_transfer_ns(p, r, other, b->least_bytes);
	const int64_t in =
		ferry_problem_transfer_ns(p, other, r, b->least_bytes);
	const int64_t both =
		out + in - max_i64(alpha[r * n + other], alpha[other * n + r]);

	*out_ns = out;
	*in_ns = in;
	if (p->cost.half_duplex)
		*out_ns = *in_ns = b->n_copies ? min_i64(both, out) : both;
}

bool ferry_bound_may_swap(const struct ferry_bound *b,
                          const struct ferry_problem *p, int32_t r,
                          int32_t other)
{
	int64_t out;
	int64_t in;

	if (!p->has_cost)
		return true;
	pair_times(b, p, r, other, &out, &in);
	return max_i64(out, in) <= min_i64(p->window[r], p->window[other]);
}

/* The same for one move with any other rank. */
static void least_times(const struct ferry_bound *b,
                        const struct ferry_problem *p, int32_t r,
                        int64_t *out_ns, int64_t *in_ns)
{
	*out_ns = *in_ns = FERRY_COST_NEVER;
	for (int32_t other = 0; other < p->n_ranks; other++) {
		const int64_t window = min_i64(p->window[r], p->window[other]);
		int64_t out;
		int64_t in;

		if (other == r)
			continue;
		pair_times(b, p, r, other, &out, &in);
		if (b->n_copies == 0 && max_i64(out, in) > window)
			continue;
		if (out <= window)
			*out_ns = min_i64(*out_ns, out);
		if (in <= window)
			*in_ns = min_i64(*in_ns, in);
	}
}

static int64_t times(int64_t window, int64_t ns)
{
	return ns == 0 ? INT32_MAX : min_i64(window / ns, INT32_MAX);
}

/* A rank is lowered by what goes out; a swap comes in, too. */
static int64_t window_moves(const struct ferry_bound *b,
                            const struct ferry_problem *p, int32_t r)
{
	int64_t out;
	int64_t in;

	least_times(b, p, r, &out, &in);
	if (p->window[r] <= 0)
		return 0;
	if (b->n_copies)
		return times(p->window[r], out);
	return min_i64(times(p->window[r], out), times(p->window[r], in));
}

void ferry_bound_moves(struct ferry_bound *b, const struct ferry_problem *p)
{
	/* Where an expert has replicas, a copy of it lightens ranks that
	 * send nothing. */
	const bool limited =
		p->has_cost && !(b->n_copies > 0 && p->has_replicas);
	int64_t sum = 0;

	b->least_bytes = p->has_cost ? least_bytes(p) : 0;
	for (int32_t r = 0; r < p->n_ranks; r++) {
		int64_t n = bound_n_items(b, r);

		if (limited)
			n = min_i64(n, window_moves(b, p, r));
		b->most_moves[r] = (int32_t)n;
		sum += n;
	}
	/* Two ranks take part in a swap. */
	if (b->n_copies)
		b->n_moves = (int64_t)p->max_swaps + b->n_lightened;
	else
		b->n_moves = min_i64(p->max_swaps, sum / 2);
}
