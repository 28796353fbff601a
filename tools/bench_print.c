/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ferry bench, in the manner of nccl-tests. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_report.h"
#include "build_info.h"
#include "cpu/kernels.h"
#include "machine.h"

static const double MIB = 0x1p20;

static void print_machine(void)
{
	struct machine m;

	machine_read(&m);
	printf("# machine  %s, %s, %d of %d CPUs usable\n", m.host, m.cpu,
	       m.n_usable_cpus, m.n_cpus);
}

void bench_print_header(const struct bench_run *run)
{
	const struct bench_options *o = run->options;
	struct build_info build;

	build_info_read(&build);
	printf("# ferry    %s, commit %s, %s, kernels %s\n", build.version,
	       build.commit, build.compiler, ferry_kernels_at(0)->name);
	print_machine();
	printf("# ranks    %" PRId64 " on fabric %s, bind %s, pages %s\n",
	       o->ranks, run->fabric, bench_bind_names[o->bind],
	       bench_pages_names[o->pages]);
	printf("# shape    hidden %" PRId64 ", top-%" PRId64 " of %" PRId64
	       ", %s, %s, %s, routing %s, seed %" PRId64 "\n",
	       o->hidden, o->topk, o->experts, bench_dtype_names[o->dtype],
	       bench_layout_names[o->layout], bench_combine_names[o->combine],
	       bench_routing_names[o->routing], o->seed);
}

static void print_copy(const struct bench_copy *copy)
{
	printf("# copy     %.2f GB/s read + written, all ranks together, "
	       "blocks of %.0f MiB (",
	       copy->best / 1e9, (double)copy->block_bytes / MIB);
	for (int way = 0; way < BENCH_COPY_WAYS; way++)
		printf("%s%s %.2f", way ? ", " : "", bench_copy_names[way],
		       copy->bytes_per_s[way] / 1e9);
	puts(")");
}

static void print_measured(const struct bench_run *run)
{
	const struct bench_options *o = run->options;

	print_copy(&run->copy);
	puts("# floor_us (every token read once + every arriving row written "
	     "once, dispatch;\n"
	     "#          every expert row read once + every sum written once, "
	     "combine) / copy");
	printf("# window   %.1f MiB of a rank, %.2f of two halves of the rows "
	       "that arrive\n"
	       "#          from peers and one set of those that come back\n",
	       (double)run->window_bytes / MIB,
	       run->least_window_bytes ? (double)run->window_bytes /
	                                         (double)run->least_window_bytes
	                               : 0);
	if (*run->mpi.version)
		printf("# mpi      %s, single copy %s, %.2f GB/s = %.0f %% of "
		       "copy\n",
		       run->mpi.version, run->mpi.single_copy,
		       run->mpi.bytes_per_s / 1e9,
		       100 * run->mpi.bytes_per_s / run->copy.best);
	printf("# times    slowest rank of each of %" PRId64
	       " iterations; medians of %" PRId64 " rounds; bytes of all "
	       "ranks\n",
	       o->iters, o->rounds);
}

static void print_row(const struct bench_run *run,
                      const struct bench_cell *cell, int phase, int impl)
{
	const struct bench_result all =
		bench_merge(cell->rounds[impl], (int)run->options->rounds);
	const struct bench_figure *f = &all.phase[phase];
	const double floor_us =
		(double)cell->bytes.floor[phase] / run->copy.best * 1e6;

	printf("%8d %-9s %-13s %10.1f %10.1f %10.1f %11" PRIu64 " %11" PRIu64
	       " %9.1f %6.1f %7" PRId64 "\n",
	       cell->shape.tokens, bench_phase_names[phase], cell->impls[impl],
	       f->p50_us, f->p99_us, f->max_us, f->wire_bytes,
	       cell->bytes.logical[phase], floor_us,
	       f->p50_us > 0 ? 100 * floor_us / f->p50_us : 0, f->wrong);
}

static int64_t print_cell(const struct bench_run *run,
                          const struct bench_cell *cell)
{
	const int n_rounds = (int)run->options->rounds;
	int64_t wrong = 0;

	for (int phase = 0; phase < BENCH_N_PHASES; phase++)
		for (int impl = 0; impl < cell->n_impls; impl++)
			print_row(run, cell, phase, impl);
	for (int impl = 0; impl < cell->n_impls; impl++)
		wrong += bench_merge(cell->rounds[impl], n_rounds)
		                 .phase[BENCH_PAIR]
		                 .wrong;
	return wrong;
}

static double p50_of(const struct bench_run *run, const struct bench_cell *cell,
                     int impl, int phase)
{
	return bench_merge(cell->rounds[impl], (int)run->options->rounds)
	        .phase[phase]
	        .p50_us;
}

double bench_work_us(const struct bench_run *run, const struct bench_cell *cell,
                     int phase)
{
	if (!cell->work)
		return 0;
	return p50_of(run, cell, cell->work, phase) -
	       p50_of(run, cell, cell->work + 1, phase);
}

double bench_raw_share(const struct bench_run *run,
                       const struct bench_cell *cell, int phase,
                       enum bench_less less)
{
	const double raw = p50_of(run, cell, 1, phase);
	double rest = p50_of(run, cell, 0, phase);

	if (less == BENCH_LESS_WORK && !cell->work)
		return 0;
	if (less == BENCH_LESS_WORK)
		rest -= bench_work_us(run, cell, phase);
	if (less == BENCH_LESS_FLOOR)
		rest -= (double)cell->bytes.floor[phase] / run->copy.best * 1e6;
	return rest > 0 ? raw / rest : 0;
}

/* "# 128 tokens: dispatch 61 %, ... of raw writes' speed, without own work" */
static void print_raw(const struct bench_run *run,
                      const struct bench_cell *cell)
{
	static const char *const without[] = {"", ", without the memory floor",
	                                      ", without own work (wire part)"};
	const int end = cell->work ? BENCH_LESS_WORK : BENCH_LESS_FLOOR;

	for (int less = BENCH_LESS_NOTHING; less <= end; less++) {
		printf("# %d tokens:", cell->shape.tokens);
		for (int p = 0; p < BENCH_N_PHASES; p++)
			printf("%s %s %.0f %%", p ? "," : "",
			       bench_phase_names[p],
			       100 * bench_raw_share(run, cell, p,
			                             (enum bench_less)less));
		printf(" of raw writes' speed%s\n", without[less]);
	}
}

/* "# 128 tokens: pair 2.10 x as fast as mpi, 1.93 x as fast as mpi-dedup" */
static void print_comparison(const struct bench_run *run,
                             const struct bench_cell *cell)
{
	const double own = p50_of(run, cell, 0, BENCH_PAIR);
	const int first = run->options->raw ? 2 : 1;
	const int end = cell->work ? cell->work : cell->n_impls;

	if (run->options->raw)
		print_raw(run, cell);
	if (end <= first)
		return;
	printf("# %d tokens: pair", cell->shape.tokens);
	for (int i = first; i < end; i++)
		printf("%s %.2f x as fast as %s", i > first ? "," : "",
		       p50_of(run, cell, i, BENCH_PAIR) / own, cell->impls[i]);
	putchar('\n');
}

static double share(uint64_t bytes, uint64_t least)
{
	return least ? (double)bytes / (double)least : 0;
}

/* What Ferry sent between hosts, beside one row for each token and host. */
static void print_hosts(const struct bench_run *run,
                        const struct bench_cell *cell)
{
	const struct bench_result all =
		bench_merge(cell->rounds[0], (int)run->options->rounds);

	if (all.n_hosts < 2)
		return;
	printf("# %d tokens: between %d hosts", cell->shape.tokens,
	       all.n_hosts);
	for (int p = BENCH_DISPATCH; p <= BENCH_COMBINE; p++)
		printf(" %s %" PRIu64 " bytes = %.3f of a row per token and "
		       "host,",
		       bench_phase_names[p], all.phase[p].host_bytes,
		       share(all.phase[p].host_bytes, all.least_host_bytes[p]));
	printf(" tables %" PRIu64 "; together %.3f\n", all.table_bytes,
	       share(all.phase[BENCH_PAIR].host_bytes + all.table_bytes,
	             all.least_host_bytes[BENCH_PAIR]));
}

int64_t bench_print(const struct bench_run *run)
{
	int64_t wrong = 0;

	bench_print_header(run);
	print_measured(run);
	printf("#%7s %-9s %-13s %10s %10s %10s %11s %11s %9s %6s %7s\n",
	       "tokens", "phase", "impl", "p50_us", "p99_us", "max_us",
	       "wire_bytes", "logic_bytes", "floor_us", "floor%", "wrong");
	for (int i = 0; i < run->n_cells; i++)
		wrong += print_cell(run, &run->cells[i]);
	for (int i = 0; i < run->n_cells; i++)
		print_comparison(run, &run->cells[i]);
	for (int i = 0; i < run->n_cells; i++)
		print_hosts(run, &run->cells[i]);
	printf("# %" PRId64 " wrong\n", wrong);
	return wrong;
}
