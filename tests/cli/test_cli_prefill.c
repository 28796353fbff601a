/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry prefill as its users see it: a small random model on ranks, what it
 * prints and writes, and what it says of bad input.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_cmocka.h"
#include "program.h"
#include "tiny_model.h"

enum { LINE = 1024, TEXT_BYTES = 4000 };

/* Of all tests: eight experts, top-2, two layers. */
static char *model;

static int make_model(void **state)
{
	const struct tiny_shape shape = TINY_SHAPE_INIT;
	char text[TEXT_BYTES];

	(void)state;
	model = tiny_model_make(&shape);
	for (int i = 0; i < TEXT_BYTES; i++)
		text[i] = "the quick brown fox\n"[i % 20];
	tiny_file_write(model, "fox.txt", text, TEXT_BYTES);
	for (int i = 0; i < TEXT_BYTES; i++)
		text[i] = (char)('0' + i * i % 10 + i % 7);
	tiny_file_write(model, "sum.txt", text, TEXT_BYTES);
	tiny_file_write(model, "empty.txt", "", 0);
	tiny_file_write(model, "one.txt", "a", 1);
	tiny_file_write(model, "latin.txt", "caf\xe9 noir", 9);
	return 0;
}

static int remove_model(void **state)
{
	(void)state;
	tiny_model_remove(model);
	return 0;
}

/* Appends a pattern, in which @ is the model. */
static void expand(char line[LINE], const char *pattern)
{
	size_t n = strlen(line);

	for (; *pattern; pattern++) {
		const size_t more = *pattern == '@' ? strlen(model) : 1;

		assert_true(n + more < LINE);
		memcpy(line + n, *pattern == '@' ? model : pattern, more);
		n += more;
	}
	line[n] = '\0';
}

/* Two texts, and what is small; then the options. */
static void make_line(char line[LINE], const char *options)
{
	line[0] = '\0';
	expand(line, "prefill --model @ --text @/fox.txt @/sum.txt --length 32 "
	             "--batch 4 --steps 3 --ranks 2 ");
	expand(line, options);
}

static struct program prefill(const char *options)
{
	char line[LINE];

	make_line(line, options);
	return program_run(line);
}

static cJSON *prefill_json(const char *options)
{
	char line[LINE];

	make_line(line, options);
	expand(line, " --json");
	return program_json_of(line, "ferry-prefill-1");
}

static const cJSON *at(const cJSON *o, const char *name)
{
	const cJSON *const item = cJSON_GetObjectItemCaseSensitive(o, name);

	if (!item)
		fail_msg("no '%s'", name);
	return item;
}

static void test_tables(void **state)
{
	struct program p = prefill("");

	(void)state;
	if (p.status != 0)
		fail_msg("status %d: %s", p.status, p.err);
	assert_string_equal(p.err, "");
	assert_contains(p.out, ": 2 layers, hidden 32, top-2 of 8 experts");
	assert_contains(p.out, "# ranks    2 processes on fabric shm, experts "
	                       "start even\n");
	assert_contains(p.out, "# text     fox.txt: 384 tokens in 12 "
	                       "sequences, 256 of them counted\n");
	assert_contains(p.out, "# steps    6 (by-text), of up to 4 sequences "
	                       "of up to 32 tokens, warm-up 1\n"
	                       "# bits     hidden states and last logits of "
	                       "each sequence, compared with the first run\n");
	assert_contains(p.out, "\n# off: means over steps");
	assert_contains(p.out, "\n# ferry: means over steps");
	assert_contains(p.out, "\n  sum.txt                  ferry");
	assert_string_equal(p.out + strlen(p.out) - 10, "# 0 wrong\n");
	program_free(&p);
}

static void check_run(const cJSON *run)
{
	assert_true(cJSON_IsTrue(at(run, "bits_equal")));
	assert_true(program_number(run, "sequences_differ") == 0);
	assert_true(program_number(run, "steps") == 5);
	assert_true(program_number(run, "ratio_before") >= 1);
	assert_true(program_number(run, "ratio_after") >= 1);
	assert_true(program_number(run, "total_ms") > 0);
	assert_true(program_number(run, "exposed_us") >= 0);
	/* A random model knows nothing: uniform is log(vocab). */
	assert_true(fabs(program_number(run, "nll_mean") -
	                 log(TINY_MIN_VOCAB)) < 2);
}

/* All policies, against the run without ranks, with spare slots. */
static void check_policies(const char *options)
{
	static const char *const names[] = {
		"off",       "eplb", "freebalance", "ferry", "eplb+freebalance",
		"eplb+ferry"};
	cJSON *const document = prefill_json(options);
	const cJSON *const runs = at(document, "runs");

	assert_true(cJSON_IsTrue(at(document, "bits_equal")));
	assert_int_equal(cJSON_GetArraySize(runs), 6);
	for (int i = 0; i < 6; i++) {
		const cJSON *const run = cJSON_GetArrayItem(runs, i);

		assert_string_equal(program_text(run, "balance"), names[i]);
		check_run(run);
		assert_true(cJSON_IsNull(at(run, "topk_hit")) == (i < 2));
	}
	cJSON_Delete(document);
}

static void test_policies_on_processes(void **state)
{
	(void)state;
	check_policies("--balance all --check --logits all --budget none");
}

static void test_policies_on_threads(void **state)
{
	(void)state;
	check_policies("--balance all --check --logits all --replicas 1 "
	               "--budget none --fabric local --eplb-every 2");
}

static void test_a_deliberately_bad_start(void **state)
{
	cJSON *const even = prefill_json("--balance off --check --threads");
	cJSON *const hot =
		prefill_json("--balance off --start hot --check --threads "
	                     "--calibrate off --margin 1.25");

	(void)state;
	assert_true(program_number(hot, "ratio_before") >
	            program_number(even, "ratio_before"));
	assert_true(cJSON_IsTrue(at(hot, "bits_equal")));
	assert_true(cJSON_IsTrue(at(at(even, "meta"), "calibrate")));
	assert_true(cJSON_IsFalse(at(at(hot, "meta"), "calibrate")));
	assert_true(program_number(at(even, "meta"), "margin") == 0.5);
	assert_true(program_number(at(hot, "meta"), "margin") == 1.25);
	cJSON_Delete(even);
	cJSON_Delete(hot);
}

static void test_orders(void **state)
{
	static const char *const orders[] = {"by-text", "mixed", "blended"};
	static const char *const second[] = {"fox.txt", "sum.txt", "mixed"};

	(void)state;
	for (int i = 0; i < 3; i++) {
		char options[64];

		snprintf(options, sizeof(options),
		         "--balance off --threads --order %s", orders[i]);
		cJSON *const document = prefill_json(options);
		const cJSON *const meta = at(document, "meta");

		assert_string_equal(program_text(meta, "order"), orders[i]);
		assert_string_equal(
			program_text(cJSON_GetArrayItem(at(meta, "steps"), 1),
		                     "text"),
			second[i]);
		/* One run, nothing to compare it with. */
		assert_true(cJSON_IsNull(at(document, "bits_equal")));
		cJSON_Delete(document);
	}
}

/* What is recorded, ferry replay reads, and finds the same ratio. */
static void test_record_and_replay(void **state)
{
	char line[LINE] = "";

	(void)state;
	cJSON *const ours = prefill_json("--warm-up 0 --threads --budget none "
	                                 "--record @/r.safetensors");

	expand(line, "replay --trace @/r.safetensors --ranks 2 --predict file "
	             "--policy fixed,ferry --json");
	cJSON *const theirs = program_json_of(line, "ferry-replay-1");
	const cJSON *const meta = at(theirs, "meta");

	assert_true(program_number(meta, "steps") == 6);
	assert_true(program_number(meta, "experts") == 8);
	if (fabs(program_number(theirs, "ratio_mean") -
	         program_number(ours, "ratio_before")) > 2e-6)
		fail_msg("replay: %f, prefill: %f",
		         program_number(theirs, "ratio_mean"),
		         program_number(ours, "ratio_before"));
	cJSON_Delete(ours);
	cJSON_Delete(theirs);
}

static void test_trace_and_report(void **state)
{
	size_t n;

	(void)state;
	struct program p = prefill("--threads --trace @/t.json --report "
	                           "@/r.html --json @/j.json");

	assert_int_equal(p.status, 0);
	assert_contains(p.out, "# 0 wrong\n");
	program_free(&p);
	char *const trace = tiny_file_read(model, "t.json", &n);
	char *const html = tiny_file_read(model, "r.html", &n);
	char *const json = tiny_file_read(model, "j.json", &n);
	cJSON *const events = cJSON_Parse(trace);

	assert_true(cJSON_GetArraySize(at(events, "traceEvents")) > 100);
	assert_contains(html, "<svg");
	assert_contains(json, "\"ferry-prefill-1\"");
	cJSON_Delete(events);
	free(trace);
	free(html);
	free(json);
}

/* Runs a line and expects its status and message. */
static void complains(const char *pattern, int status, const char *message)
{
	char line[LINE] = "prefill ", wanted[LINE] = "";

	expand(line, pattern);
	expand(wanted, message);
	struct program p = program_run(line);

	if (p.status != status || strcmp(p.err, wanted) != 0)
		fail_msg("%s: status %d: %s", line, p.status, p.err);
	program_free(&p);
}

static void test_bad_options(void **state)
{
	(void)state;
	complains("", 2,
	          "ferry prefill: --model is needed: a checkpoint's folder\n");
	complains("--model @", 2,
	          "ferry prefill: --text is needed: one file or more\n");
	complains("--model @ --text a b --bacth 0", 2,
	          "ferry prefill: unknown option --bacth, did you mean "
	          "--batch?\n");
	complains("--model @ --text a --policy off", 2,
	          "ferry prefill: unknown option --policy, did you mean "
	          "--balance?\n");
	complains("--model @ --text @/fox.txt --batch 0", 2,
	          "ferry prefill: --batch is 0, allowed is 1..1048576\n");
	complains(
		"--model @ --text @/fox.txt --balance off,best", 2,
		"ferry prefill: --balance has 'best', allowed are off, eplb, "
		"freebalance, ferry, eplb+freebalance, eplb+ferry, each once, "
		"or all\n");
	complains(
		"--model @ --text @/fox.txt --budget soon", 2,
		"ferry prefill: --budget is 'soon', allowed is auto, none, or "
		"microseconds 0..1073741824\n");
	complains("--model @ --text @/fox.txt --margin 1000.1", 2,
	          "ferry prefill: --margin is '1000.1', allowed is a number "
	          "0..1000\n");
	complains("--model @ --text @/fox.txt --margin -1", 2,
	          "ferry prefill: --margin is '-1', allowed is a number "
	          "0..1000\n");
	/* As many copies as a plan may have. */
	complains("--model @ --text @/fox.txt --replicas 257", 2,
	          "ferry prefill: --replicas is 257, allowed is 0..256\n");
	complains("--model @ --text @/fox.txt --fabric shn", 2,
	          "ferry prefill: unknown fabric 'shn', did you mean 'shm'?\n");
}

static void test_bad_texts(void **state)
{
	(void)state;
	complains("--model @ --text @/none.txt", 1,
	          "ferry prefill: @/none.txt: No such file or directory\n");
	complains(
		"--model @ --text @", 1,
		"ferry prefill: @: is a directory, allowed are plain files\n");
	complains("--model @ --text @/empty.txt", 1,
	          "ferry prefill: @/empty.txt: empty, a text has at least 2 "
	          "tokens\n");
	complains("--model @ --text @/fox.txt @/one.txt", 1,
	          "ferry prefill: @/one.txt: 1 token, a text has at least "
	          "2\n");
	complains("--model @ --text @/latin.txt", 1,
	          "ferry prefill: @/latin.txt: byte 3 is no UTF-8 (0xe9)\n");
}

static void test_bad_models(void **state)
{
	(void)state;
	complains("--model /nowhere --text @/fox.txt", 1,
	          "ferry prefill: /nowhere: No such file or directory: a model "
	          "is a folder of this machine; nothing is downloaded\n");
	complains("--model @/model.safetensors --text @/fox.txt", 1,
	          "ferry prefill: @/model.safetensors: is no folder: a model "
	          "is the folder with config.json, weights and tokenizer.json "
	          "in it\n");
	complains("--model @ --text @/fox.txt --length 5000", 1,
	          "ferry prefill: --length is 5000, @ has "
	          "max_position_embeddings 4096\n");
	complains("--model @ --text @/fox.txt --ranks 9", 1,
	          "ferry prefill: @ has 8 experts, --ranks is 9, allowed is at "
	          "most one rank an expert\n");
}

/* A tokenizer of a larger model than the weights are of. */
static void test_ids_that_the_model_lacks(void **state)
{
	struct tiny_shape shape = TINY_SHAPE_INIT;
	char *const whole = model;
	size_t n;

	(void)state;
	shape.vocab = 100;
	char *const tokenizer = tiny_file_read(whole, "tokenizer.json", &n);

	model = tiny_model_make(&shape);
	tiny_file_write(model, "tokenizer.json", tokenizer, n);
	tiny_file_write(model, "high.txt", "!!\x01", 3);
	complains(
		"--model @ --text @/high.txt", 1,
		"ferry prefill: @/high.txt: token 2 has id 189, the model has "
		"ids 0..99\n");
	tiny_model_remove(model);
	model = whole;
	free(tokenizer);
}

static void test_files_that_cannot_be_written(void **state)
{
	static const char *const options[] = {"record", "trace", "report",
	                                      "json"};
	char line[64];

	(void)state;
	for (int i = 0; i < 4; i++) {
		snprintf(line, sizeof(line),
		         "--model @ --text @/fox.txt --%s @/no/file",
		         options[i]);
		complains(line, 1,
		          "ferry prefill: cannot write @/no/file: No such file "
		          "or directory\n");
	}
}

static void test_outputs_that_would_be_lost(void **state)
{
	(void)state;
	complains("--model @ --text @/fox.txt --trace @/o --json @/o", 1,
	          "ferry prefill: --trace and --json are the same file, @/o\n");
	complains("--model @ --text @/sum.txt @/fox.txt --report @/fox.txt", 1,
	          "ferry prefill: --report is @/fox.txt, which is read and "
	          "would be lost\n");
	complains("--model @ --text @/fox.txt --json @/config.json", 1,
	          "ferry prefill: --json is @/config.json, which is read and "
	          "would be lost\n");
	complains("--model @ --text @/fox.txt --record @/model.safetensors", 1,
	          "ferry prefill: --record is @/model.safetensors, which is "
	          "read and would be lost\n");
}

static void test_threads_are_on_local(void **state)
{
	struct program p = prefill("--balance off --steps 1 --threads");

	(void)state;
	assert_int_equal(p.status, 0);
	assert_contains(p.out, "# ranks    2 threads on fabric local,");
	program_free(&p);
}

/* A name that is no UTF-8, and that would end a row of the table. */
static void test_names_of_any_bytes(void **state)
{
	char path[LINE] = "";
	const char *words[] = {"ferry", "prefill",   "-m", model,       "-t",
	                       path,    "--threads", "-n", "2",         "-l",
	                       "32",    "-S",        "1",  "--balance", "off",
	                       NULL,    NULL};

	(void)state;
	tiny_file_write(model, "caf\xe9\n.txt", "the quick brown fox", 19);
	expand(path, "@/caf\xe9\n.txt");
	struct program table = program_run_words(words);

	words[15] = "--json";
	struct program json = program_run_words(words);
	cJSON *const document = program_json(&json, "ferry-prefill-1");
	const cJSON *const texts = at(at(document, "meta"), "texts");

	assert_contains(table.out, "# text     caf\xef\xbf\xbd?.txt: ");
	assert_string_equal(program_text(cJSON_GetArrayItem(texts, 0), "text"),
	                    "caf\xef\xbf\xbd?.txt");
	assert_null(strchr(json.out, '\xe9'));
	cJSON_Delete(document);
	program_free(&table);
	program_free(&json);
}

/* Sets the weights of a tensor of model.safetensors, which is fp32. */
static void set_weights(const char *directory, const char *tensor, float value)
{
	size_t n, begin = 0, end = 0;
	char *const file = tiny_file_read(directory, "model.safetensors", &n);
	uint64_t header;

	memcpy(&header, file, sizeof(header));
	const char *const at_name = strstr(file + sizeof(header), tensor);
	const char *const offsets =
		at_name ? strstr(at_name, "\"data_offsets\":[") : NULL;

	if (!offsets ||
	    sscanf(offsets, "\"data_offsets\":[%zu,%zu", &begin, &end) != 2)
		fail_msg("no %s", tensor);
	for (size_t i = begin; i < end; i += sizeof(value))
		memcpy(file + sizeof(header) + header + i, &value,
		       sizeof(value));
	tiny_file_write(directory, "model.safetensors", file, n);
	free(file);
}

static void make_model_of(const char *tensor, float value)
{
	struct tiny_shape shape = TINY_SHAPE_INIT;

	shape.type = LM_F32;
	model = tiny_model_make(&shape);
	set_weights(model, tensor, value);
	tiny_file_write(model, "fox.txt", "the quick brown fox jumps", 25);
	tiny_file_write(model, "sum.txt", "1 + 2 = 3, 4 + 5 = 9, 0", 23);
}

/* Logits of a router whose squares are beyond all floats: still a choice, and
 * no number is none for it. */
static void test_squares_beyond_all_floats(void **state)
{
	char *const usual = model;

	(void)state;
	make_model_of("model.layers.1.mlp.gate.weight", 3e30f);
	cJSON *const document = prefill_json("--check --threads --warm-up 0");

	assert_true(cJSON_IsTrue(at(document, "bits_equal")));
	assert_true(fabs(program_number(document, "logit_cosine")) <= 1);
	cJSON_Delete(document);
	tiny_model_remove(model);
	model = usual;
}

static void fails_with(const char *options, const char *message)
{
	struct program p = prefill(options);

	if (p.status != 1)
		fail_msg("status %d: %s", p.status, p.err);
	assert_contains(p.err, message);
	program_free(&p);
}

/* Not numbers: no run of them is a good one, whatever else is asked. */
static void test_weights_beyond_all_floats(void **state)
{
	static const char router[] = "sequence 0: layer 1, token 0: the "
				     "router's logits are not finite";
	static const char state_of[] = "sequence 0: token 0: hidden states "
				       "after the last layer are not finite";
	char *const usual = model;

	(void)state;
	make_model_of("model.layers.1.mlp.gate.weight", 3e38f);
	fails_with("--check", router);
	fails_with("--logits all --threads --balance off", router);
	tiny_model_remove(model);
	make_model_of("model.layers.1.mlp.experts.0.down_proj.weight", NAN);
	for (int e = 1; e < 8; e++) {
		char name[64];

		snprintf(name, sizeof(name),
		         "model.layers.1.mlp.experts.%d.down_proj.weight", e);
		set_weights(model, name, NAN);
	}
	fails_with("--logits last --threads --balance off", state_of);
	fails_with("--logits last --check --balance off", state_of);
	tiny_model_remove(model);
	model = usual;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_policies_on_processes),
		cmocka_unit_test(test_policies_on_threads),
		cmocka_unit_test(test_a_deliberately_bad_start),
		cmocka_unit_test(test_orders),
		cmocka_unit_test(test_record_and_replay),
		cmocka_unit_test(test_trace_and_report),
		cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_bad_texts),
		cmocka_unit_test(test_bad_models),
		cmocka_unit_test(test_ids_that_the_model_lacks),
		cmocka_unit_test(test_files_that_cannot_be_written),
		cmocka_unit_test(test_outputs_that_would_be_lost),
		cmocka_unit_test(test_threads_are_on_local),
		cmocka_unit_test(test_names_of_any_bytes),
		cmocka_unit_test(test_squares_beyond_all_floats),
		cmocka_unit_test(test_weights_beyond_all_floats),
	};

	return cmocka_run_group_tests(tests, make_model, remove_model);
}
