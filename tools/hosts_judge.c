/* SPDX-License-Identifier: Apache-2.0 */
/* See hosts_judge.h. */
#include "hosts_judge.h"

#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "bench_result.h"

/* A pair is slow below half of the median of its kind, of three or more. */
static const double SLOW_RATE = 0.5;
static const double SLOW_FLAG = 3, SLOW_FLAG_US = 20;

enum { LEAST_PEERS = 3 };

const char *const hosts_verdict_names[PAIR_N_VERDICTS] = {"ok", "slow", "WRONG",
                                                          "FAILED", "untested"};

/* In the order of their first ranks. */
static void number_hosts(struct hosts_judged *j)
{
	const struct hosts_fact *facts = j->h->facts;

	for (int32_t r = 0; r < j->h->n_ranks; r++) {
		int32_t first = 0;

		while (facts[first].host_id != facts[r].host_id)
			first++;
		j->host[r] = first == r ? j->n_hosts++ : j->host[first];
	}
}

static double rate_of(const struct hosts *h, int32_t a, int32_t b)
{
	const double there = hosts_way(h, a, b)->link.bytes_per_s;
	const double back = hosts_way(h, b, a)->link.bytes_per_s;

	return there < back ? there : back;
}

static bool tested(const struct hosts *h, int32_t a, int32_t b)
{
	return hosts_way(h, a, b)->state == HOSTS_TESTED &&
	       hosts_way(h, b, a)->state == HOSTS_TESTED;
}

static void find_medians(struct hosts_judged *j, int kind)
{
	const struct hosts *h = j->h;
	const size_t n = (size_t)h->n_ranks;
	double *flags = alloc_or_exit(n * n, sizeof(*flags));
	double *rates = alloc_or_exit(n * n, sizeof(*rates));
	int m = 0;

	for (int32_t a = 0; a < h->n_ranks; a++)
		for (int32_t b = a + 1; b < h->n_ranks; b++)
			if (tested(h, a, b) && hosts_between(j, a, b) == kind) {
				flags[m] = hosts_way(h, a, b)->link.flag_p50_us;
				rates[m++] = rate_of(h, a, b);
			}
	j->of[kind].n = m;
	if (m > 0) {
		j->of[kind].flag_us = bench_percentile(flags, m, 0.5);
		j->of[kind].bytes_per_s = bench_percentile(rates, m, 0.5);
	}
	free(flags);
	free(rates);
}

int64_t hosts_wrong_of(const struct hosts *h, int32_t a, int32_t b)
{
	const struct hosts_pair *x = hosts_way(h, a, b),
				*y = hosts_way(h, b, a);

	return x->link.wrong + x->wrong_rows + x->wrong_sums + y->link.wrong +
	       y->wrong_rows + y->wrong_sums;
}

enum hosts_verdict hosts_verdict_of(const struct hosts_judged *j, int32_t a,
                                    int32_t b)
{
	const struct hosts *h = j->h;
	const struct hosts_medians *m = &j->of[hosts_between(j, a, b)];

	if (hosts_way(h, a, b)->state == HOSTS_FAILED ||
	    hosts_way(h, b, a)->state == HOSTS_FAILED)
		return PAIR_FAILED;
	if (hosts_wrong_of(h, a, b))
		return PAIR_WRONG;
	if (!tested(h, a, b))
		return PAIR_UNTESTED;
	if (m->n >= LEAST_PEERS &&
	    (rate_of(h, a, b) < m->bytes_per_s * SLOW_RATE ||
	     hosts_way(h, a, b)->link.flag_p50_us >
	             m->flag_us * SLOW_FLAG + SLOW_FLAG_US))
		return PAIR_SLOW;
	return PAIR_OK;
}

const char *hosts_text_of(const struct hosts *h, int32_t a, int32_t b)
{
	const struct hosts_pair *x = hosts_way(h, a, b),
				*y = hosts_way(h, b, a);

	return x->state == HOSTS_FAILED   ? x->text
	       : y->state == HOSTS_FAILED ? y->text
	                                  : "";
}

static void judge_all(struct hosts_judged *j)
{
	for (int kind = 0; kind < 2; kind++)
		find_medians(j, kind);
	for (int32_t a = 0; a < j->h->n_ranks; a++)
		for (int32_t b = a + 1; b < j->h->n_ranks; b++) {
			j->count[hosts_verdict_of(j, a, b)]++;
			j->wrong += hosts_wrong_of(j->h, a, b);
		}
	for (int32_t r = 0; r < j->h->n_ranks; r++) {
		j->wrong += hosts_way(j->h, r, r)->wrong_rows +
		            hosts_way(j->h, r, r)->wrong_sums;
		for (int i = 0; i < HOSTS_MODES; i++)
			j->wrong += j->h->all_modes[r * HOSTS_MODES + i].wrong;
	}
}

struct hosts_mode hosts_mode_of(const struct hosts *h, int i)
{
	struct hosts_mode all = h->all_modes[i];

	for (int32_t r = 1; r < h->n_ranks; r++) {
		const struct hosts_mode *m = &h->all_modes[r * HOSTS_MODES + i];

		all.wrong += m->wrong;
		if (m->state > all.state) {
			all.state = m->state;
			memcpy(all.text, m->text, sizeof(all.text));
		}
	}
	return all;
}

const char *hosts_mode_word(const struct hosts_mode *m)
{
	return m->state == HOSTS_FAILED   ? "FAILED"
	       : m->state != HOSTS_TESTED ? "not tested"
	       : m->wrong                 ? "WRONG"
	                                  : "ok";
}

static bool any_failed(const struct hosts_judged *j)
{
	const struct hosts *h = j->h;
	bool bad = j->count[PAIR_FAILED] || j->count[PAIR_UNTESTED] ||
	           j->wrong || !h->whole || *h->broken;
	bool tested_one = false;

	for (int i = 0; i < HOSTS_MODES; i++) {
		const struct hosts_mode m = hosts_mode_of(h, i);

		bad |= m.state == HOSTS_FAILED;
		tested_one |= m.state == HOSTS_TESTED;
	}
	return bad || !tested_one;
}

void hosts_judge(const struct hosts *h, bool strict, struct hosts_judged *j)
{
	*j = (struct hosts_judged){
		.h = h,
		.host = alloc_or_exit((size_t)h->n_ranks, sizeof(*j->host)),
	};
	number_hosts(j);
	judge_all(j);
	j->bad = any_failed(j) || (strict && j->count[PAIR_SLOW]);
}

void hosts_judged_free(struct hosts_judged *j)
{
	free(j->host);
	*j = (struct hosts_judged){0};
}
