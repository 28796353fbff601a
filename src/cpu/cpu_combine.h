/* SPDX-License-Identifier: Apache-2.0 */
/* What combine_send and combine_recv do alike with the own expert outputs. */
#ifndef FERRY_CPU_COMBINE_H
#define FERRY_CPU_COMBINE_H

#include "cpu_flow.h"

/* The expert output of one (token, choice), in the caller's y. */
static inline const char *cpu_expert_row(const struct ferry_moe *moe,
                                         const struct cpu_op *op,
                                         const struct ferry_copy *copy)
{
	const enum ferry_layout layout = op->y_layout == FERRY_FROM_PADDED
	                                         ? FERRY_EXPERT_PADDED
	                                         : FERRY_EXPERT_PACKED;
	const int64_t row =
		ferry_route_row(&op->route, &moe->shape, layout, copy);

	return op->y + (size_t)row * op->y_stride;
}

/*
 * This rank's part of a token's sum: computed into `to` and rounded to
 * combine_dtype, or the caller's own row when it has summed already.
 */
const char *ferry_cpu_part_row(const struct ferry_moe *moe,
                               const struct cpu_op *op,
                               const struct ferry_arrival *arrival, char *to);

/*
 * EXACT, where some peer is only put to: what a rank sends back to another lies
 * there in a row, in the order of tokens and choices, since it leaves in larger
 * pieces then. A rank's rows begin behind those of all choices that lower ranks
 * serve, kept or not: so both ends know it from the table. engine->back is
 * where the next row lies, of each rank that sends or gets them. Otherwise each
 * choice has its place.
 */
static inline bool cpu_back_in_a_row(const struct ferry_moe *moe)
{
	return moe->shape.combine == FERRY_EXACT && moe->window.stage_rows;
}

/* The first row from `source`, in the window of a rank that sent `table`. */
int64_t ferry_cpu_back_first(const struct ferry_shape *shape,
                             const struct ferry_table *table, int32_t source,
                             int32_t receiver);

/* Where a choice of a token comes back; `rank` sends it, or gets it. */
static inline size_t cpu_back_place(struct ferry_moe *moe, int32_t slot,
                                    int32_t rank, int32_t token, int32_t choice)
{
	if (cpu_back_in_a_row(moe))
		return ferry_window_back(&moe->window, &moe->shape, slot, 0,
		                         (int32_t)moe->engine->back[rank]++);
	return ferry_window_back(&moe->window, &moe->shape, slot, token,
	                         choice);
}

/* What is added up for a token, each once; in this order. */
struct cpu_terms {
	int32_t n;
	int32_t rank[FERRY_SUM_MAX]; /* whose part it is; -1: of a host, */
	int32_t host[FERRY_SUM_MAX]; /* the sum of that one's parts */
};

/*
 * Of a token with these slots at its receiver: the ranks that serve it,
 * ascending; with PER_HOST a host other than the receiver's once, in the place
 * of its first rank.
 */
void ferry_cpu_terms_of(const struct ferry_shape *shape, const int32_t *slots,
                        int32_t topk, int32_t receiver,
                        struct cpu_terms *terms);

/* Place of a term among those that the receiver does not have itself. */
static inline int32_t cpu_term_place(const struct cpu_terms *terms, int32_t i,
                                     int32_t receiver)
{
	int32_t j = 0;

	for (int32_t k = 0; k < i; k++)
		j += terms->rank[k] != receiver;
	return j;
}

/* The term that a rank, or its host, is. */
static inline int32_t cpu_term_of(const struct cpu_terms *terms, int32_t rank,
                                  int32_t host)
{
	int32_t i = 0;

	while (terms->rank[i] != rank &&
	       (terms->rank[i] >= 0 || terms->host[i] != host))
		i++;
	return i;
}

/*
 * combine_send, PER_HOST: what a group of another host gets from this one.
 * See cpu_combine_host.c.
 */
enum ferry_status ferry_cpu_send_sums(struct cpu_flow *flow, int32_t group);

#endif
