/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives a fuzzer without clang: fuzz_NAME CORPUS [RUNS]. Every file of the
 * corpus is run, then RUNS mutations of random ones. The seed is printed and
 * can be given again in TEST_SEED. The input at work is written to a file that
 * is left behind when the fuzzer crashes.
 */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/bits.h"
#include "core/clock.h"

enum {
	MAX_FILES = 256,
	MAX_BYTES = 8192,
	DEFAULT_RUNS = 5000,
	LIMIT_MS = 8000
};

struct input {
	size_t n;
	uint8_t bytes[MAX_BYTES];
};

static struct input corpus[MAX_FILES];
static int n_files;
static int crash_fd;

static void run(const struct input *input)
{
	/* A copy of the exact size, so that a sanitizer sees each overread. */
	uint8_t *bytes = malloc(input->n + !input->n);

	FUZZ_CHECK(bytes);
	FUZZ_CHECK(!ftruncate(crash_fd, (off_t)input->n));
	FUZZ_CHECK(pwrite(crash_fd, input->bytes, input->n, 0) ==
	           (ssize_t)input->n);
	memcpy(bytes, input->bytes, input->n);
	LLVMFuzzerTestOneInput(bytes, input->n);
	free(bytes);
}

static void read_corpus(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	FUZZ_CHECK(dir);
	while ((entry = readdir(dir)) && n_files < MAX_FILES) {
		char name[512];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		FILE *f = fopen(name, "rb");
		FUZZ_CHECK(f);
		struct input *input = &corpus[n_files++];
		input->n = fread(input->bytes, 1, MAX_BYTES, f);
		fclose(f);
	}
	closedir(dir);
	FUZZ_CHECK(n_files > 0);
}

static size_t below(uint64_t *rng, size_t n)
{
	return n ? (size_t)(rng_next(rng) % n) : 0;
}

/* Puts a piece of another input at a random place, over or between bytes. */
static void insert_piece(uint64_t *rng, struct input *to)
{
	const struct input *from = &corpus[below(rng, (size_t)n_files)];
	const size_t start = below(rng, from->n);
	const size_t n = below(rng, from->n - start + 1);
	const size_t at = below(rng, to->n + 1);

	if (to->n + n > MAX_BYTES)
		return;
	memmove(to->bytes + at + n, to->bytes + at, to->n - at);
	memcpy(to->bytes + at, from->bytes + start, n);
	to->n += n;
}

static void erase(uint64_t *rng, struct input *input)
{
	const size_t at = below(rng, input->n);
	const size_t n = below(rng, input->n - at) % 64;

	memmove(input->bytes + at, input->bytes + at + n, input->n - at - n);
	input->n -= n;
}

static void change(uint64_t *rng, struct input *input)
{
	static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, '=', ';', ','};
	uint8_t *byte = &input->bytes[below(rng, input->n)];

	switch (rng_next(rng) % 4) {
	case 0:
		*byte = odd[below(rng, sizeof(odd))];
		return;
	case 1:
		*byte ^= (uint8_t)(1 << below(rng, 8));
		return;
	case 2:
		*byte = (uint8_t)(*byte + 1 - 2 * (int)below(rng, 2));
		return;
	default:
		*byte = (uint8_t)rng_next(rng);
		return;
	}
}

static void mutate(uint64_t *rng, struct input *input)
{
	const size_t n_changes = 1 + below(rng, 8);

	*input = corpus[below(rng, (size_t)n_files)];
	for (size_t i = 0; i < n_changes; i++) {
		if (below(rng, 5) == 0)
			insert_piece(rng, input);
		else if (input->n && below(rng, 5) == 0)
			erase(rng, input);
		else if (input->n)
			change(rng, input);
	}
}

int main(int argc, char **argv)
{
	static struct input input;
	const char *given = getenv("TEST_SEED");
	uint64_t rng = given ? strtoull(given, NULL, 0) : ferry_now_ns();
	const int n_runs = argc > 2 ? atoi(argv[2]) : DEFAULT_RUNS;
	const uint64_t end_ns = ferry_deadline_ns(LIMIT_MS);
	char crash_path[64];
	int i = 0;

	FUZZ_CHECK(argc >= 2);
	printf("TEST_SEED=%llu\n", (unsigned long long)rng);
	fflush(stdout);
	snprintf(crash_path, sizeof(crash_path), "fuzz-input-%d",
	         (int)getpid());
	crash_fd = open(crash_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	FUZZ_CHECK(crash_fd >= 0);
	read_corpus(argv[1]);
	for (int f = 0; f < n_files; f++)
		run(&corpus[f]);
	for (; i < n_runs && ferry_now_ns() < end_ns; i++) {
		mutate(&rng, &input);
		run(&input);
	}
	close(crash_fd);
	unlink(crash_path);
	printf("%d files and %d mutations passed\n", n_files, i);
	return 0;
}
