/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dispatch and combine take at least, by arithmetic: which rows travel
 * over which links, and what a link takes for them. Pure functions; ferry
 * model is their command line. docs/performance.md compares them with figures
 * that were measured.
 */
#ifndef FERRY_EP_MODEL_H
#define FERRY_EP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

enum { MODEL_NAME_BYTES = 32, MODEL_SOURCE_BYTES = 160 };

/* A row travels once for each of these; on its way back likewise. */
enum model_once {
	MODEL_ONCE_EXPERT, /* dispatch of DeepEP V1 and pplx; combine EXACT */
	MODEL_ONCE_RANK,   /* dispatch; combine REDUCED */
	MODEL_ONCE_HOST,   /* hierarchical dispatch; combine PER_HOST */
};

enum model_phase { MODEL_DISPATCH, MODEL_COMBINE, MODEL_N_PHASES };

extern const char *const model_once_names[];
extern const char *const model_phase_names[];

/* Between one rank and its peers, in each direction at once. */
struct model_link {
	char name[MODEL_NAME_BYTES];
	double alpha_us;     /* a flag, one way */
	double bytes_per_us; /* 1000 for each GB/s */
	double gap_us;       /* from a message to the next; 0: not known */
	double piece_bytes;  /* most of one message; 0: a row is one */
	/* Of ranks that are joined so inside of a host; 0: not known. */
	double memory_bytes_per_us;     /* read + written */
	double base_us[MODEL_N_PHASES]; /* without rows and without alpha */
	char source[MODEL_SOURCE_BYTES];
};

struct model_machine {
	struct model_link inside, between; /* of a host; of hosts */
	double memory_bytes_per_us;        /* of a rank; 0: no bound */
	double base_us[MODEL_N_PHASES];
};

struct model_shape {
	int32_t ranks, per_host; /* the last host may have fewer */
	int32_t tokens, hidden, topk, experts;
	bool fp8;    /* rows that are dispatched; what comes back is bf16 */
	bool tables; /* dispatch sends a routing table to every rank */
	enum model_once once[MODEL_N_PHASES];
};

/* Rows of one rank in one phase. */
struct model_rows {
	double inside_out, inside_in, between_out, between_in;
};

/* Bytes of one phase: of a row, and of a table (0: none). */
double model_row_bytes(const struct model_shape *s, enum model_phase phase);
double model_table_bytes(const struct model_shape *s, enum model_phase phase);

int32_t model_hosts(const struct model_shape *s);
int32_t model_owner(const struct model_shape *s, int32_t expert);

/*
 * Probability that topk different experts of n, all equally likely, touch none
 * of a group of `own`: C(n - own, topk) / C(n, topk).
 */
double model_miss(int32_t n, int32_t own, int32_t topk);

/* Ranks and hosts that a token has an expert on, uniform routing. */
double model_ranks_per_token(const struct model_shape *s);
double model_hosts_per_token(const struct model_shape *s);

/* Expected rows of every rank, [ranks], uniform routing. */
void model_expect(const struct model_shape *s, enum model_phase phase,
                  struct model_rows *rows);

/*
 * Adds the rows of one token of rank `source`, its t-th, to rows[ranks]. Ids
 * are below experts; -1: none. seen: [ranks] of scratch.
 */
void model_add_token(const struct model_shape *s, enum model_phase phase,
                     int32_t source, int64_t t, const int32_t *ids,
                     struct model_rows *rows, int32_t *seen);

/* Ranks and hosts of one token are added to both. */
void model_add_spread(const struct model_shape *s, const int32_t *ids,
                      int64_t *ranks, int64_t *hosts, int32_t *seen);

/* What counts of a phase: the rank that has most on each link. */
struct model_load {
	double inside_bytes, between_bytes;
	double inside_messages, between_messages;
	double memory_bytes; /* of a rank on average */
};

void model_load_of(const struct model_shape *s, enum model_phase phase,
                   const struct model_rows *rows, double ranks_per_token,
                   struct model_load *load);

/* And what that takes. */
struct model_time {
	double inside_us, between_us, memory_us; /* without alpha */
	double alpha_us, base_us;
	double latency_us;    /* base + alpha + the largest of the three */
	double serial_us;     /* base + alpha + their sum */
	const char *bound_by; /* "latency", "inside", "between", "memory" */
};

void model_time_of(const struct model_shape *s, const struct model_machine *m,
                   enum model_phase phase, const struct model_load *load,
                   struct model_time *time);

/* Named links with their sources; NULL past the last. */
const struct model_link *model_preset(int i);

/*
 * A preset's name, or "ALPHA_US,GB_PER_S[,GAP_US]". False with a fault that
 * says what is allowed.
 */
bool model_link_parse(const char *text, struct model_link *link,
                      struct fault *fault);

/*
 * least..most numbers between commas, 0 or more each, into numbers[most]; how
 * many, or 0 where it is anything else.
 */
int model_numbers(const char *text, int least, int most, double *numbers);

#endif
