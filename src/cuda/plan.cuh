/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout function on the device: ferry_route_build and ferry_route_drops,
 * to the row, in parallel. A stable counting sort of choices by expert slot:
 *
 *	1. each block of a table (table_chunk tokens of a group) is counted by
 *	   one team: a histogram, and for each choice its place among those of
 *	   its slot in this block
 *	2. when all blocks are counted: a block's rows of a slot begin where
 *	   the blocks before it end; what a slot may keep, and where it begins,
 *	   follow from the totals
 *	3. each choice gets its slot and index, or none
 *
 * Between 1 and 2 all teams must have finished 1; the kernel sees to that.
 * Bounded channels count the slots of all ranks, since each rank has to know
 * which of its choices others drop, and whether any rank lacks room.
 *
 * Within a block a warp takes 32 tokens, one to each lane, and sets the lane's
 * bit in the mask of each slot that its token names: the place of a choice is
 * the number of bits below its own. Tokens that name a slot twice are rare;
 * their 32 are counted again, one row of entries after the other.
 *
 * A CTA has the blocks [begin, end), neighbours, and CTA 0 the first of all.
 */
#ifndef FERRY_PLAN_CUH
#define FERRY_PLAN_CUH

#include "place.cuh"
#include "team.cuh"

enum {
	PLAN_ENTRIES = 2048, /* of a block at most */
	PLAN_WARPS = 8,      /* of a team at most */
};

struct plan {
	const struct ferry_cuda_channel *ch;
	const struct ferry_cuda_op *op;
	struct team team;
	int32_t first, range; /* slots of the world that are counted */
	int32_t stride;       /* range, rounded up to 4 */
	int32_t own;          /* the own slots' place in this range */
	int32_t begin, end;   /* own blocks */
	int32_t n_owners;     /* CTAs that have blocks */
	uint32_t *histogram;  /* device: [blocks][stride] */
	/* Of this team. */
	int32_t *slot;   /* [PLAN_ENTRIES] of the block at hand, in the range */
	int32_t *place;  /* [PLAN_ENTRIES] */
	uint32_t *mask;  /* [32s of tokens][stride]; then sums of the warps */
	uint32_t *base;  /* [stride] rows in the blocks before */
	uint32_t *keep;  /* [stride] rows wanted, then rows kept */
	int64_t *offset; /* [own slots + 1] */
	struct plan_sums *sums; /* shared */
};

/* What the scan of the totals finds. */
struct plan_sums {
	int64_t n_rows, n_dropped;
	int32_t lacking[PLAN_WARPS]; /* lowest rank without room */
	int64_t need[PLAN_WARPS];
	uint64_t twice; /* bit g: tokens 32 g .. name a slot twice */
};

static __host__ __device__ inline int32_t
plan_range(const struct ferry_cuda_channel *ch)
{
	return ch->bounded ? ch->n_expert_slots : ch->own_expert_slots;
}

static __host__ __device__ inline int32_t
plan_stride(const struct ferry_cuda_channel *ch)
{
	return (plan_range(ch) + 3) / 4 * 4;
}

/* 32s of tokens in a block. */
static __host__ __device__ inline int32_t
plan_groups(const struct ferry_cuda_channel *ch)
{
	return (ch->table_chunk + 31) / 32;
}

static __host__ __device__ inline size_t
plan_blocks(const struct ferry_cuda_channel *ch)
{
	return (size_t)ch->n_groups * ch->table_parts;
}

/* Device memory that all teams share. */
static __host__ __device__ inline size_t
plan_histogram_bytes(const struct ferry_cuda_channel *ch)
{
	const size_t bytes = plan_blocks(ch) * plan_stride(ch) * 4;

	return (bytes + 255) / 256 * 256;
}

/* Memory of one team, shared or not. */
static __host__ __device__ inline size_t
plan_team_bytes(const struct ferry_cuda_channel *ch)
{
	const size_t masks = plan_groups(ch) < 2 * PLAN_WARPS ? 2 * PLAN_WARPS
	                                                      : plan_groups(ch);
	const size_t bytes = 2 * PLAN_ENTRIES * 4 +
	                     (masks + 2) * plan_stride(ch) * 4 +
	                     ((size_t)ch->own_expert_slots + 1) * 8;

	return (bytes + 255) / 256 * 256;
}

/* The blocks of tables are spread over the CTAs 0 .. n_ctas - 1. */
static __device__ inline void plan_init(struct plan *p, int32_t n_ctas,
                                        unsigned char *memory,
                                        uint32_t *histogram)
{
	const struct ferry_cuda_channel *ch = p->ch;
	const int32_t blocks = (int32_t)plan_blocks(ch);
	const int32_t each = (blocks + n_ctas - 1) / n_ctas;

	p->range = plan_range(ch);
	p->stride = plan_stride(ch);
	p->first = ch->bounded ? 0 : ch->first_slot[ch->rank];
	p->own = ch->first_slot[ch->rank] - p->first;
	p->n_owners = (blocks + each - 1) / each;
	p->begin = min((int32_t)blockIdx.x * each, blocks);
	p->end = min(p->begin + each, blocks);
	p->histogram = histogram;
	p->slot = (int32_t *)memory;
	p->place = p->slot + PLAN_ENTRIES;
	p->base = (uint32_t *)(p->place + PLAN_ENTRIES);
	p->keep = p->base + p->stride;
	p->mask = p->keep + p->stride;
	p->offset = (int64_t *)(p->mask +
	                        (size_t)max(plan_groups(ch), 2 * PLAN_WARPS) *
	                                p->stride);
}

/* i / by for i < 4096, by <= 64; by multiplication. */
static __device__ __forceinline__ int32_t divide(int32_t i, uint32_t inverse)
{
	return (int32_t)(((uint32_t)i * inverse) >> 20);
}

static __device__ __forceinline__ uint32_t inverse_of(int32_t by)
{
	return ((1u << 20) + (uint32_t)by - 1) / (uint32_t)by;
}

/*
 * The entries of a block into p->slot, as they are. All loads of a thread fly
 * before the first use.
 */
static __device__ inline void plan_load(const struct plan *p,
                                        const int32_t *slots, int32_t n)
{
	enum { STEPS = 4 };
	const int32_t step = team_threads(&p->team);
	const int32_t wide = ((uintptr_t)slots & 15) == 0 ? n / 4 : 0;

#pragma unroll 1
	for (int32_t from = team_thread(&p->team); from < wide;
	     from += step * STEPS) {
		int4 v[STEPS];

#pragma unroll
		for (int32_t i = 0; i < STEPS; i++)
			if (from + i * step < wide)
				v[i] = ((const int4 *)slots)[from + i * step];
#pragma unroll
		for (int32_t i = 0; i < STEPS; i++)
			if (from + i * step < wide)
				((int4 *)p->slot)[from + i * step] = v[i];
	}
#pragma unroll 1
	for (int32_t i = wide * 4 + team_thread(&p->team); i < n; i += step)
		p->slot[i] = slots[i];
}

/* Slots of the world become places in the range. False: there is no such. */
static __device__ inline bool plan_convert(const struct plan *p, int32_t n)
{
	bool good = true;

#pragma unroll 1
	for (int32_t i = team_thread(&p->team); i < n;
	     i += team_threads(&p->team)) {
		const int32_t slot = p->slot[i];
		const uint32_t s = (uint32_t)slot - (uint32_t)p->first;

		good &= slot >= -1 && slot < p->ch->n_expert_slots;
		p->slot[i] =
			slot >= 0 && s < (uint32_t)p->range ? (int32_t)s : -1;
	}
	return good;
}

static __device__ inline void clear_row(uint32_t *row, int32_t n, int32_t lane)
{
#pragma unroll 1
	for (int32_t s = lane; s < n; s += 32)
		row[s] = 0;
	__syncwarp();
}

/* As below where a token names a slot twice: row[s] is the number. */
static __device__ __noinline__ void
count_twice(const struct plan *p, uint32_t *row, int32_t begin, int32_t end)
{
	clear_row(row, p->stride, p->team.lane);
#pragma unroll 1
	for (int32_t from = begin; from < end; from += 32) {
		const int32_t at = from + p->team.lane;
		const int32_t s = at < end ? p->slot[at] : -1;
		const uint32_t same = __match_any_sync(~0u, s);
		const uint32_t before = same & ((1u << p->team.lane) - 1);
		const uint32_t base = s >= 0 ? row[s] : 0;

		__syncwarp();
		if (s >= 0 && before == 0)
			row[s] = base + (uint32_t)__popc(same);
		if (s >= 0)
			p->place[at] = (int32_t)base + __popc(before);
		__syncwarp();
	}
}

/* 32 tokens: places among their own, and row[s], who names slot s. */
static __device__ inline void count_tokens(const struct plan *p, int32_t group,
                                           int32_t n_tokens, int32_t topk)
{
	uint32_t *row = p->mask + (size_t)group * p->stride;
	const int32_t token = group * 32 + p->team.lane;
	const uint32_t bit = 1u << p->team.lane;
	enum { STEPS = 4 };
	const int32_t *slot = p->slot + token * topk;
	int32_t *place = p->place + token * topk;
	bool twice = false;

	clear_row(row, p->stride, p->team.lane);
#pragma unroll 1
	for (int32_t from = 0; from < topk; from += STEPS) {
		int32_t s[STEPS];
		uint32_t seen = 0;

#pragma unroll
		for (int32_t i = 0; i < STEPS; i++)
			s[i] = token < n_tokens && from + i < topk
			               ? slot[from + i]
			               : -1;
#pragma unroll
		for (int32_t i = 0; i < STEPS; i++)
			if (s[i] >= 0)
				seen |= atomicOr(&row[s[i]], bit);
		twice |= (seen & bit) != 0;
	}
	__syncwarp();
#pragma unroll 1
	for (int32_t from = 0; from < topk; from += STEPS) {
		uint32_t m[STEPS];

#pragma unroll
		for (int32_t i = 0; i < STEPS; i++) {
			const int32_t s = token < n_tokens && from + i < topk
			                          ? slot[from + i]
			                          : -1;

			m[i] = s >= 0 ? row[s] : 0;
		}
#pragma unroll
		for (int32_t i = 0; i < STEPS; i++)
			if (token < n_tokens && from + i < topk)
				place[from + i] = __popc(m[i] & (bit - 1));
	}
	if (!__any_sync(~0u, twice))
		return;
	__syncwarp();
	count_twice(p, row, group * 32 * topk,
	            min(n_tokens, group * 32 + 32) * topk);
	if (p->team.lane == 0)
		atomicOr((unsigned long long *)&p->sums->twice, 1ull << group);
}

/* Exclusive sums over the groups; the totals are the block's histogram. */
static __device__ inline void sum_groups(const struct plan *p, int32_t block,
                                         int32_t n_groups)
{
	uint32_t *to = p->histogram + (size_t)block * p->stride;
	const uint64_t twice = p->sums->twice;

#pragma unroll 1
	for (int32_t s = team_thread(&p->team); s < p->stride;
	     s += team_threads(&p->team)) {
		uint32_t sum = 0;

#pragma unroll 4
		for (int32_t g = 0; g < n_groups; g++) {
			uint32_t *m = p->mask + (size_t)g * p->stride + s;
			const uint32_t n =
				twice >> g & 1 ? *m : (uint32_t)__popc(*m);

			*m = sum;
			sum += n;
		}
		to[s] = sum;
	}
}

static __device__ __forceinline__ struct ferry_cuda_copy *
copy_at(const struct ferry_cuda_channel *ch, const struct ferry_cuda_op *op,
        int32_t group, int32_t token)
{
	const size_t row = (size_t)group * ch->max_tokens + token;

	return op->copies + row * ch->max_topk;
}

/* Where a block's entries wait when the team counts another one meanwhile. */
static __device__ __forceinline__ struct ferry_cuda_copy *
plan_spill(const struct plan *p, int32_t block)
{
	const int32_t group = block / p->ch->table_parts;
	const int32_t part = block - group * p->ch->table_parts;

	return copy_at(p->ch, p->op, group, part * p->ch->table_chunk);
}

/*
 * Step 1 for one block: n_tokens of a table, maybe none. Leaves slot and place
 * of each entry with the team, or where plan_recall finds them. False on
 * threads that met a slot that does not exist.
 */
static __device__ inline bool plan_count(const struct plan *p, int32_t block,
                                         const int32_t *slots, int32_t n_tokens,
                                         int32_t topk)
{
	const int32_t n_groups = (n_tokens + 31) / 32, n = n_tokens * topk;
	const uint32_t inverse = inverse_of(topk);

	plan_load(p, slots, n);
	if (team_thread(&p->team) == 0)
		p->sums->twice = 0;
	team_sync(&p->team);
	const bool good = plan_convert(p, n);

	team_sync(&p->team);
#pragma unroll 1
	for (int32_t g = p->team.warp; g < n_groups; g += p->team.n_warps)
		count_tokens(p, g, n_tokens, topk);
	team_sync(&p->team);
	sum_groups(p, block, n_groups);
	team_sync(&p->team);
#pragma unroll 1
	for (int32_t i = team_thread(&p->team); i < n;
	     i += team_threads(&p->team)) {
		const int32_t s = p->slot[i];
		const int32_t g = divide(i, inverse) / 32;

		if (s >= 0)
			p->place[i] +=
				(int32_t)p->mask[(size_t)g * p->stride + s];
		if (p->end - p->begin > 1) {
			const struct ferry_cuda_copy c = {s, p->place[i]};

			plan_spill(p, block)[i] = c;
		}
	}
	team_sync(&p->team);
	return good;
}

/* Makes a block that was counted the one at hand. n entries. */
static __device__ inline void plan_recall(const struct plan *p, int32_t block,
                                          int32_t n)
{
	if (p->end - p->begin <= 1)
		return;
#pragma unroll 1
	for (int32_t i = team_thread(&p->team); i < n;
	     i += team_threads(&p->team)) {
		const struct ferry_cuda_copy c = plan_spill(p, block)[i];

		p->slot[i] = c.slot;
		p->place[i] = c.index;
	}
	team_sync(&p->team);
}

/* Blocks of a group that have tokens. */
static __device__ __forceinline__ int32_t
plan_parts(const struct ferry_cuda_channel *ch, int32_t n_tokens)
{
	return (n_tokens + ch->table_chunk - 1) / ch->table_chunk;
}

static __device__ __forceinline__ void add_4(uint4 *to, uint4 v)
{
	to->x += v.x;
	to->y += v.y;
	to->z += v.z;
	to->w += v.w;
}

/* The rows of the histogram that one warp adds, for 4 slots to a lane. */
static __device__ inline void sum_rows(const struct plan *p, int32_t column,
                                       uint4 *total, uint4 *base)
{
	const int32_t n = (int32_t)plan_blocks(p->ch);
	const uint32_t *h = p->histogram + column;

#pragma unroll 8
	for (int32_t b = p->team.warp; b < n; b += p->team.n_warps) {
		const uint4 v = *(const uint4 *)(h + (size_t)b * p->stride);

		add_4(total, v);
		if (b < p->begin)
			add_4(base, v);
	}
}

/* Step 2: totals of all blocks, and of those before the own. */
static __device__ inline void plan_total(const struct plan *p)
{
	const int32_t n_warps = p->team.n_warps;
	uint32_t *totals = p->mask, *bases = p->mask + n_warps * p->stride;

#pragma unroll 1
	for (int32_t s = p->team.lane * 4; s < p->stride; s += 128) {
		uint4 total = make_uint4(0, 0, 0, 0), base = total;
		const size_t at = (size_t)p->team.warp * p->stride + s;

		sum_rows(p, s, &total, &base);
		*(uint4 *)(totals + at) = total;
		*(uint4 *)(bases + at) = base;
	}
	team_sync(&p->team);
#pragma unroll 1
	for (int32_t s = team_thread(&p->team); s < p->stride;
	     s += team_threads(&p->team)) {
		uint32_t total = 0, base = 0;

#pragma unroll 1
		for (int32_t w = 0; w < n_warps; w++) {
			total += totals[w * p->stride + s];
			base += bases[w * p->stride + s];
		}
		p->keep[s] = total;
		p->base[s] = base;
	}
	team_sync(&p->team);
}

static __device__ __forceinline__ int64_t scan_warp(int64_t v, int32_t lane)
{
#pragma unroll
	for (int32_t d = 1; d < 32; d *= 2) {
		const int64_t below = __shfl_up_sync(~0u, v, (unsigned)d);

		v += lane >= d ? below : 0;
	}
	return v;
}

static __device__ __forceinline__ int64_t sum_warp(int64_t v)
{
#pragma unroll
	for (int32_t d = 16; d > 0; d /= 2)
		v += __shfl_xor_sync(~0u, v, d);
	return v;
}

static __device__ __forceinline__ int64_t max_warp(int64_t v)
{
#pragma unroll
	for (int32_t d = 16; d > 0; d /= 2)
		v = max(v, __shfl_xor_sync(~0u, v, d));
	return v;
}

/*
 * Rows that the slots of one rank keep, and where they begin. What is left of
 * the capacity when a slot's turn comes is the capacity less all that the
 * slots before it want, since whoever gets less than it wants takes the rest.
 * Returns what the rank needs, in the unit of its capacity. One warp.
 */
static __device__ inline int64_t keep_rank(const struct plan *p, int32_t rank)
{
	const struct ferry_cuda_channel *ch = p->ch;
	const bool padded = ch->layout == FERRY_EXPERT_PADDED;
	const int64_t mask = ch->alignment - 1;
	const int32_t first = ch->first_slot[rank];
	const int32_t n = ch->first_slot[rank + 1] - first;
	uint32_t *rows = p->keep + (first - p->first);
	const bool own = rank == ch->rank;
	int64_t end = 0, need = 0, kept = 0, lost = 0;

#pragma unroll 1
	for (int32_t from = 0; from < n; from += 32) {
		const int32_t s = from + p->team.lane;
		const int64_t wanted = s < n ? rows[s] : 0;
		int64_t keep = padded ? min(wanted, ch->padded_rows) : wanted;
		const int64_t step = (keep + mask) & ~mask;
		const int64_t sum = scan_warp(step, p->team.lane);
		int64_t at = end + sum - step;

		if (!padded) {
			at = min(at, ch->recv_rows);
			keep = min(keep, ch->recv_rows - at);
		}
		if (s < n)
			rows[s] = (uint32_t)keep;
		if (s < n && own)
			p->offset[s] = at;
		need = padded ? max(need, wanted) : need + step;
		kept += keep;
		lost += wanted - keep;
		end += __shfl_sync(~0u, sum, 31);
	}
	kept = sum_warp(kept);
	lost = sum_warp(lost);
	if (own && p->team.lane == 0) {
		p->offset[n] = padded ? end : min(end, ch->recv_rows);
		p->sums->n_rows = kept;
		p->sums->n_dropped = lost;
	}
	return padded ? max_warp(need) : sum_warp(need);
}

/* After plan_total: what is kept. */
static __device__ inline void plan_keep(const struct plan *p)
{
	const struct ferry_cuda_channel *ch = p->ch;
	const int64_t room = ch->layout == FERRY_EXPERT_PADDED ? ch->padded_rows
	                                                       : ch->recv_rows;
	int32_t lacking = ch->n_ranks;
	int64_t need = 0;

	/* Unbounded, there is nothing to know of others. */
	const int32_t first = ch->bounded ? 0 : ch->rank;
	const int32_t end = ch->bounded ? ch->n_ranks : ch->rank + 1;

#pragma unroll 1
	for (int32_t r = first + p->team.warp; r < end; r += p->team.n_warps) {
		const int64_t n = keep_rank(p, r);

		if (!ch->bounded || n <= room || lacking < ch->n_ranks)
			continue;
		lacking = r;
		need = n;
	}
	if (p->team.lane == 0) {
		p->sums->lacking[p->team.warp] = lacking;
		p->sums->need[p->team.warp] = need;
	}
	team_sync(&p->team);
}

/* Lowest rank that lacks room, n_ranks: none; and what it needs. */
static __device__ inline int32_t plan_lacking(const struct plan *p,
                                              int64_t *need)
{
	int32_t lacking = p->ch->n_ranks;

#pragma unroll 1
	for (int32_t w = 0; w < p->team.n_warps; w++) {
		if (p->sums->lacking[w] >= lacking)
			continue;
		lacking = p->sums->lacking[w];
		*need = p->sums->need[w];
	}
	return lacking;
}

/* Step 3 for entry i of the block at hand. */
static __device__ __forceinline__ struct ferry_cuda_copy
plan_place(const struct plan *p, int32_t i, bool *dropped)
{
	const int32_t s = p->slot[i];
	struct ferry_cuda_copy placed;

	placed.slot = -1;
	placed.index = 0;
	*dropped = false;
	if (s < 0)
		return placed;
	const uint32_t index = p->base[s] + (uint32_t)p->place[i];
	const int32_t own = s - p->own;

	*dropped = index >= p->keep[s];
	if (*dropped || own < 0 || own >= p->ch->own_expert_slots)
		return placed;
	placed.slot = own;
	placed.index = (int32_t)index;
	return placed;
}

/* From one block to the next. */
static __device__ inline void plan_next(const struct plan *p, int32_t block)
{
	const uint32_t *h = p->histogram + (size_t)block * p->stride;

	team_sync(&p->team);
#pragma unroll 1
	for (int32_t s = team_thread(&p->team); s < p->range;
	     s += team_threads(&p->team))
		p->base[s] += h[s];
	team_sync(&p->team);
}

#endif
