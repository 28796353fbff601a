/* SPDX-License-Identifier: Apache-2.0 */
/* Options of ferry bench; the MPI baseline takes the same, from ferry bench. */
#include "bench_options.h"

#include <inttypes.h>

#include "job.h"

const char *const bench_dtype_names[] = {"bf16", "fp8", "fp8-in", NULL};
const char *const bench_combine_names[] = {"exact", "reduced", "per-host",
                                           NULL};
const char *const bench_layout_names[] = {"padded", "packed", "token", NULL};
const char *const bench_routing_names[] = {"uniform", "zipf", "one", NULL};
const char *const bench_bind_names[] = {"core", "none", NULL};
const char *const bench_pages_names[] = {"system", "huge", NULL};
static const char *const baseline_names[] = {"none", "mpi",     "mpi-tcp",
                                             "nccl", "nvshmem", NULL};
static const char *const device_names[] = {"cpu", "cuda", NULL};
static const char *const path_names[] = {"auto", "lines", "chunks", NULL};
static const char *const figures_names[] = {"none", "targets", "all", NULL};

#define AT(field) offsetof(struct bench_options, field)

static const struct opt options[] = {
	{"ranks", 'n', OPT_INT, AT(ranks), "N", "2", 1, JOB_MAX_RANKS, NULL,
         "ranks to start on this host"},
	{"tokens", 't', OPT_LIST, AT(tokens), "LIST", "128", 0, 1 << 20, NULL,
         "tokens of each rank: 1,128 or 1:4k:x2 or 0:64:+16"},
	{"hidden", 'H', OPT_INT, AT(hidden), "N", "7168", 1, 1 << 20, NULL,
         "elements of a row"},
	{"topk", 'k', OPT_INT, AT(topk), "K", "8", 1, 64, NULL,
         "experts of a token"},
	{"experts", 'e', OPT_INT, AT(experts), "N", "64", 1, 1 << 20, NULL,
         "experts of all ranks"},
	{"dtype", 'd', OPT_CHOICE, AT(dtype), "TYPE", "bf16", 0, 0,
         bench_dtype_names,
         "what experts get; fp8 quantises bf16 to e4m3, a scale for 128; "
         "fp8-in, for cuda: rows and scales as they come"},
	{"combine", 'c', OPT_CHOICE, AT(combine), "MODE", "exact", 0, 0,
         bench_combine_names, "how expert outputs come back"},
	{"layout", 'l', OPT_CHOICE, AT(layout), "LAYOUT", "packed", 0, 0,
         bench_layout_names, "where experts find their rows"},
	{"routing", 'r', OPT_CHOICE, AT(routing), "HOW", "uniform", 0, 0,
         bench_routing_names, "which experts tokens choose"},
	{"fabric", 'f', OPT_TEXT, AT(fabric), "NAME", NULL, 0, 0, NULL,
         "fabric of the world, as ferry info lists them; the best fit when "
         "not given; local: ranks are threads"},
	{"baseline", 'b', OPT_CHOICE, AT(baseline), "WHAT", "none", 0, 0,
         baseline_names,
         "measure the same job done otherwise, in turns; mpi, and mpi-tcp over "
         "TCP only, for CPUs, nccl, and nvshmem with --processes, for GPUs"},
	{"bind", 'B', OPT_CHOICE, AT(bind), "TO", "core", 0, 0,
         bench_bind_names,
         "CPUs of the ranks, of Ferry and of MPI alike; core: one each, where "
         "there are enough"},
	{"pages", 'P', OPT_CHOICE, AT(pages), "KIND", "system", 0, 0,
         bench_pages_names,
         "pages of the arrays, of Ferry, MPI and copy alike; huge: asked for, "
         "which MPI's single copy gains most from"},
	{"iters", 'i', OPT_INT, AT(iters), "N", "40", 1, 1000000, NULL,
         "timed iterations of a round"},
	{"warmup", 'w', OPT_INT, AT(warmup), "N", "5", 0, 1000000, NULL,
         "iterations before them"},
	{"rounds", 'R', OPT_INT, AT(rounds), "N", "3", 1, 1000, NULL,
         "rounds, each with new processes; medians over rounds are shown"},
	{"copy-mib", 0, OPT_INT, AT(copy_mib), "N", "0", 0, 1 << 20, NULL,
         "MiB that each rank copies to measure the bandwidth of floors; 0: its "
         "share of four times the last-level caches"},
	{"seed", 's', OPT_INT, AT(seed), "N", "1", 0, INT64_MAX, NULL,
         "seed of data and routing"},
	{"raw", 0, OPT_FLAG, AT(raw), NULL, NULL, 0, 0, NULL,
         "measure the same rows as bare writes of the fabric, too"},
	{"open", 'o', OPT_FLAG, AT(open), NULL, NULL, 0, 0, NULL,
         "measure opening and closing of world and channel instead"},
	{"json", 'j', OPT_FILE, AT(json), "FILE", NULL, 0, 0, NULL,
         "write JSON too; without FILE to stdout, instead of the table"},
	{"device", 'D', OPT_CHOICE, AT(device), "WHERE", "cpu", 0, 0,
         device_names, "where rows lie and who moves them"},
	{"path", 0, OPT_CHOICE, AT(path), "PATH", "auto", 0, 0, path_names,
         "cuda: how rows travel"},
	{"max-sms", 0, OPT_INT, AT(max_sms), "N", "0", 0, 1024, NULL,
         "cuda: most multiprocessors of a phase; 0: all"},
	{"graph", 0, OPT_FLAG, AT(graph), NULL, NULL, 0, 0, NULL,
         "cuda: operations chained in one CUDA graph, as they are anyway"},
	{"no-graph", 0, OPT_FLAG, AT(no_graph), NULL, NULL, 0, 0, NULL,
         "cuda: launched one by one"},
	{"chain", 0, OPT_INT, AT(chain), "N", "0", 0, 1024, NULL,
         "cuda: operations of a replay; 0: about a millisecond of them"},
	{"limit", 0, OPT_INT, AT(limit), "S", "0", 0, 86400, NULL,
         "cuda: begin no further row after S seconds; 0: no limit"},
	{"sweep", 0, OPT_FLAG, AT(sweep), NULL, NULL, 0, 0, NULL,
         "cuda: tokens 1 to 4096 instead of --tokens"},
	{"split", 0, OPT_INT, AT(split), "US", "0", 0, 1000, NULL,
         "cuda: also what recv adds behind so many us of other work; 0: not"},
	{"presummed", 0, OPT_FLAG, AT(presummed), NULL, NULL, 0, 0, NULL,
         "rows summed by the caller: --layout token --combine reduced"},
	{"threads", 0, OPT_FLAG, AT(threads), NULL, NULL, 0, 0, NULL,
         "cuda: ranks are threads, as they are anyway"},
	{"processes", 0, OPT_FLAG, AT(processes), NULL, NULL, 0, 0, NULL,
         "cuda: ranks are processes"},
	{"figures", 0, OPT_CHOICE, AT(figures), "WHICH", "none", 0, 0,
         figures_names,
         "cuda: all shapes of docs/performance.md, or those with a target, in "
         "one round, beside their targets"},
	{0},
};

const struct opt_command bench_command = {
	.name = "ferry bench",
	.summary = "latency and bandwidth of dispatch and combine",
	.options = options,
	.examples = "  ferry bench --tokens 1,128 --hidden 7168 --topk 8 "
		    "--baseline mpi\n"
		    "  ferry bench --ranks 8 --dtype fp8 --combine reduced "
		    "--json out.json\n"
		    "  ferry bench --device cuda --experts 256 --dtype fp8 "
		    "--baseline nccl\n",
};

bool bench_options_mpi(const struct bench_options *o)
{
	return o->baseline == BENCH_BASELINE_MPI ||
	       o->baseline == BENCH_BASELINE_MPI_TCP;
}

const char *bench_dtype_name(const struct bench_case *c)
{
	return bench_dtype_names[c->ready ? BENCH_DTYPE_FP8_IN
	                         : c->fp8 ? BENCH_DTYPE_FP8
	                                  : BENCH_DTYPE_BF16];
}

struct bench_case bench_shape(const struct bench_options *o, int i)
{
	static const enum ferry_path paths[] = {
		FERRY_PATH_AUTO, FERRY_PATH_LINES, FERRY_PATH_CHUNKS};

	return (struct bench_case){
		.n_ranks = (int32_t)o->ranks,
		.tokens = (int32_t)o->tokens.values[i],
		.hidden = (int32_t)o->hidden,
		.topk = (int32_t)o->topk,
		.experts = (int32_t)o->experts,
		.fp8 = o->dtype != BENCH_DTYPE_BF16,
		.ready = o->dtype == BENCH_DTYPE_FP8_IN,
		.combine = (enum ferry_combine_mode)o->combine,
		.layout = (enum ferry_layout)o->layout,
		.routing = (enum bench_routing)o->routing,
		.seed = (uint64_t)o->seed,
		.device = (enum ferry_device)o->device,
		.path = paths[o->path],
		.max_sms = (int32_t)o->max_sms,
	};
}

/* The name of an option that needs --device cuda; NULL: none is set. */
static const char *cuda_only(const struct bench_options *o)
{
	const struct {
		bool set;
		const char *name;
	} all[] = {
		{o->path, "path"},
		{o->max_sms, "max-sms"},
		{o->graph, "graph"},
		{o->no_graph, "no-graph"},
		{o->chain, "chain"},
		{o->sweep, "sweep"},
		{o->split, "split"},
		{o->limit, "limit"},

		{o->threads, "threads"},
		{o->processes, "processes"},
		{o->figures, "figures"},
		{o->baseline == BENCH_BASELINE_NCCL, "baseline nccl"},
		{o->baseline == BENCH_BASELINE_NVSHMEM, "baseline nvshmem"},
		{o->dtype == BENCH_DTYPE_FP8_IN, "dtype fp8-in"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].set)
			return all[i].name;
	return NULL;
}

static int check_cuda(const struct bench_options *o)
{
	if (o->open)
		return opt_complain(&bench_command,
		                    "--open is for --device cpu");
	if (o->raw)
		return opt_complain(&bench_command,
		                    "--raw is for --device cpu");
	if (bench_options_mpi(o))
		return opt_complain(&bench_command,
		                    "--baseline %s is for --device cpu; nccl "
		                    "and nvshmem are for cuda",
		                    baseline_names[o->baseline]);
	if (o->baseline == BENCH_BASELINE_NVSHMEM && !o->processes)
		return opt_complain(&bench_command,
		                    "--baseline nvshmem needs --processes");
	if (o->graph && o->no_graph)
		return opt_complain(&bench_command,
		                    "--graph and --no-graph exclude each "
		                    "other");
	if (o->threads && o->processes)
		return opt_complain(&bench_command,
		                    "--threads and --processes exclude each "
		                    "other");
	return OPT_GO_ON;
}

int bench_options_check(struct bench_options *o)
{
	const char *name = cuda_only(o);

	if (o->presummed) {
		o->layout = FERRY_TOKEN;
		o->combine = FERRY_REDUCED;
	}
	if (o->topk > o->experts)
		return opt_complain(&bench_command,
		                    "--topk is %" PRId64
		                    ", allowed is at most the %" PRId64
		                    " of --experts",
		                    o->topk, o->experts);
	if (o->combine == FERRY_PER_HOST &&
	    (o->device == FERRY_DEVICE_CUDA || o->raw ||
	     o->baseline != BENCH_BASELINE_NONE))
		return opt_complain(
			&bench_command, "--combine per-host has no %s",
			o->device == FERRY_DEVICE_CUDA ? "--device cuda"
			: o->raw                       ? "--raw"
						       : "--baseline");
	if (o->device == FERRY_DEVICE_CUDA)
		return check_cuda(o);
	if (name)
		return opt_complain(&bench_command, "--%s needs --device cuda",
		                    name);
	if ((o->baseline != BENCH_BASELINE_NONE || o->raw) && o->open)
		return opt_complain(&bench_command, "--open has no --%s",
		                    o->raw ? "raw" : "baseline");
	if (o->raw && o->ranks < 2)
		return opt_complain(&bench_command,
		                    "--raw needs --ranks 2 or more: one rank "
		                    "writes to nobody");
	if (o->baseline != BENCH_BASELINE_NONE && o->layout == FERRY_TOKEN)
		return opt_complain(&bench_command,
		                    "--baseline %s needs --layout packed or "
		                    "padded: MPI delivers no view",
		                    baseline_names[o->baseline]);
	return OPT_GO_ON;
}
