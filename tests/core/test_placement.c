/* SPDX-License-Identifier: Apache-2.0 */
/* Placements: what is refused, and what a random legal one answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <ferry/placement.h>

#include "core/bits.h"
#include "test_seed.h"

static uint64_t seed;

static int32_t below(int32_t n)
{
	return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

static struct ferry_placement *
create(const struct ferry_placement_config *config)
{
	struct ferry_placement *p = NULL;

	if (ferry_placement_create(config, &p))
		fail_msg("%s", ferry_last_error());
	return p;
}

static void refused(const struct ferry_placement_config *config,
                    enum ferry_status status, const char *text)
{
	struct ferry_placement *p = NULL;

	assert_int_equal(ferry_placement_create(config, &p), status);
	assert_null(p);
	if (!strstr(ferry_last_error(), text))
		fail_msg("\"%s\" lacks \"%s\"", ferry_last_error(), text);
}

static void identity(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	(void)state;
	c.n_experts = 10;
	c.n_ranks = 4;
	c.version = 42;
	struct ferry_placement *const p = create(&c);
	static const int32_t ranks[] = {0, 0, 0, 1, 1, 1, 2, 2, 3, 3};

	assert_int_equal(ferry_placement_n_slots(p), 10);
	assert_int_equal(ferry_placement_n_experts(p), 10);
	assert_int_equal(ferry_placement_version(p), 42);
	for (int32_t e = 0; e < 10; e++) {
		assert_int_equal(ferry_placement_expert(p, e), e);
		assert_int_equal(ferry_placement_rank(p, e), ranks[e]);
		assert_int_equal(ferry_placement_resolve(p, e, 3, 7, 1), e);
	}
	assert_int_equal(ferry_placement_expert(p, 10), -1);
	assert_int_equal(ferry_placement_expert(p, -1), -1);
	assert_int_equal(ferry_placement_rank(p, 10), -1);
	assert_int_equal(ferry_placement_rank(p, -1), -1);
	assert_int_equal(ferry_placement_resolve(p, 10, 0, 0, 0), -1);
	assert_int_equal(ferry_placement_resolve(p, -1, 0, 0, 0), -1);
	ferry_placement_destroy(p);
}

static void more_experts_than_16_bits_number(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	(void)state;
	c.n_experts = 200001;
	c.n_ranks = 7;
	struct ferry_placement *const p = create(&c);

	assert_int_equal(ferry_placement_resolve(p, 200000, 6, 1, 1), 200000);
	assert_int_equal(ferry_placement_rank(p, 200000), 6);
	assert_int_equal(ferry_placement_resolve(p, 65536, 6, 1, 1), 65536);
	ferry_placement_destroy(p);
}

static void replicas_share_by_turn(void **state)
{
	/* Expert 1 is on ranks 0, 1 and 3; one slot is empty. */
	static const int32_t slots[] = {2, 2, 1, 2};
	static const int32_t map[] = {0, 1, 1, 2, 3, -1, 1};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	(void)state;
	c.n_experts = 4;
	c.n_ranks = 4;
	c.expert_slots = slots;
	c.slot_expert = map;
	struct ferry_placement *const p = create(&c);
	const int32_t *replicas;
	int32_t n;

	assert_int_equal(ferry_placement_replicas(p, 1, &replicas, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(replicas[0], 1);
	assert_int_equal(replicas[1], 2);
	assert_int_equal(replicas[2], 6);
	assert_int_equal(ferry_placement_resolve(p, 1, 0, 0, 0), 1);
	assert_int_equal(ferry_placement_resolve(p, 1, 1, 0, 0), 2);
	assert_int_equal(ferry_placement_resolve(p, 1, 1, 3, 1), 6);
	assert_int_equal(ferry_placement_expert(p, 5), -1);
	assert_int_equal(ferry_placement_replicas(p, 4, &replicas, &n),
	                 FERRY_RANGE);
	assert_non_null(strstr(ferry_last_error(), "expert is 4"));
	/* Sums beyond 2^31 do not wrap into nothing. */
	n = ferry_placement_resolve(p, 1, 65535, INT32_MAX, 63);
	assert_true(n == 1 || n == 2 || n == 6);
	ferry_placement_destroy(p);
}

static void no_placement(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;
	const int32_t *replicas;
	int32_t n;

	(void)state;
	assert_int_equal(ferry_placement_hash(NULL), 0);
	assert_int_equal(ferry_placement_version(NULL), 0);
	assert_int_equal(ferry_placement_n_experts(NULL), 0);
	assert_int_equal(ferry_placement_n_slots(NULL), 0);
	assert_int_equal(ferry_placement_expert(NULL, 0), -1);
	assert_int_equal(ferry_placement_rank(NULL, 0), -1);
	assert_int_equal(ferry_placement_resolve(NULL, 0, 0, 0, 0), -1);
	assert_int_equal(ferry_placement_replicas(NULL, 0, &replicas, &n),
	                 FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(), "placement is NULL"));
	c.n_experts = 1;
	c.n_ranks = 1;
	struct ferry_placement *const p = create(&c);

	assert_int_equal(ferry_placement_replicas(p, 0, NULL, &n), FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(), "slots is NULL"));
	assert_int_equal(ferry_placement_replicas(p, 0, &replicas, NULL),
	                 FERRY_INVAL);
	assert_non_null(strstr(ferry_last_error(), "n is NULL"));
	ferry_placement_destroy(p);
}

static void bad_maps(void **state)
{
	static const int32_t slots[] = {2, 1}, negative[] = {4, -1};
	static const int32_t none[] = {0, 0}, many[] = {1 << 24, 1};
	static const int32_t twice[] = {1, 1, 0}, range[] = {0, 1, 2};
	static const int32_t below_minus_1[] = {0, -2, 1}, lacks[] = {0, -1, 0};
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	(void)state;
	c.n_experts = 2;
	c.n_ranks = 2;
	c.expert_slots = slots;
	c.slot_expert = twice;
	refused(&c, FERRY_INVAL, "expert 1 is in slots 0 and 1 of rank 0");
	c.slot_expert = range;
	refused(&c, FERRY_RANGE,
	        "slot_expert[2] of rank 1 is 2, experts are "
	        "0..1");
	c.slot_expert = below_minus_1;
	refused(&c, FERRY_RANGE, "slot_expert[1] of rank 0 is -2");
	c.slot_expert = lacks;
	refused(&c, FERRY_INVAL, "expert 1 of 2 is in none of the 3 slots");
	c.slot_expert = NULL;
	c.n_experts = 4;
	refused(&c, FERRY_INVAL, "expert 3 of 4 is in none of the 3 slots");
	c.n_experts = 2;
	c.expert_slots = negative;
	refused(&c, FERRY_RANGE, "expert_slots[1] is -1");
	c.expert_slots = none;
	refused(&c, FERRY_RANGE, "sum of expert_slots is 0");
	c.expert_slots = many;
	refused(&c, FERRY_RANGE, "sum of expert_slots is 16777217");
}

static void bad_numbers(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	(void)state;
	refused(NULL, FERRY_INVAL, "NULL");
	refused(&c, FERRY_RANGE, "n_ranks is 0, allowed are 1..65536");
	c.n_ranks = 65537;
	refused(&c, FERRY_RANGE, "n_ranks is 65537");
	c.n_ranks = 2;
	refused(&c, FERRY_RANGE, "n_experts is 0, allowed are 1..16777216");
	c.n_experts = INT32_MAX;
	refused(&c, FERRY_RANGE, "n_experts is 2147483647");
	c.n_experts = 8;
	c.split = (enum ferry_split)7;
	refused(&c, FERRY_INVAL, "split is 7");
	c.split = FERRY_SPLIT_EVEN;
	c.size = 4;
	refused(&c, FERRY_INVAL, "size is 4");
	c.size = sizeof(c);
	assert_int_equal(ferry_placement_create(&c, NULL), FERRY_INVAL);
	ferry_placement_destroy(NULL);
}

/* An older caller has a shorter struct, a newer one a longer one. */
static void other_sizes(void **state)
{
	struct {
		struct ferry_placement_config c;
		uint64_t tail[2];
	} longer = {.c = FERRY_PLACEMENT_CONFIG_INIT};

	(void)state;
	longer.c.n_experts = 8;
	longer.c.n_ranks = 2;
	longer.c.version = 7;
	longer.c.size = sizeof(longer);
	struct ferry_placement *p = create(&longer.c);

	assert_int_equal(ferry_placement_version(p), 7);
	ferry_placement_destroy(p);
	longer.tail[1] = 1;
	refused(&longer.c, FERRY_INVAL, "is not zero");
	longer.c.size = offsetof(struct ferry_placement_config, version);
	p = create(&longer.c);
	assert_int_equal(ferry_placement_version(p), 0);
	ferry_placement_destroy(p);
}

/* A random legal map: every expert once at least, never twice on a rank. */
struct map {
	int32_t n_ranks, n_experts, n_slots;
	int32_t expert_slots[9], rank[9 * 8], expert[9 * 8];
};

static bool rank_has(const struct map *m, int32_t rank, int32_t expert)
{
	for (int32_t s = 0; s < m->n_slots; s++)
		if (m->rank[s] == rank && m->expert[s] == expert)
			return true;
	return false;
}

static void random_map(struct map *m)
{
	m->n_ranks = 1 + below(9);
	m->n_slots = 0;
	for (int32_t r = 0; r < m->n_ranks; r++) {
		m->expert_slots[r] = r ? below(9) : 1 + below(8);
		for (int32_t i = 0; i < m->expert_slots[r]; i++) {
			m->rank[m->n_slots] = r;
			m->expert[m->n_slots++] = -1;
		}
	}
	m->n_experts = 1 + below(m->n_slots);
	for (int32_t e = 0; e < m->n_experts; e++) {
		int32_t s = below(m->n_slots);

		while (m->expert[s] >= 0)
			s = (s + 1) % m->n_slots;
		m->expert[s] = e;
	}
	for (int32_t s = 0; s < m->n_slots; s++) {
		const int32_t e = below(m->n_experts);

		if (m->expert[s] < 0 && !rank_has(m, m->rank[s], e))
			m->expert[s] = e;
	}
}

static struct ferry_placement *of_map(const struct map *m)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	c.n_experts = m->n_experts;
	c.n_ranks = m->n_ranks;
	c.expert_slots = m->expert_slots;
	c.slot_expert = m->expert;
	return create(&c);
}

/* The rule of placement.h, by counting slots from the left. */
static int32_t naive_resolve(const struct map *m, int32_t expert, int64_t turn)
{
	int32_t n = 0;

	for (int32_t s = 0; s < m->n_slots; s++)
		n += m->expert[s] == expert;
	for (int32_t s = 0, i = 0; s < m->n_slots; s++)
		if (m->expert[s] == expert && i++ == turn % n)
			return s;
	return -1;
}

static void random_maps(void **state)
{
	struct map m;

	(void)state;
	for (int round = 0; round < 500; round++) {
		random_map(&m);
		struct ferry_placement *const p = of_map(&m);

		for (int i = 0; i < 50; i++) {
			const int32_t e = below(m.n_experts), rank = below(64);
			const int32_t token = below(5000), choice = below(64);

			assert_int_equal(
				ferry_placement_resolve(p, e, rank, token,
			                                choice),
				naive_resolve(&m, e,
			                      (int64_t)rank + token + choice));
		}
		ferry_placement_destroy(p);
	}
}

static void hash_is_of_the_content(void **state)
{
	struct map m;

	(void)state;
	for (int round = 0; round < 300; round++) {
		random_map(&m);
		struct ferry_placement *const a = of_map(&m);
		struct ferry_placement *const b = of_map(&m);
		const int32_t s = below(m.n_slots);

		assert_int_equal(ferry_placement_hash(a),
		                 ferry_placement_hash(b));
		ferry_placement_destroy(b);
		/* An empty slot more, at the end or at a rank's end. */
		m.expert_slots[m.n_ranks - 1]++;
		m.expert[m.n_slots++] = -1;
		struct ferry_placement *const c = of_map(&m);

		assert_int_not_equal(ferry_placement_hash(a),
		                     ferry_placement_hash(c));
		ferry_placement_destroy(c);
		m.n_slots--;
		m.expert_slots[m.n_ranks - 1]--;
		const int32_t e = m.expert[s];

		for (int32_t o = 0; o < m.n_slots; o++) {
			if (m.rank[o] != m.rank[s] || m.expert[o] == e)
				continue;
			m.expert[s] = m.expert[o];
			m.expert[o] = e;
			struct ferry_placement *const d = of_map(&m);

			assert_int_not_equal(ferry_placement_hash(a),
			                     ferry_placement_hash(d));
			ferry_placement_destroy(d);
			break;
		}
		ferry_placement_destroy(a);
	}
}

/* The value itself: the same on every machine and in every release. */
static void hash_is_golden(void **state)
{
	struct ferry_placement_config c = FERRY_PLACEMENT_CONFIG_INIT;

	(void)state;
	c.n_experts = 8;
	c.n_ranks = 2;
	c.version = 1;
	struct ferry_placement *const p = create(&c);

	assert_int_equal(ferry_placement_hash(p), 0x9b8555c503a46da5);
	ferry_placement_destroy(p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identity),
		cmocka_unit_test(more_experts_than_16_bits_number),
		cmocka_unit_test(replicas_share_by_turn),
		cmocka_unit_test(no_placement),
		cmocka_unit_test(bad_maps),
		cmocka_unit_test(bad_numbers),
		cmocka_unit_test(other_sizes),
		cmocka_unit_test(random_maps),
		cmocka_unit_test(hash_is_of_the_content),
		cmocka_unit_test(hash_is_golden),
	};

	seed = test_seed(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
