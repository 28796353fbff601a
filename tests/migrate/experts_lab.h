/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small model with registered experts for tests: layers of random shape,
 * weights whose every byte tells layer, expert and tensor, random plans that
 * all ranks make alike, and the check that every slot has its expert whole.
 */
#ifndef EXPERTS_LAB_H
#define EXPERTS_LAB_H

#include <ferry/experts.h>

#include "support/rank_memory.h"

enum { LAB_LAYERS = 4, LAB_TENSORS = 4, LAB_TESTS = 16 };

struct CMUnitTest;

/* A fabric, and who the ranks are. */
struct lab_setting {
	const char *name;
	const char *fabric;
	enum ranks_kind kind;
	const char *options;
	int32_t n_gpus; /* 0: a CPU world */
};

/* The last one has no name. */
extern const struct lab_setting lab_settings[];

/* What to register; all ranks make it from equal arguments. */
struct lab_shape {
	uint64_t seed;
	int32_t n_layers;
	int32_t n_experts;
	int32_t spare; /* empty slots of each rank */
	bool uneven;   /* slots differ by rank and layer */
	int32_t n_staging;
	enum ferry_experts_mode mode;
	enum ferry_split split;
	int32_t n_tensors;
	size_t tensor_bytes[LAB_TENSORS];
};

struct lab {
	struct rank *rank;
	struct lab_shape shape;
	struct ferry_placement *first[LAB_LAYERS];
	struct ferry_experts *experts;
	void **tensors;          /* COPY */
	unsigned char *memory;   /* theirs */
	struct mirror mirror;    /* the same on a GPU */
	struct rank_memory *gpu; /* NULL: the host reads weights */
	int32_t n_own[LAB_LAYERS];
};

/* Several tensors of odd sizes. */
struct lab_shape lab_small(uint64_t seed, enum ferry_experts_mode mode);

/* Opens, fills the weights, and closes when the body has ended. */
struct lab *lab_open(struct rank *rank, const struct lab_shape *shape);
/* The parts of it. */
void lab_make(struct lab *lab, struct rank *rank,
              const struct lab_shape *shape);
enum ferry_status lab_try(struct lab *lab);
void lab_fill(struct lab *lab);
void lab_close(struct lab *lab);

/*
 * A plan for the placement, from *seed: up to max_moves disjoint swaps, and
 * copies into empty slots where `copies`; at most max_in experts come to a
 * rank. Without a move where there is none.
 */
void lab_plan(const struct ferry_placement *placement, int32_t layer,
              uint64_t *seed, int32_t max_moves, bool copies, int32_t max_in,
              struct ferry_plan *plan);

/* Are the own slots of a layer under a placement what they should be? */
void lab_check(const struct lab *lab, int32_t layer,
               const struct ferry_placement *placement);
/* As an answer, for any thread: 0, or 1 + the first slot that is wrong. */
int32_t lab_wrong(const struct lab *lab, int32_t layer,
                  const struct ferry_placement *placement);

/* Number of a byte of an expert: what it is filled with. */
unsigned char lab_byte(const struct lab *lab, int32_t layer, int32_t expert,
                       int32_t tensor, size_t at);

/*
 * Another placement of the same shape, from *seed: a few slots exchange what
 * they have, also within a rank, replicas come and go.
 */
struct ferry_placement *lab_other(const struct ferry_placement *placement,
                                  uint64_t *seed);

/* A plan of one swap. */
struct ferry_plan lab_one_swap(const struct ferry_placement *placement,
                               int32_t layer);

/* One run of a body on a fabric. */
void lab_run(const struct lab_setting *setting, int32_t n_ranks,
             ranks_body *body, const void *arg);

/*
 * Up to LAB_TESTS tests on every fabric; *state is its setting. The number
 * that failed.
 */
int lab_main(const struct CMUnitTest *tests, size_t n);

struct ferry_experts_stats lab_stats(const struct lab *lab);

#endif
