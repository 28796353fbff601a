/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters as Prometheus text (exposition format 0.0.4), from a table; here is
 * that of a channel. Base units: bytes, seconds.
 */
#include <inttypes.h>
#include <string.h>

#include "../core/text.h"
#include "events.h"

#define FIELD(field) offsetof(struct ferry_moe_stats, field)

/* Rows of one name follow each other. */
static const struct ferry_prom_metric metrics[] = {
	{"ferry_dispatches_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_dispatches), "Dispatches received."},
	{"ferry_combines_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(n_combines), "Combines received."},
	{"ferry_tokens_sent_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(tokens_sent), "Own tokens dispatched."},
	{"ferry_rows_received_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(rows_received), "Rows received for own experts."},
	{"ferry_rows_dropped_total", "counter", NULL, FERRY_PROM_COUNT,
         FIELD(rows_dropped), "Rows left out for want of capacity."},
	{"ferry_wire_bytes_total", "counter", "dispatch", FERRY_PROM_COUNT,
         FIELD(wire_bytes_dispatch), "Bytes written to other ranks."},
	{"ferry_wire_bytes_total", "counter", "combine", FERRY_PROM_COUNT,
         FIELD(wire_bytes_combine), NULL},
	{"ferry_host_bytes_total", "counter", "dispatch", FERRY_PROM_COUNT,
         FIELD(host_bytes_dispatch),
         "Bytes written to ranks of other hosts, tables apart."},
	{"ferry_host_bytes_total", "counter", "combine", FERRY_PROM_COUNT,
         FIELD(host_bytes_combine), NULL},
	{"ferry_host_bytes_total", "counter", "tables", FERRY_PROM_COUNT,
         FIELD(host_bytes_tables), NULL},
	{"ferry_logical_bytes_total", "counter", "dispatch", FERRY_PROM_COUNT,
         FIELD(logical_bytes_dispatch),
         "Bytes of one row per token and choice."},
	{"ferry_logical_bytes_total", "counter", "combine", FERRY_PROM_COUNT,
         FIELD(logical_bytes_combine), NULL},
	{"ferry_wait_seconds_total", "counter", "dispatch", FERRY_PROM_SECONDS,
         FIELD(wait_ns_dispatch), "Time spent waiting for peers."},
	{"ferry_wait_seconds_total", "counter", "combine", FERRY_PROM_SECONDS,
         FIELD(wait_ns_combine), NULL},
	{"ferry_hottest_expert_slot", "gauge", NULL, FERRY_PROM_INDEX,
         FIELD(hottest_slot), "Own expert slot with most rows, -1: none."},
	{"ferry_hottest_expert_slot_rows", "gauge", NULL, FERRY_PROM_COUNT,
         FIELD(hottest_rows), "Rows of the hottest own expert slot."},
	{"ferry_slowest_peer", "gauge", NULL, FERRY_PROM_INDEX,
         FIELD(slowest_peer), "Rank waited for longest, -1: none."},
	{"ferry_slowest_peer_wait_seconds", "gauge", NULL, FERRY_PROM_SECONDS,
         FIELD(slowest_peer_ns), "Time waited for the slowest peer."},
};

static void add_label_value(struct ferry_text *text, const char *value)
{
	for (; *value; value++) {
		if (*value == '\n')
			ferry_text_add(text, "\\n");
		else if (*value == '"' || *value == '\\')
			ferry_text_add(text, "\\%c", *value);
		else
			ferry_text_add(text, "%c", *value);
	}
}

static void add_value(struct ferry_text *text,
                      const struct ferry_prom_metric *metric,
                      const void *values)
{
	const char *field = (const char *)values + metric->offset;
	uint64_t value;
	int32_t index;

	if (metric->kind == FERRY_PROM_INDEX) {
		memcpy(&index, field, sizeof(index));
		ferry_text_add(text, " %" PRId32 "\n", index);
		return;
	}
	memcpy(&value, field, sizeof(value));
	if (metric->kind == FERRY_PROM_COUNT)
		ferry_text_add(text, " %" PRIu64 "\n", value);
	else if (metric->kind == FERRY_PROM_PPM)
		ferry_text_add(text, " %" PRIu64 ".%06" PRIu64 "\n",
		               value / 1000000u, value % 1000000u);
	else
		ferry_text_add(text, " %" PRIu64 ".%09" PRIu64 "\n",
		               value / 1000000000u, value % 1000000000u);
}

size_t ferry_prom_text(const struct ferry_prom *prom, char *buffer,
                       size_t bytes)
{
	struct ferry_text text = {buffer, bytes, 0};

	for (size_t i = 0; i < prom->n_metrics; i++) {
		const struct ferry_prom_metric *metric = &prom->metrics[i];

		if (metric->help)
			ferry_text_add(&text, "# HELP %s %s\n# TYPE %s %s\n",
			               metric->name, metric->help, metric->name,
			               metric->type);
		ferry_text_add(&text, "%s{%s=\"", metric->name, prom->label);
		add_label_value(&text, prom->name ? prom->name : "");
		ferry_text_add(&text, "\",rank=\"%" PRId32 "\"", prom->rank);
		if (metric->phase)
			ferry_text_add(&text, ",phase=\"%s\"", metric->phase);
		ferry_text_add(&text, "}");
		add_value(&text, metric, prom->values);
	}
	return text.length;
}

size_t ferry_prom_render(const struct ferry_moe_stats *stats, const char *name,
                         int32_t rank, char *buffer, size_t bytes)
{
	const struct ferry_prom prom = {
		.metrics = metrics,
		.n_metrics = sizeof(metrics) / sizeof(*metrics),
		.values = stats,
		.label = "channel",
		.name = name,
		.rank = rank,
	};

	return ferry_prom_text(&prom, buffer, bytes);
}
