/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives one rank of a channel: inputs and calls. The outputs of dispatch and
 * their comparison are in drive_out.c.
 */
#include "drive_inner.h"

#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "oracle_float.h"

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
	while (d->ops != NULL)
		drive_end(d->ops);
	ferry_placement_destroy(d->placement);
	free(d);
}

static struct drive *drive_new(const struct rank *rank,
                               const struct ferry_moe_config *config)
{
	struct drive *d = calloc(1, sizeof(*d));

	if (d == NULL)
		RANKS_FAIL("out of memory");
	d->list = list_of_body();
	d->next = d->list->first;
	d->list->first = d;
	d->rank = rank->rank;
	d->config = *config;
	d->config.n_ranks = rank->n_ranks;
	d->need = (struct ferry_moe_need)FERRY_MOE_NEED_INIT;
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

/* Puts the caller's odd floating point mode around a call. */
static uint32_t mode_enter(const struct drive *d)
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

static void mode_leave(const struct drive *d, uint32_t old)
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

static uint64_t seed_of_group(uint64_t seed, int32_t group)
{
	uint64_t state = seed ^ ((uint64_t)(uint32_t)group << 40);

	return traffic_random(&state);
}

/* The batch of a group: equal on all its ranks. */
static void make_batch(struct drive_op *op, int32_t first_rank)
{
	const struct drive *d = op->d;
	struct traffic_spec spec = op->step.spec;
	uint64_t rng;

	spec.favourite = spec.seed;
	spec.seed = seed_of_group(spec.seed, first_rank);
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

struct drive_op *drive_begin(struct drive *d, int32_t slot,
                             const struct drive_step *step)
{
	const int32_t n = d->config.n_ranks;
	const int32_t g = d->config.group_size ? d->config.group_size : 1;
	struct drive_op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		RANKS_FAIL("out of memory");
	op->d = d;
	op->next = d->ops;
	d->ops = op;
	op->slot = slot;
	op->step = *step;
	op->hidden = step->spec.hidden ? step->spec.hidden : d->config.hidden;
	for (int32_t r = 0; r < n; r += g)
		make_batch(op, r);
	op->n_tokens = op->batches[d->group].n_tokens;
	traffic_copy(&op->mine, &op->batches[d->group]);
	op->mine.in.placement = d->placement;
	op->oracle = oracle_create(&(struct oracle_case){
		.config = &d->config,
		.need = &d->need,
		.placement = d->placement_config,
		.in = op->in,
		.half = half_of_next(op),
	});
	return op;
}

enum ferry_status drive_try_send(struct drive_op *op)
{
	const enum ferry_status status =
		ferry_dispatch_send(op->d->moe, op->slot, &op->mine.in, NULL);

	traffic_scribble_latched(&op->mine);
	return status;
}

void drive_dispatch_send(struct drive_op *op)
{
	RANKS_OK(drive_try_send(op));
}

enum ferry_status drive_try_recv(struct drive_op *op)
{
	drive_out_make(op);
	const enum ferry_status status =
		ferry_dispatch_recv(op->d->moe, op->slot, &op->got, NULL);

	traffic_scribble_rows(&op->mine);
	return status;
}

void drive_dispatch_recv(struct drive_op *op)
{
	RANKS_OK(drive_try_recv(op));
	drive_check_recv(op);
}

void drive_dispatch_fused(struct drive_op *op)
{
	drive_out_make(op);
	RANKS_OK(ferry_dispatch(op->d->moe, op->slot, &op->mine.in, &op->got,
	                        NULL));
	traffic_scribble_latched(&op->mine);
	traffic_scribble_rows(&op->mine);
	drive_check_recv(op);
}

/* Row of y that a received row's answer is in. */
static int64_t answer_at(const struct drive_op *op,
                         const struct oracle_row *row)
{
	switch (op->step.from) {
	case FERRY_FROM_PADDED:
		return row->padded;
	case FERRY_FROM_PACKED:
		return row->packed;
	default:
		return row->view;
	}
}

static int64_t n_answers(const struct drive_op *op,
                         const struct oracle_row *rows, int64_t n)
{
	int64_t last = 0;

	for (int64_t i = 0; i < n; i++)
		if (answer_at(op, &rows[i]) >= last)
			last = answer_at(op, &rows[i]) + 1;
	return last;
}

static void make_answers(struct drive_op *op)
{
	const struct drive *d = op->d;
	const enum ferry_dtype dtype =
		d->config.combine_dtype ? d->config.combine_dtype : FERRY_BF16;
	const size_t bytes = (size_t)op->hidden * oracle_dtype_bytes(dtype);
	const size_t stride = bytes + op->step.slack;
	const bool presummed = op->step.from == FERRY_FROM_PRESUMMED;
	const struct oracle_row *rows;
	const int64_t n = oracle_rows(op->oracle, d->rank, &rows);
	const size_t n_rows = (size_t)n_answers(op, rows, n);
	uint8_t *payload = drive_allocate(drive_row_bytes(op));

	op->y_bytes = stride * n_rows;
	op->y = drive_allocate(op->y_bytes);
	op->y_stride = stride;
	for (int64_t i = 0; i < n; i++) {
		const size_t at = (size_t)answer_at(op, &rows[i]);
		const int32_t expert =
			presummed ? ORACLE_PRESUMMED(d->rank) : rows[i].expert;
		const uint8_t *scales;

		oracle_row_bits(op->oracle, &rows[i], payload, &scales);
		oracle_expert(op->y + stride * at, dtype, (size_t)op->hidden,
		              payload, drive_row_bytes(op), scales,
		              drive_scale_bytes(op), expert, op->step.values);
	}
	free(payload);
}

static struct ferry_combine_in combine_in(const struct drive_op *op)
{
	struct ferry_combine_in in = FERRY_COMBINE_IN_INIT;

	in.y = op->y;
	in.y_stride = op->step.slack ? op->y_stride : 0;
	in.layout = op->step.from;
	return in;
}

static void make_sums(struct drive_op *op)
{
	const struct ferry_moe_config *config = &op->d->config;
	const enum ferry_dtype combine =
		config->combine_dtype ? config->combine_dtype : FERRY_BF16;
	const enum ferry_dtype dtype =
		config->out_dtype ? config->out_dtype : combine;
	const size_t row = (size_t)op->hidden * oracle_dtype_bytes(dtype);
	const size_t stride = row + op->step.slack;
	const uint64_t seed = op->step.spec.seed;

	op->sum_row = row;
	op->sum_stride = stride;
	op->sum_bytes = stride * (size_t)op->n_tokens + DRIVE_GUARD;
	op->sum = drive_allocate(op->sum_bytes);
	op->sum_wanted = drive_allocate(op->sum_bytes);
	memset(op->sum, DRIVE_POISON, op->sum_bytes);
	memset(op->sum_wanted, DRIVE_POISON, op->sum_bytes);
	if (op->step.residual == DRIVE_NO_RESIDUAL)
		return;
	op->residual = drive_allocate(op->sum_bytes);
	memset(op->residual, DRIVE_POISON, op->sum_bytes);
	for (int32_t t = 0; t < op->n_tokens; t++)
		oracle_expert(op->residual + stride * (size_t)t, dtype,
		              (size_t)op->hidden, &seed, sizeof(seed), NULL, 0,
		              t, op->step.values);
	if (op->step.residual == DRIVE_IN_PLACE)
		memcpy(op->sum, op->residual, op->sum_bytes);
}

static struct ferry_combine_out combine_out(const struct drive_op *op,
                                            void *sum)
{
	struct ferry_combine_out out = FERRY_COMBINE_OUT_INIT;
	const size_t stride = op->step.slack ? op->sum_stride : 0;

	out.out = sum;
	out.out_stride = stride;
	out.residual = op->step.residual == DRIVE_IN_PLACE ? sum : op->residual;
	out.residual_stride = out.residual ? stride : 0;
	return out;
}

void drive_check_combine_recv(struct drive_op *op)
{
	struct ferry_combine_out want = combine_out(op, op->sum_wanted);
	const struct oracle_combine_how how = {
		.presummed = op->step.from == FERRY_FROM_PRESUMMED,
		.values = op->step.values,
	};

	want.residual = op->residual;
	oracle_combine(op->oracle, op->d->rank, &how, &want);
	for (size_t i = 0; i < op->sum_bytes; i++)
		if (op->sum[i] != op->sum_wanted[i])
			RANKS_FAIL("combine, seed %llu: byte %zu of token %zu "
			           "of %d is 0x%02x, expected 0x%02x",
			           (unsigned long long)op->step.spec.seed,
			           i % op->sum_stride, i / op->sum_stride,
			           op->n_tokens, op->sum[i], op->sum_wanted[i]);
}

enum ferry_status drive_try_combine_send(struct drive_op *op)
{
	make_answers(op);
	const struct ferry_combine_in in = combine_in(op);
	const uint32_t mode = mode_enter(op->d);
	const enum ferry_status status =
		ferry_combine_send(op->d->moe, op->slot, &in, NULL);

	mode_leave(op->d, mode);
	return status;
}

void drive_combine_send(struct drive_op *op)
{
	RANKS_OK(drive_try_combine_send(op));
}

enum ferry_status drive_try_combine_recv(struct drive_op *op)
{
	make_sums(op);
	const struct ferry_combine_out out = combine_out(op, op->sum);
	const uint32_t mode = mode_enter(op->d);
	const enum ferry_status status =
		ferry_combine_recv(op->d->moe, op->slot, &out, NULL);

	mode_leave(op->d, mode);
	if (op->y != NULL) /* it may be overwritten now */
		memset(op->y, DRIVE_POISON, op->y_bytes);
	return status;
}

void drive_combine_recv(struct drive_op *op)
{
	RANKS_OK(drive_try_combine_recv(op));
	drive_check_combine_recv(op);
}

void drive_combine_fused(struct drive_op *op)
{
	make_answers(op);
	make_sums(op);
	const struct ferry_combine_in in = combine_in(op);
	const struct ferry_combine_out out = combine_out(op, op->sum);

	RANKS_OK(ferry_combine(op->d->moe, op->slot, &in, &out, NULL));
	memset(op->y, DRIVE_POISON, op->y_bytes);
	drive_check_combine_recv(op);
}

void drive_end(struct drive_op *op)
{
	struct drive_op **at = &op->d->ops;

	while (*at != op)
		at = &(*at)->next;
	*at = op->next;
	for (int32_t r = 0; r < op->d->config.n_ranks; r++)
		traffic_free(&op->batches[r]);
	traffic_free(&op->mine);
	oracle_destroy(op->oracle);
	drive_out_free(op);
	free(op->y);
	free(op->sum);
	free(op->sum_wanted);
	free(op->residual);
	free(op);
}

static struct drive_op *dispatch(struct drive *d, int32_t slot,
                                 const struct drive_step *step)
{
	struct drive_op *op = drive_begin(d, slot, step);

	if (step->fused) {
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

	if (step->fused) {
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

const void *drive_sum(const struct drive_op *op, size_t *bytes)
{
	*bytes = op->sum_bytes;
	return op->sum;
}

struct traffic_batch *drive_batch(struct drive_op *op)
{
	return &op->mine;
}

const struct oracle *drive_oracle(const struct drive_op *op)
{
	return op->oracle;
}
