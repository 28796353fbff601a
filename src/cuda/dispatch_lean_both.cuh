/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recv of the lean dispatch kernel behind a send of the same launch, which has
 * left the own table and rows in shared memory: what peers send is on its way.
 */
#ifndef FERRY_DISPATCH_LEAN_BOTH_CUH
#define FERRY_DISPATCH_LEAN_BOTH_CUH

#include "dispatch_lean_recv.cuh"
#include "dispatch_lean_token.cuh"

/* Lines of the own table, as a guess at what others send. */
static __device__ __forceinline__ uint32_t likely_lines(uint32_t n)
{
	return ((uint32_t)sizeof(struct ferry_table) + n * 4 + LINE_DATA - 1) /
	       LINE_DATA;
}

/*
 * All tables, and may they be used? *guessed: the row that was looked at is
 * here. False: the channel has ended.
 */
static __device__ __forceinline__ bool
agree(const struct lean *l, uint32_t n, struct lean_guess *g, bool *guessed)
{
	begin_wait(l);
	if (!receive_tables(l, likely_lines(n), g) && l->lane == 0)
		atomicOr(&l->shared->odd, LEAN_FAILED);
	fence_proxy_async_shared();
	LEAN_MARK(l, 5);
	*guessed = !lean_any(!g->is_on || g->here != 3);
	LEAN_MARK(l, 6);
	return is_agreed(l) &&
	       (!l->is_clerk || (!finds_overflow(l) && tell_counts(l)));
}

/* False: the channel has ended. */
static __device__ __forceinline__ bool receive(const struct lean *l, uint32_t n)
{
	struct lean_guess g = guess_row(l);
	bool guessed;

	if (!agree(l, n, &g, &guessed))
		return false;
	if (!l->works)
		return true;
	bool good = place_all<false, LEAN_BOTH>(l, false);
	LEAN_MARK(l, 7);

	/* A guess has two lines of each team. */
	if (!guessed || l->a->n_units != 1 ||
	    l->a->row_lines > 2 * LEAN_TEAMS) {
		good = good && receive_rows(l, &g);
		LEAN_MARK(l, 8);
		fence_proxy_async_shared();
		if (lean_any(!good))
			return false;
	} else if (l->d->op.weights && lean_any(!good)) {
		return false;
	}
	LEAN_MARK(l, 9);
	deliver_rows(l);
	return true;
}

/* The same of TOKEN. */
static __device__ __forceinline__ bool receive_views(const struct lean *l,
                                                     uint32_t n)
{
	struct lean_guess none = {false, NULL, NULL, 3};
	bool guessed;

	if (!agree(l, n, &none, &guessed))
		return false;
	if (!l->works)
		return true;
	end_index(l);
	bool good = place_all<true, LEAN_BOTH>(l, false);

	LEAN_MARK(l, 7);
	good = good && await_rows<LEAN_BOTH>(l, 0);
	LEAN_MARK(l, 8);
	return !lean_any(!good);
}

#endif
