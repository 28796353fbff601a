/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the tokenizer that grows, and its hash tables: pairs of numbers,
 * names of tokens. Both are sized once and have a free slot always. */
#include <stdlib.h>
#include <string.h>

#include "lm_tokenizer_parts.h"

bool lm_tokenizer_reserve(void *array_pointer, size_t *max, size_t n,
                          size_t size, struct fault *fault)
{
	void *array;

	if (n <= *max)
		return true;
	const size_t more = n + n / 2 + 64;

	memcpy(&array, array_pointer, sizeof(array));
	array = realloc(array, more * size);
	if (!array)
		return fault_set(fault, "no memory for %zu times %zu bytes",
		                 more, size);
	memcpy(array_pointer, &array, sizeof(array));
	*max = more;
	return true;
}

bool lm_buffer_add(struct lm_buffer *buffer, const char *bytes, size_t n,
                   struct fault *fault)
{
	if (!lm_tokenizer_reserve(&buffer->bytes, &buffer->max, buffer->n + n,
	                          1, fault))
		return false;
	if (n) /* there may be no memory yet */
		memcpy(buffer->bytes + buffer->n, bytes, n);
	buffer->n += n;
	return true;
}

bool lm_ids_add(struct lm_ids *ids, int32_t id, struct fault *fault)
{
	if (!lm_tokenizer_reserve(&ids->ids, &ids->max, ids->n + 1,
	                          sizeof(*ids->ids), fault))
		return false;
	ids->ids[ids->n++] = id;
	return true;
}

/* Bits of a table that is at most half full. */
static int32_t table_bits(size_t n)
{
	int32_t bits = 4;

	while ((size_t)1 << bits < 2 * n)
		bits++;
	return bits;
}

bool lm_pairs_open(struct lm_pairs *pairs, size_t max_pairs,
                   struct fault *fault)
{
	const int32_t bits = table_bits(max_pairs);

	pairs->slots = calloc((size_t)1 << bits, sizeof(*pairs->slots));
	if (!pairs->slots)
		return fault_set(fault, "no memory for %zu pairs", max_pairs);
	pairs->shift = 64 - bits;
	pairs->mask = ((size_t)1 << bits) - 1;
	return true;
}

void lm_pairs_close(struct lm_pairs *pairs)
{
	free(pairs->slots);
	pairs->slots = NULL;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
	return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

/* The pair's slot, or the free one where it belongs. */
static size_t pair_slot(const struct lm_pairs *pairs, uint64_t key)
{
	/* 2^64 / golden ratio: the high bits depend on all of the key. */
	size_t at =
		(size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> pairs->shift);

	while (pairs->slots[at].key && pairs->slots[at].key != key)
		at = (at + 1) & pairs->mask;
	return at;
}

void lm_pairs_put(struct lm_pairs *pairs, int32_t left, int32_t right,
                  int32_t rank, int32_t id)
{
	const uint64_t key = pair_key(left, right);

	pairs->slots[pair_slot(pairs, key)] = (struct lm_pair){
		.key = key,
		.rank = rank,
		.id = id,
	};
}

const struct lm_pair *lm_pairs_find(const struct lm_pairs *pairs, int32_t left,
                                    int32_t right)
{
	const size_t at = pair_slot(pairs, pair_key(left, right));

	return pairs->slots[at].key ? &pairs->slots[at] : NULL;
}

bool lm_names_open(struct lm_names *names, size_t max_names, size_t max_bytes,
                   struct fault *fault)
{
	const size_t n_slots = (size_t)1 << table_bits(max_names);

	names->names = calloc(max_names + 1, sizeof(*names->names));
	names->bytes = calloc(max_names + 1, sizeof(*names->bytes));
	names->slots = calloc(n_slots, sizeof(*names->slots));
	names->memory = malloc(2 * max_bytes + 1);
	names->mask = n_slots - 1;
	if (names->names && names->bytes && names->slots && names->memory)
		return true;
	return fault_set(fault, "no memory for %zu tokens", max_names);
}

void lm_names_close(struct lm_names *names)
{
	free(names->names);
	free(names->bytes);
	free(names->slots);
	free(names->memory);
}

/* FNV-1a. */
static uint64_t name_hash(struct lm_text name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < name.n; i++)
		hash = (hash ^ (uint8_t)name.bytes[i]) *
		       UINT64_C(0x100000001b3);
	return hash ^ hash >> 32;
}

static size_t name_slot(const struct lm_names *names, struct lm_text name)
{
	size_t at = (size_t)name_hash(name) & names->mask;

	for (; names->slots[at]; at = (at + 1) & names->mask) {
		const struct lm_text is = names->names[names->slots[at] - 1];

		if (is.n == name.n && !memcmp(is.bytes, name.bytes, is.n))
			break;
	}
	return at;
}

int32_t lm_names_find(const struct lm_names *names, struct lm_text name)
{
	return names->slots[name_slot(names, name)] - 1;
}

void lm_names_put(struct lm_names *names, int32_t id, struct lm_text name,
                  bool raw)
{
	char *const own = names->memory + names->used;

	names->slots[name_slot(names, name)] = id + 1;
	memcpy(own, name.bytes, name.n);
	names->names[id] = (struct lm_text){own, name.n};
	names->bytes[id] = names->names[id];
	names->used += name.n;
	if (raw)
		return;
	char *const bytes = own + name.n;

	names->bytes[id].bytes = bytes;
	names->bytes[id].n = lm_text_of_letters(names->names[id], bytes);
	names->used += names->bytes[id].n;
}
