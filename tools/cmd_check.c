/* SPDX-License-Identifier: Apache-2.0 */
/* ferry check: the self-test of this machine, fabric by fabric. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferry/fabric.h>

#include "about.h"
#include "alloc.h"
#include "bench_copy.h"
#include "build_info.h"
#include "check.h"
#include "commands.h"
#include "core/clock.h"
#include "fabric_choice.h"
#include "gpu_bench.h"
#include "gpu_check.h"
#include "hosts.h"
#include "job.h"
#include "json.h"
#include "machine.h"

struct check_options {
	int64_t ranks;
	int64_t seconds, seed; /* -1: not given */
	int64_t copy_mib;      /* of bench_copy_run */
	const char *fabric;
	int device; /* enum ferry_device */
	int64_t timeout;
	bool processes, json, hosts, strict;
};

static const char *const device_names[] = {"cpu", "cuda", NULL};

#define AT(field) offsetof(struct check_options, field)

static const struct opt options[] = {
	{"ranks", 'n', OPT_INT, AT(ranks), "N", "2", 1, JOB_MAX_RANKS, NULL,
         "ranks to start"},
	{"fabric", 'f', OPT_TEXT, AT(fabric), "NAME", NULL, 0, 0, NULL,
         "fabric to test, as ferry info lists them, or all that work here; all "
         "when neither this nor FERRY_FABRIC is given"},
	{"seconds", 's', OPT_INT, AT(seconds), "S", NULL, 0, 86400, NULL,
         "seconds of dispatch and combine of random shapes, each fabric; not "
         "with --hosts; default 2"},
	{"seed", 'r', OPT_INT, AT(seed), "N", NULL, 0, INT64_MAX, NULL,
         "seed of shapes and data; 0: a new one; not with --hosts; default 0"},
	{"copy-mib", 0, OPT_INT, AT(copy_mib), "N", "0", 0, 1 << 20, NULL,
         "MiB that each rank copies to measure the machine; 0: its share of "
         "four times the last-level caches; not with --hosts"},
	{"device", 'D', OPT_CHOICE, AT(device), "WHERE", "cpu", 0, 0,
         device_names, "where rows lie; cuda: ranks on GPUs, in turns"},
	{"processes", 0, OPT_FLAG, AT(processes), NULL, NULL, 0, 0, NULL,
         "cuda: ranks are processes, not threads"},
	{"hosts", 'H', OPT_FLAG, AT(hosts), NULL, NULL, 0, 0, NULL,
         "check the job that this process was started in by mpirun, srun, "
         "torchrun or ferry run, over its hosts: who is where, every pair of "
         "ranks, combine; without one, --ranks on this host"},
	{"timeout", 'T', OPT_INT, AT(timeout), "S", "10", 1, 86400, NULL,
         "with --hosts: seconds to wait for a rank before its pair has failed"},
	{"strict", 0, OPT_FLAG, AT(strict), NULL, NULL, 0, 0, NULL,
         "with --hosts: a slow pair is a failure, too"},
	{"json", 'j', OPT_FLAG, AT(json), NULL, NULL, 0, 0, NULL,
         "JSON instead of text"},
	{0},
};

static const struct opt_command command = {
	.name = "ferry check",
	.summary = "self-test of this machine, data verified",
	.options = options,
	.examples = "  ferry check\n"
		    "  ferry check --ranks 8 --fabric shm --seconds 60\n"
		    "  ferry check --device cuda --ranks 4\n"
		    "  srun ferry check --hosts\n",
};

enum { FABRICS_MAX = 16 };

/* One fabric: a result, or why there is none. */
struct check_line {
	char fabric[32];
	char skipped[160];        /* reason; empty: tested */
	bool failed;              /* a rank failed or died */
	struct check_tally tally; /* sums, and rank 0's figures */
};

struct check_run {
	const struct check_options *options;
	struct bench_copy copy;
	int n_lines;
	struct check_line lines[FABRICS_MAX];
};

static void sum_up(struct check_line *line, const struct check_tally *tallies,
                   int64_t n_ranks)
{
	line->tally = tallies[0];
	for (int64_t r = 1; r < n_ranks; r++) {
		line->tally.n_puts += tallies[r].n_puts;
		line->tally.wrong_puts += tallies[r].wrong_puts;
		line->tally.wrong_values += tallies[r].wrong_values;
		line->tally.n_lines += tallies[r].n_lines;
		line->tally.torn_lines += tallies[r].torn_lines;
		line->tally.late_lines += tallies[r].late_lines;
	}
	if (*tallies[0].fabric)
		memcpy(line->fabric, tallies[0].fabric, sizeof(line->fabric));
}

static void test_fabric(struct check_run *run, const struct crew *crew)
{
	const struct check_options *o = run->options;
	const size_t bytes = (size_t)o->ranks * sizeof(struct check_tally);
	struct check_line *line = &run->lines[run->n_lines++];
	struct check_work work = {
		.seed = (uint64_t)o->seed,
		.shapes_ms = o->seconds * 1000,
		.tallies = alloc_shared(bytes),
	};
	crew_body *const body = crew->cuda ? gpu_check_body : check_body;

	snprintf(line->fabric, sizeof(line->fabric), "%s",
	         crew->fabric ? crew->fabric : "auto");
	if (isatty(2))
		fprintf(stderr, "\r\033[Kfabric %s ... ", line->fabric);
	line->failed = crew_run(crew, body, &work) != EXIT_GOOD;
	sum_up(line, work.tallies, o->ranks);
	alloc_shared_free(work.tallies, bytes);
	if (isatty(2))
		fputs("\r\033[K", stderr);
}

/* Why a fabric is left out of those that are all tried; "": it is not. */
static const char *why_not(const struct check_run *run,
                           const struct ferry_fabric_info *fabric)
{
	const char *per_host = getenv("FERRY_RANKS_PER_HOST");
	const long long n = per_host ? strtoll(per_host, NULL, 10) : 0;

	if (fabric->score <= 0)
		return fabric->reason;
	if (!strcmp(fabric->name, "p2p") || !strcmp(fabric->name, "nvshmem"))
		return "for --device cuda";
	if (n > 0 && n < run->options->ranks &&
	    (!strcmp(fabric->name, "local") || !strcmp(fabric->name, "shm")))
		return "for one host, FERRY_RANKS_PER_HOST makes several";
	return "";
}

static void test_all(struct check_run *run, struct crew *crew)
{
	struct ferry_fabric_info fabric = FERRY_FABRIC_INFO_INIT;

	for (int i = 0; i < FABRICS_MAX && ferry_fabric_get(i, &fabric); i++) {
		const char *reason = why_not(run, &fabric);

		if (!reason[0]) {
			fabric_choose(&command, fabric.name, crew);
			test_fabric(run, crew);
			continue;
		}
		struct check_line *line = &run->lines[run->n_lines++];

		snprintf(line->fabric, sizeof(line->fabric), "%s", fabric.name);
		snprintf(line->skipped, sizeof(line->skipped), "%s", reason);
	}
}

static int64_t wrong_of(const struct check_line *line)
{
	return line->tally.wrong_puts + line->tally.wrong_values +
	       line->tally.torn_lines + line->tally.late_lines;
}

static void print_line(const struct check_line *line)
{
	const struct check_tally *t = &line->tally;

	if (*line->skipped) {
		printf("%-10s skipped: %s\n", line->fabric, line->skipped);
		return;
	}
	printf("%-10s %-6s %9" PRId64 " %9" PRId64 " %10.2f %10.2f %9.2f "
	       "%8" PRId64 "\n",
	       line->fabric, line->failed ? "FAILED" : "ok", t->n_puts,
	       t->n_shapes, t->flag_p50_us, t->flag_p99_us,
	       t->put_bytes_per_s / 1e9, wrong_of(line));
	if (t->n_lines)
		printf("# lines    %" PRId64 " polled by another GPU, %" PRId64
		       " torn, %" PRId64 " never came\n",
		       t->n_lines, t->torn_lines, t->late_lines);
}

static void print_head(const struct check_run *run)
{
	about_print();
	printf("# ranks    %" PRId64 ", seed %" PRId64 "\n",
	       run->options->ranks, run->options->seed);
	if (run->copy.best > 0)
		printf("# copy     %.2f GB/s read + written, all ranks "
		       "together\n",
		       run->copy.best / 1e9);
	puts("# puts     blocks of known bytes, verified; shapes: dispatch and "
	     "combine of\n"
	     "#          random shapes, verified; flag: signal to wait, one "
	     "way; put: rate");
	printf("#%-9s %-6s %9s %9s %10s %10s %9s %8s\n", "fabric", "state",
	       "puts", "shapes", "flag_p50us", "flag_p99us", "put_GB/s",
	       "wrong");
}

static cJSON *line_json(const struct check_line *line)
{
	const struct check_tally *t = &line->tally;
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "fabric", line->fabric);
	cJSON_AddStringToObject(o, "state",
	                        *line->skipped ? "skipped"
	                        : line->failed ? "failed"
	                                       : "ok");
	if (*line->skipped) {
		cJSON_AddStringToObject(o, "reason", line->skipped);
		return o;
	}
	cJSON_AddNumberToObject(o, "puts", (double)t->n_puts);
	cJSON_AddNumberToObject(o, "shapes", (double)t->n_shapes);
	json_add_rounded(o, "flag_p50_us", t->flag_p50_us);
	json_add_rounded(o, "flag_p99_us", t->flag_p99_us);
	json_add_rounded(o, "put_bytes_per_s", t->put_bytes_per_s);
	if (t->n_lines) {
		cJSON_AddNumberToObject(o, "lines", (double)t->n_lines);
		cJSON_AddNumberToObject(o, "torn", (double)t->torn_lines);
	}
	cJSON_AddNumberToObject(o, "wrong", (double)wrong_of(line));
	return o;
}

static bool print_json(const struct check_run *run)
{
	cJSON *document = json_document("ferry-check-1");
	cJSON *meta = cJSON_AddObjectToObject(document, "meta");
	struct build_info build;
	struct machine machine;
	cJSON *rows;

	build_info_read(&build);
	machine_read(&machine);
	cJSON_AddStringToObject(meta, "version", build.version);
	cJSON_AddStringToObject(meta, "commit", build.commit);
	cJSON_AddNumberToObject(meta, "ranks", (double)run->options->ranks);
	cJSON_AddNumberToObject(meta, "seed", (double)run->options->seed);
	json_add_rounded(meta, "copy_bytes_per_s", run->copy.best);
	cJSON_AddItemToObject(meta, "machine", machine_json(&machine));
	rows = cJSON_AddArrayToObject(document, "rows");
	for (int i = 0; i < run->n_lines; i++)
		cJSON_AddItemToArray(rows, line_json(&run->lines[i]));
	return json_write(document, "-");
}

static int finish(const struct check_run *run)
{
	int64_t wrong = 0;
	bool failed = false;
	int n_tested = 0;

	for (int i = 0; i < run->n_lines; i++) {
		wrong += wrong_of(&run->lines[i]);
		failed |= run->lines[i].failed;
		n_tested += !*run->lines[i].skipped;
	}
	if (run->options->json) {
		failed |= !print_json(run);
	} else {
		print_head(run);
		for (int i = 0; i < run->n_lines; i++)
			print_line(&run->lines[i]);
		printf("# %" PRId64 " wrong\n", wrong);
	}
	if (failed || wrong)
		return EXIT_FAILED;
	return n_tested ? EXIT_GOOD : EXIT_NOT_HERE;
}

/* Fabrics are not asked: that would use CUDA before ranks are forked. */
static int choose_gpus(const struct check_options *o, struct crew *crew)
{
	struct gpu_facts facts;

	gpu_prepare();
	if (!gpu_facts_read(crew, false, &facts))
		return EXIT_FAILED;
	if (facts.n_devices < 1) {
		opt_complain(&command, "--device cuda: %s", facts.reason);
		return EXIT_NOT_HERE;
	}
	crew->cuda = true;
	crew->fabric = o->fabric;
	crew->threads = !o->processes;
	return OPT_GO_ON;
}

/* In a job one rank of it; otherwise ranks on this host. */
static int check_hosts(const struct check_options *o, struct crew *crew,
                       int argc, char *const *argv)
{
	struct hosts_options hosts = {.strict = o->strict,
	                              .json = o->json,
	                              .argc = argc,
	                              .argv = argv};
	int status;

	if (o->device == FERRY_DEVICE_CUDA)
		return opt_complain(&command,
		                    "--hosts is for --device cpu: hosts check "
		                    "their GPUs each by itself");
	if (o->seconds >= 0 || o->seed >= 0 || o->copy_mib)
		return opt_complain(&command,
		                    "--%s is for shapes of one host, "
		                    "--hosts has its own",
		                    o->seconds >= 0 ? "seconds"
		                    : o->seed >= 0  ? "seed"
		                                    : "copy-mib");
	if (hosts_launched()) {
		crew->fabric = o->fabric;
		crew->timeout_ms = (int32_t)o->timeout * 1000;
		return hosts_check_launched(crew, &hosts);
	}
	status = fabric_choose(&command, o->fabric, crew);
	if (status != OPT_GO_ON)
		return status;
	crew->bind = true;
	crew->timeout_ms = (int32_t)o->timeout * 1000;
	return crew_run(crew, hosts_body, &hosts);
}

int cmd_check(int argc, char **argv)
{
	struct check_options o = {.seconds = -1, .seed = -1};
	struct check_run run = {.options = &o};
	struct crew crew = {.name = command.name};
	int first;
	int status = opt_parse(&command, argc, argv, &o, &first);
	const bool cuda = o.device == FERRY_DEVICE_CUDA;
	const bool all = !cuda && (o.fabric ? !strcmp(o.fabric, "all")
	                                    : !getenv("FERRY_FABRIC"));

	crew.n_ranks = (int32_t)o.ranks;
	if (status == OPT_GO_ON && o.hosts)
		return check_hosts(&o, &crew, argc, argv);
	if (status == OPT_GO_ON && o.strict)
		status = opt_complain(&command, "--strict needs --hosts");
	if (status == OPT_GO_ON && cuda)
		status = choose_gpus(&o, &crew);
	else if (status == OPT_GO_ON && !all)
		status = fabric_choose(&command, o.fabric, &crew);
	if (status != OPT_GO_ON)
		return status;
	if (o.seconds < 0)
		o.seconds = 2;
	if (o.seed <= 0)
		/* JSON writes it in full, digit by digit, up to here. */
		o.seed = (int64_t)(ferry_now_ns() ^ (uint64_t)getpid() << 16) &
		         INT32_MAX;
	if (!cuda && !bench_copy_run(&crew, o.copy_mib, &run.copy))
		return EXIT_FAILED;
	if (all)
		test_all(&run, &crew);
	else
		test_fabric(&run, &crew);
	return finish(&run);
}
