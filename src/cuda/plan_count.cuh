/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step 1 of the layout function on the device (plan.cuh): the blocks of tables
 * and who has which, and how one team counts a block.
 */
#ifndef FERRY_PLAN_COUNT_CUH
#define FERRY_PLAN_COUNT_CUH

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

/*
 * As below where a token names a slot twice: row[s] is the number. By value: no
 * pointer to the plan leaves the caller's registers.
 */
static __device__ __noinline__ void
count_twice(const struct plan p, uint32_t *row, int32_t begin, int32_t end)
{
	clear_row(row, p.stride, p.team.lane);
#pragma unroll 1
	for (int32_t from = begin; from < end; from += 32) {
		const int32_t at = from + p.team.lane;
		const int32_t s = at < end ? p.slot[at] : -1;
		const uint32_t same = __match_any_sync(~0u, s);
		const uint32_t before = same & ((1u << p.team.lane) - 1);
		const uint32_t base = s >= 0 ? row[s] : 0;

		__syncwarp();
		if (s >= 0 && before == 0)
			row[s] = base + (uint32_t)__popc(same);
		if (s >= 0)
			p.place[at] = (int32_t)base + __popc(before);
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
	count_twice(*p, row, group * 32 * topk,
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

#endif
