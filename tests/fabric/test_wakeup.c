/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hand-shake of sleeping and waking (struct ferry_segment_ctl), as a model:
 * all interleavings of two waiters and three who raise a counter. Nobody sleeps
 * for ever while what he waits for is there. The model finds the loss when a
 * step is left out or moved.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { WAITERS = 2, RAISERS = 3 };

/* States: asleep, doorbell, waiters (step, seen), raisers (step, saw). */
enum { N_STATES = 2 * 4 * (6 * 4) * (6 * 4) * 12 * 12 * 12 };

/* Ways to do it wrong. */
enum fault {
	NO_FAULT,
	DOORBELL_READ_LATE, /* W1 after W2 */
	NO_SECOND_LOOK,     /* without W3 */
	LOOK_BEFORE_STORE,  /* W3 before W2 */
	NO_DOORBELL_COUNT,  /* R4 wakes, but counts no ring */
	LOOK_BEFORE_RAISE,  /* R2 before R1 */
};

/* Where somebody stands; what he does next. */
enum step { W1, W2, W3, W4, SLEEP, R1, R2, R3, R4_ADD, R4_WAKE, DONE };

struct state {
	uint8_t counter;
	uint8_t asleep;
	uint8_t doorbell;
	struct {
		uint8_t step, seen, target;
	} waiters[WAITERS];
	struct {
		uint8_t step, saw_asleep;
	} raisers[RAISERS];
};

static enum fault fault;
static uint8_t visited[N_STATES / 8 + 1];
static int64_t n_states;
static int64_t n_lost;

static uint8_t after(uint8_t step)
{
	static const uint8_t plain[] = {W2, W3, W4, SLEEP, W1};
	static const uint8_t late[] = {W3, W1, W4, SLEEP, W2};
	static const uint8_t blind[] = {W2, W4, W4, SLEEP, W1};
	static const uint8_t early[] = {W3, W4, W2, SLEEP, W1};

	switch (fault) {
	case DOORBELL_READ_LATE:
		return late[step];
	case NO_SECOND_LOOK:
		return blind[step];
	case LOOK_BEFORE_STORE:
		return early[step];
	default:
		return plain[step];
	}
}

/* A waiter's next step; false when he cannot take one. */
static bool step_waiter(struct state *s, int i)
{
	const uint8_t step = s->waiters[i].step;

	if (step == DONE || step == SLEEP)
		return false;
	if (step == W1)
		s->waiters[i].seen = s->doorbell;
	if (step == W2)
		s->asleep = 1;
	s->waiters[i].step = after(step);
	if (step == W3 && s->counter >= s->waiters[i].target)
		s->waiters[i].step = DONE;
	/* A futex that does not sleep: look from the start, as in a wait. */
	if (step == W4 && s->doorbell != s->waiters[i].seen)
		s->waiters[i].step = s->counter >= s->waiters[i].target
		                             ? DONE
		                             : after(SLEEP);
	return true;
}

static void wake_all(struct state *s)
{
	for (int i = 0; i < WAITERS; i++)
		if (s->waiters[i].step == SLEEP)
			s->waiters[i].step = s->counter >= s->waiters[i].target
			                             ? DONE
			                             : after(SLEEP);
}

static bool step_raiser(struct state *s, int i)
{
	const bool turned = fault == LOOK_BEFORE_RAISE;
	uint8_t *step = &s->raisers[i].step;

	switch (*step) {
	case R1:
		s->counter++;
		*step = turned ? R3 : R2;
		if (turned && !s->raisers[i].saw_asleep)
			*step = DONE;
		return true;
	case R2:
		s->raisers[i].saw_asleep = s->asleep;
		*step = turned ? R1 : s->asleep ? R3 : DONE;
		return true;
	case R3:
		*step = s->asleep ? R4_ADD : DONE;
		s->asleep = 0;
		return true;
	case R4_ADD:
		if (fault != NO_DOORBELL_COUNT)
			s->doorbell++;
		*step = R4_WAKE;
		return true;
	case R4_WAKE:
		wake_all(s);
		*step = DONE;
		return true;
	default:
		return false;
	}
}

/* The number of a state; the counter follows from the raisers. */
static uint32_t number_of(const struct state *s)
{
	uint32_t n = s->asleep * 4u + s->doorbell;

	for (int i = 0; i < WAITERS; i++) {
		const uint8_t step = s->waiters[i].step;

		n = n * 6 + (step == DONE ? 5 : step);
		n = n * 4 + s->waiters[i].seen;
	}
	for (int i = 0; i < RAISERS; i++) {
		const uint8_t step = s->raisers[i].step;

		n = n * 6 + (step == DONE ? 5 : step - (uint32_t)R1);
		n = n * 2 + s->raisers[i].saw_asleep;
	}
	return n;
}

/* The end of a run: somebody sleeps although what he wants is there? */
static bool is_lost(const struct state *s)
{
	for (int i = 0; i < WAITERS; i++)
		if (s->waiters[i].step == SLEEP &&
		    s->counter >= s->waiters[i].target)
			return true;
	return false;
}

static void explore(const struct state *s)
{
	const uint32_t n = number_of(s);
	bool is_end = true;

	if (visited[n / 8] & 1 << n % 8)
		return;
	visited[n / 8] |= (uint8_t)(1 << n % 8);
	n_states++;
	for (int i = 0; i < WAITERS + RAISERS; i++) {
		struct state next = *s;

		if (i < WAITERS ? !step_waiter(&next, i)
		                : !step_raiser(&next, i - WAITERS))
			continue;
		is_end = false;
		explore(&next);
	}
	n_lost += is_end && is_lost(s);
}

/* All runs; how many end with somebody forgotten. */
static int64_t run(enum fault how)
{
	struct state s;

	fault = how;
	memset(&s, 0, sizeof(s));
	memset(visited, 0, sizeof(visited));
	n_states = n_lost = 0;
	for (int i = 0; i < WAITERS; i++) {
		s.waiters[i].step = after(SLEEP);
		/* The last raise, and the one before. */
		s.waiters[i].target = (uint8_t)(i + 2);
	}
	for (int i = 0; i < RAISERS; i++)
		s.raisers[i].step = how == LOOK_BEFORE_RAISE ? R2 : R1;
	explore(&s);
	return n_lost;
}

static void test_nobody_is_forgotten(void **state)
{
	(void)state;
	assert_int_equal(run(NO_FAULT), 0);
	assert_true(n_states > 10000);
}

static void test_faults_are_found(void **state)
{
	(void)state;
	for (int how = DOORBELL_READ_LATE; how <= LOOK_BEFORE_RAISE; how++)
		if (run((enum fault)how) == 0)
			fail_msg("fault %d is not found", how);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_is_forgotten),
		cmocka_unit_test(test_faults_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
