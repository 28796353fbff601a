/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for tools, which cannot go on without it. */
#ifndef FERRY_ALLOC_H
#define FERRY_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* From here on, large blocks of alloc_or_exit ask for huge pages. */
void alloc_use_huge_pages(bool use);

/* Zeroed, n * size bytes, freed by free(); ends the program when short. */
void *alloc_or_exit(size_t n, size_t size);

/*
 * Zeroed, page aligned, shared with processes forked later; freed by
 * alloc_shared_free with the same size. Ends the program when short.
 */
void *alloc_shared(size_t bytes);
/* NULL is good. */
void alloc_shared_free(void *memory, size_t bytes);

#endif
