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
 * A CTA has the blocks [begin, end), neighbours, and CTA 0 the first of all.
 */
#ifndef FERRY_PLAN_CUH
#define FERRY_PLAN_CUH

#include "place.cuh"
#include "team.cuh"

enum {
	PLAN_WARPS_MIN = 4,
	PLAN_ENTRIES = 2048, /* of a block at most */
	PLAN_STEPS = PLAN_ENTRIES / 32 / PLAN_WARPS_MIN,
	PLAN_NO_SLOT = 0x7fffffff,
};

struct plan {
	const struct ferry_cuda_channel *ch;
	const struct ferry_cuda_op *op;
	struct team team;
	int32_t first, range;   /* slots of the world that are counted */
	int32_t own;            /* the own slots' place in this range */
	int32_t begin, end;     /* own blocks */
	int32_t n_owners;       /* CTAs that have blocks */
	uint32_t *histogram;    /* device: [blocks][range] */
	uint32_t *count;        /* [warps of the team][range] */
	uint32_t *base;         /* [range] rows in the blocks before */
	uint32_t *keep;         /* [range] rows wanted, then rows kept */
	int64_t *offset;        /* [own slots + 1] */
	struct plan_sums *sums; /* shared */
};

/* What the scan of the totals finds. */
struct plan_sums {
	int64_t n_rows, n_dropped;
	int32_t lacking[32]; /* of each warp: lowest rank without room */
	int64_t need[32];
};

static __host__ __device__ inline int32_t
plan_range(const struct ferry_cuda_channel *ch)
{
	return ch->bounded ? ch->n_expert_slots : ch->own_expert_slots;
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
	const size_t bytes = plan_blocks(ch) * plan_range(ch) * 4;

	return (bytes + 255) / 256 * 256;
}

/* Memory of one team, shared or not. */
static __host__ __device__ inline size_t
plan_team_bytes(const struct ferry_cuda_channel *ch, int32_t n_warps)
{
	const size_t range = (size_t)plan_range(ch) + 1;
	const size_t bytes = (size_t)(ch->own_expert_slots + 1) * 8 +
	                     (n_warps + 2) * range * 4;

	return (bytes + 255) / 256 * 256;
}

static __device__ inline void plan_init(struct plan *p, unsigned char *memory,
                                        uint32_t *histogram)
{
	const struct ferry_cuda_channel *ch = p->ch;
	const int32_t blocks = (int32_t)plan_blocks(ch);
	const int32_t n_ctas = (int32_t)gridDim.x;
	const int32_t each = (blocks + n_ctas - 1) / n_ctas;

	p->range = plan_range(ch);
	p->first = ch->bounded ? 0 : ch->first_slot[ch->rank];
	p->own = ch->first_slot[ch->rank] - p->first;
	p->n_owners = (blocks + each - 1) / each;
	p->begin = min((int32_t)blockIdx.x * each, blocks);
	p->end = min(p->begin + each, blocks);
	p->histogram = histogram;
	p->offset = (int64_t *)memory;
	p->count = (uint32_t *)(p->offset + ch->own_expert_slots + 1);
	p->base = p->count + (size_t)p->team.n_warps * p->range;
	p->keep = p->base + p->range;
}

/* The entries of a block that one warp counts: lane l has begin + l + 32 i. */
struct plan_share {
	int32_t begin, end;
};

static __device__ __forceinline__ struct plan_share
plan_share_of(const struct team *team, int32_t n)
{
	const int32_t threads = team_threads(team);
	const int32_t each = (n + threads - 1) / threads * 32;
	struct plan_share s;

	s.begin = min(team->warp * each, n);
	s.end = min(s.begin + each, n);
	return s;
}

static __device__ __forceinline__ struct ferry_cuda_copy *
copy_at(const struct ferry_cuda_channel *ch, const struct ferry_cuda_op *op,
        int32_t group, int32_t token)
{
	const size_t row = (size_t)group * ch->max_tokens + token;

	return op->copies + row * ch->max_topk;
}

/*
 * Counts a row of 32 entries: the place of this lane's in its slot, among
 * those that the warp has seen so far.
 */
static __device__ __forceinline__ uint32_t count_row(uint32_t *count,
                                                     int32_t slot, int32_t lane)
{
	const uint32_t same = __match_any_sync(~0u, slot);
	const uint32_t before = same & ((1u << lane) - 1);
	const bool counts = slot != PLAN_NO_SLOT;
	const uint32_t base = counts ? count[slot] : 0;

	__syncwarp();
	if (counts && before == 0)
		count[slot] = base + (uint32_t)__popc(same);
	__syncwarp();
	return base + (uint32_t)__popc(before);
}

/* Exclusive sums over the warps; the totals are the block's histogram. */
static __device__ inline void sum_warps(const struct plan *p, int32_t block)
{
	uint32_t *to = p->histogram + (size_t)block * p->range;

	for (int32_t s = team_thread(&p->team); s < p->range;
	     s += team_threads(&p->team)) {
		uint32_t sum = 0;

		for (int32_t w = 0; w < p->team.n_warps; w++) {
			uint32_t *c = p->count + (size_t)w * p->range + s;
			const uint32_t n = *c;

			*c = sum;
			sum += n;
		}
		to[s] = sum;
	}
}

/*
 * Step 1 for one block: n entries of a table from token `first_token` on.
 * Leaves {slot in the range or -1, place in the block} in op->copies. False on
 * threads that met a slot that does not exist.
 */
static __device__ inline bool plan_count(const struct plan *p, int32_t block,
                                         const int32_t *slots, int32_t n,
                                         int32_t topk)
{
	const struct ferry_cuda_channel *ch = p->ch;
	const int32_t group = block / ch->table_parts;
	const int32_t first_token =
		(block - group * ch->table_parts) * ch->table_chunk;
	const struct plan_share share = plan_share_of(&p->team, n);
	uint32_t *count = p->count + (size_t)p->team.warp * p->range;
	int32_t slot[PLAN_STEPS];
	uint32_t place[PLAN_STEPS];
	bool good = true;

	for (int32_t s = p->team.lane; s < p->range; s += 32)
		count[s] = 0;
	__syncwarp();
#pragma unroll
	for (int32_t i = 0; i < PLAN_STEPS; i++) {
		const int32_t at = share.begin + i * 32 + p->team.lane;

		slot[i] = at < share.end ? slots[at] : -1;
	}
#pragma unroll
	for (int32_t i = 0; i < PLAN_STEPS; i++) {
		if (share.begin + i * 32 >= share.end)
			break;
		const int32_t s = slot[i] - p->first;

		good &= slot[i] >= -1 && slot[i] < ch->n_expert_slots;
		slot[i] = s >= 0 && s < p->range && slot[i] >= 0 ? s
		                                                 : PLAN_NO_SLOT;
		place[i] = count_row(count, slot[i], p->team.lane);
	}
	team_sync(&p->team);
	sum_warps(p, block);
	team_sync(&p->team);
#pragma unroll
	for (int32_t i = 0; i < PLAN_STEPS; i++) {
		const int32_t at = share.begin + i * 32 + p->team.lane;

		if (at >= share.end)
			break;
		const bool counts = slot[i] != PLAN_NO_SLOT;
		struct ferry_cuda_copy c;

		c.slot = counts ? slot[i] : -1;
		c.index = counts ? (int32_t)(place[i] + count[slot[i]]) : 0;
		copy_at(ch, p->op, group, first_token + at / topk)[at % topk] =
			c;
	}
	team_sync(&p->team);
	return good;
}

/* Blocks of a group that have tokens. */
static __device__ __forceinline__ int32_t
plan_parts(const struct ferry_cuda_channel *ch, int32_t n_tokens)
{
	return (n_tokens + ch->table_chunk - 1) / ch->table_chunk;
}

/* Step 2: totals of all blocks, and of those before the own. */
static __device__ inline void plan_total(const struct plan *p)
{
	const struct ferry_cuda_channel *ch = p->ch;

	for (int32_t s = team_thread(&p->team); s < p->range;
	     s += team_threads(&p->team)) {
		uint32_t total = 0, base = 0;

		for (int32_t g = 0; g < ch->n_groups; g++) {
			const int32_t first = g * ch->table_parts;
			const int32_t n = plan_parts(ch, p->op->n_tokens[g]);
			const uint32_t *h =
				p->histogram + (size_t)first * p->range + s;

#pragma unroll 16
			for (int32_t i = 0; i < n; i++) {
				const uint32_t v = h[(size_t)i * p->range];

				total += v;
				base += first + i < p->begin ? v : 0;
			}
		}
		p->keep[s] = total;
		p->base[s] = base;
	}
	team_sync(&p->team);
}

static __device__ __forceinline__ int64_t scan_warp(int64_t v, int32_t lane)
{
	for (int32_t d = 1; d < 32; d *= 2) {
		const int64_t below = __shfl_up_sync(~0u, v, (unsigned)d);

		v += lane >= d ? below : 0;
	}
	return v;
}

static __device__ __forceinline__ int64_t sum_warp(int64_t v)
{
	for (int32_t d = 16; d > 0; d /= 2)
		v += __shfl_xor_sync(~0u, v, d);
	return v;
}

static __device__ __forceinline__ int64_t max_warp(int64_t v)
{
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

	if (!ch->bounded && p->team.warp == 0)
		keep_rank(p, ch->rank);
	for (int32_t r = p->team.warp; ch->bounded && r < ch->n_ranks;
	     r += p->team.n_warps) {
		const int64_t n = keep_rank(p, r);

		if (n <= room || lacking < ch->n_ranks)
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

	for (int32_t w = 0; w < p->team.n_warps; w++) {
		if (p->sums->lacking[w] >= lacking)
			continue;
		lacking = p->sums->lacking[w];
		*need = p->sums->need[w];
	}
	return lacking;
}

/* Step 3 for one choice: what step 1 left becomes what combine reads. */
static __device__ __forceinline__ struct ferry_cuda_copy
plan_place(const struct plan *p, struct ferry_cuda_copy c, bool *dropped)
{
	struct ferry_cuda_copy placed;

	placed.slot = -1;
	placed.index = 0;
	*dropped = false;
	if (c.slot < 0)
		return placed;
	const uint32_t index = p->base[c.slot] + (uint32_t)c.index;
	const int32_t own = c.slot - p->own;

	*dropped = index >= p->keep[c.slot];
	if (*dropped || own < 0 || own >= p->ch->own_expert_slots)
		return placed;
	placed.slot = own;
	placed.index = (int32_t)index;
	return placed;
}

/* From one block to the next. */
static __device__ inline void plan_next(const struct plan *p, int32_t block)
{
	const uint32_t *h = p->histogram + (size_t)block * p->range;

	team_sync(&p->team);
	for (int32_t s = team_thread(&p->team); s < p->range;
	     s += team_threads(&p->team))
		p->base[s] += h[s];
	team_sync(&p->team);
}

#endif
