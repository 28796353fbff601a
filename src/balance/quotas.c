/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Min-max shares by maximum flow. At every moment all tokens have a place, so
 * the state is a legal answer, and ranks above a level push what is too much
 * through the experts that they share with others towards ranks below it:
 * push-relabel, with exact distances found anew for every wave.
 *
 * The level itself comes by Newton's method on cuts. Where a wave ends with
 * ranks that are too full and reach none that has room, these ranks hold only
 * experts that have no replica elsewhere: no placement of tokens makes the
 * fullest of them less full than their mean, which is the next level to try,
 * from the state at hand. The first one is the mean of all ranks, and mostly
 * it is reached at once.
 *
 * Evenness: at one below the optimum, the ranks that stay too full are those
 * that have to be (Frank and Murota's decomposition for decreasingly minimal
 * elements); they are settled and frozen, and the rest is a smaller problem.
 */
#include "quotas.h"

#include "../core/bits.h"

/* rank_level of ranks that take no part: for good, and for a while. */
enum { FROZEN = -1, PARKED = -2 };

__extension__ typedef unsigned __int128 wide;

static int64_t speed_of(const int32_t *speed, int32_t rank)
{
	return speed ? speed[rank] : 1;
}

/* What is below the common level of an expert's ranks. */
struct pool {
	int64_t tokens; /* of the ranks that count, and of the expert */
	int64_t speed;
};

/* Leaves out the ranks that are above the level that the others reach. */
static struct pool find_pool(const struct ferry_quota_in *in,
                             struct ferry_quota_room *room, int32_t expert)
{
	const int32_t begin = in->first[expert];
	const int32_t end = in->first[expert + 1];
	struct pool pool = {in->load[expert], 0};

	for (int32_t i = begin; i < end; i++) {
		room->share[i] = 0;
		pool.tokens += room->load[in->rank[i]];
		pool.speed += speed_of(in->speed, in->rank[i]);
	}
	for (bool changed = true; changed;) {
		changed = false;
		for (int32_t i = begin; i < end; i++) {
			const int32_t r = in->rank[i];
			const int64_t speed = speed_of(in->speed, r);

			if (room->share[i] ||
			    (wide)room->load[r] * (wide)pool.speed <=
			            (wide)pool.tokens * (wide)speed)
				continue;
			room->share[i] = -1;
			pool.tokens -= room->load[r];
			pool.speed -= speed;
			changed = true;
		}
	}
	return pool;
}

/* Gives the expert's tokens to its least full ranks, up to one level. */
static void fill(const struct ferry_quota_in *in, struct ferry_quota_room *room,
                 int32_t expert)
{
	const struct pool pool = find_pool(in, room, expert);
	const int32_t begin = in->first[expert];
	const int32_t end = in->first[expert + 1];
	int64_t left = in->load[expert];

	for (int32_t i = begin; i < end; i++) {
		const int32_t r = in->rank[i];

		if (room->share[i])
			continue;
		room->share[i] =
			pool.tokens * speed_of(in->speed, r) / pool.speed -
			room->load[r];
		left -= room->share[i];
	}
	for (int32_t i = begin; i < end; i++) {
		if (room->share[i] < 0) {
			room->share[i] = 0;
		} else if (left > 0) { /* what the division left */
			room->share[i]++;
			left--;
		}
		room->load[in->rank[i]] += room->share[i];
	}
}

static void start(const struct ferry_quota_in *in,
                  struct ferry_quota_room *room)
{
	for (int32_t r = 0; r < in->n_ranks; r++) {
		room->load[r] = in->fixed[r];
		room->rank_level[r] = 0;
	}
	for (int32_t e = 0; e < in->n_experts; e++)
		fill(in, room, e);
}

static void set_capacity(const struct ferry_quota_in *in,
                         struct ferry_quota_room *room, int64_t level)
{
	for (int32_t r = 0; r < in->n_ranks; r++)
		room->cap[r] = quota_capacity(in->speed, r, level);
}

/*
 * Distances to a rank with room: 1 of such a rank, k + 1 of one that can push
 * to one of k; 0: it reaches none. Those of an expert are the least of its
 * ranks. Returns the largest distance.
 */
static int32_t find_levels(const struct ferry_quota_in *in,
                           struct ferry_quota_room *room)
{
	int32_t *const rank_level = room->rank_level;

	for (int32_t r = 0; r < in->n_ranks; r++)
		if (rank_level[r] >= 0)
			rank_level[r] = room->load[r] < room->cap[r];
	for (int32_t e = 0; e < in->n_experts; e++)
		room->expert_level[e] = 0;
	for (int32_t level = 1;; level++) {
		bool grown = false;

		for (int32_t e = 0; e < in->n_experts; e++) {
			const int32_t end = in->first[e + 1];
			int32_t i = in->first[e];

			if (room->expert_level[e])
				continue;
			while (i < end && rank_level[in->rank[i]] != level)
				i++;
			if (i == end)
				continue;
			room->expert_level[e] = level;
			for (i = in->first[e]; i < end; i++) {
				int32_t *const l = &rank_level[in->rank[i]];

				if (*l != 0 || room->share[i] == 0)
					continue;
				*l = level + 1;
				grown = true;
			}
		}
		if (!grown)
			return level;
	}
}

/* Moves what is too much on the rank of a replica one distance down. */
static bool push(const struct ferry_quota_in *in, struct ferry_quota_room *room,
                 int32_t expert, int32_t replica)
{
	const int32_t from = in->rank[replica];
	const int32_t level = room->expert_level[expert];
	int64_t much = min_i64(room->share[replica],
	                       room->load[from] - room->cap[from]);
	bool moved = false;

	for (int32_t i = in->first[expert];
	     i < in->first[expert + 1] && much > 0; i++) {
		const int32_t to = in->rank[i];
		int64_t n = much;

		if (room->rank_level[to] != level)
			continue;
		if (level == 1) /* has room, others push there, too */
			n = min_i64(n, room->cap[to] - room->load[to]);
		if (n <= 0)
			continue;
		room->share[replica] -= n;
		room->share[i] += n;
		room->load[from] -= n;
		room->load[to] += n;
		much -= n;
		moved = true;
	}
	return moved;
}

/* One wave, from the farthest ranks on. */
static bool wave(const struct ferry_quota_in *in, struct ferry_quota_room *room)
{
	bool moved = false;

	for (int32_t level = find_levels(in, room); level > 1; level--) {
		for (int32_t e = 0; e < in->n_experts; e++) {
			if (room->expert_level[e] != level - 1)
				continue;
			for (int32_t i = in->first[e]; i < in->first[e + 1];
			     i++)
				if (room->rank_level[in->rank[i]] == level)
					moved |= push(in, room, e, i);
		}
	}
	return moved;
}

static bool too_full(const struct ferry_quota_in *in,
                     const struct ferry_quota_room *room)
{
	for (int32_t r = 0; r < in->n_ranks; r++)
		if (room->rank_level[r] >= 0 && room->load[r] > room->cap[r])
			return true;
	return false;
}

/*
 * Pushes until every rank that is too full reaches none that has room; false
 * where there are such ranks, with distance 0.
 */
static bool settle(const struct ferry_quota_in *in,
                   struct ferry_quota_room *room)
{
	while (too_full(in, room))
		if (!wave(in, room))
			return false;
	return true;
}

/* Least level at which the ranks of distance 0 could serve their tokens. */
static int64_t level_of_stuck(const struct ferry_quota_in *in,
                              const struct ferry_quota_room *room)
{
	int64_t tokens = 0, speed = 0, n = 0;

	for (int32_t r = 0; r < in->n_ranks; r++) {
		if (room->rank_level[r] != 0)
			continue;
		tokens += room->load[r];
		speed += speed_of(in->speed, r);
		n++;
	}
	if (n == 0)
		return 0;
	if (!in->speed)
		return div_up(tokens, n);
	/* Each rank's capacity is rounded down, by less than one token. */
	int64_t low = div_up(tokens * FERRY_SPEED_NORMAL, speed);
	int64_t high = div_up((tokens + n) * FERRY_SPEED_NORMAL, speed);

	while (low < high) {
		const int64_t middle = low + (high - low) / 2;
		int64_t served = 0;

		for (int32_t r = 0; r < in->n_ranks; r++)
			if (room->rank_level[r] == 0)
				served += quota_capacity(in->speed, r, middle);
		if (served >= tokens)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Least level of the ranks that take part, from the shares at hand. */
static int64_t find_level(const struct ferry_quota_in *in,
                          struct ferry_quota_room *room, int64_t at_most)
{
	for (int32_t r = 0; r < in->n_ranks; r++)
		if (room->rank_level[r] > 0)
			room->rank_level[r] = 0;
	int64_t level = level_of_stuck(in, room);

	for (int32_t r = 0; r < in->n_ranks; r++)
		if (room->rank_level[r] == 0)
			level = max_i64(level, quota_level_of(in->speed, r,
			                                      in->fixed[r]));
	while (level <= at_most) {
		set_capacity(in, room, level);
		if (settle(in, room))
			break;
		level = level_of_stuck(in, room);
	}
	return level;
}

int64_t ferry_quota_level(const struct ferry_quota_in *in,
                          struct ferry_quota_room *room, int64_t at_most)
{
	start(in, room);
	return find_level(in, room, at_most);
}

/* The rank of the highest level among those that take part, -1: none. */
static int32_t fullest(const struct ferry_quota_in *in,
                       const struct ferry_quota_room *room)
{
	int32_t best = -1;
	int64_t most = 0;

	for (int32_t r = 0; r < in->n_ranks; r++) {
		if (room->rank_level[r] < 0)
			continue;
		const int64_t level =
			quota_level_of(in->speed, r, room->load[r]);

		if (level > most) {
			most = level;
			best = r;
		}
	}
	return best;
}

/* Settles the ranks that have to be at the level, and freezes them. */
static void freeze(const struct ferry_quota_in *in,
                   struct ferry_quota_room *room, int64_t level)
{
	int32_t *const rank_level = room->rank_level;

	set_capacity(in, room, level - 1);
	if (settle(in, room)) /* cannot be: the level is the least */
		return;
	for (int32_t r = 0; r < in->n_ranks; r++)
		if (rank_level[r] > 0)
			rank_level[r] = PARKED;
	set_capacity(in, room, level);
	(void)settle(in, room);
	for (int32_t r = 0; r < in->n_ranks; r++)
		if (rank_level[r] != FROZEN)
			rank_level[r] = rank_level[r] == PARKED ? 0 : FROZEN;
}

void ferry_quota_even(const struct ferry_quota_in *in,
                      struct ferry_quota_room *room)
{
	for (;;) {
		const int32_t r = fullest(in, room);

		if (r < 0)
			return;
		if (room->load[r] == in->fixed[r]) /* nothing can leave */
			room->rank_level[r] = FROZEN;
		else
			freeze(in, room, find_level(in, room, INT64_MAX));
	}
}
