/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry-bench-mpi, started by `ferry bench --baseline mpi` through mpirun:
 * measures and checks both forms on one shape and leaves JSON for it.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "alloc.h"
#include "bench_options.h"
#include "bench_result.h"
#include "core/clock.h"
#include "json.h"
#include "mpi_rank.h"

static struct bench_received received(const struct mpi_rank *r)
{
	return (struct bench_received){
		.rows = r->rows,
		.row_stride = r->row_bytes,
		.scales = r->scales,
		.scales_stride = r->scale_bytes,
		.counts = r->counts,
		.offsets =
			r->c->layout == FERRY_EXPERT_PADDED ? NULL : r->offsets,
	};
}

/* One operation; wrong[2] may be NULL. Fills y for the iterations to come. */
static void run_step(struct mpi_rank *r, const struct mpi_form *form,
                     const struct bench_case *sums, uint64_t step,
                     int64_t *wrong)
{
	const struct bench_received got = received(r);
	struct bench_arrivals arrivals;

	bench_arrivals_make(&arrivals, r->c, r->rank, step, r->padded_rows);
	bench_make_inputs(r->c, r->rank, step, r->x, r->ids, r->weights);
	for (int64_t i = 0; i < arrivals.n; i++)
		memset(r->rows + (size_t)arrivals.list[i].row * r->row_bytes,
		       0x5a, r->row_bytes);
	memset(r->out, 0x5a, (size_t)r->tokens * r->back_row);
	form->dispatch(r);
	if (wrong)
		wrong[0] += bench_check_received(r->c, step, &arrivals, &got,
		                                 BENCH_WHOLE);
	bench_run_experts(r->c, &arrivals, &got, false, r->y, BENCH_WHOLE);
	form->combine(r);
	if (wrong)
		wrong[1] += bench_check_sums(sums, r->rank, step, r->out,
		                             BENCH_WHOLE);
	bench_arrivals_free(&arrivals);
}

/* As bench_ferry.c does it: no barrier in between. */
static void time_steps(struct mpi_rank *r, const struct mpi_form *form,
                       size_t iters, uint64_t *ns, uint64_t *wire)
{
	for (size_t i = 0; i < iters; i++) {
		const uint64_t start = ferry_now_ns();

		form->dispatch(r);
		const uint64_t middle = ferry_now_ns();

		wire[0] = mpi_sent_bytes(r);
		const uint64_t again = ferry_now_ns();

		form->combine(r);
		const uint64_t end = ferry_now_ns();

		wire[1] = mpi_sent_bytes(r);
		ns[BENCH_DISPATCH * iters + i] = middle - start;
		ns[BENCH_COMBINE * iters + i] = end - again;
		ns[BENCH_PAIR * iters + i] = end - start;
	}
}

static void check_last(struct mpi_rank *r, const struct bench_case *sums,
                       int64_t *wrong)
{
	const struct bench_received got = received(r);
	struct bench_arrivals arrivals;

	bench_arrivals_make(&arrivals, r->c, r->rank, BENCH_TIMED_STEP,
	                    r->padded_rows);
	wrong[0] += bench_check_received(r->c, BENCH_TIMED_STEP, &arrivals,
	                                 &got, BENCH_WHOLE);
	wrong[1] += bench_check_sums(sums, r->rank, BENCH_TIMED_STEP, r->out,
	                             BENCH_WHOLE);
	bench_arrivals_free(&arrivals);
}

/* Rank 0 gets the result of all. */
static void gather(struct mpi_rank *r, size_t iters, const uint64_t *ns,
                   const uint64_t wire[2], const int64_t wrong[2],
                   struct bench_result *result)
{
	const size_t n = BENCH_N_PHASES * iters;
	uint64_t *all = alloc_or_exit(n * (size_t)r->n_ranks, sizeof(*all));
	uint64_t wires[2];
	long long mine[2] = {wrong[0], wrong[1]}, wrongs[2];

	MPI_Gather(ns, (int)n, MPI_UINT64_T, all, (int)n, MPI_UINT64_T, 0,
	           MPI_COMM_WORLD);
	MPI_Reduce(wire, wires, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(mine, wrongs, 2, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	*result = (struct bench_result){0};
	if (r->rank == 0) {
		struct bench_figure *f = result->phase;

		bench_summarize(result, all, r->n_ranks, (int32_t)iters);
		for (int p = 0; p < 2; p++) {
			f[p].wire_bytes = wires[p];
			f[p].wrong = wrongs[p];
			f[BENCH_PAIR].wire_bytes += wires[p];
			f[BENCH_PAIR].wrong += wrongs[p];
		}
	}
	free(all);
}

static void measure(const struct bench_options *o, const struct bench_case *c,
                    const struct mpi_form *form, int32_t number,
                    struct bench_result *result)
{
	const size_t iters = (size_t)o->iters;
	uint64_t *ns = alloc_or_exit(BENCH_N_PHASES * iters, sizeof(*ns));
	struct bench_case sums = *c;
	int64_t wrong[2] = {0};
	uint64_t wire[2];
	struct mpi_rank r;

	if (form == &mpi_rows)
		sums.combine = FERRY_EXACT; /* it has no partial sums */
	mpi_rank_make(&r, c, number);
	run_step(&r, form, &sums, BENCH_CHECKED_STEP, wrong);
	run_step(&r, form, &sums, BENCH_TIMED_STEP, NULL);
	for (int64_t i = 0; i < o->warmup; i++) {
		form->dispatch(&r);
		form->combine(&r);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	time_steps(&r, form, iters, ns, wire);
	check_last(&r, &sums, wrong);
	gather(&r, iters, ns, wire, wrong, result);
	mpi_rank_free(&r);
	free(ns);
}

static void add_result(cJSON *document, const char *name,
                       const struct bench_result *result)
{
	cJSON *phases = cJSON_AddObjectToObject(document, name);

	for (int p = 0; p < BENCH_N_PHASES; p++) {
		const struct bench_figure *f = &result->phase[p];
		cJSON *o =
			cJSON_AddObjectToObject(phases, bench_phase_names[p]);

		json_add_rounded(o, "p50_us", f->p50_us);
		json_add_rounded(o, "p99_us", f->p99_us);
		json_add_rounded(o, "max_us", f->max_us);
		cJSON_AddNumberToObject(o, "wire_bytes", (double)f->wire_bytes);
		cJSON_AddNumberToObject(o, "wrong", (double)f->wrong);
	}
}

static int run(const struct bench_options *o, int32_t number)
{
	const struct mpi_form *const forms[] = {&mpi_rows, &mpi_dedup};
	const struct bench_case c = bench_shape(o, 0);
	cJSON *document = json_document("ferry-bench-mpi-1");
	char version[64], single_copy[32];

	mpi_version(version);
	mpi_single_copy(single_copy);
	cJSON_AddStringToObject(document, "version", version);
	cJSON_AddStringToObject(document, "single_copy", single_copy);
	cJSON_AddNumberToObject(document, "exchange_bytes_per_s",
	                        mpi_exchange_rate());
	for (int i = 0; i < 2; i++) {
		struct bench_result result;

		measure(o, &c, forms[i], number, &result);
		add_result(document, forms[i]->name, &result);
	}
	if (number == 0)
		return json_write(document, o->json ? o->json : "-")
		               ? EXIT_GOOD
		               : EXIT_FAILED;
	cJSON_Delete(document);
	return EXIT_GOOD;
}

int main(int argc, char **argv)
{
	struct bench_options o = {0};
	int first, number, n_ranks;

	/* An mpirun that is killed leaves its ranks spinning. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &number);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	int status = opt_parse(&bench_command, argc, argv, &o, &first);

	o.ranks = n_ranks;
	alloc_use_huge_pages(o.pages == BENCH_PAGES_HUGE);
	if (status == OPT_GO_ON)
		status = run(&o, number);
	MPI_Finalize();
	return status;
}
