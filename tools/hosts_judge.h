/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ferry check --hosts makes of what ranks have found: a verdict for each
 * pair, and one for all. All ranks judge the same numbers. Nothing is printed.
 */
#ifndef FERRY_HOSTS_JUDGE_H
#define FERRY_HOSTS_JUDGE_H

#include "hosts.h"

enum hosts_verdict {
	PAIR_OK,
	PAIR_SLOW,
	PAIR_WRONG,
	PAIR_FAILED,
	PAIR_UNTESTED,
	PAIR_N_VERDICTS,
};

extern const char *const hosts_verdict_names[PAIR_N_VERDICTS];

/* Medians of pairs inside of a host [0] and between hosts [1]. */
struct hosts_medians {
	int n;
	double flag_us, bytes_per_s;
};

struct hosts_judged {
	const struct hosts *h;
	int32_t n_hosts;
	int32_t *host; /* [n_ranks] numbered by their first ranks */
	struct hosts_medians of[2];
	int64_t count[PAIR_N_VERDICTS];
	int64_t wrong; /* values of all pairs and modes */
	bool bad;
};

/* strict: slow is bad. */
void hosts_judge(const struct hosts *h, bool strict, struct hosts_judged *j);
void hosts_judged_free(struct hosts_judged *j);

/* What rank a knows of its way to b. */
static inline const struct hosts_pair *hosts_way(const struct hosts *h,
                                                 int32_t a, int32_t b)
{
	return &h->all[(size_t)a * (size_t)h->n_ranks + (size_t)b];
}

static inline bool hosts_between(const struct hosts_judged *j, int32_t a,
                                 int32_t b)
{
	return j->host[a] != j->host[b];
}

enum hosts_verdict hosts_verdict_of(const struct hosts_judged *j, int32_t a,
                                    int32_t b);

/* Values of a pair, both ways. */
int64_t hosts_wrong_of(const struct hosts *h, int32_t a, int32_t b);

/* Why the pair failed, by whoever of the two says so; "": it did not. */
const char *hosts_text_of(const struct hosts *h, int32_t a, int32_t b);

/* Of all ranks: the worst state, the first text, all wrong values. */
struct hosts_mode hosts_mode_of(const struct hosts *h, int i);
const char *hosts_mode_word(const struct hosts_mode *mode);

#endif
