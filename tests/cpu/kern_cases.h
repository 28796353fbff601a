/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random inputs for the kernel tests: bit patterns of every kind, memory at
 * odd addresses that ends at a forbidden page, and guards around outputs.
 */
#ifndef FERRY_KERN_CASES_H
#define FERRY_KERN_CASES_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/kernels.h"

/* What the elements of one case look like. */
enum flavour {
	FLAVOUR_WILD,    /* any bits: NaN payloads, infinities, all exponents */
	FLAVOUR_PLAIN,   /* numbers around 1, as in a model */
	FLAVOUR_TINY,    /* denormals and what rounds to them */
	FLAVOUR_HUGE,    /* at the edge of overflow */
	FLAVOUR_SPECIAL, /* plain, and one in sixteen from the list of traps */
	N_FLAVOURS,
};

/* Seeds the generator, from FERRY_TEST_SEED or the clock, and prints it. */
void cases_seed(void);

uint32_t random_u32(void);
uint32_t random_below(uint32_t n);

/* A float whose values are worth weighing rows of this flavour with. */
float random_weight(enum flavour flavour);

/* n elements of dtype at any address. */
void random_fill(void *to, enum ferry_dtype dtype, size_t n,
                 enum flavour flavour);

/*
 * `bytes` bytes whose last one is the last before a forbidden page; the
 * memory stays until arena_reset. All that a case needs fits.
 */
void *arena_alloc(size_t bytes);
void arena_reset(void);

size_t dtype_size(enum ferry_dtype dtype);

/* Fails, naming the first byte that differs. */
void assert_same_bytes(const void *got, const void *want, size_t bytes);

#endif
