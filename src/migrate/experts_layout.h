/* SPDX-License-Identifier: Apache-2.0 */
/* Which signal is whose, and where what lies in the memory of each rank. */
#ifndef FERRY_EXPERTS_LAYOUT_H
#define FERRY_EXPERTS_LAYOUT_H

#include "experts_inner.h"

/* Signals; and offsets in every rank's memory. */
static inline uint32_t experts_record_signal(const struct ferry_experts *x,
                                             uint64_t seq,
                                             enum experts_word word,
                                             int32_t source)
{
	const uint32_t place =
		(uint32_t)(seq % EXPERTS_RING) * EXPERTS_WORDS + (uint32_t)word;

	return place * (uint32_t)x->n_ranks + (uint32_t)source;
}

static inline uint32_t experts_buffer_signal(const struct ferry_experts *x,
                                             int32_t buffer)
{
	return EXPERTS_RING * EXPERTS_WORDS * (uint32_t)x->n_ranks +
	       (uint32_t)buffer;
}

static inline size_t experts_record_at(const struct ferry_experts *x,
                                       uint64_t seq, enum experts_word word,
                                       int32_t source)
{
	return experts_record_signal(x, seq, word, source) *
	       sizeof(struct experts_record);
}

/* Behind all records. */
static inline size_t experts_outgoing_at(const struct ferry_experts *x,
                                         uint64_t seq, enum experts_word word)
{
	const size_t place = EXPERTS_RING * EXPERTS_WORDS * (size_t)x->n_ranks +
	                     seq % EXPERTS_RING * EXPERTS_WORDS + word;

	return place * sizeof(struct experts_record);
}

static inline size_t experts_bounce_at(const struct ferry_experts *x)
{
	return (experts_outgoing_at(x, EXPERTS_RING - 1, EXPERTS_WORDS - 1) +
	        sizeof(struct experts_record) + EXPERTS_ALIGN - 1) &
	       ~(size_t)(EXPERTS_ALIGN - 1);
}

static inline size_t experts_buffer_at(const struct ferry_experts *x,
                                       int32_t buffer)
{
	const size_t bounce =
		x->mode == FERRY_EXPERTS_COPY ? EXPERTS_PIECE_BYTES : 0;
	const size_t first = x->on_gpus ? 0 : experts_bounce_at(x) + bounce;

	return first + (size_t)buffer * x->buffer_bytes;
}

static inline unsigned char *experts_base(const struct ferry_experts *x)
{
	return ferry_segment_base(x->segment);
}

/* Where offsets of records begin, for this rank. */
static inline unsigned char *experts_records(const struct ferry_experts *x)
{
	return x->on_gpus ? ferry_segment_notes(x->segment) : experts_base(x);
}

/* Bytes of them as notes. */
static inline size_t experts_notes_bytes(const struct ferry_experts *x)
{
	return x->on_gpus ? experts_outgoing_at(x, 0, EXPERTS_STAGED) : 0;
}

#endif
