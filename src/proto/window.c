/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything lies in a window; pure functions of the shape. */
#include "window.h"

#include "../core/bits.h"
#include "../core/ctx.h"
#include "../core/dtype.h"
#include "sizes.h"

enum {
	PAGE_BYTES = 4096,
	/*
	 * Share of the rows' bytes that may be staged at a time: the whole
	 * window stays within 1.3 times its rows, and a sender that fills the
	 * stage waits for its own fabric only.
	 */
	STAGE_SHARE = 6,
	/* Rows, tokens or entries that one flag stands for: of the rows and
	 * entries, dev/cuda-bulk.md. */
	ROWS_PER_FLAG = 2,
	BACK_TOKENS_PER_FLAG = 4,
	TABLE_ENTRIES_PER_PART = 1024,
};

static size_t product(int64_t a, int64_t b, int64_t c, size_t stride)
{
	return size_mul(size_mul(size_mul((size_t)a, (size_t)b), (size_t)c),
	                stride);
}

static size_t region_bytes(const struct ferry_window *w,
                           const struct ferry_shape *s,
                           enum ferry_region region)
{
	switch (region) {
#define DIMENSIONS(a, b, c) a, b, c
#define X(name, dimensions, stride)                                            \
	case FERRY_REGION_##name:                                              \
		return product(dimensions, stride);
#include "region.def"
#undef X
#undef DIMENSIONS
	case FERRY_N_REGIONS:
		break;
	}
	return 0;
}

/* Most rows that one send can put on their way. */
static size_t rows_of_a_send(const struct ferry_shape *s)
{
	const size_t back = product(s->n_groups, s->max_tokens,
	                            s->combine == FERRY_EXACT ? s->topk : 1, 1);

	return back > (size_t)s->cap ? back : (size_t)s->cap;
}

static void size_stage(struct ferry_window *w, const struct ferry_shape *s)
{
	const size_t rows = size_add(region_bytes(w, s, FERRY_REGION_ROW),
	                             region_bytes(w, s, FERRY_REGION_BACK));

	w->stage_stride =
		w->row_stride > w->back_stride ? w->row_stride : w->back_stride;
	/* Never 0; clang-tidy cannot know. */
	size_t n = w->stage_stride ? rows / STAGE_SHARE / w->stage_stride : 0;

	if (n > rows_of_a_send(s))
		n = rows_of_a_send(s);
	if (n > INT32_MAX)
		n = INT32_MAX;
	w->stage_rows = n ? (int32_t)n : 1;
}

/* Where nothing is in lines, and there are no flags: the CPU's form. */
static void choose_forms(struct ferry_window *w, const struct ferry_shape *s)
{
	w->table_stride = s->table_bytes;
	w->row_stride = s->row_stride;
	w->back_stride = s->back_stride;
	if (s->path != FERRY_PATH_LINES)
		return;
	w->table_lines = true;
	w->table_stride = ferry_lines_bytes(s->table_bytes);
	w->back_lines = true;
	w->back_stride = ferry_lines_bytes((size_t)s->hidden *
	                                   ferry_dtype_bytes(s->combine_dtype));
	if (s->layout == FERRY_TOKEN) /* its view shows rows as they are */
		return;
	w->row_lines = true;
	w->row_stride = ferry_lines_bytes(s->scale_offset + s->scale_row_bytes);
}

static void choose_flags(struct ferry_window *w, const struct ferry_shape *s)
{
	const bool lines = s->path == FERRY_PATH_LINES;

	if (s->path != FERRY_PATH_LINES && s->path != FERRY_PATH_CHUNKS)
		return;
	if (!w->row_lines) {
		w->row_chunk = lines ? 1 : ROWS_PER_FLAG;
		w->row_chunks = (int32_t)div_up(s->cap, w->row_chunk);
	}
	if (!w->back_lines) {
		w->back_chunk = BACK_TOKENS_PER_FLAG;
		w->back_chunks = (int32_t)div_up(s->max_tokens, w->back_chunk);
	}
	if (!w->table_lines) {
		w->table_chunk =
			(int32_t)max_i64(1, TABLE_ENTRIES_PER_PART / s->topk);
		w->table_parts = (int32_t)div_up(s->max_tokens, w->table_chunk);
	}
}

enum ferry_status ferry_window_init(struct ferry_window *window,
                                    const struct ferry_shape *shape,
                                    bool staged)
{
	struct ferry_window w = {.stage_rows = 0};
	size_t end = 0;

	choose_forms(&w, shape);
	choose_flags(&w, shape);
	if (staged)
		size_stage(&w, shape);
	for (int i = 0; i < FERRY_N_REGIONS; i++) {
		const enum ferry_region region = (enum ferry_region)i;

		w.offset[i] = end;
		end = size_add(end, region_bytes(&w, shape, region));
		end = size_round_up(end, FERRY_ROW_ALIGN);
	}
	w.slot_bytes = size_round_up(end, PAGE_BYTES);
	w.poison_offset = size_mul(w.slot_bytes, (size_t)shape->n_slots);
	w.bytes = w.poison_offset;
	if (shape->path == FERRY_PATH_LINES || shape->path == FERRY_PATH_CHUNKS)
		w.bytes = size_add(w.bytes, size_mul((size_t)shape->n_ranks + 1,
		                                     FERRY_POISON_BYTES));
	/* Pointers are subtracted: half of the address space is the end. */
	if (w.bytes > PTRDIFF_MAX)
		return ferry_fail(NULL, FERRY_RANGE,
		                  "moe_config: the window exceeds 2^63 bytes: "
		                  "n_ranks %d, max_tokens %d, hidden %d, topk "
		                  "%d, n_slots %d",
		                  shape->n_ranks, shape->max_tokens,
		                  shape->hidden, shape->topk, shape->n_slots);
	*window = w;
	return FERRY_OK;
}

static size_t region_at(const struct ferry_window *window, int32_t slot,
                        enum ferry_region region)
{
	return (size_t)slot * window->slot_bytes + window->offset[region];
}

size_t ferry_window_table(const struct ferry_window *window,
                          const struct ferry_shape *shape, int32_t slot,
                          uint32_t half, int32_t source)
{
	const size_t i = (size_t)half * (size_t)shape->n_ranks + (size_t)source;

	return region_at(window, slot, FERRY_REGION_TABLE) +
	       i * window->table_stride;
}

/* Place of a source among those that have rows at `owner`. */
static int32_t source_place(const struct ferry_shape *shape, int32_t owner,
                            int32_t source)
{
	const int32_t first =
		ferry_shape_group(shape, owner) * shape->group_size;

	if (shape->layout == FERRY_TOKEN || source < first)
		return source;
	return source - shape->group_size;
}

size_t ferry_window_row(const struct ferry_window *window,
                        const struct ferry_shape *shape, int32_t slot,
                        uint32_t half, int32_t owner, int32_t source,
                        int32_t index)
{
	const size_t place = (size_t)source_place(shape, owner, source);
	const size_t region = (size_t)half * (size_t)shape->row_sources + place;

	return region_at(window, slot, FERRY_REGION_ROW) +
	       (region * (size_t)shape->cap + (size_t)index) *
	               window->row_stride;
}

size_t ferry_window_back(const struct ferry_window *window,
                         const struct ferry_shape *shape, int32_t slot,
                         int32_t token, int32_t j)
{
	const size_t i = (size_t)token * (size_t)shape->back_rows + (size_t)j;

	return region_at(window, slot, FERRY_REGION_BACK) +
	       i * window->back_stride;
}

/* Entry of a token of a group that is on another host. */
static size_t part_place(const struct ferry_shape *shape, int32_t group,
                         int32_t token)
{
	const int32_t far = shape->hosts.far[group * shape->group_size];

	return (size_t)(far / shape->group_size) * (size_t)shape->max_tokens +
	       (size_t)token;
}

size_t ferry_window_part(const struct ferry_window *window,
                         const struct ferry_shape *shape, int32_t slot,
                         int32_t group, int32_t token)
{
	return region_at(window, slot, FERRY_REGION_PART) +
	       part_place(shape, group, token) * window->back_stride;
}

size_t ferry_window_part_here(const struct ferry_window *window,
                              const struct ferry_shape *shape, int32_t slot,
                              int32_t group, int32_t token)
{
	return region_at(window, slot, FERRY_REGION_PART_HERE) +
	       part_place(shape, group, token);
}

size_t ferry_window_arrived(const struct ferry_window *window,
                            const struct ferry_shape *shape, int32_t slot,
                            int32_t group, int32_t block)
{
	const int32_t far = shape->hosts.far[group * shape->group_size];
	const size_t i =
		(size_t)(far / shape->group_size) * (size_t)shape->part_blocks +
		(size_t)block;

	return region_at(window, slot, FERRY_REGION_ARRIVED) +
	       i * FERRY_ROW_ALIGN;
}

size_t ferry_window_stage(const struct ferry_window *window, int32_t slot,
                          int32_t row)
{
	return region_at(window, slot, FERRY_REGION_STAGE) +
	       (size_t)row * window->stage_stride;
}

/* Counters of a slot; those of one epoch and kind lie side by side. */
uint32_t ferry_window_signal(const struct ferry_shape *shape, int32_t slot,
                             uint64_t epoch, enum ferry_stream_kind kind,
                             int32_t source)
{
	const uint32_t key = (uint32_t)(epoch % FERRY_EPOCH_KEYS);
	const uint32_t set =
		((uint32_t)slot * FERRY_EPOCH_KEYS + key) * FERRY_N_COUNTS +
		(uint32_t)kind;

	return set * (uint32_t)shape->n_ranks + (uint32_t)source;
}

/* Those that a channel has without a hierarchy. */
static uint32_t n_without_hosts(const struct ferry_shape *shape)
{
	return ferry_window_signal(shape, shape->n_slots, 0, FERRY_COUNT_TABLE,
	                           0);
}

uint32_t ferry_window_sum(const struct ferry_shape *shape, int32_t slot,
                          uint64_t epoch, int32_t host, int32_t place)
{
	const uint32_t key = (uint32_t)(epoch % FERRY_EPOCH_KEYS);
	const uint32_t set = (uint32_t)slot * FERRY_EPOCH_KEYS + key;
	const uint32_t i = set * (uint32_t)shape->hosts.n + (uint32_t)host;

	if (shape->group_size == 1)
		return n_without_hosts(shape) + i;
	return n_without_hosts(shape) + i * (uint32_t)shape->hosts.most_ranks +
	       (uint32_t)place;
}

/* Those in front of the fans of rows. */
static uint32_t n_with_sums(const struct ferry_shape *shape)
{
	if (!ferry_shape_adds(shape))
		return n_without_hosts(shape);
	return ferry_window_sum(shape, shape->n_slots, 0, 0, 0);
}

uint32_t ferry_window_fan(const struct ferry_shape *shape, int32_t slot,
                          uint64_t epoch, int32_t source, int32_t place)
{
	const uint32_t key = (uint32_t)(epoch % FERRY_EPOCH_KEYS);
	const uint32_t set = (uint32_t)slot * FERRY_EPOCH_KEYS + key;
	const uint32_t pair = set * (uint32_t)shape->n_ranks + (uint32_t)source;

	return n_with_sums(shape) + pair * (uint32_t)shape->hosts.most_ranks +
	       (uint32_t)place;
}

uint32_t ferry_window_n_fan(const struct ferry_shape *shape)
{
	const bool sums_too = shape->group_size > 1;

	if (!shape->hosts.n)
		return 0;
	return ferry_window_fan(shape, shape->n_slots, 0, 0, 0) -
	       (sums_too ? n_without_hosts(shape) : n_with_sums(shape));
}

uint32_t ferry_window_n_signals(const struct ferry_shape *shape)
{
	if (!shape->hosts.n)
		return n_without_hosts(shape);
	return ferry_window_fan(shape, shape->n_slots, 0, 0, 0);
}

bool ferry_window_fan_fits(const struct ferry_shape *shape,
                           const struct ferry_hosts *hosts)
{
	const uint64_t sets = (uint64_t)shape->n_slots * FERRY_EPOCH_KEYS *
	                      (uint64_t)shape->n_ranks;
	const uint64_t each = FERRY_N_COUNTS + 2 * (uint64_t)hosts->most_ranks;

	/* The library's own come on top. */
	return sets * each < UINT32_MAX / 2;
}
