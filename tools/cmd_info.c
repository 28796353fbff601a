/* SPDX-License-Identifier: Apache-2.0 */
/* ferry info: what this build is, and what it finds here. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ferry/ferry.h>

#include "build_info.h"
#include "commands.h"
#include "cpu/kernels.h"
#include "cuda/cuda_info.h"
#include "cuda/cuda_link.h"
#include "info_links.h"
#include "info_world.h"
#include "json.h"
#include "machine.h"
#include "opt.h"

struct info_options {
	bool json;
	bool report;
	bool measure;
	bool links;
	bool world;
	struct info_links of_links;
};

#define OF_LINKS(field)                                                        \
	offsetof(struct info_options, of_links) +                              \
		offsetof(struct info_links, field)

static const struct opt options[] = {
	{"json", 0, OPT_FLAG, offsetof(struct info_options, json), NULL, NULL,
         0, 0, NULL, "JSON instead of text"},
	{"report", 0, OPT_FLAG, offsetof(struct info_options, report), NULL,
         NULL, 0, 0, NULL,
         "add the environment variables that are set, for a bug report"},
	{"measure", 0, OPT_FLAG, offsetof(struct info_options, measure), NULL,
         NULL, 0, 0, NULL,
         "measure the links between GPUs; takes half a second for each GPU"},
	{"links", 0, OPT_FLAG, offsetof(struct info_options, links), NULL, NULL,
         0, 0, NULL,
         "instead: start ranks, and measure what a transfer costs between any "
         "two of them, as plans count it"},
	{"world", 0, OPT_FLAG, offsetof(struct info_options, world), NULL, NULL,
         0, 0, NULL,
         "instead: as one of the ranks of a job, tell on which hosts they are "
         "and how they reach each other"},
	{"ranks", 'n', OPT_INT, OF_LINKS(n_ranks), "N", NULL, 1,
         INFO_LINKS_RANKS, NULL, "--links: ranks to start; 2 when not given"},
	{"fabric", 'f', OPT_TEXT, OF_LINKS(fabric), "NAME", NULL, 0, 0, NULL,
         "--links, --world: fabric of the ranks; the best fit when neither "
         "this nor FERRY_FABRIC is given"},
	{"bytes", 'b', OPT_INT, OF_LINKS(max_bytes), "N", NULL, 4096, 1 << 30,
         NULL,
         "--links: largest transfer, in bytes; as large as an expert is; "
         "16m when not given"},
	{"rounds", 'r', OPT_INT, OF_LINKS(rounds), "N", NULL, 1, 1000, NULL,
         "--links: rounds of each size, of which the fastest counts; 10 when "
         "not given"},
	{0},
};

static const struct opt_command command = {
	.name = "ferry info",
	.summary = "version, fabrics and why, CPU, caches, NUMA",
	.options = options,
	.examples = "  ferry info\n"
		    "  ferry info --measure\n"
		    "  ferry info --links --ranks 4 --fabric shm\n"
		    "  ferry run -n 2 -- ferry info --world\n"
		    "  ferry info --report --json > report.json\n",
};

static void print_build(void)
{
	struct build_info build;
	const int v = ferry_version();

	build_info_read(&build);
	printf("ferry     %s\n", build.version);
	printf("commit    %s\n", build.commit);
	printf("API       %d.%d.%d\n", v / 10000, v / 100 % 100, v % 100);
	printf("compiler  %s\n", build.compiler);
	printf("MPI       %s\n", FERRY_MPI_TEXT);
}

static void print_fabrics(void)
{
	struct ferry_fabric_info fabric = FERRY_FABRIC_INFO_INIT;

	puts("\nfabric    score  why");
	for (int i = 0; ferry_fabric_get(i, &fabric); i++)
		printf("%-9s %5d  %s\n", fabric.name, fabric.score,
		       fabric.reason);
}

static void print_gpus(void)
{
	char reason[FERRY_CUDA_REASON_BYTES];
	const int32_t n = ferry_cuda_count(reason);
	struct ferry_cuda_device gpu;

	printf("GPUs      %d: %s\n", n, reason);
	for (int32_t i = 0; i < n && ferry_cuda_device_get(i, &gpu); i++)
		printf("GPU %-4d  %s, %d.%d, %d SMs, %.1f GiB, %s\n", i,
		       gpu.name, gpu.compute_major, gpu.compute_minor,
		       gpu.n_sms, (double)gpu.memory_bytes / 0x1p30, gpu.uuid);
}

/* What lies between two GPUs; measured where that is wanted and possible. */
static void read_link(int32_t from, int32_t to, bool measure,
                      struct ferry_cuda_link *link)
{
	ferry_cuda_link_get(from, to, link);
	if (measure && link->kind != FERRY_LINK_NONE &&
	    ferry_cuda_link_measure(from, to, link) != FERRY_OK)
		fprintf(stderr, "ferry info: GPU %d to GPU %d: %s\n", from, to,
		        ferry_last_error());
}

static const char *link_name(const struct ferry_cuda_link *link)
{
	switch (link->kind) {
	case FERRY_LINK_NVLINK:
		return "NVLink";
	case FERRY_LINK_PCIE:
		return "PCIe";
	case FERRY_LINK_NONE:
		break;
	}
	return "none";
}

static void print_link(int32_t from, int32_t to, bool measure)
{
	struct ferry_cuda_link link;

	read_link(from, to, measure, &link);
	printf("link      GPU %d to %d: %s", from, to, link_name(&link));
	if (link.n_links)
		printf(", %d links", link.n_links);
	if (link.gb_per_s > 0)
		printf(", stores %.0f GB/s", link.gb_per_s);
	if (link.flag_ns > 0)
		printf(", flag there and back %.2f us", link.flag_ns / 1e3);
	putchar('\n');
}

static void print_links(bool measure)
{
	char reason[FERRY_CUDA_REASON_BYTES];
	const int32_t n = ferry_cuda_count(reason);

	for (int32_t from = 0; from < n; from++)
		for (int32_t to = 0; to < n; to++)
			if (from != to)
				print_link(from, to, measure);
}

static void print_kernels(void)
{
	const struct ferry_kernels *table;

	printf("kernels  ");
	for (int i = 0; (table = ferry_kernels_at(i)); i++)
		printf(" %s", table->name);
	putchar('\n');
}

static void print_machine(const struct machine *m)
{
	printf("\nhost      %s\n", m->host);
	printf("system    %s\n", m->system);
	printf("CPU       %s\n", m->cpu);
	printf("          %d package%s, %d cores, %d CPUs, %d usable here\n",
	       m->n_packages, m->n_packages == 1 ? "" : "s", m->n_cores,
	       m->n_cpus, m->n_usable_cpus);
	printf("ISA       %s\n", m->isa);
	print_kernels();
	for (int i = 0; i < m->n_caches; i++)
		printf("L%d        %d x %zu KiB\n", m->caches[i].level,
		       m->caches[i].n, m->caches[i].bytes >> 10);
	printf("memory    %.1f GiB, /dev/shm has %.1f GiB free\n",
	       (double)m->memory_bytes / 0x1p30, (double)m->shm_bytes / 0x1p30);
	for (int i = 0; i < m->n_nodes; i++)
		printf("NUMA %-4d %d CPUs, %.1f GiB\n", m->nodes[i].id,
		       m->nodes[i].n_cpus,
		       (double)m->nodes[i].memory_bytes / 0x1p30);
}

static void print_text(const struct info_options *o)
{
	struct machine machine;
	struct ferry_env env = FERRY_ENV_INIT;

	machine_read(&machine);
	print_build();
	print_fabrics();
	print_machine(&machine);
	print_gpus();
	print_links(o->measure);
	if (!o->report)
		return;
	puts("\nenvironment");
	for (int i = 0; ferry_env_get(i, &env); i++)
		if (env.value)
			printf("%s=%s\n", env.name, env_shown(&env));
}

static cJSON *fabrics_json(void)
{
	struct ferry_fabric_info fabric = FERRY_FABRIC_INFO_INIT;
	cJSON *array = cJSON_CreateArray();

	for (int i = 0; ferry_fabric_get(i, &fabric); i++) {
		cJSON *o = cJSON_CreateObject();

		cJSON_AddStringToObject(o, "name", fabric.name);
		cJSON_AddStringToObject(o, "summary", fabric.summary);
		cJSON_AddNumberToObject(o, "score", fabric.score);
		cJSON_AddStringToObject(o, "reason", fabric.reason);
		cJSON_AddItemToArray(array, o);
	}
	return array;
}

static cJSON *gpus_json(void)
{
	char reason[FERRY_CUDA_REASON_BYTES];
	const int32_t n = ferry_cuda_count(reason);
	struct ferry_cuda_device gpu;
	cJSON *array = cJSON_CreateArray();

	for (int32_t i = 0; i < n && ferry_cuda_device_get(i, &gpu); i++) {
		cJSON *o = cJSON_CreateObject();

		cJSON_AddStringToObject(o, "name", gpu.name);
		cJSON_AddStringToObject(o, "uuid", gpu.uuid);
		cJSON_AddNumberToObject(o, "compute",
		                        gpu.compute_major * 10 +
		                                gpu.compute_minor);
		cJSON_AddNumberToObject(o, "sms", gpu.n_sms);
		cJSON_AddNumberToObject(o, "memory_bytes",
		                        (double)gpu.memory_bytes);
		cJSON_AddItemToArray(array, o);
	}
	return array;
}

static cJSON *link_json(int32_t from, int32_t to, bool measure)
{
	struct ferry_cuda_link link;
	cJSON *o = cJSON_CreateObject();

	read_link(from, to, measure, &link);
	cJSON_AddNumberToObject(o, "from", from);
	cJSON_AddNumberToObject(o, "to", to);
	cJSON_AddStringToObject(o, "kind", link_name(&link));
	if (link.n_links)
		cJSON_AddNumberToObject(o, "n_links", link.n_links);
	if (link.gb_per_s > 0)
		cJSON_AddNumberToObject(o, "store_gb_per_s", link.gb_per_s);
	if (link.flag_ns > 0)
		cJSON_AddNumberToObject(o, "flag_round_trip_us",
		                        link.flag_ns / 1e3);
	return o;
}

static cJSON *links_json(bool measure)
{
	char reason[FERRY_CUDA_REASON_BYTES];
	const int32_t n = ferry_cuda_count(reason);
	cJSON *array = cJSON_CreateArray();

	for (int32_t from = 0; from < n; from++)
		for (int32_t to = 0; to < n; to++)
			if (from != to)
				cJSON_AddItemToArray(
					array, link_json(from, to, measure));
	return array;
}

static cJSON *kernels_json(void)
{
	const struct ferry_kernels *table;
	cJSON *array = cJSON_CreateArray();

	for (int i = 0; (table = ferry_kernels_at(i)); i++)
		cJSON_AddItemToArray(array, cJSON_CreateString(table->name));
	return array;
}

static int print_json(const struct info_options *o)
{
	cJSON *document = json_document("ferry-info-1");
	struct build_info build;
	struct machine machine;
	char reason[FERRY_CUDA_REASON_BYTES];

	build_info_read(&build);
	machine_read(&machine);
	cJSON_AddStringToObject(document, "version", build.version);
	cJSON_AddStringToObject(document, "commit", build.commit);
	cJSON_AddNumberToObject(document, "api", ferry_version());
	cJSON_AddStringToObject(document, "compiler", build.compiler);
	cJSON_AddStringToObject(document, "mpi", FERRY_MPI_TEXT);
	ferry_cuda_count(reason);
	cJSON_AddStringToObject(document, "gpu_reason", reason);
	cJSON_AddItemToObject(document, "gpus", gpus_json());
	cJSON_AddItemToObject(document, "gpu_links", links_json(o->measure));
	cJSON_AddItemToObject(document, "fabrics", fabrics_json());
	cJSON_AddItemToObject(document, "kernels", kernels_json());
	cJSON_AddItemToObject(document, "machine", machine_json(&machine));
	if (o->report)
		cJSON_AddItemToObject(document, "environment", json_env(true));
	return json_write(document, "-") ? EXIT_GOOD : EXIT_FAILED;
}

/* Options of --links without it, and those of the rest beside it. */
static int check_use(const struct info_options *o)
{
	const struct info_links *const l = &o->of_links;
	const char *const lone = l->n_ranks     ? "ranks"
	                         : l->max_bytes ? "bytes"
	                         : l->rounds    ? "rounds"
	                                        : NULL;

	if (o->world && (o->links || o->measure || o->report))
		return opt_complain(&command, "--%s does not go with --world",
		                    o->links     ? "links"
		                    : o->measure ? "measure"
		                                 : "report");
	if (!o->links && !o->world && l->fabric)
		return opt_complain(&command,
		                    "--fabric needs --links or --world");
	if (!o->links && lone)
		return opt_complain(&command, "--%s needs --links", lone);
	if (o->links && (o->measure || o->report))
		return opt_complain(&command, "--%s does not go with --links",
		                    o->measure ? "measure" : "report");
	return OPT_GO_ON;
}

static int print_costs(struct info_options *o)
{
	struct info_links *const l = &o->of_links;

	if (!l->n_ranks)
		l->n_ranks = 2;
	if (!l->max_bytes)
		l->max_bytes = 16 << 20;
	if (!l->rounds)
		l->rounds = 10;
	l->json = o->json;
	return info_links(&command, l);
}

int cmd_info(int argc, char **argv)
{
	struct info_options o = {0};
	int first;
	int status = opt_parse(&command, argc, argv, &o, &first);

	if (status == OPT_GO_ON)
		status = check_use(&o);
	if (status != OPT_GO_ON)
		return status;
	if (o.links)
		return print_costs(&o);
	if (o.world)
		return info_world(o.of_links.fabric, o.json);
	if (o.json)
		return print_json(&o);
	print_text(&o);
	return EXIT_GOOD;
}
