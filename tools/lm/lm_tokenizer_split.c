/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a text into pieces by patterns. What a pattern matches is a piece, and
 * so is what lies between; the next pattern cuts each piece as a text of its
 * own. PCRE2's limits make a pattern that takes too long a fault.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lm_tokenizer_parts.h"

enum {
	/* Steps of one match: some, and for each byte. */
	MATCH_STEPS = 1000000,
	MATCH_STEPS_PER_BYTE = 64,
	MATCH_HEAP_KIB = 65536,
	JIT_STACK_MIN = 32 * 1024,
	JIT_STACK_MAX = 4 * 1024 * 1024,
};

static bool refuse(const char *name, const char *pattern, const char *why,
                   struct fault *fault)
{
	return fault_set(fault,
	                 "%s: pattern of the pre-tokenizer: %s: \"%.200s\"",
	                 name, why, pattern);
}

static pcre2_code *compile(const char *name, const char *own,
                           const char *pattern, struct fault *fault)
{
	pcre2_compile_context *const context =
		pcre2_compile_context_create(NULL);
	PCRE2_UCHAR text[128];
	PCRE2_SIZE at = 0;
	int error = 0;

	if (!context) {
		fault_set(fault, "no memory for a pattern");
		return NULL;
	}
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	pcre2_code *const code =
		pcre2_compile((PCRE2_SPTR)own, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
	                      &error, &at, context);

	pcre2_compile_context_free(context);
	if (code)
		return code;
	pcre2_get_error_message(error, text, sizeof(text));
	refuse(name, pattern, (const char *)text, fault);
	return NULL;
}

bool lm_split_add(struct lm_split *split, const char *name, const char *pattern,
                  struct fault *fault)
{
	struct lm_buffer own = {0};
	pcre2_code *code = NULL;
	uint32_t empty = 0;

	if (split->n == LM_MAX_SPLITS)
		return fault_set(fault,
		                 "%s: more than %d patterns of pre-tokenizers",
		                 name, LM_MAX_SPLITS);
	if (lm_pattern_translate(name, pattern, &own, fault))
		code = compile(name, own.bytes, pattern, fault);
	free(own.bytes);
	if (!code)
		return false;
	split->codes[split->n++] = code;
	pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
	if (empty)
		return refuse(name, pattern, "it matches the empty text",
		              fault);
	/* Where there is no JIT, the interpreter matches. */
	(void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
	return true;
}

void lm_split_close(struct lm_split *split)
{
	for (int32_t i = 0; i < split->n; i++)
		pcre2_code_free(split->codes[i]);
	split->n = 0;
}

bool lm_split_work_open(const struct lm_split *split, const char *name,
                        struct lm_split_work *work, struct fault *fault)
{
	bool good;

	*work = (struct lm_split_work){
		.name = name,
		.context = pcre2_match_context_create(NULL),
		.stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX,
	                                        NULL),
	};
	good = work->context && work->stack;
	for (int32_t i = 0; i < split->n; i++) {
		work->matches[i] = pcre2_match_data_create_from_pattern(
			split->codes[i], NULL);
		good = good && work->matches[i];
	}
	if (!good)
		return fault_set(fault, "no memory to match patterns");
	pcre2_set_heap_limit(work->context, MATCH_HEAP_KIB);
	pcre2_jit_stack_assign(work->context, NULL, work->stack);
	return true;
}

void lm_split_work_close(struct lm_split_work *work)
{
	for (int32_t i = 0; i < LM_MAX_SPLITS; i++)
		pcre2_match_data_free(work->matches[i]);
	pcre2_jit_stack_free(work->stack);
	pcre2_match_context_free(work->context);
}

static bool gave_up(const char *name, int error, struct fault *fault)
{
	PCRE2_UCHAR text[128];

	pcre2_get_error_message(error, text, sizeof(text));
	return fault_set(fault,
	                 "%s: the pattern of the pre-tokenizer gave up: %s",
	                 name, (const char *)text);
}

/* What a visit of pieces carries. */
struct visit {
	const struct lm_split *split;
	struct lm_split_work *work;
	lm_split_visit *visit;
	void *arg;
	struct fault *fault;
};

static bool cut(const struct visit *to, int32_t level, struct lm_text text)
{
	const PCRE2_SPTR bytes = (PCRE2_SPTR)text.bytes;
	size_t done = 0;

	if (level == to->split->n)
		return to->visit(to->arg, text, to->fault);
	pcre2_match_data *const match = to->work->matches[level];
	const PCRE2_SIZE *const found = pcre2_get_ovector_pointer(match);

	while (done < text.n) {
		const int n = pcre2_match(to->split->codes[level], bytes,
		                          text.n, done, PCRE2_NO_UTF_CHECK,
		                          match, to->work->context);
		const size_t start = n > 0 ? found[0] : text.n;
		const size_t end = n > 0 ? found[1] : text.n;

		if (n < 0 && n != PCRE2_ERROR_NOMATCH)
			return gave_up(to->work->name, n, to->fault);
		if (start > done &&
		    !cut(to, level + 1,
		         (struct lm_text){text.bytes + done, start - done}))
			return false;
		if (end > start &&
		    !cut(to, level + 1,
		         (struct lm_text){text.bytes + start, end - start}))
			return false;
		done = end;
	}
	return true;
}

bool lm_split_text(const struct lm_split *split, struct lm_split_work *work,
                   struct lm_text text, lm_split_visit *visit, void *arg,
                   struct fault *fault)
{
	const struct visit to = {split, work, visit, arg, fault};
	const uint64_t steps =
		MATCH_STEPS + (uint64_t)text.n * MATCH_STEPS_PER_BYTE;

	if (!text.n)
		return true;
	pcre2_set_match_limit(work->context, steps < UINT32_MAX
	                                             ? (uint32_t)steps
	                                             : UINT32_MAX);
	return cut(&to, 0, text);
}
