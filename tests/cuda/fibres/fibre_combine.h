/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of combine on fibres, for each way in which its kernel is compiled and
 * each type of its rows. They print what they try.
 */
#ifndef FIBRE_COMBINE_H
#define FIBRE_COMBINE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * EXACT, REDUCED, PRESUMMED by few, many and odd rows by bf16, fp16, fp32: the
 * first of these changes fastest. Odd ones have 33 and more choices where the
 * seed is a multiple of 3.
 */
enum { COMBINE_WAYS = 3 * 3 * 3, COMBINE_ODD_SUMS = 1 + 3 * 2 };

struct combine_tries {
	bool chunks; /* not lines */
	bool early;  /* launches may overlap */
	int n_sums;  /* of an operation, compared with the oracle */
	int n_wrong; /* ranks whose dispatch or sum was another, or who got a
	              * row that nobody waits for */
};

/* One channel, all of its slots at once. The rest of it comes from the seed. */
void combine_try(struct combine_tries *tries, int way, uint64_t seed,
                 int32_t n_ranks);

#endif
