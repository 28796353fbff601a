/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows travel: expected under uniform routing, or counted from ids. */
#include <string.h>

#include "core/bits.h"
#include "ep_model.h"

const char *const model_once_names[] = {"expert", "rank", "host", NULL};
const char *const model_phase_names[] = {"dispatch", "combine"};

int32_t model_hosts(const struct model_shape *s)
{
	return (int32_t)div_up(s->ranks, s->per_host);
}

/* Experts of ranks 0..rank-1: as even as can be, the first ranks have more. */
static int32_t first_expert(const struct model_shape *s, int32_t rank)
{
	const int32_t extra = s->experts % s->ranks;

	return rank * (s->experts / s->ranks) + (rank < extra ? rank : extra);
}

static int32_t experts_of(const struct model_shape *s, int32_t rank)
{
	return first_expert(s, rank + 1) - first_expert(s, rank);
}

int32_t model_owner(const struct model_shape *s, int32_t expert)
{
	const int32_t each = s->experts / s->ranks;
	const int32_t extra = s->experts % s->ranks;

	if (expert < extra * (each + 1))
		return expert / (each + 1);
	return extra + (expert - extra * (each + 1)) / each;
}

double model_miss(int32_t n, int32_t own, int32_t topk)
{
	double p = 1;

	for (int32_t i = 0; i < topk; i++)
		p *= n - own > i ? (double)(n - own - i) / (double)(n - i) : 0;
	return p;
}

static double rank_share(const struct model_shape *s, int32_t rank)
{
	return 1 - model_miss(s->experts, experts_of(s, rank), s->topk);
}

double model_ranks_per_token(const struct model_shape *s)
{
	double sum = 0;

	for (int32_t r = 0; r < s->ranks; r++)
		sum += rank_share(s, r);
	return sum;
}

/* One host, under uniform routing. */
struct host {
	int32_t ranks, experts;
	double touched; /* probability that a token has an expert here */
	double served;  /* expected ranks of a token here */
};

static struct host host_at(const struct model_shape *s, int32_t host)
{
	const int32_t first = host * s->per_host;
	const int32_t end = (int32_t)min_i64(s->ranks, first + s->per_host);
	struct host h = {.ranks = end - first,
	                 .experts =
	                         first_expert(s, end) - first_expert(s, first)};

	h.touched = 1 - model_miss(s->experts, h.experts, s->topk);
	for (int32_t r = first; r < end; r++)
		h.served += rank_share(s, r);
	return h;
}

double model_hosts_per_token(const struct model_shape *s)
{
	double sum = 0;

	for (int32_t h = 0; h < model_hosts(s); h++)
		sum += host_at(s, h).touched;
	return sum;
}

/* Dispatch, for one token of every rank; combine is the same the other way. */
static struct model_rows expect_rank(const struct model_shape *s,
                                     enum model_once once, int32_t rank,
                                     const struct host *h,
                                     double ranks_per_token,
                                     double hosts_per_token)
{
	const double own = experts_of(s, rank), all = s->experts;
	const double mates = h->ranks - 1, others = s->ranks - h->ranks;
	const double share = rank_share(s, rank);
	/* Rows that landed on a host, and then go to its other ranks. */
	const double forward = others * (h->served - h->touched) / h->ranks;

	switch (once) {
	case MODEL_ONCE_EXPERT:
		return (struct model_rows){
			.inside_out = s->topk * (h->experts - own) / all,
			.inside_in = mates * s->topk * own / all,
			.between_out = s->topk * (all - h->experts) / all,
			.between_in = others * s->topk * own / all,
		};
	case MODEL_ONCE_RANK:
		return (struct model_rows){
			.inside_out = h->served - share,
			.inside_in = mates * share,
			.between_out = ranks_per_token - h->served,
			.between_in = others * share,
		};
	case MODEL_ONCE_HOST:
		return (struct model_rows){
			.inside_out = h->served - share + forward,
			.inside_in = mates * share + forward,
			.between_out = hosts_per_token - h->touched,
			.between_in = others * h->touched / h->ranks,
		};
	}
	return (struct model_rows){0};
}

static void turn(struct model_rows *r)
{
	*r = (struct model_rows){r->inside_in, r->inside_out, r->between_in,
	                         r->between_out};
}

void model_expect(const struct model_shape *s, enum model_phase phase,
                  struct model_rows *rows)
{
	const double ranks = model_ranks_per_token(s);
	const double hosts = model_hosts_per_token(s);

	for (int32_t r = 0; r < s->ranks; r++) {
		const struct host h = host_at(s, r / s->per_host);
		struct model_rows *const to = &rows[r];

		*to = expect_rank(s, s->once[phase], r, &h, ranks, hosts);
		to->inside_out *= s->tokens;
		to->inside_in *= s->tokens;
		to->between_out *= s->tokens;
		to->between_in *= s->tokens;
		if (phase == MODEL_COMBINE)
			turn(to);
	}
}

/* One row from rank a to rank b, in the direction of dispatch. */
static void add_row(const struct model_shape *s, enum model_phase phase,
                    int32_t a, int32_t b, struct model_rows *rows)
{
	const int32_t from = phase == MODEL_DISPATCH ? a : b;
	const int32_t to = phase == MODEL_DISPATCH ? b : a;

	if (a == b)
		return;
	if (a / s->per_host == b / s->per_host) {
		rows[from].inside_out++;
		rows[to].inside_in++;
	} else {
		rows[from].between_out++;
		rows[to].between_in++;
	}
}

/* Ranks that serve a token, ascending; seen[i] is the i-th. */
static int32_t ranks_of(const struct model_shape *s, const int32_t *ids,
                        int32_t *seen)
{
	int32_t n = 0;

	for (int32_t k = 0; k < s->topk; k++) {
		const int32_t rank = ids[k] < 0 ? -1 : model_owner(s, ids[k]);
		int32_t at = n;

		while (at > 0 && seen[at - 1] > rank)
			at--;
		if (rank < 0 || (at > 0 && seen[at - 1] == rank))
			continue;
		memmove(seen + at + 1, seen + at,
		        (size_t)(n - at) * sizeof(*seen));
		seen[at] = rank;
		n++;
	}
	return n;
}

/*
 * Ranks seen[0..n-1] are of one host other than the source's: the row lands on
 * one of them and goes on to the rest.
 */
static void add_host(const struct model_shape *s, enum model_phase phase,
                     int32_t source, int64_t t, const int32_t *seen, int32_t n,
                     struct model_rows *rows)
{
	const int32_t landing = seen[t % n];

	add_row(s, phase, source, landing, rows);
	for (int32_t i = 0; i < n; i++)
		add_row(s, phase, landing, seen[i], rows);
}

void model_add_token(const struct model_shape *s, enum model_phase phase,
                     int32_t source, int64_t t, const int32_t *ids,
                     struct model_rows *rows, int32_t *seen)
{
	const enum model_once once = s->once[phase];

	if (once == MODEL_ONCE_EXPERT) {
		for (int32_t k = 0; k < s->topk; k++)
			if (ids[k] >= 0)
				add_row(s, phase, source,
				        model_owner(s, ids[k]), rows);
		return;
	}
	const int32_t n = ranks_of(s, ids, seen);

	for (int32_t i = 0, end; i < n; i = end) {
		const int32_t host = seen[i] / s->per_host;

		end = i + 1;
		while (end < n && seen[end] / s->per_host == host)
			end++;
		if (once == MODEL_ONCE_HOST && host != source / s->per_host)
			add_host(s, phase, source, t, seen + i, end - i, rows);
		else
			for (int32_t j = i; j < end; j++)
				add_row(s, phase, source, seen[j], rows);
	}
}

void model_add_spread(const struct model_shape *s, const int32_t *ids,
                      int64_t *ranks, int64_t *hosts, int32_t *seen)
{
	const int32_t n = ranks_of(s, ids, seen);

	*ranks += n;
	for (int32_t i = 0; i < n; i++)
		*hosts += i == 0 ||
		          seen[i] / s->per_host != seen[i - 1] / s->per_host;
}
