/* SPDX-License-Identifier: Apache-2.0 */
/* Starts mpirun on the baseline program and reads its JSON. */
#include "bench_baseline.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* As the program calls its results. */
static const char *const forms[2] = {"mpi", "mpi-dedup"};

const char *const *bench_baseline_impls(const struct bench_options *o)
{
	static const char *const tcp[2] = {"mpi-tcp", "mpi-tcp-dedup"};

	return o->baseline == BENCH_BASELINE_MPI_TCP ? tcp : forms;
}

enum { PATH_BYTES = PATH_MAX + 64, WORDS_MAX = 64 };

/* Beside this program, as built, or in libexec, as installed. */
static bool find_program(char path[PATH_BYTES])
{
	static const char *const places[] = {
		"ferry-bench-mpi", FERRY_LIBEXEC_PATH "/ferry-bench-mpi"};
	char self[PATH_MAX];
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return false;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(path, PATH_BYTES, "%s/%s", self, places[i]);
		if (!access(path, X_OK))
			return true;
	}
	return false;
}

static bool on_path(const char *program)
{
	const char *dirs = getenv("PATH");
	char path[PATH_BYTES];

	while (dirs && *dirs) {
		const size_t n = strcspn(dirs, ":");

		snprintf(path, sizeof(path), "%.*s/%s", (int)n, dirs, program);
		if (!access(path, X_OK))
			return true;
		dirs += n + (dirs[n] == ':');
	}
	return false;
}

const char *bench_baseline_missing(void)
{
	char path[PATH_BYTES];

	if (!find_program(path))
		return "ferry-bench-mpi is not there: this build has no MPI "
		       "baseline";
	if (!on_path("mpirun"))
		return "mpirun is not on the PATH: install openmpi-bin";
	return NULL;
}

/* Runs words[0]; its stdout goes to our stderr. Its exit status. */
static int run_program(char *const *words)
{
	const pid_t parent = getpid();
	int status;
	const pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(EXIT_FAILED);
		dup2(2, 1);
		execvp(words[0], words);
		_exit(127);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0)
		return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A command line that grows by words and by options with numbers. */
struct words {
	int n;
	char *word[WORDS_MAX];
};

__attribute__((format(printf, 2, 3))) static void add(struct words *w,
                                                      const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (w->n == WORDS_MAX - 1 || vasprintf(&w->word[w->n], fmt, args) < 0)
		abort();
	w->n++;
	va_end(args);
}

static void add_parameter(struct words *w, const char *name, const char *value)
{
	add(w, "--mca");
	add(w, "%s", name);
	add(w, "%s", value);
}

/* Without an order mpirun binds to cores where there are enough. */
static void add_launcher(struct words *w, const struct bench_options *o,
                         int32_t n_ranks)
{
	add(w, "mpirun");
	add(w, "-n");
	add(w, "%d", n_ranks);
	add(w, "--oversubscribe");
	if (geteuid() == 0)
		add(w, "--allow-run-as-root");
	if (o->bind == BENCH_BIND_NONE) {
		add(w, "--bind-to");
		add(w, "none");
	}
	add_parameter(w, "btl_base_warn_component_unused", "0");
	if (o->baseline != BENCH_BASELINE_MPI_TCP)
		return;
	add_parameter(w, "pml", "ob1");
	add_parameter(w, "btl", "tcp,self");
	/* Which Open MPI leaves out otherwise; the ranks are on this host. */
	add_parameter(w, "btl_tcp_if_include", "lo");
}

static void add_shape(struct words *w, const struct bench_options *o,
                      const struct bench_case *c)
{
	add(w, "--ranks=%d", c->n_ranks);
	add(w, "--tokens=%d", c->tokens);
	add(w, "--hidden=%d", c->hidden);
	add(w, "--topk=%d", c->topk);
	add(w, "--experts=%d", c->experts);
	add(w, "--dtype=%s", bench_dtype_names[o->dtype]);
	add(w, "--combine=%s", bench_combine_names[o->combine]);
	add(w, "--layout=%s", bench_layout_names[o->layout]);
	add(w, "--routing=%s", bench_routing_names[o->routing]);
	add(w, "--pages=%s", bench_pages_names[o->pages]);
	add(w, "--iters=%" PRId64, o->iters);
	add(w, "--warmup=%" PRId64, o->warmup);
	add(w, "--seed=%" PRId64, o->seed);
}

static double number(const cJSON *object, const char *name)
{
	const cJSON *item = cJSON_GetObjectItem(object, name);

	return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static void text(const cJSON *object, const char *name, char *to, size_t bytes)
{
	const cJSON *item = cJSON_GetObjectItem(object, name);

	snprintf(to, bytes, "%s",
	         cJSON_IsString(item) ? item->valuestring : "");
}

static bool read_result(const cJSON *document, const char *impl,
                        struct bench_result *result)
{
	const cJSON *phases = cJSON_GetObjectItem(document, impl);

	for (int p = 0; p < BENCH_N_PHASES; p++) {
		const cJSON *o =
			cJSON_GetObjectItem(phases, bench_phase_names[p]);

		if (!o)
			return false;
		result->phase[p] = (struct bench_figure){
			.p50_us = number(o, "p50_us"),
			.p99_us = number(o, "p99_us"),
			.max_us = number(o, "max_us"),
			.wire_bytes = (uint64_t)number(o, "wire_bytes"),
			.wrong = (int64_t)number(o, "wrong"),
		};
	}
	return true;
}

static bool read_document(const char *json, struct bench_mpi_facts *facts,
                          struct bench_result results[2])
{
	cJSON *document = cJSON_Parse(json);
	bool good = document;

	for (int i = 0; i < 2; i++)
		good = good && read_result(document, forms[i], &results[i]);
	text(document, "version", facts->version, sizeof(facts->version));
	text(document, "single_copy", facts->single_copy,
	     sizeof(facts->single_copy));
	const double rate = number(document, "exchange_bytes_per_s");

	facts->bytes_per_s =
		rate > facts->bytes_per_s ? rate : facts->bytes_per_s;
	cJSON_Delete(document);
	return good;
}

/* The whole of a memfd as text; NULL when it is empty. */
static char *read_all(int fd)
{
	struct stat s;
	char *all;

	if (fstat(fd, &s) || s.st_size == 0 ||
	    !(all = calloc(1, (size_t)s.st_size + 1)))
		return NULL;
	if (pread(fd, all, (size_t)s.st_size, 0) == s.st_size)
		return all;
	free(all);
	return NULL;
}

bool bench_baseline_run(const struct bench_options *o,
                        const struct bench_case *c,
                        struct bench_mpi_facts *facts,
                        struct bench_result results[2])
{
	/* The program opens it by our /proc entry: no file to clean up. */
	const int fd = memfd_create("ferry-bench-mpi", MFD_CLOEXEC);
	char program[PATH_BYTES];
	struct words w = {0};

	if (fd < 0 || !find_program(program))
		return false;
	add_launcher(&w, o, c->n_ranks);
	add(&w, "%s", program);
	add_shape(&w, o, c);
	add(&w, "--json=/proc/%d/fd/%d", (int)getpid(), fd);
	const int status = run_program(w.word);
	char *json = status == 0 ? read_all(fd) : NULL;
	const bool good = json && read_document(json, facts, results);

	if (o->baseline == BENCH_BASELINE_MPI_TCP)
		snprintf(facts->single_copy, sizeof(facts->single_copy),
		         "none, TCP over lo");

	if (!good)
		fprintf(stderr, "ferry bench: mpirun %s\n",
		        status ? "failed" : "left no figures");
	while (w.n > 0)
		free(w.word[--w.n]);
	free(json);
	close(fd);
	return good;
}
