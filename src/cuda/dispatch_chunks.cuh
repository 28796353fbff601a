/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of kernel dispatch_chunks share: how a row lies in a stage of
 * shared memory, the state of a block, and counters that blocks hand work out
 * with. dispatch_chunks.cu has the protocol.
 */
#ifndef FERRY_DISPATCH_CHUNKS_CUH
#define FERRY_DISPATCH_CHUNKS_CUH

#include "../proto/table.h"
#include "copy.cuh"
#include "place.cuh"
#include "plan.cuh"
#include "wait.cuh"

enum {
	CHUNKS_WARPS = 8,
	CHUNKS_THREADS = CHUNKS_WARPS * 32,
	CHUNKS_MAX_STAGES = 4, /* of a warp */
	/* Two stages a warp fill a multiprocessor's shared memory. */
	CHUNKS_STAGE_BYTES = 14336,
	CHUNKS_RING_BYTES = CHUNKS_WARPS * 2 * CHUNKS_STAGE_BYTES,
	CHUNKS_PLAN_BYTES = 48 << 10, /* rings are at least so large */
};

/*
 * Blocks that send, at most. A few multiprocessors fill the links, and what
 * more of them send only stands in their own way: the loads of a
 * multiprocessor wait behind its stores to peers (dev/cuda-bulk.md). Where
 * nothing is delivered, more of them have less to wait for.
 */
enum { CHUNKS_SENDERS = 33, CHUNKS_TOKEN_SENDERS = 66 };

/*
 * Words through which blocks talk, one line each, at the start of the scratch.
 * There are two sets, by the parity of the epoch; a send clears the other one.
 */
enum chunks_word {
	WORD_TABLED,  /* parts of the own table that are on their way */
	WORD_SEND,    /* items of the send queue that are taken */
	WORD_OWN,     /* own tokens that are taken, to be delivered */
	WORD_ARRIVED, /* rows of others, likewise */
	WORD_COUNTED, /* blocks that have counted their part of the tables */
	WORD_PLACED,  /* ... that have placed it */
	WORD_ODD,     /* tables that need a closer look */
	N_WORDS,
};

enum { WORD_BYTES = 128 };

static __device__ __forceinline__ uint32_t *
word_of(const struct ferry_cuda_dispatch *a, uint32_t half,
        enum chunks_word word)
{
	return (uint32_t *)((unsigned char *)a->op.scratch +
	                    (half * N_WORDS + word) * WORD_BYTES);
}

/* The record behind part p of a table; it closes with the epoch. */
struct table_part {
	int32_t mark_status; /* the first refusal in this part, 0: none */
	int32_t mark_token;
	int32_t mark_choice;
	int32_t mark_limit;
	int64_t mark_value;
	uint64_t content; /* of slots and weights, where groups compare */
	uint64_t unused[3];
	uint64_t epoch;
};

/*
 * One launch, as a block sees it. Uniform. Functions that are not inlined take
 * it, and what else they need, by value: a pointer to it that escapes makes the
 * compiler load `a` from the stack and then each parameter of the launch from
 * memory, at every use, instead of reading the constant bank.
 */
struct chunks {
	const struct ferry_cuda_dispatch *a;
	uint64_t epoch;
	uint32_t half;
	int32_t n_tokens;   /* of the own group; what is sent */
	int32_t n_asked;    /* the same before it was found to be illegal */
	int32_t own_rows;   /* tokens that this rank carries */
	uint32_t payload;   /* bytes of a row in a stage, rounded up to 16 */
	uint32_t row_bytes; /* ... and the scales behind it, likewise */
	uint32_t stage_bytes;
	int32_t n_stages;
	int32_t n_pieces;    /* stages that a row takes */
	int32_t n_teams;     /* blocks 0.. that have a team */
	int32_t n_senders;   /* warps of this block that send first */
	int32_t all_senders; /* such warps of all blocks */
	int32_t batch_rows;  /* that a warp delivers at once */
	unsigned char *ring; /* shared: [warps][n_stages][stage_bytes] */
	uint64_t *barriers;  /* shared: [warps][CHUNKS_MAX_STAGES] */
};

static __device__ __forceinline__ uint32_t *word_at(const struct chunks *c,
                                                    enum chunks_word word)
{
	return word_of(c->a, c->half, word);
}

/* A warp that moves rows: its ring. */
struct mover {
	unsigned char *ring;
	uint64_t *barriers;
	uint32_t parity;  /* bit s: of the next wait for stage s */
	uint32_t loading; /* bit s: bulk loads are on their way to it */
	int32_t lane;
};

/* Part of a row that is in one stage: payload first, then scales. */
struct piece {
	uint32_t begin; /* of the payload */
	uint32_t payload;
	uint32_t scale_begin;
	uint32_t scales;
};

static __host__ __device__ inline uint32_t chunks_round(size_t bytes)
{
	return (uint32_t)((bytes + 15) / 16 * 16);
}

static __host__ __device__ inline uint32_t
chunks_stage_bytes(const struct ferry_cuda_channel *ch)
{
	return ch->row_stride < CHUNKS_STAGE_BYTES
	               ? (uint32_t)((ch->row_stride + 127) / 128 * 128)
	               : (uint32_t)CHUNKS_STAGE_BYTES;
}

static __host__ __device__ inline int32_t
chunks_stages(const struct ferry_cuda_channel *ch)
{
	const uint32_t n =
		CHUNKS_RING_BYTES / CHUNKS_WARPS / chunks_stage_bytes(ch);

	return n < CHUNKS_MAX_STAGES ? (int32_t)n : CHUNKS_MAX_STAGES;
}

static __host__ __device__ inline uint32_t
chunks_ring_bytes(const struct ferry_cuda_channel *ch)
{
	const uint32_t bytes = CHUNKS_WARPS * (uint32_t)chunks_stages(ch) *
	                       chunks_stage_bytes(ch);

	return bytes > CHUNKS_PLAN_BYTES ? bytes : (uint32_t)CHUNKS_PLAN_BYTES;
}

static __device__ __forceinline__ struct piece piece_of(const struct chunks *c,
                                                        int32_t index)
{
	const uint32_t begin = (uint32_t)index * c->stage_bytes;
	const uint32_t end = min(begin + c->stage_bytes, c->row_bytes);
	struct piece p;

	p.begin = begin;
	p.payload = begin < c->payload ? min(end, c->payload) - begin : 0;
	p.scale_begin = begin + p.payload - c->payload;
	p.scales = end - begin - p.payload;
	return p;
}

static __device__ __forceinline__ unsigned char *
stage_at(const struct chunks *c, const struct mover *m, int32_t stage)
{
	return m->ring + (uint32_t)stage * c->stage_bytes;
}

static __device__ inline struct mover mover_of(const struct chunks *c,
                                               int32_t warp, int32_t lane)
{
	struct mover m;

	m.ring = c->ring + (uint32_t)(warp * c->n_stages) * c->stage_bytes;
	m.barriers = c->barriers + warp * CHUNKS_MAX_STAGES;
	m.parity = 0;
	m.loading = 0;
	m.lane = lane;
	return m;
}

/* The stages may be filled again: nothing reads them any more. */
static __device__ __forceinline__ void mover_reuse(struct mover *m)
{
	if (m->lane == 0)
		bulk_wait_read<0>();
	__syncwarp();
}

/* Until what was loaded into a stage is there; all lanes. */
static __device__ __forceinline__ void mover_await(struct mover *m,
                                                   int32_t stage)
{
	const uint32_t bit = 1u << stage;

	if (m->loading & bit) {
		barrier_wait(&m->barriers[stage], (m->parity & bit) != 0);
		m->parity ^= bit;
		m->loading ^= bit;
	}
	__syncwarp();
}

/* The next n items of a queue, for a warp: the first of them. */
static __device__ __forceinline__ uint32_t take_items(const struct chunks *c,
                                                      enum chunks_word queue,
                                                      uint32_t n, int32_t lane)
{
	uint32_t first = 0;

	if (lane == 0)
		first = add_relaxed_gpu(word_at(c, queue), n);
	return __shfl_sync(~0u, first, 0);
}

static __device__ __forceinline__ struct wait recv_wait(const struct chunks *c)
{
	return wait_begin(&c->a->ch, FERRY_PHASE_DISPATCH_RECV, c->a->slot,
	                  c->epoch);
}

/*
 * Waits until blocks of this GPU have raised a word to n. They wait for peers,
 * and name who does not come; so there is no bound of its own here.
 */
static __device__ inline bool await_word(const struct chunks *c,
                                         enum chunks_word word, uint32_t n)
{
	uint32_t looks = 0;

	while (load_acquire_gpu(word_at(c, word)) < n) {
		if (++looks % WAIT_LOOK)
			continue;
		if (is_broken(&c->a->ch)) {
			const struct wait w = recv_wait(c);

			take_poison(&w, -1);
			return false;
		}
	}
	return true;
}

static __device__ __forceinline__ bool is_own_group(const struct chunks *c,
                                                    int32_t rank)
{
	const struct ferry_cuda_channel *ch = &c->a->ch;
	const int32_t first = ch->group * ch->group_size;

	return rank >= first && rank < first + ch->group_size;
}

/* Rows that a rank of a group carries, of a batch of n tokens. */
static __device__ __forceinline__ int32_t
carried_by(const struct ferry_cuda_channel *ch, int32_t rank, int32_t n_tokens)
{
	const int32_t place = rank % ch->group_size;

	return (n_tokens - place + ch->group_size - 1) / ch->group_size;
}

#endif
