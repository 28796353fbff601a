/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements as text, one line a rank (docs/balance.md):
 *
 *	ferry placement 1
 *	experts 4 ranks 2 split quota version 7
 *	0: 0*120 1*50 2*9
 *	1: 0*80 3*44 -
 *
 * A slot is its expert, "-" when empty; quotas follow a '*'. '#' begins a
 * comment, empty lines do not count. Every line ends with a newline: a text
 * that is cut off shows it. Written for people; read without trust.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctx.h"
#include "placement_inner.h"
#include "text.h"

static const char *const split_names[] = {"even", "quota", "exact"};

static void write_slot(struct ferry_text *o, const struct ferry_placement *p,
                       int32_t slot)
{
	if (p->slot_expert[slot] < 0)
		ferry_text_add(o, " -");
	else if (p->quota)
		ferry_text_add(o, " %d*%" PRId64, p->slot_expert[slot],
		               p->quota[slot]);
	else
		ferry_text_add(o, " %d", p->slot_expert[slot]);
}

size_t ferry_placement_write(const struct ferry_placement *placement,
                             char *buffer, size_t bytes)
{
	struct ferry_text o = {buffer, buffer ? bytes : 0, 0};

	if (o.bytes)
		buffer[0] = 0;
	if (!placement)
		return 0;
	ferry_text_add(
		&o,
		"ferry placement 1\nexperts %d ranks %d split %s version "
		"%" PRIu64 "\n",
		placement->n_experts, placement->map.n_ranks,
		split_names[placement->split], placement->version);
	for (int32_t r = 0; r < placement->map.n_ranks; r++) {
		ferry_text_add(&o, "%d:", r);
		for (int32_t s = placement->map.first_slot[r];
		     s < placement->map.first_slot[r + 1]; s++)
			write_slot(&o, placement, s);
		ferry_text_add(&o, "\n");
	}
	return o.length;
}

/* Where in a text the reader is. */
struct text_in {
	const char *at;
	const char *end;
	const char *line_start;
	int64_t line;
};

/* What has been read; arrays are as long as the text lets them be. */
struct parsed {
	struct ferry_placement_config config;
	int32_t *expert_slots;
	int32_t *slot_expert;
	int64_t *quota;
	int32_t n_slots;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(struct text_in *in)
{
	while (in->at < in->end && is_blank(*in->at))
		in->at++;
}

static bool is_line_end(const struct text_in *in)
{
	return in->at == in->end || *in->at == '\n' || *in->at == '#';
}

static enum ferry_status expected(const struct text_in *in, const char *what)
{
	const int c = in->at < in->end ? (unsigned char)*in->at : -1;
	char found[16] = "the end";

	if (c > ' ' && c < 127)
		snprintf(found, sizeof(found), "'%c'", c);
	else if (c == '\n')
		snprintf(found, sizeof(found), "a new line");
	else if (c >= 0)
		snprintf(found, sizeof(found), "byte %d", c);
	return ferry_fail(NULL, FERRY_INVAL,
	                  "placement text: line %" PRId64
	                  ", column %td: expected %s, found %s",
	                  in->line, in->at - in->line_start + 1, what, found);
}

/* The rest of the line must be empty; goes on to the next that is not. */
static enum ferry_status next_line(struct text_in *in)
{
	skip_blanks(in);
	if (!is_line_end(in))
		return expected(in, "the end of the line");
	while (in->at < in->end) {
		while (in->at < in->end && *in->at != '\n')
			in->at++;
		if (in->at == in->end)
			break;
		in->line_start = ++in->at;
		in->line++;
		skip_blanks(in);
		if (!is_line_end(in))
			break;
	}
	return FERRY_OK;
}

/* Letters as they are, with a blank or an end after them. */
static enum ferry_status read_word(struct text_in *in, const char *word)
{
	const size_t n = strlen(word);
	const char *const at = in->at;

	skip_blanks(in);
	if ((size_t)(in->end - in->at) < n || memcmp(in->at, word, n)) {
		char quoted[32];

		snprintf(quoted, sizeof(quoted), "\"%s\"", word);
		return expected(in, quoted);
	}
	in->at += n;
	if (is_line_end(in) || is_blank(*in->at))
		return FERRY_OK;
	in->at = at;
	skip_blanks(in);
	return expected(in, word);
}

static enum ferry_status read_number(struct text_in *in, const char *what,
                                     uint64_t most, uint64_t *value)
{
	char text[96];
	uint64_t v = 0;

	skip_blanks(in);
	snprintf(text, sizeof(text), "%s, 0..%" PRIu64, what, most);
	const char *const start = in->at;

	for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++) {
		const uint64_t digit = (uint64_t)(*in->at - '0');

		if (digit > most || v > (most - digit) / 10) {
			in->at = start;
			return expected(in, text);
		}
		v = v * 10 + digit;
	}
	if (in->at == start)
		return expected(in, text);
	*value = v;
	return FERRY_OK;
}

/* A word and its number. */
static enum ferry_status read_field(struct text_in *in, const char *word,
                                    uint64_t most, uint64_t *value)
{
	FERRY_TRY(read_word(in, word));
	return read_number(in, word, most, value);
}

static enum ferry_status read_split(struct text_in *in, enum ferry_split *split)
{
	FERRY_TRY(read_word(in, "split"));
	skip_blanks(in);
	for (int i = FERRY_SPLIT_EVEN; i <= FERRY_SPLIT_EXACT; i++) {
		const size_t n = strlen(split_names[i]);

		if ((size_t)(in->end - in->at) < n ||
		    memcmp(in->at, split_names[i], n))
			continue;
		*split = (enum ferry_split)i;
		return read_word(in, split_names[i]);
	}
	return expected(in, "even, quota or exact");
}

static enum ferry_status read_head(struct text_in *in,
                                   struct ferry_placement_config *c)
{
	uint64_t form, n_experts, n_ranks;

	skip_blanks(in);
	if (is_line_end(in))
		FERRY_TRY(next_line(in));
	FERRY_TRY(read_word(in, "ferry"));
	FERRY_TRY(read_field(in, "placement", UINT64_MAX, &form));
	if (form != 1)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement text: line %" PRId64
		                  ": form is %" PRIu64 ", this library reads 1",
		                  in->line, form);
	FERRY_TRY(next_line(in));
	FERRY_TRY(read_field(in, "experts", FERRY_MAX_EXPERTS, &n_experts));
	FERRY_TRY(read_field(in, "ranks", FERRY_MAX_RANKS, &n_ranks));
	FERRY_TRY(read_split(in, &c->split));
	FERRY_TRY(read_field(in, "version", UINT64_MAX, &c->version));
	c->n_experts = (int32_t)n_experts;
	c->n_ranks = (int32_t)n_ranks;
	return next_line(in);
}

static enum ferry_status read_slot(struct text_in *in, struct parsed *p)
{
	const int32_t slot = p->n_slots++;
	uint64_t expert, quota;

	if (*in->at == '-') {
		in->at++;
		p->slot_expert[slot] = -1;
		return FERRY_OK;
	}
	FERRY_TRY(read_number(in, "an expert or '-'", FERRY_MAX_EXPERTS,
	                      &expert));
	p->slot_expert[slot] = (int32_t)expert;
	if (p->config.split != FERRY_SPLIT_QUOTA)
		return FERRY_OK;
	if (in->at == in->end || *in->at != '*')
		return expected(in, "'*' and a quota");
	in->at++;
	if (in->at < in->end && is_blank(*in->at))
		return expected(in, "a quota");
	FERRY_TRY(read_number(in, "a quota", INT64_MAX, &quota));
	p->quota[slot] = (int64_t)quota;
	return FERRY_OK;
}

static enum ferry_status read_rank(struct text_in *in, struct parsed *p,
                                   int32_t rank)
{
	const int32_t before = p->n_slots;
	char name[32];

	snprintf(name, sizeof(name), "\"%d:\"", rank);
	const size_t n = strlen(name) - 2;

	skip_blanks(in);
	if ((size_t)(in->end - in->at) < n || memcmp(in->at, name + 1, n))
		return expected(in, name);
	in->at += n;
	for (skip_blanks(in); !is_line_end(in); skip_blanks(in)) {
		FERRY_TRY(read_slot(in, p));
		if (!is_line_end(in) && !is_blank(*in->at))
			return expected(in, "a blank");
	}
	p->expert_slots[rank] = p->n_slots - before;
	return next_line(in);
}

static enum ferry_status read_ranks(struct text_in *in, struct parsed *p)
{
	for (int32_t r = 0; r < p->config.n_ranks; r++)
		FERRY_TRY(read_rank(in, p, r));
	if (in->at < in->end)
		return expected(in, "the end");
	/* Else what was cut off within the last line would pass. */
	return in->end[-1] == '\n' ? FERRY_OK : expected(in, "a new line");
}

/* A slot takes two bytes of text at least, so memory is in proportion. */
static enum ferry_status allocate(struct parsed *p, size_t bytes)
{
	const size_t most = bytes / 2 + 1;

	p->expert_slots =
		calloc((size_t)p->config.n_ranks + 1, sizeof(*p->expert_slots));
	p->slot_expert = calloc(most, sizeof(*p->slot_expert));
	p->quota = calloc(most, sizeof(*p->quota));
	if (p->expert_slots && p->slot_expert && p->quota)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_NOMEM, "placement text: %zu bytes",
	                  bytes);
}

static enum ferry_status create(struct parsed *p,
                                struct ferry_placement **placement)
{
	/* Before memory is taken for experts that cannot be there. */
	if (p->config.n_experts > p->n_slots)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement text: experts is %d, but there "
		                  "are %d slots",
		                  p->config.n_experts, p->n_slots);
	p->config.expert_slots = p->expert_slots;
	p->config.slot_expert = p->slot_expert;
	if (p->config.split == FERRY_SPLIT_QUOTA)
		p->config.quota = p->quota;
	return ferry_placement_create(&p->config, placement);
}

enum ferry_status ferry_placement_read(const char *text, size_t bytes,
                                       struct ferry_placement **placement)
{
	struct parsed p = {.config = FERRY_PLACEMENT_CONFIG_INIT};
	struct text_in in = {text, NULL, text, 1};
	enum ferry_status status;

	if (!text || !placement)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_read: %s is NULL",
		                  text ? "placement" : "text");
	if (bytes > INT32_MAX)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_read: bytes is %zu, allowed are "
		                  "0..%d",
		                  bytes, INT32_MAX);
	in.end = text + bytes;
	FERRY_TRY(read_head(&in, &p.config));
	status = allocate(&p, bytes);
	if (status == FERRY_OK)
		status = read_ranks(&in, &p);
	if (status == FERRY_OK)
		status = create(&p, placement);
	free(p.expert_slots);
	free(p.slot_expert);
	free(p.quota);
	return status;
}
