/* SPDX-License-Identifier: Apache-2.0 */
/* Makes batches of tokens from a seed. */
#include "traffic.h"

#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "oracle_float.h"

enum { SCRIBBLE = 0x5c };

uint64_t traffic_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t traffic_group_seed(uint64_t seed, int32_t group)
{
	uint64_t state = seed ^ ((uint64_t)(uint32_t)group << 40);

	return traffic_random(&state);
}

int64_t traffic_between(uint64_t *state, int64_t low, int64_t high)
{
	const uint64_t n = (uint64_t)(high - low) + 1;

	return low + (int64_t)(traffic_random(state) % n);
}

bool traffic_chance(uint64_t *state, int percent)
{
	return traffic_between(state, 0, 99) < percent;
}

size_t traffic_scale_bytes(const struct ferry_moe_config *config,
                           int32_t hidden)
{
	const int32_t block = config->scale_block ? config->scale_block : 128;
	const size_t n = ((size_t)hidden + (size_t)block - 1) / (size_t)block;

	switch (config->scale_type) {
	case FERRY_SCALE_FP32:
		return 4 * n;
	case FERRY_SCALE_UE8M0:
		return n;
	case FERRY_SCALE_BYTES:
		return (size_t)config->scale_bytes;
	default:
		return 0;
	}
}

static void *allocate(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (p == NULL)
		abort();
	memset(p, SCRIBBLE, bytes);
	return p;
}

/* Expert slots of the world, and which of them are the rank's own. */
struct map {
	const struct ferry_placement_config *placement;
	bool direct; /* ids are slots */
	int32_t n_experts;
	int32_t n_slots;
	int32_t own_first, own_end;       /* of `rank` */
	int32_t target_first, target_end; /* of the rank for ONE_RANK */
};

static int32_t share(const struct ferry_moe_config *config,
                     const int32_t *slots, int32_t rank)
{
	if (slots != NULL)
		return slots[rank];
	return config->n_experts / config->n_ranks +
	       (rank < config->n_experts % config->n_ranks);
}

static void make_map(struct map *m, const struct ferry_moe_config *config,
                     const struct ferry_placement_config *placement,
                     int32_t rank, const struct traffic_spec *spec)
{
	const int32_t *slots =
		placement ? placement->expert_slots : config->expert_slots;
	const int32_t target = (int32_t)(spec->favourite >> 7) & 0x7fff;

	*m = (struct map){.placement = placement,
	                  .direct = spec->id_kind == FERRY_ID_SLOT,
	                  .n_experts = config->n_experts};
	for (int32_t r = 0; r < config->n_ranks; r++) {
		const int32_t n = share(config, slots, r);

		if (r == rank) {
			m->own_first = m->n_slots;
			m->own_end = m->n_slots + n;
		}
		if (r == target % config->n_ranks) {
			m->target_first = m->n_slots;
			m->target_end = m->n_slots + n;
		}
		m->n_slots += n;
	}
}

/* The id that leads to a slot, -1 for a slot without expert. */
static int32_t id_of_slot(const struct map *m, int32_t slot)
{
	if (m->direct)
		return slot;
	if (m->placement != NULL && m->placement->slot_expert != NULL)
		return m->placement->slot_expert[slot];
	return slot < m->n_experts ? slot : -1;
}

static int32_t wish(const struct map *m, const struct traffic_spec *spec,
                    uint64_t *rng)
{
	const int32_t n = m->n_slots;
	const int32_t own = m->own_end - m->own_first;
	double u;

	switch (spec->routing) {
	case TRAFFIC_ONE_EXPERT:
		return (int32_t)(spec->favourite % (uint64_t)n);
	case TRAFFIC_ONE_RANK:
		if (m->target_end == m->target_first)
			break;
		return (int32_t)traffic_between(rng, m->target_first,
		                                m->target_end - 1);
	case TRAFFIC_ZIPF:
		u = (double)(traffic_random(rng) >> 11) * 0x1p-53;
		return (int32_t)(u * u * u * n);
	case TRAFFIC_LOCAL:
		if (own == 0)
			break;
		return (int32_t)traffic_between(rng, m->own_first,
		                                m->own_end - 1);
	case TRAFFIC_REMOTE:
		if (own == n)
			break;
		return (int32_t)((m->own_end +
		                  traffic_between(rng, 0, n - own - 1)) %
		                 n);
	default:
		break;
	}
	return (int32_t)traffic_between(rng, 0, n - 1);
}

static bool contains(const int64_t *ids, int32_t n, int64_t id)
{
	for (int32_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static int64_t bad_id(const struct map *m, const struct traffic_spec *spec,
                      uint64_t *rng)
{
	const int64_t limit = m->direct ? m->n_slots : m->n_experts;
	const bool wide = spec->id_type == FERRY_ID_INT64;
	const int64_t choices[] = {
		limit,
		limit + 5,
		-2,
		INT32_MAX,
		INT32_MIN,
		wide ? INT64_MAX : limit,
		wide ? INT64_MIN : -3,
		wide ? (INT64_C(1) << 32) : limit, /* 0 if cut to 32 bits */
		wide ? (INT64_C(1) << 32) - 1 : -2,
	};

	return choices[traffic_random(rng) %
	               (sizeof(choices) / sizeof(*choices))];
}

static int64_t choose(const struct map *m, const struct traffic_spec *spec,
                      uint64_t *rng, const int64_t *before, int32_t n)
{
	int32_t slot;

	if (traffic_chance(rng, spec->mask_percent))
		return -1;
	if (traffic_chance(rng, spec->bad_percent))
		return bad_id(m, spec, rng);
	slot = wish(m, spec, rng);
	for (int32_t tries = 0; tries < m->n_slots; tries++) {
		const int32_t id = id_of_slot(m, slot);

		if (id >= 0 && (spec->duplicates || !contains(before, n, id)))
			return id;
		slot = (slot + 1) % m->n_slots;
	}
	return -1; /* fewer experts than choices */
}

static void fill_ids(struct traffic_batch *b, const struct map *m,
                     const struct traffic_spec *spec, int32_t topk,
                     uint64_t *rng)
{
	const bool wide = spec->id_type == FERRY_ID_INT64;
	const size_t bytes = wide ? 8 : 4;
	const size_t stride = bytes * ((size_t)topk + spec->slack);

	b->ids_bytes = stride * (size_t)spec->n_tokens;
	b->ids = allocate(b->ids_bytes);
	for (int32_t t = 0; t < spec->n_tokens; t++) {
		int64_t ids[64];

		for (int32_t k = 0; k < topk; k++) {
			uint8_t *to =
				b->ids + stride * (size_t)t + bytes * (size_t)k;
			const int64_t id = choose(m, spec, rng, ids, k);
			const int32_t narrow = (int32_t)id;

			ids[k] = id;
			if (wide)
				memcpy(to, &id, 8);
			else
				memcpy(to, &narrow, 4);
		}
	}
	b->in.topk_ids = b->ids;
	b->in.ids_stride = spec->slack ? stride : 0;
	b->in.id_type = spec->id_type;
	b->in.id_kind = spec->id_kind;
}

static void fill_weights(struct traffic_batch *b,
                         const struct traffic_spec *spec, int32_t topk,
                         uint64_t *rng)
{
	const size_t n = (size_t)topk + spec->slack;
	const enum oracle_values values =
		spec->special ? ORACLE_SPECIAL : ORACLE_PLAIN;
	const uint64_t seed = traffic_random(rng);

	if (spec->no_weights)
		return;
	b->weights_bytes = 4 * n * (size_t)spec->n_tokens;
	b->weights = allocate(b->weights_bytes);
	oracle_expert(b->weights, FERRY_FP32, b->weights_bytes / 4, &seed,
	              sizeof(seed), NULL, 0, 1, values);
	b->in.topk_weights = b->weights;
	b->in.weights_stride = spec->slack ? 4 * n : 0;
	/* What stands beside a masked choice must never matter. */
	for (int32_t t = 0; t < spec->n_tokens; t++)
		for (int32_t k = 0; k < topk; k++) {
			const size_t bytes =
				spec->id_type == FERRY_ID_INT64 ? 8 : 4;
			const uint8_t *id =
				b->ids + bytes * (n * (size_t)t + (size_t)k);
			int32_t low;

			memcpy(&low, id, 4);
			if (low == -1 && traffic_chance(rng, 50))
				memset(&b->weights[n * (size_t)t + (size_t)k],
				       0x7f, 4);
		}
}

static void fill_rows(struct traffic_batch *b,
                      const struct ferry_moe_config *config,
                      const struct traffic_spec *spec, int32_t hidden,
                      uint64_t *rng)
{
	const enum ferry_dtype dtype = config->in_dtype ? config->in_dtype
	                               : config->dtype  ? config->dtype
	                                                : FERRY_BF16;
	const size_t element = oracle_dtype_bytes(dtype);
	const size_t stride = (size_t)hidden * element + spec->slack;
	const enum oracle_values values =
		spec->special ? ORACLE_SPECIAL : ORACLE_PLAIN;
	const uint64_t seed = traffic_random(rng);

	b->x_bytes = stride * (size_t)spec->n_tokens;
	b->x = allocate(b->x_bytes);
	for (int32_t t = 0; t < spec->n_tokens; t++) {
		uint8_t *row = b->x + stride * (size_t)t;

		if (element == 1)
			for (int32_t i = 0; i < hidden; i++)
				row[i] = (uint8_t)traffic_random(rng);
		else
			oracle_expert(row, dtype, (size_t)hidden, &seed,
			              sizeof(seed), NULL, 0, t, values);
	}
	b->in.x = b->x;
	b->in.x_stride = spec->slack ? stride : 0;
}

static void fill_scales(struct traffic_batch *b,
                        const struct ferry_moe_config *config,
                        const struct traffic_spec *spec, int32_t hidden,
                        uint64_t *rng)
{
	const size_t bytes = traffic_scale_bytes(config, hidden);
	const size_t stride = bytes + spec->slack;

	if (bytes == 0 || (config->in_dtype != FERRY_DTYPE_NONE &&
	                   config->in_dtype != config->dtype))
		return;
	b->scales_bytes = stride * (size_t)spec->n_tokens;
	b->scales = allocate(b->scales_bytes);
	for (size_t i = 0; i < b->scales_bytes; i++)
		b->scales[i] = (uint8_t)traffic_random(rng);
	b->in.scales = b->scales;
	b->in.scales_stride = spec->slack ? stride : 0;
}

void traffic_make(struct traffic_batch *b,
                  const struct ferry_moe_config *config,
                  const struct ferry_placement_config *placement, int32_t rank,
                  const struct traffic_spec *spec)
{
	const int32_t topk = spec->topk ? spec->topk : config->topk;
	const int32_t hidden = spec->hidden ? spec->hidden : config->hidden;
	uint64_t rng = spec->seed;
	struct map map;

	*b = (struct traffic_batch){.in = FERRY_DISPATCH_IN_INIT};
	make_map(&map, config, placement, rank, spec);
	fill_ids(b, &map, spec, topk, &rng);
	fill_weights(b, spec, topk, &rng);
	fill_rows(b, config, spec, hidden, &rng);
	fill_scales(b, config, spec, hidden, &rng);
	b->in.hidden = spec->hidden;
	b->in.topk = spec->topk;
	b->n_tokens = spec->n_tokens;
	b->in.n_tokens = spec->n_tokens;
	if (spec->count_by_pointer) {
		b->in.n_tokens = INT32_MAX;
		b->in.n_tokens_ptr = &b->n_tokens;
	}
}

static void *duplicate(const void *from, size_t bytes)
{
	void *to;

	if (from == NULL)
		return NULL;
	to = allocate(bytes);
	memcpy(to, from, bytes);
	return to;
}

void traffic_copy(struct traffic_batch *to, const struct traffic_batch *from)
{
	*to = *from;
	to->in.x = to->x = duplicate(from->x, from->x_bytes);
	to->in.scales = to->scales =
		duplicate(from->scales, from->scales_bytes);
	to->in.topk_ids = to->ids = duplicate(from->ids, from->ids_bytes);
	to->in.topk_weights = to->weights =
		duplicate(from->weights, from->weights_bytes);
	if (from->in.n_tokens_ptr != NULL)
		to->in.n_tokens_ptr = &to->n_tokens;
}

static void scribble(void *p, size_t bytes)
{
	if (p != NULL)
		memset(p, SCRIBBLE, bytes);
}

void traffic_scribble_latched(struct traffic_batch *b)
{
	scribble(b->ids, b->ids_bytes);
	scribble(b->weights, b->weights_bytes);
	b->n_tokens = INT32_MAX;
}

void traffic_scribble_rows(struct traffic_batch *b)
{
	scribble(b->x, b->x_bytes);
	scribble(b->scales, b->scales_bytes);
}

void traffic_free(struct traffic_batch *b)
{
	free(b->x);
	free(b->scales);
	free(b->ids);
	free(b->weights);
	memset(b, 0, sizeof(*b));
}
