/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile of attention windows. Each type has a list of measured shapes; a
 * question looks for the cell of the grid that it falls in, whose lines are the
 * numbers of tokens and the lengths that occur in the list, and 0. Attention
 * is linear in each of both when the other is fixed, so that also a product of
 * both is met exactly.
 */
#include <ferry/balance.h>

#include <stdlib.h>

#include "../core/range.h"
#include "../core/sized.h"

enum { DEFAULT_SHAPES = 256, MAX_LAYERS = 1 << 16, PPM = 1000000 };

struct shape {
	int32_t n_tokens;
	int32_t seq_len;
	int64_t ns;
};

struct ferry_windows {
	int32_t n_layers;
	int32_t max_shapes;
	int64_t margin_ns;
	int32_t margin_ppm;
	int32_t *first;       /* [n_layers] first layer of the type */
	int32_t *n_shapes;    /* [n_layers], of first layers */
	struct shape **shape; /* [n_layers] NULL until there is one */
};

static enum ferry_status check_config(struct ferry_windows_config *config)
{
	const char *const call = "windows_create";

	if (config->max_shapes == 0)
		config->max_shapes = DEFAULT_SHAPES;
	FERRY_TRY(check_range(NULL, call, "n_layers", config->n_layers, 1,
	                      MAX_LAYERS));
	FERRY_TRY(check_range(NULL, call, "max_shapes", config->max_shapes, 1,
	                      INT64_MAX));
	FERRY_TRY(check_range(NULL, call, "margin_ns", config->margin_ns, 0,
	                      INT64_MAX));
	return check_range(NULL, call, "margin_ppm", config->margin_ppm, 0,
	                   PPM);
}

/* first[l]: the first layer with the type of l. */
static void find_first(struct ferry_windows *w, const int32_t *layer_type)
{
	for (int32_t l = 0; l < w->n_layers; l++) {
		int32_t f = 0;

		while (layer_type && layer_type[f] != layer_type[l])
			f++;
		w->first[l] = f;
	}
}

static enum ferry_status fill(struct ferry_windows *w,
                              const struct ferry_windows_config *config)
{
	const size_t n = (size_t)config->n_layers;

	w->n_layers = config->n_layers;
	w->max_shapes = config->max_shapes;
	w->margin_ns = config->margin_ns;
	w->margin_ppm = config->margin_ppm;
	w->first = calloc(n, sizeof(*w->first));
	w->n_shapes = calloc(n, sizeof(*w->n_shapes));
	w->shape = calloc(n, sizeof(*w->shape));
	if (!w->first || !w->n_shapes || !w->shape)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "windows_create: a profile of %d layers",
		                  config->n_layers);
	find_first(w, config->layer_type);
	return FERRY_OK;
}

enum ferry_status
ferry_windows_create(const struct ferry_windows_config *config,
                     struct ferry_windows **windows)
{
	struct ferry_windows_config c;

	if (!windows)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "windows_create: windows is NULL");
	FERRY_TRY(ferry_sized_copy(&c, sizeof(c), config,
	                           "windows_create: config"));
	FERRY_TRY(check_config(&c));
	struct ferry_windows *w = calloc(1, sizeof(*w));

	if (!w)
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "windows_create: %zu bytes", sizeof(*w));
	const enum ferry_status status = fill(w, &c);

	if (status != FERRY_OK) {
		ferry_windows_destroy(w);
		return status;
	}
	*windows = w;
	return FERRY_OK;
}

void ferry_windows_destroy(struct ferry_windows *windows)
{
	if (!windows)
		return;
	for (int32_t l = 0; windows->shape && l < windows->n_layers; l++)
		free(windows->shape[l]);
	free(windows->shape);
	free(windows->n_shapes);
	free(windows->first);
	free(windows);
}

int32_t ferry_windows_layer(const struct ferry_windows *windows, int32_t layer)
{
	if (!windows || layer < 0 || layer >= windows->n_layers)
		return -1;
	return windows->first[layer];
}

static enum ferry_status
check_layer(const char *call, const struct ferry_windows *w, int32_t layer)
{
	if (!w)
		return ferry_fail(NULL, FERRY_INVAL, "%s: windows is NULL",
		                  call);
	return check_range(NULL, call, "layer", layer, 0, w->n_layers - 1);
}

/* The shape's place in its type's list, or the end of the list. */
static int32_t find_shape(const struct ferry_windows *w, int32_t first,
                          int32_t n_tokens, int32_t seq_len)
{
	const struct shape *shape = w->shape[first];
	int32_t i = 0;

	while (i < w->n_shapes[first] &&
	       (shape[i].n_tokens != n_tokens || shape[i].seq_len != seq_len))
		i++;
	return i;
}

static enum ferry_status append(struct ferry_windows *w, int32_t first,
                                const struct shape *shape)
{
	if (w->n_shapes[first] == w->max_shapes)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "windows_add: layer %d has %d shapes, which "
		                  "is max_shapes",
		                  first, w->max_shapes);
	if (!w->shape[first])
		w->shape[first] = calloc((size_t)w->max_shapes, sizeof(*shape));
	if (!w->shape[first])
		return ferry_fail(NULL, FERRY_NOMEM,
		                  "windows_add: %d shapes of layer %d",
		                  w->max_shapes, first);
	w->shape[first][w->n_shapes[first]++] = *shape;
	return FERRY_OK;
}

enum ferry_status ferry_windows_add(struct ferry_windows *windows,
                                    int32_t layer, int32_t n_tokens,
                                    int32_t seq_len, int64_t ns)
{
	const struct shape shape = {n_tokens, seq_len, ns};

	FERRY_TRY(check_layer("windows_add", windows, layer));
	FERRY_TRY(check_range(NULL, "windows_add", "n_tokens", n_tokens, 1,
	                      INT64_MAX));
	FERRY_TRY(check_range(NULL, "windows_add", "seq_len", seq_len, 1,
	                      INT64_MAX));
	FERRY_TRY(check_range(NULL, "windows_add", "ns", ns, 0, INT64_MAX));
	const int32_t first = windows->first[layer];
	const int32_t i = find_shape(windows, first, n_tokens, seq_len);

	if (i == windows->n_shapes[first])
		return append(windows, first, &shape);
	if (ns < windows->shape[first][i].ns)
		windows->shape[first][i].ns = ns;
	return FERRY_OK;
}

/* Two lines of the grid around a value: equal at and beyond the last one. */
struct between {
	int32_t low;
	int32_t high;
};

static struct between around(const struct shape *shape, int32_t n,
                             bool of_tokens, int32_t value)
{
	struct between b = {0, INT32_MAX};
	bool above = false;

	for (int32_t i = 0; i < n; i++) {
		const int32_t line =
			of_tokens ? shape[i].n_tokens : shape[i].seq_len;

		if (line <= value && line > b.low)
			b.low = line;
		if (line >= value && line <= b.high) {
			b.high = line;
			above = true;
		}
	}
	if (!above)
		b.high = b.low;
	return b;
}

/* The longest time of those no larger: of the shape itself, if it is there. */
static int64_t at_corner(const struct shape *shape, int32_t n, int32_t n_tokens,
                         int32_t seq_len)
{
	int64_t ns = 0;

	for (int32_t i = 0; i < n; i++)
		if (shape[i].n_tokens <= n_tokens &&
		    shape[i].seq_len <= seq_len && shape[i].ns > ns)
			ns = shape[i].ns;
	return ns;
}

/* Rounded down. */
static int64_t blend(int64_t low, int64_t high, const struct between *b,
                     int32_t value)
{
	if (b->high <= b->low)
		return low;
	const __int128_t span = (__int128_t)b->high - b->low;
	const __int128_t part = (__int128_t)value - b->low;

	return (int64_t)(((__int128_t)low * (span - part) +
	                  (__int128_t)high * part) /
	                 span);
}

static int64_t attention_ns(const struct ferry_windows *w, int32_t first,
                            int32_t n_tokens, int32_t seq_len)
{
	const struct shape *s = w->shape[first];
	const int32_t n = w->n_shapes[first];
	const struct between t = around(s, n, true, n_tokens);
	const struct between l = around(s, n, false, seq_len);
	const int64_t low = blend(at_corner(s, n, t.low, l.low),
	                          at_corner(s, n, t.low, l.high), &l, seq_len);
	const int64_t high =
		blend(at_corner(s, n, t.high, l.low),
	              at_corner(s, n, t.high, l.high), &l, seq_len);

	return blend(low, high, &t, n_tokens);
}

enum ferry_status ferry_windows_get(const struct ferry_windows *windows,
                                    int32_t layer, int32_t n_tokens,
                                    int32_t seq_len, int64_t *window_ns)
{
	FERRY_TRY(check_layer("windows_get", windows, layer));
	FERRY_TRY(check_range(NULL, "windows_get", "n_tokens", n_tokens, 0,
	                      INT64_MAX));
	FERRY_TRY(check_range(NULL, "windows_get", "seq_len", seq_len, 0,
	                      INT64_MAX));
	if (!window_ns)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "windows_get: window_ns is NULL");
	const int64_t ns =
		attention_ns(windows, windows->first[layer], n_tokens, seq_len);
	const int64_t share =
		(int64_t)((__int128_t)ns * (PPM - windows->margin_ppm) / PPM);

	*window_ns =
		share > windows->margin_ns ? share - windows->margin_ns : 0;
	return FERRY_OK;
}
