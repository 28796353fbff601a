/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements in binary: little endian on every machine, sized and checked, so
 * that what comes from a file or a peer cannot do harm.
 *
 *	 0 8  "FERRYPLC"		24 4  n_slots
 *	 8 4  form, 1			28 4  0
 *	12 4  split			32 8  version
 *	16 4  n_experts			40 8  hash of the content
 *	20 4  n_ranks			48 8  hash of that and the version
 *	56    expert_slots[n_ranks] of 4, slot_expert[n_slots] of 4, and with
 *	      split QUOTA quota[n_slots] of 8
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "ctx.h"
#include "placement_inner.h"

enum { HEAD_BYTES = 56, FORM = 1 };

static const char magic[8] = {'F', 'E', 'R', 'R', 'Y', 'P', 'L', 'C'};

static unsigned char *put(unsigned char *to, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*to++ = (unsigned char)(v >> (8 * i));
	return to;
}

static uint64_t get(const unsigned char *from, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)from[i] << (8 * i);
	return v;
}

static uint64_t seal(uint64_t hash, uint64_t version)
{
	return hash_u64(hash_u64(FORM, hash), version);
}

static uint64_t packed_bytes(uint64_t n_ranks, uint64_t n_slots, uint64_t split)
{
	return HEAD_BYTES + 4 * n_ranks +
	       (split == FERRY_SPLIT_QUOTA ? 12 : 4) * n_slots;
}

size_t ferry_placement_pack(const struct ferry_placement *placement,
                            void *buffer, size_t bytes)
{
	const struct ferry_placement *const p = placement;
	unsigned char *to = buffer;

	if (!p)
		return 0;
	const size_t need = (size_t)packed_bytes((uint64_t)p->map.n_ranks,
	                                         (uint64_t)p->map.n_slots,
	                                         (uint64_t)p->split);

	if (!buffer || bytes < need)
		return need;
	memcpy(to, magic, sizeof(magic));
	to = put(to + sizeof(magic), FORM, 4);
	to = put(to, (uint64_t)p->split, 4);
	to = put(to, (uint64_t)p->n_experts, 4);
	to = put(to, (uint64_t)p->map.n_ranks, 4);
	to = put(to, (uint64_t)p->map.n_slots, 4);
	to = put(to, 0, 4);
	to = put(to, p->version, 8);
	to = put(to, p->hash, 8);
	to = put(to, seal(p->hash, p->version), 8);
	for (int32_t r = 0; r < p->map.n_ranks; r++)
		to = put(to,
		         (uint64_t)(p->map.first_slot[r + 1] -
		                    p->map.first_slot[r]),
		         4);
	for (int32_t s = 0; s < p->map.n_slots; s++)
		to = put(to, (uint64_t)p->slot_expert[s], 4);
	for (int32_t s = 0; p->quota && s < p->map.n_slots; s++)
		to = put(to, (uint64_t)p->quota[s], 8);
	return need;
}

/* Numbers of the head, still as they came. */
struct head {
	uint64_t split, n_experts, n_ranks, n_slots, version, hash;
};

static enum ferry_status refuse(const char *what, uint64_t found, uint64_t want)
{
	return ferry_fail(NULL, FERRY_INVAL,
	                  "placement_unpack: %s is %" PRIu64
	                  ", expected %" PRIu64,
	                  what, found, want);
}

static enum ferry_status in_range(const char *what, uint64_t v, uint64_t low,
                                  uint64_t high)
{
	if (v >= low && v <= high)
		return FERRY_OK;
	return ferry_fail(NULL, FERRY_INVAL,
	                  "placement_unpack: %s is %" PRIu64
	                  ", allowed are %" PRIu64 "..%" PRIu64,
	                  what, v, low, high);
}

static enum ferry_status read_head(const unsigned char *from, size_t bytes,
                                   struct head *h)
{
	if (bytes < HEAD_BYTES || memcmp(from, magic, sizeof(magic)))
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_unpack: %zu bytes do not begin "
		                  "as a placement does",
		                  bytes);
	if (get(from + 8, 4) != FORM)
		return refuse("form", get(from + 8, 4), FORM);
	*h = (struct head){get(from + 12, 4), get(from + 16, 4),
	                   get(from + 20, 4), get(from + 24, 4),
	                   get(from + 32, 8), get(from + 40, 8)};
	FERRY_TRY(in_range("split", h->split, 0, FERRY_SPLIT_EXACT));
	FERRY_TRY(in_range("n_ranks", h->n_ranks, 1, FERRY_MAX_RANKS));
	FERRY_TRY(in_range("n_slots", h->n_slots, 1, FERRY_MAX_EXPERTS));
	FERRY_TRY(in_range("n_experts", h->n_experts, 1, h->n_slots));
	if (get(from + 28, 4))
		return refuse("the reserved word", get(from + 28, 4), 0);
	if (get(from + 48, 8) != seal(h->hash, h->version))
		return refuse("the seal", get(from + 48, 8),
		              seal(h->hash, h->version));
	const uint64_t need = packed_bytes(h->n_ranks, h->n_slots, h->split);

	return bytes == need ? FERRY_OK : refuse("bytes", bytes, need);
}

static void read_numbers(const unsigned char *from, uint64_t n, int32_t *to)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = (int32_t)(uint32_t)get(from + 4 * i, 4);
}

/* Arrays of the sizes that the bytes were checked to have. */
static enum ferry_status read_body(const unsigned char *from,
                                   const struct head *h, int32_t *numbers,
                                   int64_t *quota,
                                   struct ferry_placement **placement)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	const uint64_t n = h->n_ranks + h->n_slots;
	struct ferry_placement *p = NULL;
	uint64_t sum = 0;

	read_numbers(from, n, numbers);
	for (uint64_t r = 0; r < h->n_ranks; r++)
		sum += (uint32_t)numbers[r];
	if (sum != h->n_slots)
		return refuse("the sum of expert_slots", sum, h->n_slots);
	for (uint64_t s = 0; quota && s < h->n_slots; s++) {
		quota[s] = (int64_t)get(from + 4 * n + 8 * s, 8);
		if (quota[s] && numbers[h->n_ranks + s] < 0)
			return refuse("the quota of an empty slot",
			              (uint64_t)quota[s], 0);
	}
	c.n_experts = (int32_t)h->n_experts;
	c.n_ranks = (int32_t)h->n_ranks;
	c.expert_slots = numbers;
	c.slot_expert = numbers + h->n_ranks;
	c.split = (enum ferry_split)h->split;
	c.version = h->version;
	c.quota = quota;
	FERRY_TRY(ferry_placement_create(&c, &p));
	if (p->hash == h->hash) {
		*placement = p;
		return FERRY_OK;
	}
	const uint64_t hash = p->hash;

	ferry_placement_destroy(p);
	return refuse("the hash", h->hash, hash);
}

enum ferry_status ferry_placement_unpack(const void *buffer, size_t bytes,
                                         struct ferry_placement **placement)
{
	struct head h = {0};

	if (!buffer || !placement)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "placement_unpack: %s is NULL",
		                  buffer ? "placement" : "buffer");
	FERRY_TRY(read_head(buffer, bytes, &h));
	const bool has_quota = h.split == FERRY_SPLIT_QUOTA;
	int32_t *const numbers =
		calloc((size_t)(h.n_ranks + h.n_slots), sizeof(*numbers));
	int64_t *const quota =
		has_quota ? calloc((size_t)h.n_slots, sizeof(*quota)) : NULL;
	const enum ferry_status status =
		numbers && (quota || !has_quota)
			? read_body((const unsigned char *)buffer + HEAD_BYTES,
	                            &h, numbers, quota, placement)
			: ferry_fail(NULL, FERRY_NOMEM,
	                             "placement_unpack: %zu bytes", bytes);

	free(numbers);
	free(quota);
	return status;
}
