/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the dispatch kernel on lines share: the threads of a
 * block, its shared memory, how rows are cut and who takes which, and the
 * moving of lines. The protocol is in dispatch_lines.cu.
 */
#ifndef FERRY_DISPATCH_LINES_CUH
#define FERRY_DISPATCH_LINES_CUH

#include "../proto/table.h"
#include "cuda_args.h"
#include "line.cuh"
#include "place.cuh"
#include "rows.cuh"
#include "table_form.cuh"
#include "wait.cuh"

enum {
	LINES_THREADS = 512,
	LINES_WARPS = LINES_THREADS / 32,
	LINES_TEAMS = LINES_THREADS / LINE_LANES, /* a team moves a line */
	LINES_OF_PART = 128, /* most lines of a row that are staged at once */
	LINES_BUFFERS = 3,   /* parts of rows in shared memory */
	LINES_PLACES = 512,  /* choices that are placed at once, */
	LINES_UNITS = 64,    /* of so many units */
	LINES_NO_SLOT = 0xffff,
	LINES_MAX_SLOTS = 8192,
	LINES_SMEM_BYTES = 212 << 10, /* dynamic, of a block */
	LINES_NOTHING = 0x7fffffff,
};

/* Offsets in dynamic shared memory; every one a multiple of 16. */
struct lines_layout {
	uint32_t buffer_bytes; /* LINES_BUFFERS of them, at 0 */
	uint32_t heads;        /* struct ferry_table [n_ranks] */
	uint32_t entries;      /* uint16_t [n_groups][entry_stride]: expert
	                        * slots as in the tables */
	uint32_t entry_stride;
	uint32_t starts; /* uint32_t [n_expert_slots + 1] */
	uint32_t totals; /* uint32_t [n_expert_slots] */
	uint32_t bytes;
};

static __host__ __device__ inline size_t lines_up16(size_t n)
{
	return (n + 15) & ~(size_t)15;
}

/* Lines of the image of a row of the channel's hidden size. */
static __host__ __device__ inline uint32_t
lines_of_row(const struct ferry_cuda_channel *ch)
{
	return (uint32_t)(ch->row_stride / LINE_BYTES);
}

static __host__ __device__ inline size_t
lines_entry_bytes(const struct ferry_cuda_channel *ch)
{
	return lines_up16((size_t)ch->max_tokens * ch->max_topk *
	                  sizeof(uint16_t));
}

/* At most 2^32 bytes: ferry_cuda_dispatch_lines.refuse sees to it. */
static __host__ __device__ inline struct lines_layout
lines_layout_of(const struct ferry_cuda_channel *ch)
{
	const uint32_t most = LINES_OF_PART * LINE_DATA, two = 2 * LINE_DATA;
	const uint32_t row = ch->row_lines ? lines_of_row(ch) * LINE_DATA
	                                   : (uint32_t)ch->row_stride;
	const uint32_t even = (row + two - 1) / two * two;
	const uint32_t slots = (uint32_t)ch->n_expert_slots;
	struct lines_layout at;

	at.buffer_bytes = even < most ? even : most;
	at.heads = LINES_BUFFERS * at.buffer_bytes;
	at.entries = at.heads + (uint32_t)ch->n_ranks *
	                                (uint32_t)sizeof(struct ferry_table);
	at.entry_stride = (uint32_t)(lines_entry_bytes(ch) / sizeof(uint16_t));
	at.starts =
		at.entries + (uint32_t)(ch->n_groups * lines_entry_bytes(ch));
	at.totals = at.starts + (uint32_t)lines_up16((slots + 1) * 4);
	at.bytes = at.totals + (uint32_t)lines_up16(slots * 4);
	return at;
}

/* Which part of which row: unit number u of a batch. */
struct lines_unit {
	int32_t group, token;
	uint32_t part;
	uint32_t first_line, end_line;
	uint32_t is_here; /* some choice is served here */
};

/* A choice and where it goes: expert slot of the world, row within it. */
struct lines_place {
	int32_t slot; /* -1: masked, or beyond the token's choices */
	int32_t index;
};

/* Small things in shared memory. */
struct lines_shared {
	uint64_t epoch;
	uint64_t content_hash;
	uint32_t stop;  /* this block has nothing to do, or has failed */
	uint32_t state; /* of the slot, as found */
	uint32_t served[LINES_BUFFERS][4]; /* ranks that serve the token whose
	                                    * row is there, as bits */
	uint32_t bad;                      /* first entry whose id is bad */
	/* First reasons to refuse the tables, in order: their forms, and what
	 * one warp finds behind the barrier at which all look at that. */
	uint32_t malformed, refusal;
	uint32_t bad_rank; /* lowest one without room */
	uint32_t n_rows, n_wanted;
	/* Of each table that has begun to arrive: its lines that are received
	 * here, and in the upper half its entries, so that who sees the one
	 * has the other. 0: nothing is known yet. */
	uint64_t tables[FERRY_CUDA_MAX_RANKS];
	uint32_t sums[LINES_WARPS];
	struct wait waits[LINES_WARPS];
	struct lines_unit units[LINES_UNITS]; /* at hand, and */
	struct lines_place places[LINES_PLACES];
	int64_t rows[LINES_PLACES]; /* of the output; -1: none */
	float weights[LINES_PLACES];
};

/*
 * Division of numbers below 2^31 by one that is known at launch: a division
 * by any other takes a kernel that is over in 10000 cycles a hundred.
 */
struct lines_div {
	uint32_t by, factor, shift;
};

static inline struct lines_div lines_div_of(uint32_t by)
{
	struct lines_div d = {by, 0, 31};

	while ((uint64_t)1 << (d.shift - 31) < by)
		d.shift++;
	d.factor = (uint32_t)(((uint64_t)1 << d.shift) / by + 1);
	return d;
}

static __device__ __forceinline__ uint32_t quotient(uint32_t n,
                                                    const struct lines_div *d)
{
	return (uint32_t)((uint64_t)n * d->factor >> d->shift);
}

static __device__ __forceinline__ uint32_t remainder(uint32_t n,
                                                     const struct lines_div *d)
{
	return n - quotient(n, d) * d->by;
}

/* How the rows of a batch are cut into parts, whole lines each. */
struct lines_cut {
	uint32_t n_lines;    /* of a row */
	uint32_t part_lines; /* even: parts begin at multiples of 16 bytes */
	struct lines_div n_parts;
};

static inline struct lines_cut lines_cut_of(uint32_t n_lines, uint32_t most)
{
	struct lines_cut c = {n_lines, 0, {}};
	const uint32_t n_parts = (n_lines + most - 1) / most;

	c.part_lines = ((n_lines + n_parts - 1) / n_parts + 1) & ~1u;
	c.n_parts = lines_div_of((n_lines + c.part_lines - 1) / c.part_lines);
	return c;
}

/* What the kernel is given: made by launch. */
struct lines_args {
	struct lines_layout at;
	struct row_image image;
	uint32_t n_clerks;   /* blocks that send tables; with one block, that */
	uint32_t n_workers;  /* one does both */
	uint32_t few;        /* up to so many tokens are cut finely */
	uint32_t most_units; /* of a worker that are placed at once */
	struct lines_cut cut, fine_cut;
	struct lines_div by_workers, by_group, by_topk, by_max_topk;
	struct lines_div by_table_lines;
	struct lines_div by_slots;      /* expert slots of a rank, where even */
	int32_t plain_ids;              /* and weights: at even addresses */
	int32_t bulk_rows, bulk_scales; /* the copy engine can store them */
	struct ferry_cuda_dispatch d;
};

/* A block of the kernel. */
struct lines {
	const struct lines_args *a;
	const struct ferry_cuda_dispatch *d;
	const struct ferry_cuda_channel *ch;
	struct lines_shared *shared;
	unsigned char *smem;
	uint64_t epoch;
	uint32_t half;
	uint32_t thread, warp, lane;
	uint32_t team, team_lane;
	int32_t worker; /* number among those that move rows, -1: not one */
};

static __device__ __forceinline__ struct lines
lines_begin(const struct lines_args *a, struct lines_shared *shared,
            unsigned char *smem, uint64_t epoch)
{
	struct lines l;

	l.a = a;
	l.d = &a->d;
	l.ch = &a->d.ch;
	l.shared = shared;
	l.smem = smem;
	l.epoch = epoch;
	l.half = (uint32_t)(epoch & 1);
	l.thread = threadIdx.x;
	l.warp = threadIdx.x / 32;
	l.lane = threadIdx.x % 32;
	l.team = threadIdx.x / LINE_LANES;
	l.team_lane = threadIdx.x % LINE_LANES;
	l.worker = gridDim.x > 1 ? (int32_t)(blockIdx.x - a->n_clerks) : 0;
	return l;
}

static __device__ __forceinline__ unsigned char *
lines_buffer(const struct lines *l, uint32_t i)
{
	return l->smem + i % LINES_BUFFERS * l->a->at.buffer_bytes;
}

static __device__ __forceinline__ struct ferry_table *
lines_head(const struct lines *l, int32_t rank)
{
	return (struct ferry_table *)(l->smem + l->a->at.heads) + rank;
}

static __device__ __forceinline__ uint16_t *lines_entries(const struct lines *l,
                                                          int32_t group)
{
	return (uint16_t *)(l->smem + l->a->at.entries) +
	       (size_t)group * l->a->at.entry_stride;
}

static __device__ __forceinline__ uint32_t *lines_totals(const struct lines *l)
{
	return (uint32_t *)(l->smem + l->a->at.totals);
}

static __device__ __forceinline__ uint32_t *lines_starts(const struct lines *l)
{
	return (uint32_t *)(l->smem + l->a->at.starts);
}

/*
 * Few tokens: parts small enough that a team moves one line. Else as large as
 * a buffer.
 */
static __device__ __forceinline__ const struct lines_cut *
lines_cut_for(const struct lines *l, uint32_t n_tokens)
{
	return n_tokens <= l->a->few ? &l->a->fine_cut : &l->a->cut;
}

static __device__ __forceinline__ void
lines_take_part(struct lines_unit *unit, const struct lines_cut *cut,
                uint32_t part)
{
	unit->part = part;
	unit->first_line = part * cut->part_lines;
	unit->end_line =
		min_u32(cut->n_lines, unit->first_line + cut->part_lines);
}

/* Units u = worker, worker + n_workers, ... below n: how many are mine? */
static __device__ __forceinline__ uint32_t lines_share(const struct lines *l,
                                                       uint32_t n)
{
	const uint32_t first = (uint32_t)l->worker;

	return l->worker < 0 || first >= n
	               ? 0
	               : quotient(n - first - 1, &l->a->by_workers) + 1;
}

/* As rank_of_slot. */
static __device__ __forceinline__ int32_t lines_rank_of(const struct lines *l,
                                                        int32_t slot)
{
	if (l->ch->even_slots)
		return (int32_t)quotient((uint32_t)slot, &l->a->by_slots);
	return rank_of_slot(l->ch, slot);
}

/* Place in its group of the rank that sends a token; of a rank itself. */
static __device__ __forceinline__ int32_t lines_mate(const struct lines *l,
                                                     int32_t token)
{
	return (int32_t)remainder((uint32_t)token, &l->a->by_group);
}

static __device__ __forceinline__ int32_t lines_carrier(const struct lines *l,
                                                        int32_t group,
                                                        int32_t token)
{
	return group * l->ch->group_size + lines_mate(l, token);
}

/* Number of the region of a source among those of `owner`, with its half. */
static __device__ __forceinline__ uint32_t lines_region(const struct lines *l,
                                                        int32_t owner,
                                                        int32_t source)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const int32_t first = owner - lines_mate(l, owner);
	const bool all = ch->layout == FERRY_TOKEN || source < first;

	return l->half * (uint32_t)ch->row_sources +
	       (uint32_t)(all ? source : source - ch->group_size);
}

/* As row_at, for a token. */
static __device__ __forceinline__ unsigned char *
lines_row(const struct lines *l, int32_t owner, int32_t source, int32_t token)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const size_t i = (size_t)lines_region(l, owner, source) * ch->cap +
	                 quotient((uint32_t)token, &l->a->by_group);

	return slot_window(ch, owner, l->d->slot) + ch->row_offset +
	       i * ch->row_stride;
}

/* TOKEN: the flag of the same row; rows have one each. */
static __device__ __forceinline__ uint64_t *
lines_flag(const struct lines *l, int32_t owner, int32_t source, int32_t token)
{
	const struct ferry_cuda_channel *ch = l->ch;

	return (uint64_t *)(slot_window(ch, owner, l->d->slot) +
	                    ch->row_flag_offset) +
	       (size_t)lines_region(l, owner, source) * ch->row_chunks +
	       quotient((uint32_t)token, &l->a->by_group);
}

/* Lines [first, end) of a row from shared memory to a window. */
static __device__ __forceinline__ void lines_send(const struct lines *l,
                                                  unsigned char *row,
                                                  const unsigned char *part,
                                                  uint32_t first, uint32_t end)
{
#pragma unroll 2
	for (uint32_t i = first + l->team; i < end; i += LINES_TEAMS) {
		const uint64_t *from =
			(const uint64_t *)(part + (i - first) * LINE_DATA +
		                           l->team_lane * 16);
		const uint64_t a = from[0];
		/* Behind lane 7's eight bytes is the next line's data. */
		const uint64_t b = l->team_lane == 7 ? 0 : from[1];

		line_store(row + (size_t)i * LINE_BYTES, l->team_lane, a, b,
		           l->epoch);
	}
}

/* After a look of a whole warp in vain; see wait_again_warp. */
static __device__ __forceinline__ bool
lines_again(const struct lines *l, uint32_t *n_looks, int32_t peer)
{
	return wait_again_warp(&l->shared->waits[l->warp], n_looks, peer);
}

/* Every wait of the warp is one wait, as to its bound. */
static __device__ __forceinline__ void lines_begin_wait(const struct lines *l)
{
	if (l->lane == 0)
		l->shared->waits[l->warp] = wait_begin(
			l->ch, FERRY_PHASE_DISPATCH_RECV, l->d->slot, l->epoch);
	__syncwarp();
}

/*
 * The lines of a part of a row, as they arrive, into shared memory. Whole
 * warps; false on all lanes of a warp: the channel has ended.
 */
static __device__ __forceinline__ bool
lines_receive(const struct lines *l, unsigned char *part,
              const unsigned char *row, const struct lines_unit *unit,
              int32_t peer)
{
	enum { OPEN = 2 }; /* lines of a team that are looked at together */
	uint32_t n_looks = 0;

	row += l->team_lane * 16;
	part += l->team_lane * 16;
#pragma unroll 1
	for (uint32_t i = unit->first_line + l->team;
	     i - l->team < unit->end_line; i += OPEN * LINES_TEAMS) {
		uint64_t a[OPEN], b[OPEN];
		bool here[OPEN], all;

		do {
			all = true;
#pragma unroll
			for (int u = 0; u < OPEN; u++)
				if (i + u * LINES_TEAMS < unit->end_line)
					load_volatile_16(
						row + (i + u * LINES_TEAMS) *
								LINE_BYTES,
						&a[u], &b[u]);
				else
					b[u] = l->epoch;
#pragma unroll
			for (int u = 0; u < OPEN; u++) {
				here[u] = line_flagged(l->lane, l->epoch, b[u]);
				all = all && here[u];
			}
			all = __all_sync(0xffffffffu, all);
			if (!all && !lines_again(l, &n_looks, peer))
				return false;
		} while (!all);
#pragma unroll
		for (int u = 0; u < OPEN; u++) {
			const uint32_t at =
				i + u * LINES_TEAMS - unit->first_line;
			uint64_t *to = (uint64_t *)(part + at * LINE_DATA);

			if (i + u * LINES_TEAMS >= unit->end_line)
				continue;
			to[0] = a[u];
			if (l->team_lane != 7)
				to[1] = b[u];
		}
	}
	return true;
}

#endif
