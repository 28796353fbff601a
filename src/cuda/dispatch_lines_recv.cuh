/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of all ranks, in every block: received line by line, checked, and
 * counted. Every rank has the same tables and looks at them in the same order,
 * so all refuse the same thing and name the same rank, as src/cpu does.
 */
#ifndef FERRY_DISPATCH_LINES_RECV_CUH
#define FERRY_DISPATCH_LINES_RECV_CUH

#include "dispatch_lines.cuh"

/* What a header says of its table's size; a malformed one has no entries. */
struct lines_size {
	uint32_t n;       /* entries */
	uint32_t n_lines; /* that must come, as far as they are received here */
	bool is_good;
};

/*
 * Weights of a group's first rank are read, and waited for, with the choices
 * that they belong to; those of its mates here.
 */
static __device__ __forceinline__ struct lines_size
size_of_table(const struct ferry_cuda_channel *ch, uint64_t counts,
              uint64_t others, bool first_of_group)
{
	const int32_t n_tokens = (int32_t)counts;
	const int32_t topk = (int32_t)(counts >> 32);
	const bool has_weights = others >> 32 != 0;
	struct lines_size s;

	s.is_good = n_tokens >= 0 && n_tokens <= ch->max_tokens && topk >= 1 &&
	            topk <= ch->max_topk && (!has_weights || ch->send_weights);
	s.n = s.is_good ? (uint32_t)n_tokens * (uint32_t)topk : 0;
	const uint32_t words = has_weights && !first_of_group ? 2 * s.n : s.n;

	s.n_lines = ((uint32_t)sizeof(struct ferry_table) + words * 4 +
	             LINE_DATA - 1) /
	            LINE_DATA;
	return s;
}

/* Line `line` > 0 of a table: its expert slots, two at a time. */
static __device__ __forceinline__ void keep_entries(const struct lines *l,
                                                    int32_t rank, uint32_t line,
                                                    uint32_t n, uint64_t a,
                                                    uint64_t b)
{
	const struct ferry_cuda_channel *ch = l->ch;
	const bool keep = lines_mate(l, rank) == 0;
	uint16_t *entries = lines_entries(
		l, (int32_t)quotient((uint32_t)rank, &l->a->by_group));
	const int32_t first = (int32_t)(line * LINE_DATA + l->team_lane * 16) -
	                      (int32_t)sizeof(struct ferry_table);
	const uint64_t halves[2] = {a, b};

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int32_t at = first / 4 + 2 * h;
		uint32_t pair = 0;

		if (first < 0 && h == 0)
			continue; /* the last word pair of the header */
		if ((h == 1 && l->team_lane == 7) || at < 0 ||
		    (uint32_t)at >= n)
			continue;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int32_t slot = (int32_t)(halves[h] >> (32 * i));
			const bool exists = (uint32_t)at + i < n;

			if (exists && (slot < FERRY_NO_SLOT ||
			               slot >= ch->n_expert_slots))
				atomicMin(&l->shared->malformed,
				          (uint32_t)rank);
			pair |= (uint32_t)(uint16_t)(exists && slot >= 0 &&
			                                             slot < ch->n_expert_slots
			                                     ? slot
			                                     : LINES_NO_SLOT)
			        << (16 * i);
		}
		if (keep)
			*(uint32_t *)(entries + at) = pair;
	}
}

/*
 * Line 0: the header, without its last 8 bytes, which are reserved. Who waits
 * for other lines of the table learns how many there are, once: its word of
 * `tables` goes from 0 to that, by an exchange, as others look at it meanwhile.
 * By one team.
 */
static __device__ __forceinline__ void
keep_head(const struct lines *l, int32_t rank, uint64_t a, uint64_t b)
{
	uint64_t *to = (uint64_t *)lines_head(l, rank) + l->team_lane * 2;
	const uint32_t team = 0xffu << (l->lane & 24);
	const uint64_t counts = __shfl_sync(team, a, 1, LINE_LANES);
	const uint64_t others = __shfl_sync(team, b, 1, LINE_LANES);
	const struct lines_size size =
		size_of_table(l->ch, counts, others, lines_mate(l, rank) == 0);

	to[0] = a;
	to[1] = b;
	if (l->team_lane)
		return;
	if (!size.is_good || a != l->epoch)
		atomicMin(&l->shared->malformed, (uint32_t)rank);
	atomicExch((unsigned long long *)&l->shared->tables[rank],
	           (unsigned long long)size.n << 32 | size.n_lines);
}

/* A line of a table that a team waits for. */
struct lines_awaited {
	const unsigned char *at; /* this lane's share */
	uint64_t a, b;
	uint32_t line;
	int32_t rank;
	bool wanted, is_here;
};

/*
 * Looks at a line once; all lanes of a warp. One team of a block looks at a
 * header, and nobody at lines that may not come: polls of all blocks for one
 * line would queue up at its place in the cache. The first `likely` lines are
 * looked at before the header is there.
 */
static __device__ __forceinline__ void
look_at_table(const struct lines *l, struct lines_awaited *t, uint32_t likely)
{
	const volatile struct lines_shared *shared = l->shared;
	const uint64_t table = shared->tables[t->rank];
	const uint32_t known = (uint32_t)table;
	bool looks = false;

	if (known && t->line >= known)
		t->wanted = false;
	if (t->wanted && !t->is_here)
		looks = known || t->line < likely;
	if (looks)
		load_volatile_16(t->at, &t->a, &t->b);
	t->is_here =
		line_flagged(l->lane, l->epoch, t->b) && (looks || t->is_here);
	if (!t->wanted || !t->is_here)
		return;
	if (t->line == 0)
		keep_head(l, t->rank, t->a, t->b);
	else if (known)
		keep_entries(l, t->rank, t->line, (uint32_t)(table >> 32), t->a,
		             t->b);
	t->wanted = t->line && !known;
}

/* All lines of all tables but weights. False: the channel has ended. */
static __device__ inline bool receive_tables(const struct lines *l,
                                             uint32_t likely)
{
	enum { OPEN = 2 };
	const struct ferry_cuda_channel *ch = l->ch;
	const uint32_t n_lines = l->a->by_table_lines.by;
	const uint32_t n = (uint32_t)ch->n_ranks * n_lines;
	uint32_t n_looks = 0;

#pragma unroll 1
	for (uint32_t first = 0; first < n; first += OPEN * LINES_TEAMS) {
		struct lines_awaited t[OPEN];

#pragma unroll
		for (int u = 0; u < OPEN; u++) {
			const uint32_t i = first + u * LINES_TEAMS + l->team;

			t[u].wanted = i < n;
			t[u].is_here = false;
			t[u].a = t[u].b = 0;
			t[u].rank = (int32_t)quotient(i < n ? i : 0,
			                              &l->a->by_table_lines);
			t[u].line = i - (uint32_t)t[u].rank * n_lines;
			t[u].at = table_at(ch, ch->rank, l->d->slot, l->half,
			                   t[u].rank) +
			          (size_t)t[u].line * LINE_BYTES +
			          l->team_lane * 16;
		}
		for (;;) {
			bool all = true;

#pragma unroll
			for (int u = 0; u < OPEN; u++) {
				look_at_table(l, &t[u], likely);
				all = all && !t[u].wanted;
			}
			/* The lanes whose lines are missing name the peer. */
			const uint32_t missing =
				__ballot_sync(0xffffffffu, !all);

			if (!missing)
				break;
			const int32_t peer =
				__shfl_sync(0xffffffffu,
			                    t[0].wanted ? t[0].rank : t[1].rank,
			                    __ffs((int)missing) - 1);

			if (!lines_again(l, &n_looks, peer))
				return false;
		}
	}
	return true;
}

/* The first rank that named a placement, by one warp. */
static __device__ inline int32_t first_placed(const struct lines *l)
{
	uint32_t first = LINES_NOTHING;

#pragma unroll 1
	for (int32_t r = (int32_t)l->lane; r < l->ch->n_ranks; r += 32)
		if (lines_head(l, r)->placement_hash)
			first = min_u32(first, (uint32_t)r);
	return (int32_t)__reduce_min_sync(0xffffffffu, first);
}

/* Does the batch of a rank differ from that of the first of its group? */
static __device__ __forceinline__ bool mates_differ(const struct ferry_table *a,
                                                    const struct ferry_table *b)
{
	return a->n_tokens != b->n_tokens || a->topk != b->topk ||
	       a->content_hash != b->content_hash;
}

/*
 * What there is to refuse of tables that are well formed, by one warp. The
 * order is: all tables' forms, all marks, then hidden, placement and mates of
 * each rank in turn.
 */
static __device__ inline void check_tables(const struct lines *l)
{
	const uint32_t n = (uint32_t)l->ch->n_ranks;
	const int32_t placed = first_placed(l);
	uint32_t first = LINES_NOTHING;

#pragma unroll 1
	for (uint32_t r = l->lane; r < n; r += 32) {
		const struct ferry_table *t = lines_head(l, (int32_t)r);
		const struct ferry_table *mate =
			lines_head(l, (int32_t)(r - lines_mate(l, r)));
		uint32_t reason = LINES_NOTHING;

		if (t->mark_status)
			reason = n + r;
		else if (t->hidden != lines_head(l, 0)->hidden)
			reason = 2 * n + 3 * r;
		else if (t->placement_hash &&
		         t->placement_hash !=
		                 lines_head(l, placed)->placement_hash)
			reason = 2 * n + 3 * r + 1;
		else if (mates_differ(t, mate))
			reason = 2 * n + 3 * r + 2;
		first = min_u32(first, reason);
	}
	first = __reduce_min_sync(0xffffffffu, first);
	if (l->lane == 0)
		l->shared->refusal = first;
}

static __device__ inline void refuse_mark(const struct ferry_table *t,
                                          struct ferry_cuda_record *r)
{
	r->status = t->mark_status;
	r->detail =
		t->mark_token < 0 ? FERRY_CUDA_BAD_COUNT : FERRY_CUDA_BAD_ID;
	r->token = t->mark_token;
	r->choice = t->mark_choice;
	r->value = t->mark_value;
	r->limit = t->mark_limit;
}

static __device__ inline void refuse_mate(const struct ferry_table *t,
                                          const struct ferry_table *mate,
                                          int32_t first,
                                          struct ferry_cuda_record *r)
{
	r->limit = first;
	if (t->n_tokens != mate->n_tokens) {
		r->detail = FERRY_CUDA_BAD_MATE_COUNT;
		r->value = t->n_tokens;
		r->other = mate->n_tokens;
	} else if (t->topk != mate->topk) {
		r->detail = FERRY_CUDA_BAD_MATE_TOPK;
		r->value = t->topk;
		r->other = mate->topk;
	} else {
		r->detail = FERRY_CUDA_BAD_MATE;
	}
}

/* What is wrong with a malformed table. */
static __device__ inline void refuse_form(const struct lines *l,
                                          const struct ferry_table *t,
                                          struct ferry_cuda_record *r)
{
	const struct ferry_cuda_channel *ch = l->ch;

	r->choice = wrong_field(ch, t, l->epoch, &r->value);
	if (r->choice >= 0)
		return;
	r->choice = FERRY_TABLE_SLOT;
	r->value = ch->n_expert_slots; /* or beyond */
}

/* Publishes a reason: of a form, or what check_tables has found. */
static __device__ __noinline__ void refuse_tables(const struct lines_args *a,
                                                  struct lines_shared *shared,
                                                  unsigned char *smem,
                                                  uint32_t reason)
{
	const struct lines block = lines_begin(a, shared, smem, shared->epoch);
	const struct lines *l = &block;
	const struct ferry_cuda_channel *ch = l->ch;
	const uint32_t n = (uint32_t)ch->n_ranks;
	const struct wait w =
		wait_begin(ch, FERRY_PHASE_DISPATCH_RECV, l->d->slot, l->epoch);
	struct ferry_cuda_record r = record_of(FERRY_PROTO, (int32_t)reason, &w,
	                                       FERRY_CUDA_BAD_TABLE);

	if (reason >= 2 * n) {
		const int32_t rank = (int32_t)((reason - 2 * n) / 3);
		const int32_t first = rank - rank % ch->group_size;
		const struct ferry_table *t = lines_head(l, rank);

		r.status = FERRY_MISMATCH;
		r.root = rank;
		if ((reason - 2 * n) % 3 == 0) {
			r.detail = FERRY_CUDA_BAD_HIDDEN;
			r.value = t->hidden;
			r.other = lines_head(l, 0)->hidden;
			r.limit = 0;
		} else if ((reason - 2 * n) % 3 == 1) {
			r.detail = FERRY_CUDA_BAD_PLACEMENT;
			for (r.limit = 0;
			     !lines_head(l, r.limit)->placement_hash; r.limit++)
				;
			r.value = (int64_t)t->placement_hash;
			r.other =
				(int64_t)lines_head(l, r.limit)->placement_hash;
		} else {
			refuse_mate(t, lines_head(l, first), first, &r);
		}
	} else if (reason >= n) {
		r.root = (int32_t)(reason - n);
		refuse_mark(lines_head(l, r.root), &r);
	} else {
		refuse_form(l, lines_head(l, r.root), &r);
	}
	fail(ch, &r);
}

/* Rows of every expert slot of the world; totals are 0 before. */
static __device__ inline void count_entries(const struct lines *l)
{
	uint32_t *totals = lines_totals(l);

#pragma unroll 1
	for (int32_t g = 0; g < l->ch->n_groups; g++) {
		const struct ferry_table *t =
			lines_head(l, g * l->ch->group_size);
		const uint16_t *entries = lines_entries(l, g);
		const uint32_t n = (uint32_t)(t->n_tokens * t->topk);

#pragma unroll 1
		for (uint32_t i = l->thread; i < n; i += LINES_THREADS)
			if (entries[i] != LINES_NO_SLOT)
				atomicAdd(&totals[entries[i]], 1);
	}
}

static __device__ __forceinline__ uint32_t
aligned_rows(const struct ferry_cuda_channel *ch, uint32_t rows)
{
	if (ch->layout == FERRY_EXPERT_PADDED && rows > ch->padded_rows)
		rows = (uint32_t)ch->padded_rows;
	return (rows + (uint32_t)ch->alignment - 1) &
	       ~((uint32_t)ch->alignment - 1);
}

/* Sum of v over the lanes up to the own one. */
static __device__ __forceinline__ uint32_t sum_up_to(uint32_t v, uint32_t lane)
{
#pragma unroll
	for (uint32_t i = 1; i < 32; i *= 2) {
		const uint32_t below = __shfl_up_sync(0xffffffffu, v, i);

		v += lane >= i ? below : 0;
	}
	return v;
}

/* starts[s]: aligned rows of all slots of the world before s. */
static __device__ inline void sum_totals(const struct lines *l)
{
	const uint32_t n = (uint32_t)l->ch->n_expert_slots;
	uint32_t *starts = lines_starts(l);
	uint32_t before = 0;

#pragma unroll 1
	for (uint32_t first = 0; first < n; first += LINES_THREADS) {
		const uint32_t s = first + l->thread;
		const uint32_t rows =
			s < n ? aligned_rows(l->ch, lines_totals(l)[s]) : 0;
		const uint32_t sum = sum_up_to(rows, l->lane);

		if (l->lane == 31)
			l->shared->sums[l->warp] = sum;
		__syncthreads();
		const uint32_t of_warp =
			l->lane < LINES_WARPS ? l->shared->sums[l->lane] : 0;
		const uint32_t below = __reduce_add_sync(
			0xffffffffu, l->lane < l->warp ? of_warp : 0);

		if (s < n)
			starts[s] = before + below + sum - rows;
		before += __reduce_add_sync(0xffffffffu, of_warp);
		if (first + LINES_THREADS >= n && l->thread == 0)
			starts[n] = before;
		__syncthreads();
	}
}

/* First row of a slot in EXPERT_PACKED, on its rank. */
static __device__ __forceinline__ int64_t packed_start(const struct lines *l,
                                                       int32_t slot,
                                                       int32_t first_slot)
{
	const int64_t start =
		lines_starts(l)[slot] - lines_starts(l)[first_slot];

	/* What is dropped takes no room. */
	return l->ch->layout == FERRY_EXPERT_PADDED || start < l->ch->recv_rows
	               ? start
	               : l->ch->recv_rows;
}

/* Rows of a slot that there is room for. */
static __device__ __forceinline__ int64_t kept_rows(const struct lines *l,
                                                    int32_t slot,
                                                    int32_t first_slot)
{
	const int64_t wanted = lines_totals(l)[slot];
	const int64_t room =
		l->ch->layout == FERRY_EXPERT_PADDED
			? l->ch->padded_rows
			: l->ch->recv_rows - packed_start(l, slot, first_slot);

	return wanted < room ? wanted : room;
}

#endif
