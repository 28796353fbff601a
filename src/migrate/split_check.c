/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks may find wrong with each other's messages. All have the same ones
 * and look in the same order, so all name the same rank.
 */
#include "split_inner.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Breaks the splitter because of a rank. */
__attribute__((format(printf, 5, 6))) static enum ferry_status
blame(struct ferry_splitter *s, enum ferry_status status, int32_t rank,
      const struct ferry_split_head *mark, const char *fmt, ...)
{
	char text[400];
	va_list args;
	const struct ferry_verdict verdict = {
		.status = status,
		.root = rank,
		.reporter = s->world->rank,
		.phase = FERRY_PHASE_NONE,
		.slot = -1,
		.token = mark ? mark->mark_token : -1,
		.choice = mark ? mark->mark_choice : -1,
		.value = mark ? mark->mark_value : 0,
	};

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return ferry_segment_break(s->region.segment, &verdict, text);
}

static enum ferry_status check_head(struct ferry_splitter *s, int32_t slot,
                                    int32_t rank)
{
	const struct ferry_split_head *const head =
		split_head_of(s, slot, rank);

	if (head->number == s->slots[slot].n_splits)
		return FERRY_OK;
	return blame(s, FERRY_PROTO, rank, NULL,
	             "split: the message of rank %d is of split %" PRIu64
	             " of slot %d, expected is %" PRIu64,
	             rank, head->number, slot, s->slots[slot].n_splits);
}

static enum ferry_status check_mark(struct ferry_splitter *s, int32_t slot,
                                    int32_t rank)
{
	const struct ferry_split_head *const head =
		split_head_of(s, slot, rank);

	if (head->mark_status == FERRY_OK)
		return FERRY_OK;
	return blame(s, FERRY_RANGE, rank, head,
	             "split: ids[%d][%d] is %" PRId64
	             ", experts are 0..%d (rank %d)",
	             head->mark_token, head->mark_choice, head->mark_value,
	             ferry_placement_n_experts(s->slots[slot].placement) - 1,
	             rank);
}

/* The same placement and speeds as rank 0. */
static enum ferry_status check_equal(struct ferry_splitter *s, int32_t slot,
                                     int32_t rank)
{
	const struct ferry_split_head *const head =
		split_head_of(s, slot, rank);
	const struct ferry_split_head *const first = split_head_of(s, slot, 0);

	if (head->placement != first->placement)
		return blame(s, FERRY_MISMATCH, rank, NULL,
		             "split: placement has hash %016" PRIx64
		             " on rank %d, %016" PRIx64 " on rank 0",
		             head->placement, rank, first->placement);
	if (head->speed != first->speed)
		return blame(s, FERRY_MISMATCH, rank, NULL,
		             "split: speed of rank %d differs from that of "
		             "rank 0",
		             rank);
	return FERRY_OK;
}

/* Counts must not be taken for what they are not. */
static enum ferry_status check_words(struct ferry_splitter *s, int32_t slot,
                                     int32_t rank)
{
	const struct ferry_split_head *const head =
		split_head_of(s, slot, rank);
	const int32_t *const words = split_words(head);
	const int64_t most = (int64_t)s->config.max_tokens * s->config.topk;
	const int32_t n_words = s->world->n_ranks + s->sharing.in.n_experts;
	int64_t sum = 0;

	if (head->n_words != n_words)
		return blame(s, FERRY_PROTO, rank, NULL,
		             "split: the message of rank %d has %d words, "
		             "expected are %d",
		             rank, head->n_words, n_words);
	for (int32_t i = 0; i < n_words; i++) {
		sum += words[i];
		if (words[i] < 0 || sum > most)
			return blame(s, FERRY_PROTO, rank, NULL,
			             "split: word %d of rank %d is %d, and "
			             "the sum so far %" PRId64
			             ", allowed are 0..%" PRId64,
			             i, rank, words[i], sum, most);
	}
	return FERRY_OK;
}

/* The same counts as the first rank of the group. */
static enum ferry_status check_mates(struct ferry_splitter *s, int32_t slot,
                                     int32_t rank)
{
	const int32_t first = rank - rank % s->config.group_size;
	const struct ferry_split_head *const a = split_head_of(s, slot, rank);
	const struct ferry_split_head *const b = split_head_of(s, slot, first);

	if (!memcmp(split_words(a), split_words(b),
	            (size_t)a->n_words * sizeof(int32_t)))
		return FERRY_OK;
	return blame(s, FERRY_MISMATCH, rank, NULL,
	             "split: ids of rank %d differ from those of rank %d, "
	             "which is in its group",
	             rank, first);
}

enum ferry_status ferry_split_check(struct ferry_splitter *splitter,
                                    int32_t slot)
{
	const int32_t n_ranks = splitter->world->n_ranks;

	for (int32_t r = 0; r < n_ranks; r++)
		FERRY_TRY(check_head(splitter, slot, r));
	for (int32_t r = 0; r < n_ranks; r++)
		FERRY_TRY(check_mark(splitter, slot, r));
	for (int32_t r = 0; r < n_ranks; r++)
		FERRY_TRY(check_equal(splitter, slot, r));
	for (int32_t r = 0; r < n_ranks; r++) {
		FERRY_TRY(check_words(splitter, slot, r));
		FERRY_TRY(check_mates(splitter, slot, r));
	}
	return FERRY_OK;
}
