/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ferry check --hosts says: hosts, differences, pairs with a verdict each,
 * modes of combine, and a last line.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "about.h"
#include "hosts_report.h"

enum { SHOW_PAIRS = 120 };

static void print_host(const struct hosts_judged *j, int32_t host)
{
	const struct hosts *h = j->h;
	const struct hosts_fact *f = NULL;
	int32_t n = 0;

	printf("# host %-3d ranks", host);
	for (int32_t r = 0; r < h->n_ranks; r++)
		if (j->host[r] == host) {
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

static void print_head(const struct hosts_judged *j)
{
	const struct hosts *h = j->h;
	const int32_t n = j->n_hosts;
	int32_t secrets = 0;

	for (int32_t r = 0; r < h->n_ranks; r++)
		secrets += (int32_t)h->facts[r].has_secret;
	about_print();
	printf("# world    %d ranks on %d host%s, fabric %s%s%s%s\n",
	       h->n_ranks, n, n == 1 ? "" : "s", h->fabric,
	       *h->facts[0].reason ? " (" : "", h->facts[0].reason,
	       *h->facts[0].reason ? ")" : "");
	for (int32_t r = 1; r < h->n_ranks; r++) /* NICs of their own */
		if (strcmp(h->facts[r].reason, h->facts[r - 1].reason) != 0)
			printf("#          rank %d: %s\n", r,
			       h->facts[r].reason);
	for (int32_t host = 0; host < n; host++)
		print_host(j, host);
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
		                            : "no other FERRY_ variable is "
		                              "set");
}

static void print_pair(const struct hosts_judged *j, int32_t a, int32_t b)
{
	const struct hosts *h = j->h;
	const struct hosts_pair *x = hosts_way(h, a, b),
				*y = hosts_way(h, b, a);
	const enum hosts_verdict v = hosts_verdict_of(j, a, b);
	const char *text = hosts_text_of(h, a, b);

	printf("%6d %5d %-8s %10.2f %10.2f %9.3f %9.3f %8.3f %7" PRId64
	       " %s%s%s\n",
	       a, b, hosts_between(j, a, b) ? "between" : "inside",
	       x->link.flag_p50_us, x->link.flag_p99_us,
	       x->link.bytes_per_s / 1e9, y->link.bytes_per_s / 1e9,
	       x->link.gap_us, hosts_wrong_of(h, a, b), hosts_verdict_names[v],
	       *text ? ": " : "", text);
}

static void print_pairs(const struct hosts_judged *j)
{
	const int32_t n = j->h->n_ranks;
	const bool all = n * (n - 1) / 2 <= SHOW_PAIRS;

	printf("#%5s %5s %-8s %10s %10s %9s %9s %8s %7s %s\n", "a", "b",
	       "where", "flag_p50us", "flag_p99us", "GB/s_a>b", "GB/s_b>a",
	       "gap_us", "wrong", "verdict");
	for (int32_t a = 0; a < n; a++)
		for (int32_t b = a + 1; b < n; b++)
			if (all || hosts_verdict_of(j, a, b) != PAIR_OK)
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

static void print_modes(const struct hosts *h)
{
	for (int i = 0; i < HOSTS_MODES; i++) {
		const struct hosts_mode m = hosts_mode_of(h, i);

		if (!*m.name)
			continue;
		printf("# combine  %-8s %s%s%s\n", m.name, hosts_mode_word(&m),
		       *m.text ? ": " : "", m.text);
	}
}

static void print_end(const struct hosts_judged *j)
{
	const struct hosts *h = j->h;

	if (*h->broken)
		printf("# ended    %s\n", h->broken);
	if (!h->whole)
		puts("# ended    not all ranks could say what they found: rank "
		     "0's view");
	printf("# pairs    %" PRId64 " ok, %" PRId64 " slow, %" PRId64
	       " wrong, %" PRId64 " failed, %" PRId64 " untested\n",
	       j->count[PAIR_OK], j->count[PAIR_SLOW], j->count[PAIR_WRONG],
	       j->count[PAIR_FAILED], j->count[PAIR_UNTESTED]);
	printf("# %s, %" PRId64 " wrong\n", j->bad ? "BAD" : "good", j->wrong);
}

void hosts_print(const struct hosts_judged *j)
{
	print_head(j);
	print_pairs(j);
	print_modes(j->h);
	print_end(j);
}
