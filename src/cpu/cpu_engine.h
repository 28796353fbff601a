/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CPU engine share: the state of a channel and of an
 * operation in flight, and the steps that more than one phase uses. The phases
 * themselves are cpu_dispatch_send.c, cpu_dispatch_recv.c,
 * cpu_combine_send.c and cpu_combine_recv.c.
 */
#ifndef FERRY_CPU_ENGINE_H
#define FERRY_CPU_ENGINE_H

#include "../proto/blame.h"
#include "../proto/channel.h"
#include "kernels.h"

_Static_assert((int)FERRY_SUM_MAX == (int)FERRY_MAX_TOPK,
               "one sum takes all choices of a token");

/* A rank as seen from here. */
struct cpu_peer {
	char *base;   /* its window in this address space; NULL: put only */
	bool ordered; /* its first n signals stand for its first n rows */
	bool abroad;  /* on another host */
};

/* Rows of one source in one phase. */
struct cpu_source {
	int64_t total; /* that will come */
	int64_t ready; /* known to be here: the first of them */
	int64_t taken; /* in their order, where they are taken so */
};

/* One operation in flight: what its phases hand on to each other. */
struct cpu_op {
	int32_t slot;
	uint64_t epoch;
	uint64_t number; /* dispatches of the slot before this one */
	uint32_t half;
	int32_t n_tokens, topk, hidden; /* own batch */
	size_t row_bytes;               /* payload of a row of this hidden */
	size_t scale_bytes;             /* its scales */
	size_t back_bytes;              /* of a row that comes back */
	const char *x;                  /* the caller's, until dispatch_recv */
	size_t x_stride;
	const char *scales;
	size_t scales_stride;
	const float *weights; /* [n_tokens][topk], latched; NULL: all 1 */
	float *weights_heap;  /* where they are when they do not travel */
	char *quantized;      /* [max_tokens] rows of the own batch as they
	                       * travel; NULL: the channel does not quantise */
	bool *is_quantized;   /* [max_tokens] those that are there */
	uint8_t *dropped;     /* [n_tokens][topk] own choices that found no
	                       * room; NULL: the channel never drops */
	const struct ferry_table **tables; /* [n_groups], in the window */
	struct ferry_route route;
	struct ferry_landings landings; /* of a channel with a hierarchy */
	const char *y;                  /* the caller's, until combine_recv */
	size_t y_stride;
	enum ferry_combine_layout y_layout;
};

/* Where one row goes: at most once to each rank. */
struct cpu_dest {
	int32_t n;
	int32_t *rank;    /* [n_ranks] */
	size_t *offset;   /* [n_ranks] in that rank's window */
	uint32_t *signal; /* [n_ranks] that a put raises there */
};

struct ferry_engine {
	const struct ferry_kernels *kernels;
	char *window; /* own */
	struct cpu_peer *peers;
	struct cpu_op *ops; /* [n_ops], one for each slot */
	int32_t n_ops;
	uint64_t *targets; /* [n_signals] what each counter reached
	                             * when all that was awaited had come */
	/*
	 * Of the phase that runs. With a hierarchy what a rank of another host
	 * dispatches is as many sources as this host has places where it may
	 * land; others are at place 0.
	 */
	struct cpu_source *sources; /* [n_ranks * n_places + cpu_n_sums()]: of
	                             * combine sums come behind the ranks */
	int32_t n_places;           /* 1 without a hierarchy */
	int64_t *sent;              /* [n_ranks] rows since the last signal */
	int64_t *back;              /* [n_ranks] see cpu_back_in_a_row */
	struct cpu_dest dest;
	void **to;                     /* [n_ranks] */
	struct ferry_wait_item *items; /* [2 * n_ranks * n_places] */
	uint64_t *host_mask;           /* [hosts] scratch of dispatch_send */
	int64_t *slot_rows; /* [n_expert_slots], when capacity is bounded */
	char *part;         /* the own part of a REDUCED sum, and a row of x
	                     * on its way into the quantiser */
};

/* Sources that sums are: of a host, by the rank of the group they land with. */
static inline size_t cpu_n_sums(const struct ferry_shape *shape)
{
	return (size_t)shape->hosts.n * (size_t)shape->group_size;
}

/* A row and its scales. */
struct cpu_row {
	const char *payload;
	const char *scales;
};

/* Ranks that serve a token, ascending, each once. */
struct cpu_ranks {
	int32_t n;
	int32_t rank[FERRY_SUM_MAX];
};

enum ferry_status ferry_cpu_dispatch_send(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_dispatch_in *in,
                                          struct CUstream_st *stream);
enum ferry_status ferry_cpu_dispatch_recv(struct ferry_moe *moe, int32_t slot,
                                          const struct ferry_dispatch_out *out,
                                          struct CUstream_st *stream);
enum ferry_status ferry_cpu_combine_send(struct ferry_moe *moe, int32_t slot,
                                         const struct ferry_combine_in *in,
                                         struct CUstream_st *stream);
enum ferry_status ferry_cpu_combine_recv(struct ferry_moe *moe, int32_t slot,
                                         const struct ferry_combine_out *out,
                                         struct CUstream_st *stream);

/* cpu_table_send.c */

/* Resolves and latches a batch into the own table of its half. */
struct ferry_table *ferry_cpu_table_build(struct ferry_moe *moe,
                                          struct cpu_op *op,
                                          const struct ferry_dispatch_in *in);
enum ferry_status ferry_cpu_table_push(struct ferry_moe *moe,
                                       const struct cpu_op *op,
                                       const struct ferry_table *table);
/* Signals that a table raises: fixed, whatever its size. */
uint64_t ferry_cpu_table_puts(const struct ferry_moe *moe);

/* cpu_table_recv.c */

enum ferry_status ferry_cpu_tables_wait(struct ferry_moe *moe,
                                        const struct cpu_op *op);
/* Refuses on every rank alike what any table gives cause to. */
enum ferry_status ferry_cpu_tables_check(struct ferry_moe *moe,
                                         struct cpu_op *op);
/* Tables of this epoch are done with: the next wait expects new ones. */
void ferry_cpu_tables_done(struct ferry_moe *moe, const struct cpu_op *op);

/* The table that a rank sent for this operation. */
static inline struct ferry_table *cpu_table_of(const struct ferry_moe *moe,
                                               const struct cpu_op *op,
                                               int32_t source)
{
	char *at = moe->engine->window +
	           ferry_window_table(&moe->window, &moe->shape, op->slot,
	                              op->half, source);

	return (struct ferry_table *)(void *)at;
}

static inline struct ferry_table *cpu_own_table(const struct ferry_moe *moe,
                                                const struct cpu_op *op)
{
	return cpu_table_of(moe, op, moe->shape.rank);
}

/* cpu_capacity.c */

/* OVERFLOW on all ranks, naming the lowest rank that lacks room. */
enum ferry_status ferry_cpu_capacity_check(struct ferry_moe *moe,
                                           const struct cpu_op *op);

/* cpu_outputs.c: all of ferry_dispatch_out but rows and scales. */
void ferry_cpu_outputs_fill(const struct ferry_moe *moe,
                            const struct cpu_op *op,
                            const struct ferry_dispatch_out *out);

/* cpu_scales.c: the scales of one row to its rows of the output. */
void ferry_cpu_scales_spread(const struct ferry_shape *shape,
                             const struct cpu_op *op,
                             const struct ferry_dispatch_out *out,
                             const int64_t *rows, int32_t n_rows,
                             const char *scales);

/* cpu_rows.c */

/* A token of the own batch as it travels; quantised when first asked for. */
struct cpu_row ferry_cpu_token_row(const struct ferry_moe *moe,
                                   const struct cpu_op *op, int32_t token);
void ferry_cpu_ranks_of(const struct ferry_shape *shape, const int32_t *slots,
                        int32_t topk, struct cpu_ranks *ranks);

/* A failure that this engine found in the tables breaks the channel. */
enum ferry_status ferry_cpu_break(struct ferry_moe *moe,
                                  const struct cpu_op *op,
                                  struct ferry_blame *blame);

#endif
