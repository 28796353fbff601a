/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads of the past. A step's loads are gathered in `current`; when it ends
 * they go into one sum, and with a window into a ring of the newest steps, out
 * of which the oldest leaves the sum again. A window with decay has no such
 * sum: it is made anew when it is asked for, since what the oldest step has
 * become by rounding is not known. Sums have FRACTION_BITS binary digits behind
 * the point and are rounded down whenever they age, so that equal adds give
 * equal sums everywhere.
 */
#include <ferry/eplb.h>

#include <stdlib.h>
#include <string.h>

#include "../core/range.h"
#include "../core/sized.h"

enum { FRACTION_BITS = 20, MILLION = 1000000, MAX_LAYERS = 1 << 16 };

struct ferry_history {
	struct ferry_history_config config;
	size_t n_cells;   /* n_layers * n_experts */
	int64_t *current; /* [n_cells] of the step that goes on */
	bool has_loads;   /* something was added to it */
	int64_t *ring;    /* [window][n_cells]; NULL: all steps count */
	int32_t n_kept;   /* steps in the ring */
	int32_t newest;   /* in the ring */
	__uint128_t *sum; /* [n_cells] of ended steps that count, or NULL */
};

static enum ferry_status take_config(struct ferry_history_config *c,
                                     const struct ferry_history_config *given)
{
	const char *const call = "history_create";

	FERRY_TRY(ferry_sized_copy(c, sizeof(*c), given,
	                           "history_create: config"));
	FERRY_TRY(check_range(NULL, call, "n_layers", c->n_layers, 1,
	                      MAX_LAYERS));
	FERRY_TRY(check_range(NULL, call, "n_experts", c->n_experts, 1,
	                      FERRY_MAX_EXPERTS));
	FERRY_TRY(check_range(NULL, call, "window", c->window, 0, INT32_MAX));
	FERRY_TRY(
		check_range(NULL, call, "decay_ppm", c->decay_ppm, 0, MILLION));
	if (c->decay_ppm == 0)
		c->decay_ppm = MILLION;
	return FERRY_OK;
}

static bool keeps_sum(const struct ferry_history_config *c)
{
	return c->window == 0 || c->decay_ppm == MILLION;
}

static bool allocate(struct ferry_history *h)
{
	const size_t window = (size_t)h->config.window;

	h->n_cells = (size_t)h->config.n_layers * (size_t)h->config.n_experts;
	h->current = calloc(h->n_cells, sizeof(*h->current));
	if (keeps_sum(&h->config))
		h->sum = calloc(h->n_cells, sizeof(*h->sum));
	if (window && h->n_cells <= SIZE_MAX / sizeof(*h->ring) / window)
		h->ring = calloc(window * h->n_cells, sizeof(*h->ring));
	return h->current && (h->sum || !keeps_sum(&h->config)) &&
	       (h->ring || !window);
}

enum ferry_status
ferry_history_create(const struct ferry_history_config *config,
                     struct ferry_history **history)
{
	struct ferry_history_config own;

	FERRY_TRY(take_config(&own, config));
	if (!history)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "history_create: history is NULL");
	struct ferry_history *const h = calloc(1, sizeof(*h));

	if (h) {
		h->config = own;
		if (allocate(h)) {
			*history = h;
			return FERRY_OK;
		}
		ferry_history_destroy(h);
	}
	return ferry_fail(NULL, FERRY_NOMEM,
	                  "history: %d layers of %d experts, %d steps",
	                  own.n_layers, own.n_experts, own.window);
}

void ferry_history_destroy(struct ferry_history *history)
{
	if (!history)
		return;
	free(history->current);
	free(history->ring);
	free(history->sum);
	free(history);
}

static enum ferry_status check_layer(const struct ferry_history *h,
                                     const char *call, int32_t layer)
{
	if (!h)
		return ferry_fail(NULL, FERRY_INVAL, "%s: history is NULL",
		                  call);
	return check_range(NULL, call, "layer", layer, 0,
	                   h->config.n_layers - 1);
}

static size_t first_cell(const struct ferry_history *h, int32_t layer)
{
	return (size_t)layer * (size_t)h->config.n_experts;
}

enum ferry_status ferry_history_add(struct ferry_history *history,
                                    int32_t layer, const int64_t *loads)
{
	FERRY_TRY(check_layer(history, "history_add", layer));
	if (!loads)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "history_add: loads is NULL");
	int64_t *const to = history->current + first_cell(history, layer);
	const int32_t n = history->config.n_experts;

	for (int32_t e = 0; e < n; e++)
		if (loads[e] < 0 || loads[e] > FERRY_MAX_LOAD - to[e])
			return ferry_fail(
				NULL, FERRY_RANGE,
				"history_add: loads[%d] of layer %d is %lld, "
				"allowed are 0..%lld, what the step had before "
				"included (%lld)",
				e, layer, (long long)loads[e],
				(long long)FERRY_MAX_LOAD, (long long)to[e]);
	for (int32_t e = 0; e < n; e++)
		to[e] += loads[e];
	history->has_loads = true;
	return FERRY_OK;
}

/* What is left of a sum one step later; mostly it fits into 64 bits. */
static __uint128_t age(const struct ferry_history *h, __uint128_t sum)
{
	const uint32_t decay = (uint32_t)h->config.decay_ppm;

	if (decay == MILLION)
		return sum;
	if (sum >> 44 == 0)
		return (uint64_t)sum * decay / MILLION;
	return sum * decay / MILLION;
}

static __uint128_t with_fraction(int64_t load)
{
	return (__uint128_t)load << FRACTION_BITS;
}

/* The step that leaves when another one comes; NULL: there is room. */
static const int64_t *oldest(const struct ferry_history *h)
{
	if (!h->ring || h->n_kept < h->config.window)
		return NULL;
	return h->ring +
	       (size_t)((h->newest + 1) % h->config.window) * h->n_cells;
}

static void end_sum(struct ferry_history *h)
{
	const int64_t *const gone = oldest(h);

	for (size_t i = 0; i < h->n_cells; i++) {
		if (gone)
			h->sum[i] -= with_fraction(gone[i]);
		h->sum[i] = age(h, h->sum[i]);
		h->sum[i] += with_fraction(h->current[i]);
	}
}

void ferry_history_step(struct ferry_history *history)
{
	struct ferry_history *const h = history;

	/* Pauses do not push the past out. */
	if (!h || !h->has_loads)
		return;
	if (h->sum)
		end_sum(h);
	if (h->ring) {
		h->newest = (h->newest + 1) % h->config.window;
		h->n_kept += h->n_kept < h->config.window;
		memcpy(h->ring + (size_t)h->newest * h->n_cells, h->current,
		       h->n_cells * sizeof(*h->current));
	}
	memset(h->current, 0, h->n_cells * sizeof(*h->current));
	h->has_loads = false;
}

/* Sum of the ring's newest n steps, the oldest of them first. */
static __uint128_t sum_ring(const struct ferry_history *h, size_t cell,
                            int32_t n)
{
	__uint128_t sum = 0;

	for (int32_t i = n - 1; i >= 0; i--) {
		const int32_t at = h->newest - i;
		const int32_t step = at < 0 ? at + h->config.window : at;

		sum = age(h, sum) +
		      with_fraction(h->ring[(size_t)step * h->n_cells + cell]);
	}
	return sum;
}

/* Of ended steps; the one that goes on takes a place in the window. */
static __uint128_t sum_of_past(const struct ferry_history *h, size_t cell)
{
	const int64_t *const gone = h->has_loads ? oldest(h) : NULL;

	if (!h->sum)
		return sum_ring(h, cell, h->n_kept - (gone != NULL));
	if (gone)
		return h->sum[cell] - with_fraction(gone[cell]);
	return h->sum[cell];
}

static __uint128_t sum_of(const struct ferry_history *h, size_t cell)
{
	const __uint128_t past = sum_of_past(h, cell);

	if (!h->has_loads)
		return past;
	return age(h, past) + with_fraction(h->current[cell]);
}

enum ferry_status ferry_history_loads(const struct ferry_history *history,
                                      int32_t layer, int64_t *out)
{
	FERRY_TRY(check_layer(history, "history_loads", layer));
	if (!out)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "history_loads: out is NULL");
	const size_t first = first_cell(history, layer);
	const size_t n = (size_t)history->config.n_experts;
	__uint128_t total = 0;
	int shift = FRACTION_BITS;

	for (size_t e = 0; e < n; e++)
		total += sum_of(history, first + e);
	while (total >> shift > (__uint128_t)FERRY_MAX_LOAD)
		shift++;
	for (size_t e = 0; e < n; e++)
		out[e] = (int64_t)(sum_of(history, first + e) >> shift);
	return FERRY_OK;
}
