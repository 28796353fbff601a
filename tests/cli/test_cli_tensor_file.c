/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors: what is found in them, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_cmocka.h"
#include "tensor_file.h"

/* A file in memory, a header and zeros; free() frees it. */
static char *make_file(const char *header, size_t n_data, size_t *n)
{
	const uint64_t n_header = strlen(header);

	*n = 8 + (size_t)n_header + n_data;
	char *const bytes = calloc(*n, 1);

	assert_non_null(bytes);
	memcpy(bytes, &n_header, 8);
	memcpy(bytes + 8, header, (size_t)n_header);
	return bytes;
}

static void refuse(const char *header, size_t n_data, const char *message)
{
	struct tensor_file file;
	struct fault fault;
	size_t n;
	char *const bytes = make_file(header, n_data, &n);

	assert_false(tensor_file_open("t", bytes, n, &file, &fault));
	assert_string_equal(fault.text, message);
	assert_null(file.tensors);
	free(bytes);
}

#define TENSOR(name, dtype, shape, offsets)                                    \
	"\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": " shape           \
	", \"data_offsets\": " offsets "}"

static const char four[] =
	"{\"b\": {\"dtype\": \"BF16\", \"shape\": [2, 3], "
	"\"data_offsets\": [4, 16]}, "
	"\"a\": {\"dtype\": \"F32\", \"shape\": [], "
	"\"data_offsets\": [0, 4]}, "
	"\"c\": {\"dtype\": \"F8_E4M3\", \"shape\": [1,1,1,1,1,1,1,3], "
	"\"data_offsets\": [16, 19]}, "
	"\"odd\": {\"dtype\": \"F4\", \"shape\": [3], "
	"\"data_offsets\": [19, 21]}, "
	"\"__metadata__\": {\"format\": \"pt\", \"x\": 1}}  \n";

static void test_finds(void **state)
{
	struct tensor_file file;
	struct fault fault;
	size_t n;
	char *const bytes = make_file(four, 21, &n);

	(void)state;
	assert_true(tensor_file_open("t", bytes, n, &file, &fault));
	assert_int_equal(file.n_tensors, 4);
	const struct tensor *t = tensor_file_find(&file, "b");

	assert_int_equal(t->type, TENSOR_BF16);
	assert_string_equal(t->dtype, "BF16");
	assert_int_equal(t->n_dims, 2);
	assert_int_equal(t->dims[1], 3);
	assert_ptr_equal(t->bytes, bytes + file.data_at + 4);
	assert_int_equal(t->n_bytes, 12);
	t = tensor_file_find(&file, "a");
	assert_int_equal(t->n_dims, 0);
	assert_int_equal(t->n_bytes, 4);
	assert_int_equal(tensor_file_find(&file, "c")->dims[7], 3);
	assert_int_equal(tensor_file_find(&file, "odd")->type, TENSOR_OTHER);
	assert_null(tensor_file_find(&file, "d"));
	assert_null(tensor_file_find(&file, "__metadata__"));
	assert_string_equal(tensor_file_metadata(&file, "format"), "pt");
	assert_string_equal(tensor_file_metadata(&file, "x"), "");
	assert_null(tensor_file_metadata(&file, "y"));
	tensor_file_close(&file);
	free(bytes);
}

static void test_empty(void **state)
{
	struct tensor_file file;
	struct fault fault;
	size_t n;
	char *const bytes = make_file("{}", 0, &n);

	(void)state;
	assert_true(tensor_file_open("t", bytes, n, &file, &fault));
	assert_int_equal(file.n_tensors, 0);
	assert_null(tensor_file_find(&file, ""));
	assert_null(tensor_file_metadata(&file, "format"));
	assert_true(tensor_file_check(&file, &fault));
	tensor_file_close(&file);
	free(bytes);
}

static void refuse_length(const char *bytes, size_t n, const char *message)
{
	struct tensor_file file;
	struct fault fault;

	assert_false(tensor_file_open("t", bytes, n, &file, &fault));
	assert_string_equal(fault.text, message);
}

static void test_lengths(void **state)
{
	(void)state;
	refuse_length("", 0, "t: 0 bytes, a header has 8");
	refuse_length("1234567", 7, "t: 7 bytes, a header has 8");
	refuse_length("\x03\0\0\0\0\0\0\0{}", 10,
	              "t: byte 0: the header has 3 bytes, allowed are 0..2");
	refuse_length("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10,
	              "t: byte 0: the header has 18446744073709551615 bytes, "
	              "allowed are 0..2");
	refuse_length("\0\0\0\0\0\0\0\0{}", 10, "t: byte 8: no JSON object");
}

/* The bytes behind are not there: the length is refused first. */
static void test_long_header(void **state)
{
	static const char head[8] = {1, (char)0xe1, (char)0xf5, 5};

	(void)state;
	refuse_length(head, (size_t)1 << 40,
	              "t: byte 0: the header has 100000001 bytes, allowed are "
	              "0..100000000");
}

static void test_refuses_json(void **state)
{
	(void)state;
	refuse("[]", 0, "t: byte 10: no JSON object");
	refuse("{\"a\": ", 0, "t: byte 14: the file ends within its JSON");
	refuse("{} {}", 0, "t: byte 11: the JSON has ended before");
	refuse("{\"a\": 1}", 0, "t: tensor a: no JSON object");
	refuse("{\"__metadata__\": {}, \"__metadata__\": {}}", 0,
	       "t: tensor __metadata__: dtype is missing, allowed is a text");
	refuse("{" TENSOR("a", "U8", "[1]", "[0, 1]") ", " TENSOR(
		       "b", "U8", "[1]", "[1, 2]") ", " TENSOR("a", "U8", "[1]",
	                                                       "[2, 3]") "}",
	       3, "t: tensor a is there twice, allowed is once");
}

static void test_refuses_members(void **state)
{
	(void)state;
	refuse("{\"a\": {\"dtype\": 3}}", 0,
	       "t: tensor a: dtype is 3, allowed is a text");
	refuse("{\"a\": {\"dtype\": \"U8\", \"dtype\": \"I8\"}}", 0,
	       "t: tensor a: dtype is \"I8\", allowed is one");
	refuse("{\"a\": {\"dtype\": \"U8\"}}", 0,
	       "t: tensor a: shape is missing, allowed are 0..8 numbers");
	refuse("{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0, 1]") "}", 1,
	       "t: tensor a: shape is [1,1,1,1,1,1,1,1,1], allowed are 0..8 "
	       "numbers");
	refuse("{" TENSOR("a", "U8", "[-1]", "[0, 1]") "}", 1,
	       "t: tensor a: shape is [-1], allowed are whole numbers");
	refuse("{" TENSOR("a", "U8", "[1.5]", "[0, 1]") "}", 1,
	       "t: tensor a: shape is [1.5], allowed are whole numbers");
	refuse("{" TENSOR("a", "U8", "[\"1\"]", "[0, 1]") "}", 1,
	       "t: tensor a: shape is [\"1\"], allowed are whole numbers");
	refuse("{" TENSOR("a", "F64", "[4503599627370496, 4503599627370496]",
	                  "[0, 1]") "}",
	       1, "t: tensor a: shape is too large");
}

static void refuse_offsets(const char *header, const char *found)
{
	char message[128];

	snprintf(message, sizeof(message),
	         "t: tensor a: data_offsets is %s, allowed are two numbers, "
	         "rising, in 0..4",
	         found);
	refuse(header, 4, message);
}

static void test_refuses_offsets(void **state)
{
	(void)state;
	refuse_offsets("{\"a\": {\"dtype\": \"U8\", \"shape\": [1]}}",
	               "missing");
	refuse_offsets("{" TENSOR("a", "U8", "[1]", "[0]") "}", "[0]");
	refuse_offsets("{" TENSOR("a", "U8", "[1]", "[0, 1, 2]") "}",
	               "[0,1,2]");
	refuse_offsets("{" TENSOR("a", "U8", "[1]", "[-1, 0]") "}", "[-1,0]");
	refuse_offsets("{" TENSOR("a", "U8", "[1]", "[2, 1]") "}", "[2,1]");
	refuse("{" TENSOR("a", "U8", "[1]", "[4, 5]") "}", 4,
	       "t: tensor a: data_offsets is [4,5], but the data end at 4: the "
	       "file is not whole");
	refuse_offsets("{" TENSOR("a", "U8", "[1]", "[0, 1e300]") "}",
	               "[0,1e+300]");
	refuse_offsets("{" TENSOR("a", "U8", "[1]", "{\"0\": 0}") "}",
	               "{\"0\":0}");
	refuse("{" TENSOR("a", "BF16", "[3]", "[0, 4]") "}", 4,
	       "t: tensor a: data_offsets enclose 4 bytes, the shape has 6");
	refuse("{" TENSOR("a", "BF16", "[0]", "[0, 4]") "}", 4,
	       "t: tensor a: data_offsets enclose 4 bytes, the shape has 0");
}

static void check(const char *header, size_t n_data, const char *message)
{
	struct tensor_file file;
	struct fault fault = {{0}};
	size_t n;
	char *const bytes = make_file(header, n_data, &n);

	assert_true(tensor_file_open("t", bytes, n, &file, &fault));
	assert_int_equal(tensor_file_check(&file, &fault), !message[0]);
	assert_string_equal(fault.text, message);
	tensor_file_close(&file);
	free(bytes);
}

static void test_check(void **state)
{
	(void)state;
	check("{" TENSOR("b", "U8", "[2]", "[2, 4]") ", " TENSOR(
		      "a", "U8", "[2]", "[0, 2]") ", " TENSOR("e", "U8", "[0]",
	                                                      "[2, 2]") "}",
	      4, "");
	check("{" TENSOR("a", "U8", "[2]", "[0, 2]") "}", 3,
	      "t: bytes 70..70 belong to no tensor");
	check("{" TENSOR("a", "U8", "[2]", "[1, 3]") "}", 3,
	      "t: bytes 68..68 belong to no tensor");
	check("{" TENSOR("a", "U8", "[2]",
	                 "[0, 2]") ", " TENSOR("b", "U8", "[2]", "[4, 6]") "}",
	      6, "t: bytes 130..131 belong to no tensor");
	check("{" TENSOR("a", "U8", "[2]",
	                 "[0, 2]") ", " TENSOR("b", "U8", "[2]", "[1, 3]") "}",
	      3, "t: tensors a and b overlap at byte 129");
	check("{}", 5, "t: bytes 10..14 belong to no tensor");
}

static void test_check_alignment(void **state)
{
	(void)state;
	check("{" TENSOR("a", "F32", "[1]", "[0, 4]") "}   ", 4, "");
	check("{" TENSOR("a", "F32", "[1]", "[0, 4]") "}     ", 4,
	      "t: tensor a begins at byte 74, expected a multiple of 4 for "
	      "F32");
	check("{" TENSOR("a", "U8", "[1]", "[0, 1]") ", " TENSOR(
		      "b", "BF16", "[1]", "[1, 3]") "}",
	      3,
	      "t: tensor b begins at byte 131, expected a multiple of 2 for "
	      "BF16");
}

enum { N_MANY = 100000 };

static char *make_many(size_t *n)
{
	char *const header = malloc((size_t)N_MANY * 96 + 16);
	char *to = header;

	assert_non_null(header);
	for (int i = 0; i < N_MANY; i++)
		to += sprintf(
			to,
			"%c" TENSOR("model.layers.%d", "U8", "[1]", "[%d, %d]"),
			i ? ',' : '{', i, i, i + 1);
	strcpy(to, "}");
	char *const bytes = make_file(header, N_MANY, n);

	free(header);
	return bytes;
}

/* Would take minutes if every look for a name went through all of them. */
static void test_many(void **state)
{
	struct tensor_file file;
	struct fault fault;
	char name[32];
	size_t n;
	char *const bytes = make_many(&n);

	(void)state;
	assert_true(tensor_file_open("t", bytes, n, &file, &fault));
	assert_true(tensor_file_check(&file, &fault));
	for (int i = 0; i < N_MANY; i++) {
		snprintf(name, sizeof(name), "model.layers.%d", i);
		const struct tensor *const t = tensor_file_find(&file, name);

		assert_ptr_equal(t->bytes, bytes + file.data_at + i);
	}
	tensor_file_close(&file);
	free(bytes);
}

static void test_shape_text(void **state)
{
	const int64_t dims[TENSOR_MAX_DIMS] = {INT64_MIN, INT64_MIN, INT64_MIN,
	                                       INT64_MIN, INT64_MIN, INT64_MIN,
	                                       INT64_MIN, INT64_MIN};
	char text[TENSOR_SHAPE_BYTES];

	(void)state;
	assert_string_equal(tensor_shape_text(dims, 0, text), "[]");
	assert_string_equal(tensor_shape_text((int64_t[]){64, 128}, 2, text),
	                    "[64, 128]");
	assert_int_equal(strlen(tensor_shape_text(dims, TENSOR_MAX_DIMS, text)),
	                 8 * 20 + 7 * 2 + 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_long_header),
		cmocka_unit_test(test_refuses_json),
		cmocka_unit_test(test_refuses_members),
		cmocka_unit_test(test_refuses_offsets),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_check_alignment),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_shape_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
