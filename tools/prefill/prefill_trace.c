/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline of a run in the form of Chrome's tracing, which Perfetto opens:
 * a process for each rank, with its main thread and the one that plans and
 * moves; and one before them for the steps. Written as it goes: a run may have
 * millions of events.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "../alloc.h"
#include "prefill.h"
#include "prefill_file.h"

enum { MAIN_THREAD, SECOND_THREAD };

static int thread_of(int stage)
{
	return prefill_stage_is_second((enum prefill_stage)stage)
	               ? SECOND_THREAD
	               : MAIN_THREAD;
}

static double us(int64_t ns)
{
	return (double)ns / 1e3;
}

/* A text as JSON, quoted; free() frees it. */
static char *quoted(const char *text)
{
	cJSON *const item = cJSON_CreateString(text);
	char *const json = item ? cJSON_PrintUnformatted(item) : NULL;

	cJSON_Delete(item);
	return json ? json : alloc_or_exit(1, 1);
}

/* Begins a process, behind a comma where one went before it; the order of
 * processes is that of their numbers. */
static void write_process(FILE *f, const char *before, int32_t pid,
                          const char *name)
{
	fprintf(f,
	        "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
	        "\"tid\":0,\"args\":{\"name\":\"%s\"}}"
	        ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,"
	        "\"tid\":0,\"args\":{\"sort_index\":%d}}",
	        before, pid, name, pid, pid);
}

static void write_thread(FILE *f, int32_t pid, int tid, const char *name)
{
	fprintf(f,
	        ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,"
	        "\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
	        pid, tid, name);
}

static void write_names(FILE *f, int32_t n_ranks)
{
	for (int32_t r = 0; r < n_ranks; r++) {
		char name[24];

		snprintf(name, sizeof(name), "rank %d", r);
		write_process(f, r ? "," : "", r, name);
		write_thread(f, r, MAIN_THREAD, "layers");
		write_thread(f, r, SECOND_THREAD, "balancer");
	}
	write_process(f, ",", n_ranks, "steps");
}

static void write_step(FILE *f, const struct prefill_shape *shape,
                       const struct prefill_run *run, int32_t step)
{
	const struct prefill_span *const span = &run->step_spans[step];
	char *const name = quoted(shape->steps[step].name);

	fprintf(f,
	        ",\n{\"name\":%s,\"ph\":\"X\",\"pid\":%d,\"tid\":0,"
	        "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%d,\"tokens\":%d,"
	        "\"warm_up\":%s}}",
	        name, shape->n_ranks, us(span->begin_ns),
	        us(span->end_ns - span->begin_ns), step,
	        shape->steps[step].n_tokens,
	        shape->steps[step].warm_up ? "true" : "false");
	free(name);
}

static void write_cell(FILE *f, const struct prefill_rank_cell *cell,
                       int32_t step, int32_t layer, int32_t rank)
{
	for (int s = 0; s < PREFILL_N_STAGES; s++) {
		const struct prefill_span *const span = &cell->spans[s];

		if (!span->begin_ns && !span->end_ns)
			continue;
		fprintf(f,
		        ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,"
		        "\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
		        "\"step\":%d,\"layer\":%d",
		        prefill_stage_names[s], rank, thread_of(s),
		        us(span->begin_ns), us(span->end_ns - span->begin_ns),
		        step, layer);
		if (s == PREFILL_EXPERTS)
			fprintf(f, ",\"rows\":%" PRId64, cell->tokens);
		fputs("}}", f);
	}
}

static void write_steps(FILE *f, const struct prefill_shape *shape,
                        const struct prefill_run *run)
{
	for (int32_t s = 0; s < shape->n_steps; s++) {
		write_step(f, shape, run, s);
		for (int32_t l = 0; l < shape->n_layers; l++)
			for (int32_t r = 0; r < shape->n_ranks; r++)
				write_cell(f,
				           prefill_rank_cell_at(shape, run, s,
				                                l, r),
				           s, l, r);
	}
}

bool prefill_write_trace(const struct prefill_report *report,
                         const struct prefill_run *run, const char *path)
{
	const struct prefill_shape *const shape = report->job->shape;
	FILE *const f = prefill_file_begin(path);

	if (!f)
		return false;
	char *const model = quoted(shape->model);

	fprintf(f,
	        "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"balance\":\"%s\","
	        "\"model\":%s,\"ranks\":%d},\n\"traceEvents\":[",
	        run->name, model, shape->n_ranks);
	free(model);
	write_names(f, shape->n_ranks);
	write_steps(f, shape, run);
	fputs("\n]}\n", f);
	return prefill_file_end(f, path);
}
