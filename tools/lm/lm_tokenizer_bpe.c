/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges of one piece: always the pair of the lowest rank, of equal ones the
 * leftmost. Symbols are a linked list; pairs that can merge lie in a heap, by
 * rank and position, until they do or one of their symbols has gone: n log n
 * for n bytes.
 */
#include <stdlib.h>

#include "lm_tokenizer_parts.h"

struct lm_symbol {
	int32_t id; /* -1: merged into one before it */
	int32_t prev, next;
	int32_t rank;   /* of the merge with the next; -1: there is none */
	int32_t merged; /* the id that it leads to */
};

void lm_bpe_work_close(struct lm_bpe_work *work)
{
	free(work->symbols);
	free(work->heap);
	free(work->letters);
}

static void heap_push(struct lm_bpe_work *work, uint64_t key)
{
	uint64_t *const heap = work->heap;
	size_t at = work->n_heap++;

	for (; at && heap[(at - 1) / 2] > key; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = key;
}

static uint64_t heap_pop(struct lm_bpe_work *work)
{
	uint64_t *const heap = work->heap;
	const uint64_t top = heap[0];
	const size_t n = --work->n_heap;
	const uint64_t key = heap[n];
	size_t at = 0;

	for (size_t child = 1; child < n; child = 2 * at + 1) {
		if (child + 1 < n && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= key)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = key;
	return top;
}

/* Looks up what a symbol makes with the next. */
static void meet(const struct lm_pairs *merges, struct lm_bpe_work *work,
                 int32_t at)
{
	struct lm_symbol *const left = &work->symbols[at];
	const struct lm_pair *pair = NULL;

	if (left->next >= 0)
		pair = lm_pairs_find(merges, left->id,
		                     work->symbols[left->next].id);
	left->rank = pair ? pair->rank : -1;
	if (!pair)
		return;
	left->merged = pair->id;
	heap_push(work, (uint64_t)(uint32_t)pair->rank << 32 | (uint32_t)at);
}

static void merge(const struct lm_pairs *merges, struct lm_bpe_work *work,
                  int32_t at)
{
	struct lm_symbol *const left = &work->symbols[at];
	struct lm_symbol *const right = &work->symbols[left->next];

	left->id = left->merged;
	left->next = right->next;
	right->id = -1;
	if (left->next >= 0)
		work->symbols[left->next].prev = at;
	if (left->prev >= 0)
		meet(merges, work, left->prev);
	meet(merges, work, at);
}

static bool reserve(struct lm_bpe_work *work, size_t n, struct fault *fault)
{
	/* Each of n bytes meets the next, each merge two neighbours. */
	return lm_tokenizer_reserve(&work->symbols, &work->max_symbols, n,
	                            sizeof(*work->symbols), fault) &&
	       lm_tokenizer_reserve(&work->heap, &work->max_heap, 3 * n,
	                            sizeof(*work->heap), fault);
}

static bool merge_all(const struct lm_tokenizer *tokenizer,
                      struct lm_bpe_work *work, struct lm_text piece,
                      struct lm_ids *ids, struct fault *fault)
{
	const int32_t n = (int32_t)piece.n;

	if (!reserve(work, piece.n, fault))
		return false;
	work->n_heap = 0;
	for (int32_t i = 0; i < n; i++)
		work->symbols[i] = (struct lm_symbol){
			.id = tokenizer->byte_ids[(uint8_t)piece.bytes[i]],
			.prev = i - 1,
			.next = i + 1 < n ? i + 1 : -1,
		};
	for (int32_t i = 0; i < n; i++)
		meet(&tokenizer->merges, work, i);
	while (work->n_heap) {
		const uint64_t key = heap_pop(work);
		const int32_t at = (int32_t)(uint32_t)key;
		const struct lm_symbol *const left = &work->symbols[at];

		/* It may have changed since it was pushed. */
		if (left->id >= 0 && left->rank == (int32_t)(key >> 32))
			merge(&tokenizer->merges, work, at);
	}
	for (int32_t i = 0; i >= 0; i = work->symbols[i].next)
		if (!lm_ids_add(ids, work->symbols[i].id, fault))
			return false;
	return true;
}

/* The token that a piece is as a whole; -1: it is none. */
static int32_t whole(const struct lm_names *names, struct lm_bpe_work *work,
                     struct lm_text piece)
{
	size_t n = 0;

	for (size_t i = 0; i < piece.n; i++)
		n += (size_t)lm_text_letter((uint8_t)piece.bytes[i],
		                            work->letters + n);
	return lm_names_find(names, (struct lm_text){work->letters, n});
}

bool lm_bpe_encode(const struct lm_tokenizer *tokenizer,
                   struct lm_bpe_work *work, struct lm_text piece,
                   struct lm_ids *ids, struct fault *fault)
{
	if (tokenizer->ignore_merges) {
		if (!lm_tokenizer_reserve(&work->letters, &work->max_letters,
		                          2 * piece.n, 1, fault))
			return false;
		const int32_t id = whole(&tokenizer->names, work, piece);

		if (id >= 0)
			return lm_ids_add(ids, id, fault);
	}
	return merge_all(tokenizer, work, piece, ids, fault);
}
