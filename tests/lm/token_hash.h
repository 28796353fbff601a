/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of ids, as tokenizer_golden.py makes them. */
#ifndef TOKEN_HASH_H
#define TOKEN_HASH_H

#include <stdint.h>
#include <stdio.h>

/* FNV-1a of ids as int32_t in little endian. */
static inline uint64_t token_hash(const int32_t *ids, int64_t n)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (int64_t i = 0; i < n; i++)
		for (int32_t shift = 0; shift < 32; shift += 8)
			hash = (hash ^ ((uint32_t)ids[i] >> shift & 0xff)) *
			       UINT64_C(0x100000001b3);
	return hash;
}

/* Eight digits. */
static inline void token_hash_text(uint64_t hash, char text[9])
{
	snprintf(text, 9, "%08x", (unsigned int)(uint32_t)(hash ^ hash >> 32));
}

#endif
