/* SPDX-License-Identifier: Apache-2.0 */
/* Traces and loads: what is read, what is refused, and where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "route_parts.h"

/* A reader, and a text for it. */
typedef bool reader(const struct route_bytes *, const struct route_ask *,
                    struct route *, struct fault *);

static bool read_text(reader *read, const char *text, struct route *route,
                      struct fault *fault)
{
	char *const copy = strdup(text);
	const struct route_bytes in = {"in", copy, strlen(copy)};
	const struct route_ask ask = {0};

	*route = (struct route){0};
	const bool good = read(&in, &ask, route, fault);

	free(copy);
	return good;
}

static void refuse(reader *read, const char *text, const char *message)
{
	struct route route;
	struct fault fault;

	assert_false(read_text(read, text, &route, &fault));
	assert_string_equal(fault.text, message);
	route_close(&route);
}

static void test_table(void **state)
{
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_text(route_read_table,
	                      "# a comment\n"
	                      "set,task,layer,e0,e1\n"
	                      "a,x,0,1,2\na,x,1,3,4\n"
	                      "a,\"y,1\",0,5,6\r\na,\"y,1\",1,7,8\n\n"
	                      "b,x,0,9,10\nb,x,1,11,1099511627776",
	                      &route, &fault));
	assert_int_equal(route.n_steps, 3);
	assert_int_equal(route.n_layers, 2);
	assert_int_equal(route.n_experts, 2);
	assert_int_equal(route_loads(&route, 1, 1)[0], 7);
	assert_int_equal(route_loads(&route, 2, 1)[1], INT64_C(1) << 40);
	assert_string_equal(route.steps[0].name, "a,x");
	assert_int_equal(route.steps[1].group, 0);
	assert_int_equal(route.steps[2].group, 1);
	assert_ptr_equal(route_predicted(&route, 2, 0),
	                 route_loads(&route, 2, 0));
	route_close(&route);
}

static void test_table_refuses(void **state)
{
	(void)state;
	refuse(route_read_table, "a,b\n", "in:1: no column 'layer'");
	refuse(route_read_table, "layer,e0,e2\n",
	       "in:1: column 3 is 'e2', allowed is e1, experts are 0..65535");
	refuse(route_read_table, "layer\n0\n",
	       "in:1: no column 'e0' after 'layer'");
	refuse(route_read_table, "layer,e0,e1\n0,1,x\n",
	       "in:2: column 3 (load) is 'x', allowed is a whole number "
	       "0..1099511627776");
	refuse(route_read_table, "layer,e0\n0,-1\n",
	       "in:2: column 2 (load) is '-1', allowed is a whole number "
	       "0..1099511627776");
	refuse(route_read_table, "layer,e0\n0,1099511627777\n",
	       "in:2: column 2 (load) is '1099511627777', allowed is a whole "
	       "number 0..1099511627776");
	refuse(route_read_table, "layer,e0,e1\n0,1\n",
	       "in:2: the line ends after column 2, column 3 is to be load");
	refuse(route_read_table, "layer,e0\n0,1,2\n",
	       "in:2: column 3 is one too many: '2'");
	refuse(route_read_table, "t,layer,e0\na,0,1\na,2,1\n",
	       "in:3: layer is 2, after the line before it is to be 1");
	refuse(route_read_table, "t,layer,e0\na,0,1\na,1,1\nb,0,1\nc,0,1\n",
	       "in:5: the task before has layers 0..0, the first has 0..1");
	refuse(route_read_table, "t,layer,e0\na,0,1\na,1,1\nb,0,1\n",
	       "in:4: the last task has layers 0..0, the first has 0..1");
	refuse(route_read_table, "layer,e0\n", "in:1: no loads");
}

static void test_rows(void **state)
{
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_text(route_read_rows,
	                      "loads,5,0,3\n1,2,3\nslot_expert,2,-1,0,1\n",
	                      &route, &fault));
	assert_int_equal(route.n_layers, 2);
	assert_int_equal(route.n_experts, 3);
	assert_int_equal(route_loads(&route, 0, 1)[2], 3);
	assert_int_equal(route.n_slots, 4);
	assert_int_equal(route.slot_expert[1], -1);
	route_close(&route);
	refuse(route_read_rows, "1,2\n3\n",
	       "in:2: 1 loads, the first line has 2");
	refuse(route_read_rows, "1,2\nslot_expert,-2\n",
	       "in:2: column 2 (expert of a slot) is '-2', allowed is a whole "
	       "number -1..65535");
	refuse(route_read_rows, "\n# nothing\n", "in:2: no loads");
}

static void test_json(void **state)
{
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_text(route_read_json,
	                      "{\"loads\": [[1, 2], [3, 4]], "
	                      "\"slot_expert\": [1, 0, -1]}",
	                      &route, &fault));
	assert_int_equal(route.n_layers, 2);
	assert_int_equal(route_loads(&route, 0, 1)[0], 3);
	assert_int_equal(route.slot_expert[2], -1);
	route_close(&route);
	refuse(route_read_json, "{\"loads\": [1,",
	       "in: no JSON from byte 12 on");
	refuse(route_read_json, "[1, 2]", "in: no JSON object with \"loads\"");
	refuse(route_read_json, "{\"loads\": [1, -2]}",
	       "in: loads[0][1] is -2, allowed is a whole number "
	       "0..1099511627776");
	refuse(route_read_json, "{\"loads\": [1e30]}",
	       "in: loads[0][0] is 1e+30, allowed is a whole number "
	       "0..1099511627776");
	refuse(route_read_json, "{\"loads\": [1], \"slot_expert\": [\"x\"]}",
	       "in: slot_expert[0] is \"x\", allowed is a whole number "
	       "-1..65535");
	refuse(route_read_json, "{\"loads\": [[1], [2, 3]]}",
	       "in: loads[1] is no array of 1 numbers, as the first is");
	refuse(route_read_json, "{}",
	       "in: loads is to be an array of 1..65536 numbers, or of up to "
	       "4096 such arrays");
}

/* What would be left out without a word. */
static void test_json_is_read_whole(void **state)
{
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_text(route_read_json, "{\"loads\": [1, 2]}\r\n",
	                      &route, &fault));
	route_close(&route);
	refuse(route_read_json, "{\"loads\": [1]}\n{\"loads\": [2]}",
	       "in: byte 15: the JSON has ended before");
	refuse(route_read_json, "{\"loads\": [1], \"loads\": [2]}",
	       "in: \"loads\" is there 2 times, allowed is once");
}

static const char index_text[] = "# ids [tokens][2 layers][2]\n"
				 "set,task,tokens,byte_offset\n"
				 "a,x,2,0\na,y,1,8\nb,z,3,12\n";
static const uint8_t ids[24] = {0, 1, 2, 3, 3, 2, 1, 0, 1, 2, 0, 3,
                                0, 1, 2, 3, 3, 2, 1, 0, 1, 2, 0, 3};

static bool read_bin(const char *text, size_t n_ids,
                     const struct route_ask *ask, struct route *route,
                     struct fault *fault)
{
	char *const copy = strdup(text);
	const struct route_bytes index = {"i.idx.csv", copy, strlen(copy)};
	char bytes[sizeof(ids)];

	memcpy(bytes, ids, sizeof(ids));
	const struct route_bytes bin = {"i.bin", bytes, n_ids};

	*route = (struct route){0};
	const bool good = route_read_bin(&index, &bin, ask, route, fault);

	free(copy);
	return good;
}

static void assert_loads(const struct route *route, int32_t step, int32_t layer,
                         const int64_t *wanted)
{
	for (int32_t e = 0; e < route->n_experts; e++)
		assert_int_equal(route_loads(route, step, layer)[e], wanted[e]);
}

static void test_bin(void **state)
{
	const struct route_ask ask = {0};
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_bin(index_text, 24, &ask, &route, &fault));
	assert_int_equal(route.n_steps, 3);
	assert_int_equal(route.n_layers, 2);
	assert_int_equal(route.n_experts, 4);
	assert_loads(&route, 0, 0, (int64_t[]){1, 1, 1, 1});
	assert_loads(&route, 1, 0, (int64_t[]){0, 1, 1, 0});
	assert_loads(&route, 2, 1, (int64_t[]){2, 1, 1, 2});
	route_close(&route);
}

/* Tasks of 2, 1 and 3 tokens in steps of 2; mixed, tasks take turns. */
static void test_steps(void **state)
{
	const struct route_ask ask = {.step_tokens = 2};
	static const int32_t turns[] = {0, 1, 2, 2};
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_bin(index_text, 24, &ask, &route, &fault));
	assert_int_equal(route.n_steps, 4);
	assert_loads(&route, 3, 0, (int64_t[]){0, 1, 1, 0});
	assert_true(route_mix(&route, &fault));
	for (int32_t s = 0; s < 4; s++)
		assert_int_equal(route.steps[s].task, turns[s]);
	route_close(&route);
	/* Whole tasks: sets take turns, a, b, a. */
	const struct route_ask whole = {0};

	assert_true(read_bin(index_text, 24, &whole, &route, &fault));
	assert_true(route_mix(&route, &fault));
	assert_string_equal(route.steps[1].name, "b,z");
	assert_string_equal(route.steps[2].name, "a,y");
	assert_loads(&route, 2, 0, (int64_t[]){0, 1, 1, 0});
	route_close(&route);
}

static void test_bin_refuses(void **state)
{
	struct route_ask ask = {0};
	struct route route;
	struct fault fault;

	(void)state;
	assert_false(read_bin(index_text, 23, &ask, &route, &fault));
	assert_string_equal(fault.text,
	                    "i.bin: 23 bytes are no whole number for each of "
	                    "the 6 tokens of i.idx.csv");
	assert_false(read_bin("tokens\n2\n", 24, &ask, &route, &fault));
	assert_string_equal(fault.text, "i.idx.csv:1: the header is to have "
	                                "the columns tokens and byte_offset");
	assert_false(read_bin("tokens,byte_offset\n2,0\n4,7\n", 24, &ask,
	                      &route, &fault));
	assert_string_equal(fault.text,
	                    "i.idx.csv: byte_offset of task 1 is 7, allowed is "
	                    "8: 4 bytes a token");
	assert_false(read_bin("tokens,byte_offset\n6,0\n", 24, &ask, &route,
	                      &fault));
	assert_non_null(strstr(fault.text, "4 bytes a token, 0 layers"));
	ask.n_experts = 3;
	assert_false(read_bin(index_text, 24, &ask, &route, &fault));
	assert_string_equal(fault.text, "i.bin: id of token 0, layer 1, choice "
	                                "1 is 3, allowed are -1..2");
}

/* A safetensors file out of a header and its bytes. */
static bool read_tensors(const char *header, const void *data, size_t n_data,
                         struct route *route, struct fault *fault)
{
	const uint64_t n = strlen(header);
	char bytes[2048];
	const struct route_bytes in = {"t", bytes, 8 + (size_t)n + n_data};
	const struct route_ask ask = {0};

	assert_true(in.n <= sizeof(bytes));
	memcpy(bytes, &n, 8);
	memcpy(bytes + 8, header, (size_t)n);
	memcpy(bytes + 8 + n, data, n_data);
	*route = (struct route){0};
	return route_read_tensors(&in, &ask, route, fault);
}

static void test_tensors(void **state)
{
	static const int16_t data[] = {0, 1, 2, -1, 3, 3, 5, 6,
	                               7, 7, 7, 7,  0, 0, 1, 0};
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_tensors(
		"{\"__metadata__\": {\"n_experts\": \"8\"},"
		"\"topk_ids\": {\"dtype\": \"I16\", \"shape\": [3, 1, 2], "
		"\"data_offsets\": [0, 12]},"
		"\"predicted_ids\": {\"dtype\": \"I16\", \"shape\": [3, 1, 2], "
		"\"data_offsets\": [12, 24]},"
		"\"step_starts\": {\"dtype\": \"I32\", \"shape\": [2], "
		"\"data_offsets\": [24, 32]}}",
		data, sizeof(data), &route, &fault));
	assert_int_equal(route.n_steps, 2);
	assert_int_equal(route.n_experts, 8);
	assert_loads(&route, 0, 0, (int64_t[]){1, 1, 0, 0, 0, 0, 0, 0});
	assert_loads(&route, 1, 0, (int64_t[]){0, 0, 1, 2, 0, 0, 0, 0});
	assert_int_equal(route_predicted(&route, 0, 0)[6], 1);
	assert_int_equal(route_predicted(&route, 1, 0)[7], 4);
	route_close(&route);
}

static void test_tensors_of_loads(void **state)
{
	static const int32_t data[] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct route route;
	struct fault fault;

	(void)state;
	assert_true(read_tensors("{\"loads\": {\"dtype\": \"I32\", \"shape\": "
	                         "[2, 2, 2], \"data_offsets\": [0, 32]}}",
	                         data, sizeof(data), &route, &fault));
	assert_int_equal(route.n_steps, 2);
	assert_loads(&route, 1, 0, (int64_t[]){5, 6});
	assert_string_equal(route.steps[1].name, "step 1");
	route_close(&route);
}

static void refuse_tensors(const char *header, const char *message)
{
	static const uint8_t data[8] = {0, 1, 2, 3, 4, 0, 1, 1};
	struct route route;
	struct fault fault;

	assert_false(read_tensors(header, data, sizeof(data), &route, &fault));
	assert_string_equal(fault.text, message);
	route_close(&route);
}

#define TENSOR(name, dtype, shape, offsets)                                    \
	"\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": " shape           \
	", \"data_offsets\": " offsets "}"

static void test_tensors_refuses(void **state)
{
	(void)state;
	refuse_tensors("{}", "t: no tensor topk_ids, and no tensor loads");
	refuse_tensors("{\"topk_ids\"",
	               "t: byte 19: the file ends within its JSON");
	refuse_tensors("{" TENSOR("topk_ids", "F32", "[2, 1, 1]", "[0, 8]") "}",
	               "t: tensor topk_ids: dtype is not one of U8, I8, U16, "
	               "I16, U32, I32, I64");
	refuse_tensors(
		"{" TENSOR("topk_ids", "U8", "[2, 2, 2]", "[0, 9]") "}",
		"t: tensor topk_ids: data_offsets is [0,9], but the data end "
		"at 8: the file is not whole");
	refuse_tensors("{" TENSOR("topk_ids", "U8", "[2, 2, 1]", "[0, 8]") "}",
	               "t: tensor topk_ids: data_offsets enclose 8 bytes, the "
	               "shape has 4");
	refuse_tensors("{" TENSOR("topk_ids", "U8", "[0, 2, 1]", "[0, 0]") "}",
	               "t: tensor topk_ids: a number of shape is not "
	               "1..2147483647");
	refuse_tensors("{" TENSOR("topk_ids", "U8", "[2, 4]", "[0, 8]") "}",
	               "t: tensor topk_ids: shape is to be [tokens, 1..4096 "
	               "layers, 1..64 choices]");
	refuse_tensors(
		"{" TENSOR("topk_ids", "U8", "[4, 1, 1]", "[0, 4]") ", " TENSOR(
			"predicted_ids", "U8", "[2, 1, 2]", "[4, 8]") "}",
		"t: tensor predicted_ids: its shape differs");
	refuse_tensors(
		"{" TENSOR("topk_ids", "U8", "[4, 1, 1]", "[0, 4]") ", " TENSOR(
			"step_starts", "U8", "[3]", "[5, 8]") "}",
		"t: step_starts[2] is 1, allowed are rising numbers from "
		"0 below the 4 tokens");
	refuse_tensors("{\"__metadata__\": {\"n_experts\": \"x\"}, " TENSOR(
			       "topk_ids", "U8", "[2, 2, 2]", "[0, 8]") "}",
	               "t: n_experts of __metadata__ is 'x', allowed is a text "
	               "of a number 1..65536");
	refuse_tensors("{\"__metadata__\": {\"n_experts\": \"3\"}, " TENSOR(
			       "topk_ids", "U8", "[2, 2, 2]", "[0, 8]") "}",
	               "t: id of token 0, layer 1, choice 1 is 3, allowed are "
	               "-1..2");
}

static void test_open_refuses(void **state)
{
	const struct route_ask ask = {0};
	struct route route;
	struct fault fault;

	(void)state;
	assert_false(route_open("/nowhere/x.csv", &ask, &route, &fault));
	assert_string_equal(fault.text,
	                    "/nowhere/x.csv: No such file or directory");
	assert_false(route_open("/nowhere/x.bin", &ask, &route, &fault));
	assert_string_equal(fault.text,
	                    "/nowhere/x.idx.csv: No such file or directory");
	assert_false(route_open("/dev/null", &ask, &route, &fault));
	assert_string_equal(fault.text,
	                    "/dev/null: is a device, allowed are plain files");
	assert_false(route_open("/proc/self/exe", &ask, &route, &fault));
	assert_non_null(strstr(fault.text, "no safetensors, and other forms"));
}

/* Opening a pipe that nobody writes into would wait for ever. */
static void test_open_waits_for_nothing(void **state)
{
	const struct route_ask ask = {0};
	char folder[] = "/tmp/test-cli-XXXXXX";
	char path[64];
	struct route route;
	struct fault fault;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/x.csv", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_false(route_open(path, &ask, &route, &fault));
	assert_non_null(strstr(fault.text,
	                       "x.csv: is a pipe, allowed are plain files"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_false(route_open(path, &ask, &route, &fault));
	assert_non_null(strstr(fault.text, "x.csv: is a directory"));
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void test_too_large(void **state)
{
	const struct route_ask ask = {.max_cells = 3};
	struct route route = {0};
	struct fault fault;
	char text[] = "1,2\n3,4\n";
	const struct route_bytes in = {"in", text, sizeof(text) - 1};

	(void)state;
	assert_false(route_read_rows(&in, &ask, &route, &fault));
	assert_string_equal(fault.text, "in: 1 steps of 2 layers of 2 experts, "
	                                "allowed are 3 of all together");
	route_close(&route);
}

static void need_data(void)
{
	if (access(FERRY_SHARED_DATA "/eplb_maps", R_OK) == 0)
		return;
	print_message("no %s\n", FERRY_SHARED_DATA);
	skip();
}

static void test_given_traces(void **state)
{
	const struct route_ask ask = {0};
	struct route route;
	struct fault fault;

	(void)state;
	need_data();
	assert_true(route_open(FERRY_SHARED_DATA
	                       "/gptoss20b_expert_freq_by_task.csv",
	                       &ask, &route, &fault));
	assert_int_equal(route.n_steps, 86);
	assert_int_equal(route.n_layers, 24);
	assert_int_equal(route.n_experts, 32);
	assert_int_equal(route_loads(&route, 0, 0)[11], 4949);
	route_close(&route);
	assert_true(route_open(FERRY_SHARED_DATA "/gptoss20b_token_trace.bin",
	                       &ask, &route, &fault));
	assert_int_equal(route.n_steps, 43);
	assert_int_equal(route.n_experts, 32);
	route_close(&route);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_table_refuses),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_is_read_whole),
		cmocka_unit_test(test_bin),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_bin_refuses),
		cmocka_unit_test(test_tensors),
		cmocka_unit_test(test_tensors_of_loads),
		cmocka_unit_test(test_tensors_refuses),
		cmocka_unit_test(test_open_refuses),
		cmocka_unit_test(test_open_waits_for_nothing),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_given_traces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
