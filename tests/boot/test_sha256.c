/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC-SHA256 against published vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "boot/sha256.h"

static void assert_hex(const uint8_t digest[FERRY_SHA256_BYTES],
                       const char *want)
{
	char hex[2 * FERRY_SHA256_BYTES + 1];

	for (int i = 0; i < FERRY_SHA256_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	assert_string_equal(hex, want);
}

static void assert_sha(const char *text, const char *want)
{
	struct ferry_sha256 sha;
	uint8_t digest[FERRY_SHA256_BYTES];

	ferry_sha256_begin(&sha);
	ferry_sha256_add(&sha, text, strlen(text));
	ferry_sha256_end(&sha, digest);
	assert_hex(digest, want);
}

/* FIPS 180-4 examples. */
static void test_sha256(void **state)
{
	(void)state;
	assert_sha("", "e3b0c44298fc1c149afbf4c8996fb924"
	               "27ae41e4649b934ca495991b7852b855");
	assert_sha("abc", "ba7816bf8f01cfea414140de5dae2223"
	                  "b00361a396177a9cb410ff61f20015ad");
	assert_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	           "248d6a61d20638b8e5c026930c3e6039"
	           "a33ce45964ff2167f6ecedd419db06c1");
	assert_sha("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhi"
	           "jklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
	           "cf5b16a778af8380036ce59e7b049237"
	           "0b249b11e8f07a51afac45037afee9d1");
}

static void test_million(void **state)
{
	struct ferry_sha256 sha;
	uint8_t digest[FERRY_SHA256_BYTES];
	char piece[997];
	size_t left = 1000000;

	(void)state;
	memset(piece, 'a', sizeof(piece));
	ferry_sha256_begin(&sha);
	while (left) {
		const size_t n = left < sizeof(piece) ? left : sizeof(piece);

		ferry_sha256_add(&sha, piece, n);
		left -= n;
	}
	ferry_sha256_end(&sha, digest);
	assert_hex(digest, "cdc76e5c9914fb9281a1c7e284d73e67"
	                   "f1809a48a497200e046d39ccc7112cd0");
}

/* Every length around the block size, in one piece and byte by byte. */
static void test_pieces(void **state)
{
	uint8_t data[200];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31);
	for (size_t n = 0; n <= sizeof(data); n++) {
		struct ferry_sha256 whole;
		struct ferry_sha256 bytes;
		uint8_t a[FERRY_SHA256_BYTES];
		uint8_t b[FERRY_SHA256_BYTES];

		ferry_sha256_begin(&whole);
		ferry_sha256_add(&whole, data, n);
		ferry_sha256_end(&whole, a);
		ferry_sha256_begin(&bytes);
		for (size_t i = 0; i < n; i++)
			ferry_sha256_add(&bytes, data + i, 1);
		ferry_sha256_end(&bytes, b);
		assert_memory_equal(a, b, sizeof(a));
	}
}

static void assert_hmac(const void *key, size_t key_bytes, const void *data,
                        size_t bytes, const char *want)
{
	struct ferry_hmac hmac;
	uint8_t mac[FERRY_SHA256_BYTES];

	ferry_hmac_begin(&hmac, key, key_bytes);
	ferry_hmac_add(&hmac, data, bytes);
	ferry_hmac_end(&hmac, mac);
	assert_hex(mac, want);
}

/* RFC 4231, test cases 1, 2, 3, 6 and 7. */
static void test_hmac(void **state)
{
	static const char larger[] =
		"Test Using Larger Than Block-Size Key - Hash Key First";
	static const char both[] =
		"This is a test using a larger than block-size key and a "
		"larger than block-size data. The key needs to be hashed "
		"before being used by the HMAC algorithm.";
	uint8_t key[131];
	uint8_t data[50];

	(void)state;
	memset(key, 0x0b, 20);
	assert_hmac(key, 20, "Hi There", 8,
	            "b0344c61d8db38535ca8afceaf0bf12b"
	            "881dc200c9833da726e9376c2e32cff7");
	assert_hmac("Jefe", 4, "what do ya want for nothing?", 28,
	            "5bdcc146bf60754e6a042426089575c7"
	            "5a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, sizeof(key));
	memset(data, 0xdd, sizeof(data));
	assert_hmac(key, 20, data, sizeof(data),
	            "773ea91e36800e46854db8ebd09181a7"
	            "2959098b3ef8c122d9635514ced565fe");
	assert_hmac(key, sizeof(key), larger, sizeof(larger) - 1,
	            "60e431591ee0b67f0d8a26aacbf5b77f"
	            "8e0bc6213728c5140546040f0ee37f54");
	assert_hmac(key, sizeof(key), both, sizeof(both) - 1,
	            "9b09ffa71b942fcb27635fbcd5b0e944"
	            "bfdc63644f0713938a7f51535c3a35e2");
}

static void test_empty_key(void **state)
{
	(void)state;
	assert_hmac(NULL, 0, NULL, 0,
	            "b613679a0814d9ec772f95d778c35fc5"
	            "ff1697c493715653c6c712144292c5ad");
}

static void test_equal(void **state)
{
	uint8_t a[FERRY_SHA256_BYTES] = {1};
	uint8_t b[FERRY_SHA256_BYTES] = {1};

	(void)state;
	assert_true(ferry_mac_equal(a, b));
	for (int i = 0; i < FERRY_SHA256_BYTES; i++) {
		b[i] ^= 0x80;
		assert_false(ferry_mac_equal(a, b));
		b[i] ^= 0x80;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256),
		cmocka_unit_test(test_million),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_hmac),
		cmocka_unit_test(test_empty_key),
		cmocka_unit_test(test_equal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
