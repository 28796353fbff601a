/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ferry check --hosts says: hosts, differences, pairs with a verdict each,
 * modes of combine, and a last line. All ranks judge the same numbers; rank 0
 * prints.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "about.h"
#include "alloc.h"
#include "bench_result.h"
#include "hosts.h"
#include "json.h"
#include "opt.h"

/* A pair is slow below half of the median of its kind, of three or more. */
static const double SLOW_RATE = 0.5;
static const double SLOW_FLAG = 3, SLOW_FLAG_US = 20;

enum { SHOW_PAIRS = 120, LEAST_PEERS = 3 };

enum verdict { OK, SLOW, WRONG, FAILED, UNTESTED, N_VERDICTS };

static const char *const verdict_names[N_VERDICTS] = {"ok", "slow", "WRONG",
                                                      "FAILED", "untested"};

/* Medians of pairs inside of a host [0] and between hosts [1]. */
struct medians {
	int n;
	double flag_us, bytes_per_s;
};

struct judged {
	const struct hosts *h;
	struct medians of[2];
	int64_t count[N_VERDICTS];
	int64_t wrong;
};

static const struct hosts_pair *way(const struct hosts *h, int32_t a, int32_t b)
{
	return &h->all[(size_t)a * (size_t)h->n_ranks + (size_t)b];
}

static bool between(const struct hosts *h, int32_t a, int32_t b)
{
	return h->facts[a].host_id != h->facts[b].host_id;
}

static double rate_of(const struct hosts *h, int32_t a, int32_t b)
{
	const double there = way(h, a, b)->link.bytes_per_s;
	const double back = way(h, b, a)->link.bytes_per_s;

	return there < back ? there : back;
}

static bool tested(const struct hosts *h, int32_t a, int32_t b)
{
	return way(h, a, b)->state == HOSTS_TESTED &&
	       way(h, b, a)->state == HOSTS_TESTED;
}

static void find_medians(struct judged *j, int kind)
{
	const struct hosts *h = j->h;
	const size_t n = (size_t)h->n_ranks;
	double *flags = alloc_or_exit(n * n, sizeof(*flags));
	double *rates = alloc_or_exit(n * n, sizeof(*rates));
	int m = 0;

	for (int32_t a = 0; a < h->n_ranks; a++)
		for (int32_t b = a + 1; b < h->n_ranks; b++)
			if (tested(h, a, b) && between(h, a, b) == kind) {
				flags[m] = way(h, a, b)->link.flag_p50_us;
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

static int64_t wrong_of(const struct hosts *h, int32_t a, int32_t b)
{
	const struct hosts_pair *x = way(h, a, b), *y = way(h, b, a);

	return x->link.wrong + x->wrong_rows + x->wrong_sums + y->link.wrong +
	       y->wrong_rows + y->wrong_sums;
}

static enum verdict judge(const struct judged *j, int32_t a, int32_t b)
{
	const struct hosts *h = j->h;
	const struct medians *m = &j->of[between(h, a, b)];

	if (way(h, a, b)->state == HOSTS_FAILED ||
	    way(h, b, a)->state == HOSTS_FAILED)
		return FAILED;
	if (wrong_of(h, a, b))
		return WRONG;
	if (!tested(h, a, b))
		return UNTESTED;
	if (m->n >= LEAST_PEERS &&
	    (rate_of(h, a, b) < m->bytes_per_s * SLOW_RATE ||
	     way(h, a, b)->link.flag_p50_us >
	             m->flag_us * SLOW_FLAG + SLOW_FLAG_US))
		return SLOW;
	return OK;
}

static void judge_all(struct judged *j)
{
	for (int kind = 0; kind < 2; kind++)
		find_medians(j, kind);
	for (int32_t a = 0; a < j->h->n_ranks; a++)
		for (int32_t b = a + 1; b < j->h->n_ranks; b++) {
			j->count[judge(j, a, b)]++;
			j->wrong += wrong_of(j->h, a, b);
		}
	for (int32_t r = 0; r < j->h->n_ranks; r++) {
		j->wrong += way(j->h, r, r)->wrong_rows +
		            way(j->h, r, r)->wrong_sums;
		for (int i = 0; i < HOSTS_MODES; i++)
			j->wrong += j->h->all_modes[r * HOSTS_MODES + i].wrong;
	}
}

/* Index of a rank's host, in the order in which hosts appear. */
static int32_t host_of(const struct hosts *h, int32_t rank)
{
	int32_t n = 0;

	for (int32_t r = 0; r <= rank; r++) {
		bool first = true;

		for (int32_t s = 0; s < r; s++)
			first &= between(h, r, s);
		if (!between(h, r, rank))
			return n;
		n += first;
	}
	return n;
}

static int32_t count_hosts(const struct hosts *h)
{
	int32_t n = 0;

	for (int32_t r = 0; r < h->n_ranks; r++) {
		const int32_t host = host_of(h, r) + 1;

		n = host > n ? host : n;
	}
	return n;
}

static void print_host(const struct hosts *h, int32_t host)
{
	const struct hosts_fact *f = NULL;
	int32_t n = 0;

	printf("# host %-3d ranks", host);
	for (int32_t r = 0; r < h->n_ranks; r++)
		if (host_of(h, r) == host) {
			f = f ? f : &h->facts[r];
			n++;
			printf("%s%d", n > 1 ? "," : " ", r);
		}
	if (f)
		printf(" on %s, machine %016" PRIx64 ", %d CPUs of rank; %s\n",
		       f->host, f->machine_id, f->n_cpus,
		       *f->nics ? f->nics : "no network interface is up");
}

/* Ranks that differ from rank 0 in a text; how many did. */
static int print_differences(const struct hosts *h, const char *what,
                             size_t offset)
{
	const char *first = (const char *)&h->facts[0] + offset;
	int n = 0;

	for (int32_t r = 1; r < h->n_ranks; r++) {
		const char *text = (const char *)&h->facts[r] + offset;

		if (!strcmp(text, first))
			continue;
		if (n++ == 0)
			printf("# differ   %s of rank 0: %s\n", what, first);
		printf("# differ   %s of rank %d: %s\n", what, r, text);
	}
	return n;
}

static void print_head(const struct hosts *h)
{
	const int32_t n = count_hosts(h);
	int32_t secrets = 0;

	for (int32_t r = 0; r < h->n_ranks; r++)
		secrets += (int32_t)h->facts[r].has_secret;
	about_print();
	printf("# world    %d ranks on %d host%s, fabric %s%s%s%s\n",
	       h->n_ranks, n, n == 1 ? "" : "s", h->fabric,
	       *h->facts[0].reason ? " (" : "", h->facts[0].reason,
	       *h->facts[0].reason ? ")" : "");
	for (int32_t host = 0; host < n; host++)
		print_host(h, host);
	printf("# secret   %s\n",
	       secrets == h->n_ranks ? "set on all ranks, proven when they met"
	       : secrets             ? "set on some ranks only"
	                             : "none: ranks of one host know each "
	                               "other by their user");
	if (print_differences(h, "version",
	                      offsetof(struct hosts_fact, version)) == 0)
		printf("# version  %s on all ranks\n", h->facts[0].version);
	if (print_differences(h, "environment",
	                      offsetof(struct hosts_fact, options)) == 0)
		printf("# options  %s, equal on all ranks\n",
		       *h->facts[0].options ? h->facts[0].options
		                            : "no FERRY_ variable is set");
}

static void print_pair(const struct judged *j, int32_t a, int32_t b)
{
	const struct hosts *h = j->h;
	const struct hosts_pair *x = way(h, a, b), *y = way(h, b, a);
	const enum verdict v = judge(j, a, b);
	const char *text = x->state == HOSTS_FAILED   ? x->text
	                   : y->state == HOSTS_FAILED ? y->text
	                                              : "";

	printf("%6d %5d %-8s %10.2f %10.2f %9.3f %9.3f %8.3f %7" PRId64
	       " %s%s%s\n",
	       a, b, between(h, a, b) ? "between" : "inside",
	       x->link.flag_p50_us, x->link.flag_p99_us,
	       x->link.bytes_per_s / 1e9, y->link.bytes_per_s / 1e9,
	       x->link.gap_us, wrong_of(h, a, b), verdict_names[v],
	       *text ? ": " : "", text);
}

static void print_pairs(const struct judged *j)
{
	const int32_t n = j->h->n_ranks;
	const bool all = n * (n - 1) / 2 <= SHOW_PAIRS;

	printf("#%5s %5s %-8s %10s %10s %9s %9s %8s %7s %s\n", "a", "b",
	       "where", "flag_p50us", "flag_p99us", "GB/s_a>b", "GB/s_b>a",
	       "gap_us", "wrong", "verdict");
	for (int32_t a = 0; a < n; a++)
		for (int32_t b = a + 1; b < n; b++)
			if (all || judge(j, a, b) != OK)
				print_pair(j, a, b);
	if (!all)
		printf("# of %d pairs only those that are not ok\n",
		       n * (n - 1) / 2);
	for (int kind = 0; kind < 2; kind++)
		if (j->of[kind].n)
			printf("# median   %s: flag %.2f us, %.3f GB/s each "
			       "way, %d pairs\n",
			       kind ? "between hosts" : "inside of hosts",
			       j->of[kind].flag_us,
			       j->of[kind].bytes_per_s / 1e9, j->of[kind].n);
}

/* Of all ranks: the worst state, the first text, all wrong values. */
static struct hosts_mode mode_of(const struct hosts *h, int i)
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

static const char *mode_word(const struct hosts_mode *m)
{
	return m->state == HOSTS_FAILED   ? "FAILED"
	       : m->state != HOSTS_TESTED ? "not tested"
	       : m->wrong                 ? "WRONG"
	                                  : "ok";
}

static void print_modes(const struct hosts *h)
{
	for (int i = 0; i < HOSTS_MODES; i++) {
		const struct hosts_mode m = mode_of(h, i);

		if (!*m.name)
			continue;
		printf("# combine  %-8s %s%s%s\n", m.name, mode_word(&m),
		       *m.text ? ": " : "", m.text);
	}
}

static bool any_failed(const struct judged *j)
{
	const struct hosts *h = j->h;
	bool bad = j->count[FAILED] || j->count[UNTESTED] || j->wrong ||
	           !h->whole || *h->broken;
	bool tested_one = false;

	for (int i = 0; i < HOSTS_MODES; i++) {
		const struct hosts_mode m = mode_of(h, i);

		bad |= m.state == HOSTS_FAILED;
		tested_one |= m.state == HOSTS_TESTED;
	}
	return bad || !tested_one;
}

static void print_end(const struct judged *j, bool bad)
{
	const struct hosts *h = j->h;

	if (*h->broken)
		printf("# ended    %s\n", h->broken);
	if (!h->whole)
		puts("# ended    not all ranks could say what they found: rank "
		     "0's view");
	printf("# pairs    %" PRId64 " ok, %" PRId64 " slow, %" PRId64
	       " wrong, %" PRId64 " failed, %" PRId64 " untested\n",
	       j->count[OK], j->count[SLOW], j->count[WRONG], j->count[FAILED],
	       j->count[UNTESTED]);
	printf("# %s, %" PRId64 " wrong\n", bad ? "BAD" : "good", j->wrong);
}

static cJSON *pair_json(const struct judged *j, int32_t a, int32_t b)
{
	const struct hosts *h = j->h;
	const struct hosts_pair *x = way(h, a, b), *y = way(h, b, a);
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "a", a);
	cJSON_AddNumberToObject(o, "b", b);
	cJSON_AddStringToObject(o, "where",
	                        between(h, a, b) ? "between" : "inside");
	json_add_rounded(o, "flag_p50_us", x->link.flag_p50_us);
	json_add_rounded(o, "flag_p99_us", x->link.flag_p99_us);
	json_add_rounded(o, "bytes_per_s_there", x->link.bytes_per_s);
	json_add_rounded(o, "bytes_per_s_back", y->link.bytes_per_s);
	json_add_rounded(o, "gap_us", x->link.gap_us);
	cJSON_AddNumberToObject(o, "wrong", (double)wrong_of(h, a, b));
	cJSON_AddStringToObject(o, "verdict", verdict_names[judge(j, a, b)]);
	if (x->state == HOSTS_FAILED || y->state == HOSTS_FAILED)
		cJSON_AddStringToObject(o, "text",
		                        x->state == HOSTS_FAILED ? x->text
		                                                 : y->text);
	return o;
}

static cJSON *rank_json(const struct hosts *h, int32_t rank)
{
	const struct hosts_fact *f = &h->facts[rank];
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "rank", rank);
	cJSON_AddNumberToObject(o, "host", host_of(h, rank));
	cJSON_AddStringToObject(o, "name", f->host);
	cJSON_AddNumberToObject(o, "pid", f->pid);
	cJSON_AddNumberToObject(o, "cpus", f->n_cpus);
	cJSON_AddBoolToObject(o, "secret", f->has_secret != 0);
	cJSON_AddStringToObject(o, "version", f->version);
	cJSON_AddStringToObject(o, "options", f->options);
	cJSON_AddStringToObject(o, "interfaces", f->nics);
	return o;
}

static bool write_json(const struct judged *j, bool bad)
{
	const struct hosts *h = j->h;
	cJSON *document = json_document("ferry-hosts-1");
	cJSON *meta = cJSON_AddObjectToObject(document, "meta");
	cJSON *ranks = cJSON_AddArrayToObject(document, "ranks");
	cJSON *pairs = cJSON_AddArrayToObject(document, "pairs");
	cJSON *modes = cJSON_AddArrayToObject(document, "combine");

	about_json(meta, 0, NULL);
	cJSON_AddStringToObject(meta, "fabric", h->fabric);
	cJSON_AddNumberToObject(meta, "ranks", h->n_ranks);
	cJSON_AddNumberToObject(meta, "hosts", count_hosts(h));
	cJSON_AddNumberToObject(meta, "wrong", (double)j->wrong);
	cJSON_AddStringToObject(meta, "verdict", bad ? "bad" : "good");
	if (*h->broken)
		cJSON_AddStringToObject(meta, "ended", h->broken);
	for (int32_t a = 0; a < h->n_ranks; a++) {
		cJSON_AddItemToArray(ranks, rank_json(h, a));
		for (int32_t b = a + 1; b < h->n_ranks; b++)
			cJSON_AddItemToArray(pairs, pair_json(j, a, b));
	}
	for (int i = 0; i < HOSTS_MODES; i++) {
		const struct hosts_mode m = mode_of(h, i);
		cJSON *o;

		if (!*m.name)
			continue;
		o = cJSON_CreateObject();
		cJSON_AddStringToObject(o, "mode", m.name);
		cJSON_AddStringToObject(o, "verdict", mode_word(&m));
		cJSON_AddNumberToObject(o, "wrong", (double)m.wrong);
		cJSON_AddStringToObject(o, "text", m.text);
		cJSON_AddItemToArray(modes, o);
	}
	return json_write(document, "-");
}

int hosts_report(const struct hosts *h, const struct hosts_options *o)
{
	struct judged j = {.h = h};
	bool bad;

	judge_all(&j);
	bad = any_failed(&j) || (o->strict && j.count[SLOW]);
	if (h->me->rank == 0 && o->json) {
		bad |= !write_json(&j, bad);
	} else if (h->me->rank == 0) {
		print_head(h);
		print_pairs(&j);
		print_modes(h);
		print_end(&j, bad);
	}
	return bad ? EXIT_FAILED : EXIT_GOOD;
}
