/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as tokens, and which of them are a sequence, and a step. */
#include "prefill_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../alloc.h"
#include "../file_map.h"
#include "../shown.h"

/* The tokenizer may know more than the model does. */
static bool check_tokens(const struct prefill_text *text, int32_t vocab,
                         struct fault *fault)
{
	for (int64_t i = 0; i < text->n_tokens; i++)
		if (text->tokens[i] < 0 || text->tokens[i] >= vocab)
			return fault_set(fault,
			                 "%s: token %" PRId64
			                 " has id %d, the model has ids 0..%d",
			                 text->name, i, text->tokens[i],
			                 vocab - 1);
	if (text->n_tokens >= PREFILL_LEAST_TOKENS)
		return true;
	return fault_set(fault,
	                 "%s: %" PRId64 " token%s, a text has at least %d",
	                 text->name, text->n_tokens,
	                 text->n_tokens == 1 ? "" : "s", PREFILL_LEAST_TOKENS);
}

bool prefill_text_open(const char *path, const struct lm_tokenizer *tokenizer,
                       int32_t vocab, struct prefill_text *text,
                       struct fault *fault)
{
	struct file_map map;

	*text = (struct prefill_text){.name = path};
	if (!file_map_open(path, &map, fault))
		return false;
	bool good = map.n > 0;

	if (good)
		good = lm_tokenizer_encode(tokenizer, path, map.bytes,
		                           (int64_t)map.n, &text->tokens,
		                           &text->n_tokens, fault) &&
		       check_tokens(text, vocab, fault);
	else
		fault_set(fault, "%s: empty, a text has at least %d tokens",
		          path, PREFILL_LEAST_TOKENS);
	file_map_close(&map);
	if (!good)
		prefill_text_close(text);
	return good;
}

void prefill_text_close(struct prefill_text *text)
{
	free(text->tokens);
	text->tokens = NULL;
	text->n_tokens = 0;
}

/* Bytes of the folders that begin a name. */
static size_t folder_bytes(const char *name)
{
	const char *const slash = strrchr(name, '/');

	return slash ? (size_t)(slash + 1 - name) : 0;
}

void prefill_text_shorten(struct prefill_text *texts, int32_t n_texts)
{
	const char *const first = texts[0].name;
	size_t n = folder_bytes(first);

	for (int32_t t = 1; t < n_texts; t++) {
		size_t i = 0;

		while (i < n && texts[t].name[i] == first[i])
			i++;
		while (i > 0 && first[i - 1] != '/')
			i--;
		n = i;
	}
	for (int32_t t = 0; t < n_texts; t++)
		texts[t].name += n;
}

/* Sequences of a text. */
static int64_t count_sequences(const struct prefill_text *text,
                               const struct prefill_cut *cut)
{
	const int64_t full = text->n_tokens / cut->length;
	const int64_t rest = text->n_tokens % cut->length;
	const int64_t n = full + (rest >= PREFILL_LEAST_REST || !full);
	const int64_t most = (int64_t)cut->max_steps * cut->batch;

	return cut->max_steps && n > most ? most : n;
}

/* An input that grows. */
struct cutter {
	const struct prefill_text *texts;
	const struct prefill_cut *cut;
	struct prefill_input *input;
};

/* Sequence i of a text. */
static void add_sequence(const struct cutter *c, int32_t text, int64_t i)
{
	struct prefill_input *const in = c->input;
	const struct prefill_text *const from = &c->texts[text];
	const int64_t begin = i * c->cut->length;
	const int64_t rest = from->n_tokens - begin;
	const int64_t n = rest < c->cut->length ? rest : c->cut->length;

	in->first_token[in->n_sequences] = in->n_tokens;
	in->length[in->n_sequences] = (int32_t)n;
	in->text[in->n_sequences++] = text;
	memcpy(in->tokens + in->n_tokens, from->tokens + begin,
	       (size_t)n * sizeof(*in->tokens));
	in->n_tokens += n;
}

/* What was added since the last step becomes one; nothing becomes none. */
static void end_step(const struct cutter *c)
{
	struct prefill_input *const in = c->input;
	const int32_t first = in->first_sequence[in->n_steps];
	struct prefill_step *const step = &in->steps[in->n_steps];

	if (in->n_sequences == first)
		return;
	step->text = in->text[first];
	step->n_sequences = in->n_sequences - first;
	step->n_tokens = 0;
	for (int32_t s = first; s < in->n_sequences; s++) {
		step->n_tokens += in->length[s];
		if (in->text[s] != step->text)
			step->text = -1;
	}
	shown_cut(step->name, sizeof(step->name),
	          step->text < 0 ? "mixed" : c->texts[step->text].name);
	in->first_sequence[++in->n_steps] = in->n_sequences;
}

/* Sequences [begin, end) of a text, as far as it has them, as a step. */
static void add_step(const struct cutter *c, int32_t text, int64_t begin,
                     int64_t end)
{
	const int64_t n = count_sequences(&c->texts[text], c->cut);

	for (int64_t i = begin; i < end && i < n; i++)
		add_sequence(c, text, i);
	end_step(c);
}

/* The longest text's. */
static int64_t most_sequences(const struct cutter *c, int32_t n_texts)
{
	int64_t most = 0;

	for (int32_t t = 0; t < n_texts; t++) {
		const int64_t n = count_sequences(&c->texts[t], c->cut);

		most = n > most ? n : most;
	}
	return most;
}

static void cut_by_text(const struct cutter *c, int32_t n_texts)
{
	const int64_t most = most_sequences(c, n_texts);

	for (int32_t t = 0; t < n_texts; t++)
		for (int64_t i = 0; i < most; i += c->cut->batch)
			add_step(c, t, i, i + c->cut->batch);
}

static void cut_mixed(const struct cutter *c, int32_t n_texts)
{
	const int64_t most = most_sequences(c, n_texts);

	for (int64_t i = 0; i < most; i += c->cut->batch)
		for (int32_t t = 0; t < n_texts; t++)
			add_step(c, t, i, i + c->cut->batch);
}

static void cut_blended(const struct cutter *c, int32_t n_texts)
{
	const int64_t most = most_sequences(c, n_texts);
	struct prefill_input *const in = c->input;

	for (int64_t i = 0; i < most; i++)
		for (int32_t t = 0; t < n_texts; t++) {
			if (i >= count_sequences(&c->texts[t], c->cut))
				continue;
			add_sequence(c, t, i);
			if (in->n_sequences - in->first_sequence[in->n_steps] ==
			    c->cut->batch)
				end_step(c);
		}
	end_step(c);
}

/* Room for n_sequences, each a step of its own at worst. */
static bool make_room(const struct prefill_text *texts, int32_t n_texts,
                      const struct prefill_cut *cut,
                      struct prefill_input *input, struct fault *fault)
{
	int64_t n = 0;

	for (int32_t t = 0; t < n_texts; t++)
		n += count_sequences(&texts[t], cut);
	if (n >= INT32_MAX)
		return fault_set(fault,
		                 "%" PRId64 " sequences of %d tokens, allowed "
		                 "are fewer than %d: --steps, --length",
		                 n, cut->length, INT32_MAX);
	const size_t room = (size_t)n;

	input->tokens = alloc_or_exit(room * (size_t)cut->length,
	                              sizeof(*input->tokens));
	input->first_token = alloc_or_exit(room, sizeof(*input->first_token));
	input->length = alloc_or_exit(room, sizeof(*input->length));
	input->text = alloc_or_exit(room, sizeof(*input->text));
	input->first_sequence =
		alloc_or_exit(room + 1, sizeof(*input->first_sequence));
	input->steps = alloc_or_exit(room, sizeof(*input->steps));
	return true;
}

static void mark_warm_up(struct prefill_input *input, int32_t warm_up)
{
	for (int32_t s = 0; s < warm_up && s < input->n_steps - 1; s++)
		input->steps[s].warm_up = true;
}

bool prefill_input_open(const struct prefill_text *texts, int32_t n_texts,
                        const struct prefill_cut *cut,
                        struct prefill_input *input, struct fault *fault)
{
	const struct cutter c = {texts, cut, input};

	*input = (struct prefill_input){0};
	if (!make_room(texts, n_texts, cut, input, fault))
		return false;
	switch (cut->order) {
	case PREFILL_BY_TEXT:
		cut_by_text(&c, n_texts);
		break;
	case PREFILL_MIXED:
		cut_mixed(&c, n_texts);
		break;
	case PREFILL_BLENDED:
		cut_blended(&c, n_texts);
		break;
	}
	mark_warm_up(input, cut->warm_up);
	return true;
}

void prefill_input_close(struct prefill_input *input)
{
	free(input->tokens);
	free(input->first_token);
	free(input->length);
	free(input->text);
	free(input->first_sequence);
	free(input->steps);
	*input = (struct prefill_input){0};
}

void prefill_input_name(const struct prefill_input *input,
                        struct prefill_run *run)
{
	for (int32_t step = 0; step < input->n_steps; step++)
		for (int32_t s = input->first_sequence[step];
		     s < input->first_sequence[step + 1]; s++) {
			run->sequences[s].text = input->text[s];
			run->sequences[s].step = step;
			run->sequences[s].n_tokens = input->length[s];
		}
}
