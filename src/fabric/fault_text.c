/* SPDX-License-Identifier: Apache-2.0 */
/* Parses FERRY_FAULT; a fault that is not understood is refused whole. */
#include "fault_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum key { KEY_RANK, KEY_AFTER, KEY_MS, KEY_US, KEY_PEER, N_KEYS };

static const char *const key_names[N_KEYS] = {"rank", "after", "ms", "us",
                                              "peer"};

enum kind { KILL, STALL, DELAY, REORDER, CUT };

struct fault_form {
	const char *name;
	const char *form;
	enum kind kind;
	bool takes[N_KEYS];
	bool needs[N_KEYS];
};

static const struct fault_form forms[] = {
	{"kill",
         "kill:rank=R[,after=N]",
         KILL,
         {[KEY_RANK] = true, [KEY_AFTER] = true},
         {[KEY_RANK] = true}},
	{"stall",
         "stall:rank=R,ms=N[,after=N]",
         STALL,
         {[KEY_RANK] = true, [KEY_AFTER] = true, [KEY_MS] = true},
         {[KEY_RANK] = true, [KEY_MS] = true}},
	{"delay",
         "delay:us=N[,rank=R]",
         DELAY,
         {[KEY_RANK] = true, [KEY_US] = true},
         {[KEY_US] = true}},
	{"reorder", "reorder[:rank=R]", REORDER, {[KEY_RANK] = true}, {false}},
	{"cut",
         "cut:rank=R,peer=P[,after=N]",
         CUT,
         {[KEY_RANK] = true, [KEY_PEER] = true, [KEY_AFTER] = true},
         {[KEY_RANK] = true, [KEY_PEER] = true}},
};

enum { N_FORMS = sizeof(forms) / sizeof(*forms) };

struct fault {
	const struct fault_form *form;
	bool given[N_KEYS];
	int64_t value[N_KEYS];
};

static enum ferry_status refuse(struct ferry_ctx *ctx, const char *text,
                                size_t n, const char *allowed)
{
	return ferry_fail(ctx, FERRY_INVAL, "fault: '%.*s', allowed is %s",
	                  (int)n, text, allowed);
}

/* "after=100", n bytes. */
static bool read_pair(const char *pair, size_t n, struct fault *fault)
{
	char number[24];
	char *end;

	for (int k = 0; k < N_KEYS; k++) {
		const size_t length = strlen(key_names[k]);

		if (!fault->form->takes[k] || n <= length + 1 ||
		    memcmp(pair, key_names[k], length) || pair[length] != '=')
			continue;
		const char *value = pair + length + 1;
		const size_t digits = n - length - 1;

		if (digits >= sizeof(number) || *value < '0' || *value > '9')
			return false;
		memcpy(number, value, digits);
		number[digits] = 0;
		errno = 0;
		fault->value[k] = strtoll(number, &end, 10);
		fault->given[k] = true;
		return !*end && !errno && fault->value[k] <= INT32_MAX;
	}
	return false;
}

static bool read_pairs(const char *pairs, size_t n, struct fault *fault)
{
	for (size_t at = 0; n && at <= n;) {
		const char *comma = memchr(pairs + at, ',', n - at);
		const size_t length =
			comma ? (size_t)(comma - pairs) - at : n - at;

		if (!read_pair(pairs + at, length, fault))
			return false;
		at += length + 1;
	}
	for (int k = 0; k < N_KEYS; k++)
		if (fault->form->needs[k] && !fault->given[k])
			return false;
	return true;
}

/* One fault, n bytes. */
static enum ferry_status read_fault(struct ferry_ctx *ctx, const char *text,
                                    size_t n, struct fault *fault)
{
	const char *colon = memchr(text, ':', n);
	const size_t length = colon ? (size_t)(colon - text) : n;

	for (int i = 0; i < N_FORMS; i++) {
		const size_t skip = colon ? length + 1 : length;

		if (strlen(forms[i].name) != length ||
		    memcmp(forms[i].name, text, length))
			continue;
		*fault = (struct fault){.form = &forms[i]};
		if (read_pairs(text + skip, n - skip, fault))
			return FERRY_OK;
		return refuse(ctx, text, n, forms[i].form);
	}
	return refuse(ctx, text, n,
	              "kill:rank=R[,after=N], stall:rank=R,ms=N[,after=N], "
	              "delay:us=N[,rank=R], reorder[:rank=R], "
	              "cut:rank=R,peer=P[,after=N]");
}

static void add(struct ferry_faults *faults, const struct fault *fault)
{
	switch (fault->form->kind) {
	case KILL:
		faults->kill = true;
		faults->kill_after = fault->value[KEY_AFTER];
		break;
	case STALL:
		faults->stall_ms = fault->value[KEY_MS];
		faults->stall_after = fault->value[KEY_AFTER];
		break;
	case DELAY:
		faults->delay_us = fault->value[KEY_US];
		break;
	case REORDER:
		faults->reorder = true;
		break;
	case CUT:
		faults->cut_peer = (int32_t)fault->value[KEY_PEER];
		faults->cut_after = fault->value[KEY_AFTER];
	}
}

/* What one end of a broken connection is told, the other is told, too. */
static void turn_round(struct fault *fault, int32_t rank)
{
	const int64_t peer = fault->value[KEY_PEER];

	if (!fault->given[KEY_PEER] || peer != rank)
		return;
	fault->value[KEY_PEER] = fault->value[KEY_RANK];
	fault->value[KEY_RANK] = peer;
}

/* Are its ranks of this world, and two where it is between them? */
static enum ferry_status check_ranks(struct ferry_ctx *ctx, const char *text,
                                     size_t n, const struct fault *fault,
                                     int32_t n_ranks)
{
	const int64_t rank = fault->value[KEY_RANK];
	const int64_t peer = fault->value[KEY_PEER];

	if (rank >= n_ranks || peer >= n_ranks)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "fault: '%.*s', allowed are ranks 0..%d",
		                  (int)n, text, n_ranks - 1);
	if (fault->given[KEY_PEER] && rank == peer)
		return ferry_fail(ctx, FERRY_INVAL,
		                  "fault: '%.*s', rank and peer must differ",
		                  (int)n, text);
	return FERRY_OK;
}

enum ferry_status ferry_faults_read(struct ferry_ctx *ctx, const char *text,
                                    int32_t rank, int32_t n_ranks,
                                    struct ferry_faults *faults)
{
	static const char separators[] = " ;";

	*faults = (struct ferry_faults){.cut_peer = -1};
	for (text += strspn(text, separators); *text;) {
		const size_t n = strcspn(text, separators);
		struct fault fault = {.form = NULL};

		FERRY_TRY(read_fault(ctx, text, n, &fault));
		FERRY_TRY(check_ranks(ctx, text, n, &fault, n_ranks));
		turn_round(&fault, rank);
		if (!fault.given[KEY_RANK] || fault.value[KEY_RANK] == rank)
			add(faults, &fault);
		text += n;
		text += strspn(text, separators);
	}
	return FERRY_OK;
}
