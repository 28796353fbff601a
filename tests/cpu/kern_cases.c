/* SPDX-License-Identifier: Apache-2.0 */
/* Random inputs for the kernel tests; kern_cases.h says what. */
#include "kern_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/bits.h"

enum { ARENA_BYTES = 1 << 20 };

static uint64_t state;
static char *arena_end; /* the forbidden page begins here */
static size_t arena_used;

void cases_seed(void)
{
	const char *text = getenv("FERRY_TEST_SEED");

	state = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
	printf("# FERRY_TEST_SEED=%llu\n", (unsigned long long)state);
}

uint32_t random_u32(void)
{
	return (uint32_t)(rng_next(&state) >> 32);
}

uint32_t random_below(uint32_t n)
{
	return random_u32() % n;
}

size_t dtype_size(enum ferry_dtype dtype)
{
	return dtype == FERRY_FP32 ? 4 : 2;
}

/* Values at which one of the formats or instructions behaves specially. */
static const uint32_t
	trap_f32[] =
		{
			0x00000000, 0x80000000,
			0x7f800000, 0xff800000, /* 0, infinity */
			0x7f800001, 0xff800001,
			0x7fc00000, 0xffc12345, /* NaN, also signalling */
			0x7fffffff, 0xffffffff,
			0x00000001, 0x807fffff,
			0x00800000, 0x80800001, /* denormal, least normal */
			0x7f7fffff, 0xff7fffff,
			0x7f7f8000, 0x7f7f7fff, /* largest, bf16 overflow */
			0x3f808000, 0x3f818000,
			0x3f808001, 0x3f807fff, /* ties of bf16 */
			0x3f801000, 0x3f803000,
			0x3f801001, 0x3f800fff, /* ties of fp16 */
			0x477fe000, 0x477fefff,
			0x477ff000, 0xc77ff000, /* 65504..65520 */
			0x38800000, 0x387fffff,
			0x33800000, 0x33000000, /* fp16 denormals */
			0x33000001, 0x33c00000,
			0x32ffffff, 0x43e00000,
			0x43e80000, 0x43e7ffff,
			0x3a800000, /* 448, 464, 2^-10 */
			0x00008000, 0x00018000,
			0x0000ffff, 0x000116c2, /* bf16 denormals, 1e-39 */
};

static const uint16_t trap_u16[] = {
	0x0000, 0x8000, 0x7f80, 0xff80, 0x7c00, 0xfc00, /* 0, infinities */
	0x7f81, 0xff81, 0x7fc0, 0xffff, 0x7fff, 0x7c01, 0xfe00,
	0x7dff,                                                 /* NaN */
	0x0001, 0x8001, 0x007f, 0x0080, 0x03ff, 0x0400, 0x83ff, /* denormals */
	0x7f7f, 0xff7f, 0x7bff, 0xfbff,                         /* largest */
	0x3f80, 0xbf80, 0x3c00, 0xbc00,                         /* one */
};

#define N_OF(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

/* Sign and mantissa at random, exponent field in lo..hi. */
static uint32_t random_float(uint32_t mantissa_bits, uint32_t sign_bit,
                             uint32_t lo, uint32_t hi)
{
	const uint32_t bits = random_u32();
	const uint32_t exponent = lo + random_below(hi - lo + 1);

	return (bits & sign_bit) | exponent << mantissa_bits |
	       (bits & ((1u << mantissa_bits) - 1));
}

static uint32_t random_f32(enum flavour flavour)
{
	switch (flavour) {
	case FLAVOUR_WILD:
		return random_u32();
	case FLAVOUR_TINY: /* of fp32 and bf16, or of fp16 */
		return random_below(2) ? random_float(23, 1u << 31, 0, 12)
		                       : random_float(23, 1u << 31, 98, 116);
	case FLAVOUR_HUGE:
		return random_below(2) ? random_float(23, 1u << 31, 248, 254)
		                       : random_float(23, 1u << 31, 138, 143);
	case FLAVOUR_SPECIAL:
		if (random_below(16) == 0)
			return trap_f32[random_below(N_OF(trap_f32))];
		break;
	default:
		break;
	}
	return random_float(23, 1u << 31, 120, 130);
}

static uint16_t random_u16(enum ferry_dtype dtype, enum flavour flavour)
{
	const bool bf16 = dtype == FERRY_BF16;
	const uint32_t mantissa_bits = bf16 ? 7 : 10;
	uint32_t lo = bf16 ? 120 : 10;
	uint32_t hi = bf16 ? 130 : 18;

	switch (flavour) {
	case FLAVOUR_WILD:
		return (uint16_t)random_u32();
	case FLAVOUR_TINY:
		lo = 0;
		hi = bf16 ? 12 : 3;
		break;
	case FLAVOUR_HUGE:
		lo = bf16 ? 248 : 27;
		hi = bf16 ? 254 : 30;
		break;
	case FLAVOUR_SPECIAL:
		if (random_below(16) == 0)
			return trap_u16[random_below(N_OF(trap_u16))];
		break;
	default:
		break;
	}
	return (uint16_t)random_float(mantissa_bits, 0x8000, lo, hi);
}

/* Huge and tiny rows get weights near 1, so that they stay at the edge. */
float random_weight(enum flavour flavour)
{
	const uint32_t u =
		random_f32(flavour == FLAVOUR_WILD || flavour == FLAVOUR_SPECIAL
	                           ? flavour
	                           : FLAVOUR_PLAIN);
	float weight;

	memcpy(&weight, &u, sizeof(weight));
	return weight;
}

void random_fill(void *to, enum ferry_dtype dtype, size_t n,
                 enum flavour flavour)
{
	for (size_t i = 0; i < n; i++) {
		if (dtype == FERRY_FP32) {
			const uint32_t u = random_f32(flavour);

			memcpy((char *)to + i * sizeof(u), &u, sizeof(u));
		} else {
			const uint16_t u = random_u16(dtype, flavour);

			memcpy((char *)to + i * sizeof(u), &u, sizeof(u));
		}
	}
}

static void arena_make(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *base = mmap(NULL, ARENA_BYTES + page, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(base != MAP_FAILED);
	arena_end = base + ARENA_BYTES;
	assert_int_equal(mprotect(arena_end, page, PROT_NONE), 0);
}

/* The first piece ends at the forbidden page, the next ones below it. */
void *arena_alloc(size_t bytes)
{
	if (arena_end == NULL)
		arena_make();
	arena_used += bytes;
	assert_true(arena_used <= ARENA_BYTES);
	return arena_end - arena_used;
}

void arena_reset(void)
{
	arena_used = 0;
}

void assert_same_bytes(const void *got, const void *want, size_t bytes)
{
	const unsigned char *a = got;
	const unsigned char *b = want;

	if (memcmp(got, want, bytes) == 0)
		return;
	for (size_t i = 0; i < bytes; i++)
		if (a[i] != b[i]) {
			printf("# byte %zu of %zu is %02x, not %02x\n", i,
			       bytes, a[i], b[i]);
			break;
		}
	fail();
}
