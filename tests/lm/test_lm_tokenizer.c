/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer over texts of this file: ids, bytes, long pieces, odd bytes.
 * Ids below 256 are bytes in the order of their letters, merges follow:
 * tiny_tokenizer.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli_cmocka.h"
#include "lm_tokenizer.h"
#include "tiny_model.h"

enum {
	/* Visible bytes of ASCII. */
	A = 'a' - '!',
	/* Bytes 0..32 come after the 188 that are letters themselves. */
	ZERO = 188,
	SPACE_A = 256 + 2,
	SPACE_THE = 256 + 6,
	SPACES = 256 + 14,
	TION = 256 + 20,
	END_OF_TEXT = 256 + 22,
};

static char *model;
static struct lm_tokenizer *tokenizer;

static int32_t *encode(const char *text, int64_t n, int64_t *n_ids)
{
	struct fault fault;
	int32_t *ids = NULL;

	if (!lm_tokenizer_encode(tokenizer, "text", text, n, &ids, n_ids,
	                         &fault))
		fail_msg("%s", fault.text);
	return ids;
}

static void expect(const char *text, size_t n, const int32_t *expected,
                   size_t n_expected)
{
	int64_t n_ids;
	int32_t *const ids = encode(text, (int64_t)n, &n_ids);

	assert_int_equal(n_ids, n_expected);
	for (size_t i = 0; i < n_expected; i++)
		assert_int_equal(ids[i], expected[i]);
	free(ids);
}

#define EXPECT(text, ...)                                                      \
	do {                                                                   \
		const int32_t expected_ids[] = {__VA_ARGS__};                  \
		expect(text, sizeof(text) - 1, expected_ids,                   \
		       sizeof(expected_ids) / sizeof(*expected_ids));          \
	} while (0)

static void pieces_are_merged_by_rank(void **state)
{
	(void)state;
	EXPECT(" the", SPACE_THE);
	EXPECT("a the action", A, SPACE_THE, SPACE_A, A + 2, TION);
	/* Not across pieces: a digit is one, a space goes to what follows. */
	EXPECT("1 a  a", '1' - '!', SPACE_A, ZERO + ' ', SPACE_A);
	EXPECT("   ", SPACES, ZERO + ' ');
}

static void empty_text_has_no_ids(void **state)
{
	(void)state;
	expect("", 0, NULL, 0);
	expect(NULL, 0, NULL, 0);
}

static void zero_bytes_are_bytes(void **state)
{
	(void)state;
	EXPECT("\0", ZERO);
	EXPECT("a\0 the\0", A, ZERO, SPACE_THE, ZERO);
}

static void added_tokens_are_found(void **state)
{
	(void)state;
	EXPECT("<|endoftext|>", END_OF_TEXT);
	EXPECT(" the<|endoftext|><|endoftext|>a", SPACE_THE, END_OF_TEXT,
	       END_OF_TEXT, A);
	/* All but the last character. */
	EXPECT("a<|endoftext|", A, '<' - '!', '|' - '!', A + 4, 256 + 10,
	       A + 14, A + 5, A + 19, A + 4, A + 23, A + 19, '|' - '!');
}

static void marks_are_composed(void **state)
{
	int64_t n_one, n_two;
	int32_t *const one = encode("\xc3\xa9", 2, &n_one);
	int32_t *const two = encode("e\xcc\x81", 3, &n_two);

	(void)state;
	assert_int_equal(n_one, 2);
	assert_int_equal(n_two, 2);
	assert_memory_equal(one, two, 2 * sizeof(*one));
	free(one);
	free(two);
}

static void ids_have_bytes(void **state)
{
	const char *bytes;
	int32_t n;

	(void)state;
	assert_int_equal(lm_tokenizer_vocab(tokenizer), END_OF_TEXT + 1);
	assert_true(lm_tokenizer_bytes(tokenizer, SPACE_THE, &bytes, &n));
	assert_int_equal(n, 4);
	assert_memory_equal(bytes, " the", 4);
	assert_true(lm_tokenizer_bytes(tokenizer, ZERO, &bytes, &n));
	assert_int_equal(n, 1);
	assert_memory_equal(bytes, "", 1);
	assert_true(lm_tokenizer_bytes(tokenizer, END_OF_TEXT, &bytes, &n));
	assert_int_equal(n, 13);
	assert_memory_equal(bytes, "<|endoftext|>", 13);
	assert_false(
		lm_tokenizer_bytes(tokenizer, END_OF_TEXT + 1, &bytes, &n));
	assert_false(lm_tokenizer_bytes(tokenizer, -1, &bytes, &n));
}

/* Quadratic time would be minutes. */
static void long_pieces_take_little_time(void **state)
{
	enum { N = 1 << 20 };
	static char text[N + 1];
	int64_t n_ids;
	int32_t *ids;

	(void)state;
	for (size_t i = 0; i < N; i += 4)
		memcpy(text + i, "tion", 4);
	ids = encode(text, N, &n_ids);
	assert_int_equal(n_ids, N / 4);
	assert_int_equal(ids[0], TION);
	assert_int_equal(ids[N / 4 - 1], TION);
	free(ids);
	memset(text, ' ', N);
	ids = encode(text, N, &n_ids);
	assert_int_equal(n_ids, N / 2);
	assert_int_equal(ids[N / 2 - 1], SPACES);
	free(ids);
	memset(text, 'q', N);
	ids = encode(text, N, &n_ids);
	assert_int_equal(n_ids, N);
	free(ids);
}

/* Marks above and below in turn: all below go before all above. */
static void many_marks_take_little_time(void **state)
{
	enum { N = 1 << 17 };
	static char text[4 * N];
	int64_t n_ids;
	int32_t *ids;

	(void)state;
	for (size_t i = 0; i < N; i++)
		memcpy(text + 4 * i, "\xcc\x81\xcc\xa3", 4);
	ids = encode(text, sizeof(text), &n_ids);
	assert_int_equal(n_ids, 4 * N);
	assert_int_equal(ids[1], ids[2 * N - 1]);
	assert_int_not_equal(ids[1], ids[2 * N + 1]);
	assert_int_equal(ids[2 * N + 1], ids[4 * N - 1]);
	free(ids);
}

static void refuse(const char *text, size_t n, const char *message)
{
	struct fault fault;
	int32_t *ids = NULL;
	int64_t n_ids = -7;

	assert_false(lm_tokenizer_encode(tokenizer, "t.txt", text, (int64_t)n,
	                                 &ids, &n_ids, &fault));
	assert_string_equal(fault.text, message);
	assert_null(ids);
	assert_int_equal(n_ids, -7);
}

#define REFUSE(text, message) refuse(text, sizeof(text) - 1, message)

static void what_is_no_utf8_is_refused(void **state)
{
	(void)state;
	REFUSE("\x80", "t.txt: byte 0 is no UTF-8 (0x80)");
	REFUSE("abc\xff", "t.txt: byte 3 is no UTF-8 (0xff)");
	REFUSE("a\0\xc3(", "t.txt: byte 2 is no UTF-8 (0xc3)");
	REFUSE("\xc3", "t.txt: byte 0 is no UTF-8 (0xc3)");
	/* Too long forms, a surrogate, beyond the last code point. */
	REFUSE("\xc0\x80", "t.txt: byte 0 is no UTF-8 (0xc0)");
	REFUSE("x\xe0\x9f\xbf", "t.txt: byte 1 is no UTF-8 (0xe0)");
	REFUSE("\xf0\x8f\xbf\xbf", "t.txt: byte 0 is no UTF-8 (0xf0)");
	REFUSE("\xc3\xa9\xed\xa0\x80", "t.txt: byte 2 is no UTF-8 (0xed)");
	REFUSE("\xf4\x90\x80\x80", "t.txt: byte 0 is no UTF-8 (0xf4)");
	REFUSE("\xf8\x88\x80\x80\x80", "t.txt: byte 0 is no UTF-8 (0xf8)");
	REFUSE("\xf0\x9f\x98", "t.txt: byte 0 is no UTF-8 (0xf0)");
}

static int open_model(void **state)
{
	const struct tiny_shape shape = TINY_SHAPE_INIT;
	struct fault fault;

	(void)state;
	model = tiny_model_make(&shape);
	if (lm_tokenizer_open(model, &tokenizer, &fault))
		return 0;
	print_error("%s\n", fault.text);
	return -1;
}

static int close_model(void **state)
{
	(void)state;
	lm_tokenizer_close(tokenizer);
	tiny_model_remove(model);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_merged_by_rank),
		cmocka_unit_test(empty_text_has_no_ids),
		cmocka_unit_test(zero_bytes_are_bytes),
		cmocka_unit_test(added_tokens_are_found),
		cmocka_unit_test(marks_are_composed),
		cmocka_unit_test(ids_have_bytes),
		cmocka_unit_test(long_pieces_take_little_time),
		cmocka_unit_test(many_marks_take_little_time),
		cmocka_unit_test(what_is_no_utf8_is_refused),
	};

	return cmocka_run_group_tests(tests, open_model, close_model);
}
