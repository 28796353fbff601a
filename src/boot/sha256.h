/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for the job secret. */
#ifndef FERRY_SHA256_H
#define FERRY_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FERRY_SHA256_BYTES = 32, FERRY_SHA256_BLOCK = 64 };

struct ferry_sha256 {
	uint32_t h[8];
	uint64_t n_bytes;
	uint8_t block[FERRY_SHA256_BLOCK];
};

void ferry_sha256_begin(struct ferry_sha256 *sha);
void ferry_sha256_add(struct ferry_sha256 *sha, const void *data, size_t bytes);
void ferry_sha256_end(struct ferry_sha256 *sha,
                      uint8_t digest[FERRY_SHA256_BYTES]);

struct ferry_hmac {
	struct ferry_sha256 inner;
	struct ferry_sha256 outer;
};

void ferry_hmac_begin(struct ferry_hmac *hmac, const void *key, size_t bytes);
void ferry_hmac_add(struct ferry_hmac *hmac, const void *data, size_t bytes);
void ferry_hmac_end(struct ferry_hmac *hmac, uint8_t mac[FERRY_SHA256_BYTES]);

/* Equal? Takes the same time wherever they differ. */
bool ferry_mac_equal(const uint8_t a[FERRY_SHA256_BYTES],
                     const uint8_t b[FERRY_SHA256_BYTES]);

#endif
