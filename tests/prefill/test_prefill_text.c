/* SPDX-License-Identifier: Apache-2.0 */
/* Texts cut into sequences and steps: orders, rests, limits, names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "prefill_text.h"

enum { MOST = 4, ROOM = 1000 };

static int32_t ids[MOST][ROOM];
static struct prefill_text texts[MOST];
static struct prefill_input input;

/* Token i of text t is 1000 t + i. */
static void make_texts(int32_t n_texts, const int64_t *n_tokens)
{
	static const char *const names[MOST] = {"a/c", "a/d", "a/e/f", "a/g"};

	for (int32_t t = 0; t < n_texts; t++) {
		texts[t] = (struct prefill_text){names[t], ids[t], n_tokens[t]};
		for (int32_t i = 0; i < ROOM; i++)
			ids[t][i] = 1000 * t + i;
	}
}

static void cut(int32_t n_texts, const struct prefill_cut *how)
{
	struct fault fault;

	assert_true(prefill_input_open(texts, n_texts, how, &input, &fault));
}

/* What must hold of any input. */
static void check_sums(void)
{
	int64_t tokens = 0;
	int32_t sequences = 0;

	for (int32_t s = 0; s < input.n_steps; s++) {
		const struct prefill_step *const step = &input.steps[s];

		assert_true(step->n_sequences > 0);
		assert_int_equal(input.first_sequence[s], sequences);
		sequences += step->n_sequences;
	}
	assert_int_equal(sequences, input.n_sequences);
	assert_int_equal(input.first_sequence[input.n_steps], sequences);
	for (int32_t s = 0; s < input.n_sequences; s++) {
		assert_int_equal(input.first_token[s], tokens);
		assert_int_equal(input.tokens[tokens] / 1000, input.text[s]);
		tokens += input.length[s];
		assert_int_equal(input.tokens[tokens - 1],
		                 input.tokens[tokens - input.length[s]] +
		                         input.length[s] - 1);
	}
	assert_int_equal(tokens, input.n_tokens);
}

static void test_rests(void **state)
{
	static const int64_t n[] = {115, 116, 2};
	const struct prefill_cut how = {PREFILL_BY_TEXT, 8, 50, 0, 0};

	(void)state;
	make_texts(3, n);
	cut(3, &how);
	check_sums();
	assert_int_equal(input.n_steps, 3);
	assert_int_equal(input.steps[0].n_sequences, 2); /* 15 dropped */
	assert_int_equal(input.steps[0].n_tokens, 100);
	assert_int_equal(input.steps[1].n_sequences, 3);
	assert_int_equal(input.steps[1].n_tokens, 116);
	assert_int_equal(input.length[4], 16);
	assert_int_equal(input.steps[2].n_tokens, 2); /* all that it has */
	prefill_input_close(&input);
}

static void expect_texts(const int32_t *wanted, int32_t n)
{
	assert_int_equal(input.n_steps, n);
	for (int32_t s = 0; s < n; s++)
		assert_int_equal(input.steps[s].text, wanted[s]);
	check_sums();
}

/* 5, 2 and 1 sequences. */
static void test_by_text(void **state)
{
	static const int64_t n[] = {100, 40, 20};
	static const int32_t wanted[] = {0, 0, 0, 1, 2};
	const struct prefill_cut how = {PREFILL_BY_TEXT, 2, 20, 0, 2};

	(void)state;
	make_texts(3, n);
	cut(3, &how);
	expect_texts(wanted, 5);
	assert_string_equal(input.steps[3].name, "a/d");
	assert_int_equal(input.steps[2].n_sequences, 1);
	assert_true(input.steps[0].warm_up && input.steps[1].warm_up);
	assert_false(input.steps[2].warm_up);
	prefill_input_close(&input);
}

static void test_mixed(void **state)
{
	static const int64_t n[] = {100, 40, 20};
	static const int32_t wanted[] = {0, 1, 2, 0, 0};
	const struct prefill_cut how = {PREFILL_MIXED, 2, 20, 0, 0};

	(void)state;
	make_texts(3, n);
	cut(3, &how);
	expect_texts(wanted, 5);
	assert_int_equal(input.tokens[input.first_token[5]], 40);
	prefill_input_close(&input);
}

static void test_blended(void **state)
{
	static const int64_t n[] = {100, 40, 20};
	static const int32_t wanted[] = {-1, -1, 0};
	static const int32_t text[] = {0, 1, 2, 0, 1, 0, 0, 0};
	const struct prefill_cut how = {PREFILL_BLENDED, 3, 20, 0, 0};

	(void)state;
	make_texts(3, n);
	cut(3, &how);
	expect_texts(wanted, 3);
	for (int32_t s = 0; s < 8; s++)
		assert_int_equal(input.text[s], text[s]);
	assert_string_equal(input.steps[0].name, "mixed");
	assert_string_equal(input.steps[2].name, "a/c");
	prefill_input_close(&input);
}

static void test_most_steps_of_each_text(void **state)
{
	static const int64_t n[] = {1000, 1000};
	struct prefill_cut how = {PREFILL_BY_TEXT, 4, 20, 3, 0};

	(void)state;
	make_texts(2, n);
	for (int order = PREFILL_BY_TEXT; order <= PREFILL_BLENDED; order++) {
		how.order = (enum prefill_order)order;
		cut(2, &how);
		check_sums();
		assert_int_equal(input.n_steps, 6);
		assert_int_equal(input.n_tokens, 6 * 4 * 20);
		prefill_input_close(&input);
	}
}

static void test_one_step_is_counted(void **state)
{
	static const int64_t n[] = {100};
	const struct prefill_cut how = {PREFILL_BY_TEXT, 2, 20, 0, 99};

	(void)state;
	make_texts(1, n);
	cut(1, &how);
	assert_int_equal(input.n_steps, 3);
	assert_true(input.steps[1].warm_up);
	assert_false(input.steps[2].warm_up);
	prefill_input_close(&input);
}

static void test_sequences_of_a_run(void **state)
{
	static const int64_t n[] = {100, 40};
	const struct prefill_cut how = {PREFILL_MIXED, 2, 20, 0, 0};
	struct prefill_sequence sequences[7];
	struct prefill_run run = {.sequences = sequences};

	(void)state;
	make_texts(2, n);
	cut(2, &how);
	assert_int_equal(input.n_sequences, 7);
	prefill_input_name(&input, &run);
	assert_int_equal(sequences[3].text, 1);
	assert_int_equal(sequences[3].step, 1);
	assert_int_equal(sequences[6].text, 0);
	assert_int_equal(sequences[6].step, 3);
	assert_int_equal(sequences[6].n_tokens, 20);
	prefill_input_close(&input);
}

static void test_names_without_common_folders(void **state)
{
	static const int64_t n[] = {2, 2, 2, 2};

	(void)state;
	make_texts(4, n);
	prefill_text_shorten(texts, 3);
	assert_string_equal(texts[0].name, "c");
	assert_string_equal(texts[1].name, "d");
	assert_string_equal(texts[2].name, "e/f");
	make_texts(4, n);
	texts[1].name = "ab/d";
	prefill_text_shorten(texts, 2);
	assert_string_equal(texts[0].name, "a/c");
	make_texts(4, n);
	prefill_text_shorten(texts + 2, 1);
	assert_string_equal(texts[2].name, "f");
}

/* Between characters: what JSON has is UTF-8. */
static void test_a_long_name_is_cut(void **state)
{
	static const int64_t n[] = {100};
	const struct prefill_cut how = {PREFILL_BY_TEXT, 2, 20, 0, 0};
	char name[3 * 40 + 1] = "";

	(void)state;
	for (int i = 0; i < 40; i++)
		strcat(name, "\xe6\x97\xa5");
	make_texts(1, n);
	texts[0].name = name + 1; /* no character begins here */
	cut(1, &how);
	assert_int_equal(strlen(input.steps[0].name), 95);
	prefill_input_close(&input);
	texts[0].name = name;
	cut(1, &how);
	assert_int_equal(strlen(input.steps[0].name), 93);
	assert_memory_equal(input.steps[0].name, name, 93);
	prefill_input_close(&input);
}

static void test_too_many_sequences(void **state)
{
	const struct prefill_cut how = {PREFILL_BY_TEXT, 1, 2, 0, 0};
	struct fault fault;

	(void)state;
	texts[0] = (struct prefill_text){"x", ids[0], 2 * (int64_t)INT32_MAX};
	assert_false(prefill_input_open(texts, 1, &how, &input, &fault));
	assert_string_equal(fault.text,
	                    "2147483647 sequences of 2 tokens, allowed are "
	                    "fewer than 2147483647: --steps, --length");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rests),
		cmocka_unit_test(test_by_text),
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_blended),
		cmocka_unit_test(test_most_steps_of_each_text),
		cmocka_unit_test(test_one_step_is_counted),
		cmocka_unit_test(test_sequences_of_a_run),
		cmocka_unit_test(test_names_without_common_folders),
		cmocka_unit_test(test_a_long_name_is_cut),
		cmocka_unit_test(test_too_many_sequences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
