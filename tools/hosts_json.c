/* SPDX-License-Identifier: Apache-2.0 */
/* What ferry check --hosts has found and judged, as JSON. */
#include "about.h"
#include "hosts_report.h"
#include "json.h"

static cJSON *pair_json(const struct hosts_judged *j, int32_t a, int32_t b)
{
	const struct hosts *h = j->h;
	const struct hosts_pair *x = hosts_way(h, a, b),
				*y = hosts_way(h, b, a);
	const enum hosts_verdict v = hosts_verdict_of(j, a, b);
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "a", a);
	cJSON_AddNumberToObject(o, "b", b);
	cJSON_AddStringToObject(o, "where",
	                        hosts_between(j, a, b) ? "between" : "inside");
	json_add_rounded(o, "flag_p50_us", x->link.flag_p50_us);
	json_add_rounded(o, "flag_p99_us", x->link.flag_p99_us);
	json_add_rounded(o, "bytes_per_s_there", x->link.bytes_per_s);
	json_add_rounded(o, "bytes_per_s_back", y->link.bytes_per_s);
	json_add_rounded(o, "gap_us", x->link.gap_us);
	cJSON_AddNumberToObject(o, "wrong", (double)hosts_wrong_of(h, a, b));
	cJSON_AddStringToObject(o, "verdict", hosts_verdict_names[v]);
	if (v == PAIR_FAILED)
		cJSON_AddStringToObject(o, "text", hosts_text_of(h, a, b));
	return o;
}

static cJSON *rank_json(const struct hosts_judged *j, int32_t rank)
{
	const struct hosts_fact *f = &j->h->facts[rank];
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "rank", rank);
	cJSON_AddNumberToObject(o, "host", j->host[rank]);
	cJSON_AddStringToObject(o, "name", f->host);
	cJSON_AddNumberToObject(o, "pid", f->pid);
	cJSON_AddNumberToObject(o, "cpus", f->n_cpus);
	cJSON_AddBoolToObject(o, "secret", f->has_secret != 0);
	cJSON_AddStringToObject(o, "version", f->version);
	cJSON_AddStringToObject(o, "options", f->options);
	cJSON_AddStringToObject(o, "interfaces", f->nics);
	return o;
}

static void add_modes(const struct hosts *h, cJSON *modes)
{
	for (int i = 0; i < HOSTS_MODES; i++) {
		const struct hosts_mode m = hosts_mode_of(h, i);
		cJSON *o;

		if (!*m.name)
			continue;
		o = cJSON_CreateObject();
		cJSON_AddStringToObject(o, "mode", m.name);
		cJSON_AddStringToObject(o, "verdict", hosts_mode_word(&m));
		cJSON_AddNumberToObject(o, "wrong", (double)m.wrong);
		cJSON_AddStringToObject(o, "text", m.text);
		cJSON_AddItemToArray(modes, o);
	}
}

bool hosts_print_json(const struct hosts_judged *j, int argc, char *const *argv)
{
	const struct hosts *h = j->h;
	cJSON *document = json_document("ferry-hosts-1");
	cJSON *meta = cJSON_AddObjectToObject(document, "meta");
	cJSON *ranks = cJSON_AddArrayToObject(document, "ranks");
	cJSON *pairs = cJSON_AddArrayToObject(document, "pairs");
	cJSON *modes = cJSON_AddArrayToObject(document, "combine");

	about_json(meta, argc, argv);
	cJSON_AddStringToObject(meta, "fabric", h->fabric);
	cJSON_AddNumberToObject(meta, "ranks", h->n_ranks);
	cJSON_AddNumberToObject(meta, "hosts", j->n_hosts);
	cJSON_AddNumberToObject(meta, "wrong", (double)j->wrong);
	cJSON_AddStringToObject(meta, "verdict", j->bad ? "bad" : "good");
	if (*h->broken)
		cJSON_AddStringToObject(meta, "ended", h->broken);
	for (int32_t a = 0; a < h->n_ranks; a++) {
		cJSON_AddItemToArray(ranks, rank_json(j, a));
		for (int32_t b = a + 1; b < h->n_ranks; b++)
			cJSON_AddItemToArray(pairs, pair_json(j, a, b));
	}
	add_modes(h, modes);
	return json_write(document, "-");
}
