/* SPDX-License-Identifier: Apache-2.0 */
/* The course of one rank: open, body, close; and what a body may call. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#include "boot/team.h"
#include "core/clock.h"
#include "core/order.h"
#include "fabric/world.h"
#include "gpus.h"
#include "ranks_inner.h"

static thread_local struct ranks_runner *current;

static void state_set(struct ranks_runner *runner, enum ranks_state state)
{
	store_release_u32(&runner->verdict->state, state);
}

void ranks_verdict_fail(struct ranks_verdict *verdict, const char *text)
{
	snprintf(verdict->text, sizeof(verdict->text), "%s", text);
	verdict->when_ns = ferry_now_ns();
	store_release_u32(&verdict->state, RANK_FAILED);
}

void ranks_config(struct ferry_world_config *config)
{
	const struct ranks_runner *runner = current;
	const struct ranks *how = runner->course->how;

	*config = (struct ferry_world_config)FERRY_WORLD_CONFIG_INIT;
	if (runner->rank.kind == RANKS_THREADS) {
		config->team = runner->course->team;
		config->rank = runner->rank.rank;
	}
	config->fabric = how->fabric;
	config->options = how->options;
	config->device = how->device;
	if (how->device == FERRY_DEVICE_CUDA)
		config->cuda_device =
			gpus_of_rank(runner->rank.rank, how->n_gpus) + 1;
	config->timeout_ms = how->timeout_ms ? how->timeout_ms : 10000;
	config->open_timeout_ms =
		how->open_timeout_ms ? how->open_timeout_ms : 10000;
	if (how->configure)
		how->configure(&runner->rank, config);
}

static void world_open(struct ranks_runner *runner)
{
	struct ferry_world_config config;

	state_set(runner, RANK_OPENING);
	ranks_config(&config);
	struct rank *rank = &runner->rank;
	rank->open_status = ferry_world_open(&config, &rank->world);
	if (rank->open_status == FERRY_OK || runner->course->how->open_may_fail)
		return;
	RANKS_FAIL("ferry_world_open: %s: %s",
	           ferry_status_name(rank->open_status), ferry_last_error());
}

static void clean_up(struct ranks_runner *runner)
{
	while (runner->n_deferred) {
		const int i = --runner->n_deferred;

		runner->deferred[i].fn(runner->deferred[i].arg);
	}
	ferry_world_close(runner->rank.world);
	runner->rank.world = NULL;
}

void ranks_runner_run(struct ranks_runner *runner)
{
	current = runner;
	if (!setjmp(runner->end_of_body)) {
		if (!runner->course->how->no_world)
			world_open(runner);
		state_set(runner, RANK_IN_BODY);
		runner->course->body(&runner->rank);
		state_set(runner, RANK_CLOSING);
	}
	const uint32_t state = load_acquire_u32(&runner->verdict->state);
	if (state != RANK_DEAD)
		clean_up(runner);
	if (state == RANK_CLOSING)
		state_set(runner, RANK_DONE);
	current = NULL;
}

void ranks_runner_bury(struct ranks_runner *runner)
{
	if (load_acquire_u32(&runner->verdict->state) == RANK_DEAD)
		clean_up(runner);
}

void ranks_defer(void (*fn)(void *arg), void *arg)
{
	if (current->n_deferred == RANKS_DEFERRED)
		RANKS_FAIL("more than %d calls of ranks_defer", RANKS_DEFERRED);
	const int i = current->n_deferred++;

	current->deferred[i].fn = fn;
	current->deferred[i].arg = arg;
}

_Noreturn void ranks_die(void)
{
	if (current->rank.kind == RANKS_PROCESSES)
		raise(SIGKILL);
	state_set(current, RANK_DEAD);
	if (current->rank.world)
		ferry_boot_die(current->rank.world->boot);
	longjmp(current->end_of_body, 1);
}

void ranks_meet(int meeting, int n)
{
	uint32_t *count = &current->course->board->meetings[meeting];

	add_seq_u32(count, 1);
	while ((int)load_acquire_u32(count) < n) {
		if (ferry_now_ns() > current->course->meet_ns)
			RANKS_FAIL("meeting %d: %d of %d ranks came", meeting,
			           (int)load_acquire_u32(count), n);
		nanosleep(&(struct timespec){0, 50000}, NULL);
	}
}

uint64_t ranks_seed(void)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : ferry_now_ns();

	printf("TEST_SEED=%" PRIu64 "\n", seed);
	return seed;
}

static const char *base_name(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? slash + 1 : file;
}

_Noreturn void ranks_fail_at(const char *file, int line, const char *fmt, ...)
{
	char text[sizeof(current->verdict->text)];
	const int n =
		snprintf(text, sizeof(text), "%s:%d: ", base_name(file), line);
	va_list args;

	va_start(args, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, args);
	va_end(args);
	ranks_verdict_fail(current->verdict, text);
	longjmp(current->end_of_body, 1);
}

void ranks_equal_at(const char *file, int line, const char *what, int64_t got,
                    int64_t want)
{
	if (got != want)
		ranks_fail_at(file, line,
		              "%s is %" PRId64 ", expected %" PRId64, what, got,
		              want);
}

void ranks_status_at(const char *file, int line, const char *what,
                     enum ferry_status got, enum ferry_status want)
{
	if (got == want)
		return;
	ranks_fail_at(file, line, "%s is %s, expected %s%s%s", what,
	              ferry_status_name(got), ferry_status_name(want),
	              got == FERRY_OK ? "" : ": ",
	              got == FERRY_OK ? "" : ferry_last_error());
}

void ranks_text_at(const char *file, int line, const char *text,
                   const char *part)
{
	if (!strstr(text, part))
		ranks_fail_at(file, line, "'%s' does not contain '%s'", text,
		              part);
}

void ranks_bytes_at(const char *file, int line, const void *got,
                    const void *want, size_t bytes)
{
	const uint8_t *a = got;
	const uint8_t *b = want;

	for (size_t i = 0; i < bytes; i++)
		if (a[i] != b[i])
			ranks_fail_at(file, line,
			              "byte %zu of %zu is 0x%02x, expected "
			              "0x%02x",
			              i, bytes, a[i], b[i]);
}
