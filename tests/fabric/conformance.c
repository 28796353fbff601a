/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance program: every case on every fabric of conf_settings, as
 * threads and as processes, plain and behind the wrappers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "conformance.h"
#include "runs.h"
#include "core/bits.h"

static const struct conf_case *const lists[] = {
	conf_memory_cases,  conf_signal_cases, conf_traffic_cases,
	conf_refusal_cases, conf_life_cases,
};

enum { N_LISTS = sizeof(lists) / sizeof(*lists) };

/* One cmocka test. */
struct plan {
	const struct conf_setting *setting;
	const struct conf_case *conf;
	char name[128];
};

static uint64_t seed;

static void run(void **state)
{
	const struct plan *plan = *state;
	struct ranks how = {
		.kind = plan->setting->kind,
		.fabric = plan->setting->fabric,
		.options = plan->setting->options,
		.device = conf_n_gpus ? FERRY_DEVICE_CUDA : FERRY_DEVICE_CPU,
		.n_gpus = conf_n_gpus,
		.arg = &seed,
	};

	for (int i = 0; plan->conf->n_ranks[i]; i++) {
		how.n_ranks = plan->conf->n_ranks[i];
		conf_place(&how);
		ranks_run(&how, plan->conf->body);
	}
}

static int add_plans(struct plan *plans, const struct conf_case *list)
{
	int n = 0;

	for (const struct conf_case *c = list; c->name; c++)
		for (const struct conf_setting *s = conf_settings; s->fabric;
		     s++) {
			struct plan *plan = &plans[n];

			if ((c->slow && s->is_slow) || !ranks_worth(s->kind))
				continue;
			plan->setting = s;
			plan->conf = c;
			snprintf(plan->name, sizeof(plan->name),
			         "%s: %s, %s, '%s'", c->name, s->fabric,
			         s->kind == RANKS_THREADS ? "threads"
			                                  : "processes",
			         s->options);
			n++;
		}
	return n;
}

struct ferry_segment *conf_open(struct rank *rank, size_t bytes,
                                uint32_t n_signals)
{
	struct ferry_segment *segment = NULL;

	RANKS_OK(ferry_segment_open(rank->world, bytes, n_signals, &segment));
	ranks_defer((void (*)(void *))ferry_segment_close, segment);
	return segment;
}

void conf_put(struct ferry_segment *segment, int32_t peer, size_t offset,
              const void *source, size_t bytes, uint32_t signal)
{
	RANKS_OK(ferry_segment_put(segment, peer, offset, source, bytes,
	                           signal));
	RANKS_OK(ferry_segment_kick(segment));
}

void conf_signal(struct ferry_segment *segment, int32_t peer, uint32_t signal)
{
	RANKS_OK(ferry_segment_signal(segment, peer, signal));
	RANKS_OK(ferry_segment_kick(segment));
}

void conf_wait(struct ferry_segment *segment, uint32_t signal, uint64_t value)
{
	RANKS_OK(ferry_segment_wait(segment, signal, value));
	RANKS_CHECK(ferry_segment_read(segment, signal) >= value);
}

void conf_flush(struct ferry_segment *segment)
{
	RANKS_OK(ferry_segment_flush(segment));
}

void conf_fill(void *bytes, size_t n, uint64_t key)
{
	uint8_t *p = bytes;
	uint64_t word = 0;

	for (size_t i = 0; i < n; i++, word >>= 8) {
		if (i % 8 == 0)
			word = rng_next(&key);
		p[i] = (uint8_t)word;
	}
}

int64_t conf_is_filled(const void *bytes, size_t n, uint64_t key)
{
	const uint8_t *p = bytes;
	uint64_t word = 0;

	for (size_t i = 0; i < n; i++, word >>= 8) {
		if (i % 8 == 0)
			word = rng_next(&key);
		if (p[i] != (uint8_t)word)
			return (int64_t)i;
	}
	return -1;
}

void conf_sleep_ms(int64_t ms)
{
	const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

/* With words as arguments: only the tests whose names contain the first. */
int main(int argc, char **argv)
{
	enum { MAX_PLANS = 1000 };
	struct plan *plans = calloc(MAX_PLANS, sizeof(*plans));
	struct CMUnitTest *tests = calloc(MAX_PLANS, sizeof(*tests));
	size_t n_tests = 0;
	int n_plans = 0;

	if (!plans || !tests)
		return 1;
	conf_begin();
	seed = ranks_seed();
	for (int i = 0; i < N_LISTS; i++)
		n_plans += add_plans(plans + n_plans, lists[i]);
	for (int i = 0; i < n_plans; i++)
		if (runs_wanted(plans[i].name, argc, argv))
			tests[n_tests++] = (struct CMUnitTest){
				.name = plans[i].name,
				.test_func = run,
				.initial_state = &plans[i],
			};
	const int n_failed = _cmocka_run_group_tests("conformance", tests,
	                                             n_tests, NULL, NULL);

	free(tests);
	free(plans);
	return n_failed;
}
