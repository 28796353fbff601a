/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives one rank of a channel: the calls. Inputs of dispatch on a GPU are in
 * drive_in.c, its outputs and their comparison in drive_out.c, combine in
 * drive_combine.c.
 */
#include "drive_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "fabric/place.h"
#include "run_args.h"

void *drive_allocate(size_t bytes)
{
	void *p = malloc(bytes + 1);

	if (p == NULL)
		RANKS_FAIL("out of memory: %zu bytes", bytes);
	return p;
}

/* Channels that a body has open, the newest first. */
struct open_list {
	struct drive *first;
};

static thread_local struct open_list *my_list;

/* Called by another thread where the rank's own has died. */
static void close_all(void *arg)
{
	struct open_list *list = arg;

	while (list->first != NULL)
		drive_close(list->first);
	free(list);
	my_list = NULL;
}

static struct open_list *list_of_body(void)
{
	if (my_list != NULL)
		return my_list;
	my_list = calloc(1, sizeof(*my_list));
	if (my_list == NULL)
		RANKS_FAIL("out of memory");
	ranks_defer(close_all, my_list);
	return my_list;
}

void drive_close(struct drive *d)
{
	struct drive **at = &d->list->first;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	ferry_moe_close(d->moe);
	d->moe = NULL;
	while (d->ops != NULL)
		drive_end(d->ops);
	ferry_placement_destroy(d->placement);
	free(d);
}

static int32_t host_of(const struct ferry_world *world, int32_t rank)
{
	int32_t first = 0;

	while (!ferry_place_same_host(&world->places[first],
	                              &world->places[rank]))
		first++;
	return first;
}

static struct drive *drive_new(const struct rank *rank,
                               const struct ferry_moe_config *config)
{
	struct drive *d = calloc(1, sizeof(*d));

	if (d == NULL)
		RANKS_FAIL("out of memory");
	/* The memory must outlast the list: what comes first ends last. */
	d->memory = rank_memory_of(rank, run_args.streams);
	d->list = list_of_body();
	d->next = d->list->first;
	d->list->first = d;
	d->rank = rank->rank;
	d->fused = run_args.fused;
	d->config = *config;
	d->config.n_ranks = rank->n_ranks;
	d->config.device = ferry_world_device(rank->world);
	if (d->memory->is_device && config->path == FERRY_PATH_AUTO)
		d->config.path = run_args.path;
	d->need = (struct ferry_moe_need)FERRY_MOE_NEED_INIT;
	for (int32_t r = 0; r < rank->n_ranks; r++)
		d->host[r] = host_of(rank->world, r);
	d->group = d->rank;
	if (config->group_size > 1)
		d->group -= d->rank % config->group_size;
	return d;
}

struct drive *drive_open(struct rank *rank,
                         const struct ferry_moe_config *config,
                         const struct ferry_placement_config *placement)
{
	struct drive *d = drive_new(rank, config);

	RANKS_OK(ferry_moe_query(&d->config, &d->need));
	d->placement_config = placement;
	if (placement != NULL)
		RANKS_OK(ferry_placement_create(placement, &d->placement));
	RANKS_OK(ferry_moe_open(rank->world, &d->config, &d->moe));
	return d;
}

uint32_t drive_mode_enter(const struct drive *d)
{
#ifdef __x86_64__
	const uint32_t old = __builtin_ia32_stmxcsr();

	if (d->mxcsr != 0)
		__builtin_ia32_ldmxcsr(d->mxcsr);
	return old;
#else
	(void)d;
	return 0;
#endif
}

void drive_mode_leave(const struct drive *d, uint32_t old)
{
#ifdef __x86_64__
	const uint32_t now = __builtin_ia32_stmxcsr();

	__builtin_ia32_ldmxcsr(old);
	if (d->mxcsr != 0)
		RANKS_EQ(now, d->mxcsr);
#else
	(void)d;
	(void)old;
#endif
}

/* The batch of a group: equal on all its ranks. */
static void make_batch(struct drive_op *op, int32_t first_rank)
{
	const struct drive *d = op->d;
	struct traffic_spec spec = op->step.spec;
	uint64_t rng;

	spec.favourite = spec.seed;
	spec.seed = traffic_group_seed(spec.seed, first_rank);
	spec.n_tokens = op->step.n_tokens[first_rank];
	rng = spec.seed + 1;
	if (op->step.vary) {
		spec.id_type = traffic_chance(&rng, 50) ? FERRY_ID_INT64
		                                        : FERRY_ID_INT32;
		spec.count_by_pointer = traffic_chance(&rng, 30);
		spec.slack = (size_t)traffic_between(&rng, 0, 3);
		spec.no_weights = traffic_chance(&rng, 20);
	}
	if (op->step.make != NULL)
		op->step.make(&op->step, first_rank, &op->batches[first_rank]);
	else
		traffic_make(&op->batches[first_rank], &d->config,
		             d->placement_config, first_rank, &spec);
	op->in[first_rank] = op->batches[first_rank].in;
}

static uint32_t half_of_next(const struct drive_op *op)
{
	const struct ferry_moe *moe = op->d->moe;

	return (uint32_t)(moe->first_epoch +
	                  moe->slots[op->slot].n_dispatches) &
	       1;
}

void drive_make_batch(struct drive_op *op, uint32_t half)
{
	const struct drive *d = op->d;
	const int32_t g = d->config.group_size ? d->config.group_size : 1;

	for (int32_t r = 0; r < d->config.n_ranks; r += g)
		make_batch(op, r);
	op->n_tokens = op->batches[d->group].n_tokens;
	traffic_copy(&op->mine, &op->batches[d->group]);
	op->mine.in.placement = d->placement;
	op->oracle = oracle_create(&(struct oracle_case){
		.config = &d->config,
		.need = &d->need,
		.placement = d->placement_config,
		.in = op->in,
		.half = half,
		.host = d->host,
	});
}

void drive_forget_batch(struct drive_op *op)
{
	for (int32_t r = 0; r < op->d->config.n_ranks; r++)
		traffic_free(&op->batches[r]);
	traffic_free(&op->mine);
	oracle_destroy(op->oracle);
	op->oracle = NULL;
}

struct drive_op *drive_begin(struct drive *d, int32_t slot,
                             const struct drive_step *step)
{
	struct drive_op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		RANKS_FAIL("out of memory");
	op->d = d;
	op->next = d->ops;
	d->ops = op;
	op->slot = slot;
	op->step = *step;
	op->hidden = step->spec.hidden ? step->spec.hidden : d->config.hidden;
	drive_make_batch(op, half_of_next(op));
	return op;
}

/* What a call of a CPU world answers, from what one on a GPU does. */
enum ferry_status drive_settle(struct drive *d, enum ferry_status status)
{
	struct ferry_error error = FERRY_ERROR_INIT;

	if (status != FERRY_OK)
		snprintf(d->failure, sizeof(d->failure), "%s",
		         ferry_last_error());
	if (!d->memory->is_device || d->told ||
	    (status != FERRY_OK && status != FERRY_BROKEN))
		return status;
	if (ferry_moe_poll(d->moe, &error) == FERRY_OK)
		return status;
	snprintf(d->failure, sizeof(d->failure), "%s", error.text);
	d->told = true;
	return error.status;
}

enum ferry_status drive_try_send(struct drive_op *op)
{
	struct CUstream_st *stream = rank_memory_next_stream(op->d->memory);
	const struct ferry_dispatch_in in = drive_in_lend(op, stream);
	const enum ferry_status status =
		ferry_dispatch_send(op->d->moe, op->slot, &in, stream);

	drive_in_scribble_latched(op, stream);
	/* What it sends is known to be good or bad at recv. */
	return status == FERRY_OK ? status : drive_settle(op->d, status);
}

void drive_dispatch_send(struct drive_op *op)
{
	RANKS_OK(drive_try_send(op));
}

/*
 * After recv, fused or not. A failure that came once it was over is the next
 * call's: its result is whole, and will be compared. Copies come when the
 * kernel is over: those of several ranks on a GPU share its engines, in which
 * what stands behind a kernel that waits may hold up the copies of the rank
 * that it waits for.
 */
static enum ferry_status received(struct drive_op *op, enum ferry_status status,
                                  struct CUstream_st *stream)
{
	struct drive *d = op->d;

	drive_in_scribble_rows(op, stream);
	rank_memory_sync(d->memory, stream);
	drive_out_pull(op, stream);
	rank_memory_sync(d->memory, stream);
	if (status != FERRY_OK)
		return drive_settle(d, status);
	status = drive_settle(d, status);
	if (status == FERRY_OK || !drive_out_counted(op))
		return status;
	d->told = false;
	return FERRY_OK;
}

enum ferry_status drive_try_recv(struct drive_op *op)
{
	struct CUstream_st *stream = rank_memory_next_stream(op->d->memory);

	drive_out_make(op, stream);
	return received(
		op,
		ferry_dispatch_recv(op->d->moe, op->slot, &op->given, stream),
		stream);
}

void drive_dispatch_recv(struct drive_op *op)
{
	RANKS_OK(drive_try_recv(op));
	drive_check_recv(op);
}

void drive_dispatch_fused(struct drive_op *op)
{
	struct CUstream_st *stream = rank_memory_next_stream(op->d->memory);
	const struct ferry_dispatch_in in = drive_in_lend(op, stream);
	enum ferry_status status;

	drive_out_make(op, stream);
	status = ferry_dispatch(op->d->moe, op->slot, &in, &op->given, stream);
	drive_in_scribble_latched(op, stream);
	RANKS_OK(received(op, status, stream));
	drive_check_recv(op);
}

void drive_end(struct drive_op *op)
{
	struct drive_op **at = &op->d->ops;

	while (*at != op)
		at = &(*at)->next;
	*at = op->next;
	/* A kernel may still be at it: after a failure, or a send alone. */
	rank_memory_sync(op->d->memory, NULL);
	drive_forget_batch(op);
	drive_in_free(op);
	drive_out_free(op);
	drive_combine_free(op);
	free(op);
}

static struct drive_op *dispatch(struct drive *d, int32_t slot,
                                 const struct drive_step *step)
{
	struct drive_op *op = drive_begin(d, slot, step);

	if (step->fused || d->fused) {
		drive_dispatch_fused(op);
		return op;
	}
	drive_dispatch_send(op);
	drive_dispatch_recv(op);
	return op;
}

void drive_dispatch(struct drive *d, int32_t slot,
                    const struct drive_step *step)
{
	drive_end(dispatch(d, slot, step));
}

void drive_run(struct drive *d, int32_t slot, const struct drive_step *step)
{
	struct drive_op *op = dispatch(d, slot, step);

	if (step->fused || d->fused) {
		drive_combine_fused(op);
	} else {
		drive_combine_send(op);
		drive_combine_recv(op);
	}
	drive_end(op);
}

const struct ferry_dispatch_out *drive_out(const struct drive_op *op)
{
	return &op->got;
}

struct traffic_batch *drive_batch(struct drive_op *op)
{
	return &op->mine;
}

const struct oracle *drive_oracle(const struct drive_op *op)
{
	return op->oracle;
}
