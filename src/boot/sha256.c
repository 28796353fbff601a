/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 and HMAC. Small rather than fast: a job start hashes a few hundred
 * bytes for each rank.
 */
#include "sha256.h"

#include <string.h>

static const uint32_t k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static uint32_t load_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 |
	       (uint32_t)p[2] << 8 | p[3];
}

static void store_be32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Names as in FIPS 180-4, section 6.2.2. */
static void compress(uint32_t h[8], const uint8_t block[FERRY_SHA256_BLOCK])
{
	uint32_t w[64];
	uint32_t v[8];

	for (int t = 0; t < 16; t++)
		w[t] = load_be32(block + 4 * t);
	for (int t = 16; t < 64; t++) {
		const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^
		                    w[t - 15] >> 3;
		const uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^
		                    w[t - 2] >> 10;

		w[t] = w[t - 16] + s0 + w[t - 7] + s1;
	}
	memcpy(v, h, sizeof(v));
	for (int t = 0; t < 64; t++) {
		const uint32_t a = v[0];
		const uint32_t e = v[4];
		const uint32_t t1 = v[7] +
		                    (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) +
		                    ((e & v[5]) ^ (~e & v[6])) + k[t] + w[t];
		const uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) +
		                    ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		h[i] += v[i];
}

void ferry_sha256_begin(struct ferry_sha256 *sha)
{
	*sha = (struct ferry_sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
	                                   0xa54ff53a, 0x510e527f, 0x9b05688c,
	                                   0x1f83d9ab, 0x5be0cd19}};
}

void ferry_sha256_add(struct ferry_sha256 *sha, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	while (bytes) {
		const size_t used = sha->n_bytes % FERRY_SHA256_BLOCK;
		const size_t room = FERRY_SHA256_BLOCK - used;
		const size_t n = bytes < room ? bytes : room;

		memcpy(sha->block + used, p, n);
		sha->n_bytes += n;
		if (n == room)
			compress(sha->h, sha->block);
		p += n;
		bytes -= n;
	}
}

void ferry_sha256_end(struct ferry_sha256 *sha,
                      uint8_t digest[FERRY_SHA256_BYTES])
{
	static const uint8_t pad[FERRY_SHA256_BLOCK] = {0x80};
	const uint64_t n_bits = sha->n_bytes * 8;
	const size_t used = sha->n_bytes % FERRY_SHA256_BLOCK;
	uint8_t length[8];

	ferry_sha256_add(sha, pad, (used < 56 ? 56 : 120) - used);
	store_be32(length, (uint32_t)(n_bits >> 32));
	store_be32(length + 4, (uint32_t)n_bits);
	ferry_sha256_add(sha, length, sizeof(length));
	for (int i = 0; i < 8; i++)
		store_be32(digest + 4 * i, sha->h[i]);
}

void ferry_hmac_begin(struct ferry_hmac *hmac, const void *key, size_t bytes)
{
	uint8_t block[FERRY_SHA256_BLOCK] = {0};

	if (bytes > sizeof(block)) {
		ferry_sha256_begin(&hmac->inner);
		ferry_sha256_add(&hmac->inner, key, bytes);
		ferry_sha256_end(&hmac->inner, block);
	} else if (bytes) {
		memcpy(block, key, bytes);
	}
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= 0x36;
	ferry_sha256_begin(&hmac->inner);
	ferry_sha256_add(&hmac->inner, block, sizeof(block));
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= 0x36 ^ 0x5c;
	ferry_sha256_begin(&hmac->outer);
	ferry_sha256_add(&hmac->outer, block, sizeof(block));
}

void ferry_hmac_add(struct ferry_hmac *hmac, const void *data, size_t bytes)
{
	ferry_sha256_add(&hmac->inner, data, bytes);
}

void ferry_hmac_end(struct ferry_hmac *hmac, uint8_t mac[FERRY_SHA256_BYTES])
{
	ferry_sha256_end(&hmac->inner, mac);
	ferry_sha256_add(&hmac->outer, mac, FERRY_SHA256_BYTES);
	ferry_sha256_end(&hmac->outer, mac);
}

bool ferry_mac_equal(const uint8_t a[FERRY_SHA256_BYTES],
                     const uint8_t b[FERRY_SHA256_BYTES])
{
	uint8_t differ = 0;

	for (int i = 0; i < FERRY_SHA256_BYTES; i++)
		differ |= a[i] ^ b[i];
	return !differ;
}
