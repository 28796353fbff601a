/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids of texts, for tokenizer_compare.py and for a look by hand:
 *   tokenizer_ids DIRECTORY           texts from stdin, each after a line with
 *                                     its length in bytes; a line for each
 *   tokenizer_ids DIRECTORY FILE...   how many ids, and how fast
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "alloc.h"
#include "lm_tokenizer.h"

/* Of this process: others may be at work. */
static double seconds_since(clock_t start)
{
	return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static void print_ids(const struct lm_tokenizer *tokenizer, const char *text,
                      int64_t n)
{
	struct fault fault;
	int32_t *ids = NULL;
	int64_t n_ids = 0;

	if (!lm_tokenizer_encode(tokenizer, "text", text, n, &ids, &n_ids,
	                         &fault)) {
		printf("! %s\n", fault.text);
		return;
	}
	for (int64_t i = 0; i < n_ids; i++)
		printf(i ? " %d" : "%d", ids[i]);
	printf("\n");
	free(ids);
}

static int print_all(const struct lm_tokenizer *tokenizer)
{
	int64_t n = 0;

	while (scanf("%" SCNd64, &n) == 1) {
		char *const text = alloc_or_exit((size_t)n + 1, 1);

		if (getchar() != '\n' ||
		    fread(text, 1, (size_t)n, stdin) != (size_t)n) {
			fprintf(stderr, "a text ends early\n");
			free(text);
			return EXIT_FAILURE;
		}
		print_ids(tokenizer, text, n);
		free(text);
	}
	return EXIT_SUCCESS;
}

static char *read_file(const char *path, int64_t *n)
{
	FILE *const f = fopen(path, "rb");
	char *text;

	if (!f) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	fseek(f, 0, SEEK_END);
	*n = ftell(f);
	rewind(f);
	text = alloc_or_exit((size_t)*n + 1, 1);
	*n = (int64_t)fread(text, 1, (size_t)*n, f);
	fclose(f);
	return text;
}

static int time_file(const struct lm_tokenizer *tokenizer, const char *path)
{
	struct fault fault;
	int32_t *ids = NULL;
	int64_t n, n_ids = 0;
	char *const text = read_file(path, &n);
	const clock_t start = clock();
	const bool good = lm_tokenizer_encode(tokenizer, path, text, n, &ids,
	                                      &n_ids, &fault);
	const double s = seconds_since(start);

	free(text);
	free(ids);
	if (!good) {
		fprintf(stderr, "%s\n", fault.text);
		return EXIT_FAILURE;
	}
	printf("%s: %" PRId64 " bytes, %" PRId64 " ids, %.4f s, %.1f MB/s\n",
	       path, n, n_ids, s, (double)n / 1e6 / s);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct lm_tokenizer *tokenizer = NULL;
	struct fault fault;
	const clock_t start = clock();
	int status = EXIT_SUCCESS;

	if (argc < 2) {
		fprintf(stderr, "usage: %s DIRECTORY [FILE...]\n", argv[0]);
		return 2;
	}
	if (!lm_tokenizer_open(argv[1], &tokenizer, &fault)) {
		fprintf(stderr, "%s\n", fault.text);
		return EXIT_FAILURE;
	}
	if (argc == 2)
		status = print_all(tokenizer);
	else
		printf("%d tokens, opened in %.3f s\n",
		       lm_tokenizer_vocab(tokenizer), seconds_since(start));
	for (int i = 2; i < argc && !status; i++)
		status = time_file(tokenizer, argv[i]);
	lm_tokenizer_close(tokenizer);
	return status;
}
