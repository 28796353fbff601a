/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window of a channel: which region lies where. Offsets and the total come
 * from one list, region.def; no other file adds up sizes. Pure functions of
 * the shape, on every engine.
 */
#ifndef FERRY_WINDOW_H
#define FERRY_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/moe.h>

#include "../core/bits.h"
#include "host_ranks.h"

/* A configuration with defaults filled in and derived numbers. */
struct ferry_shape {
	int32_t n_ranks, rank;
	int32_t group_size, n_groups;
	int32_t max_tokens;
	int32_t cap; /* rows that one rank sends to another at most:
	              * ceil(max_tokens / group_size) */
	int32_t hidden, topk, n_experts;
	int32_t n_slots; /* operations in flight */
	enum ferry_device device;
	enum ferry_path path;     /* never AUTO once the channel is open */
	int32_t max_sms;          /* 0: no bound; may differ between ranks */
	int32_t n_expert_slots;   /* of all ranks */
	int32_t own_expert_slots; /* of this rank */
	int32_t max_expert_slots; /* most of any rank */
	int32_t *first_slot;      /* [n_ranks + 1]: expert slots of rank r
	                           * are first_slot[r]..first_slot[r+1]-1 */
	int32_t *slot_rank;       /* [n_expert_slots] */
	enum ferry_dtype dtype, in_dtype, combine_dtype, out_dtype;
	bool quantize;
	enum ferry_scale_type scale_type;
	int32_t scale_block;
	int32_t n_scales;       /* blocks of a row of `hidden`; opaque: 1 */
	size_t scale_row_bytes; /* scales of a row of `hidden` */
	size_t row_bytes;       /* payload of a row of `hidden` */
	enum ferry_layout layout;
	int32_t alignment;
	int64_t padded_rows; /* rows of a slot in EXPERT_PADDED */
	int64_t recv_rows;   /* rows in all that `out` must hold: of the
	                      * rank with the most slots */
	bool bounded;        /* more could arrive than there is room for */
	enum ferry_overflow overflow;
	enum ferry_bad_id bad_id;
	enum ferry_combine_mode combine;
	enum ferry_weight_use weight_use;
	bool send_weights; /* also when REDUCED or WEIGHT_INPUT imply it */
	float routed_scale;
	size_t table_bytes;  /* of one rank's table, whole */
	size_t row_stride;   /* of a row in the window: payload, scales, pad */
	size_t scale_offset; /* of the scales in a row of the window */
	size_t back_stride;  /* of a row that comes back */
	int32_t back_rows;   /* rows that may come back for one token */
	int32_t row_sources; /* ranks that have a row region here */
	int32_t part_groups; /* of other hosts, whose parts are added here */
	int32_t part_blocks; /* FERRY_PART_BLOCK of their tokens each */
	/* Rows travel once per host; n 0: to every rank on its own. */
	struct ferry_hosts hosts;
};

enum {
	FERRY_MAX_TOPK = 64,
	FERRY_ROW_ALIGN = 64,   /* of rows, tables and regions */
	FERRY_SCALE_ALIGN = 16, /* of the scales behind a payload */
	FERRY_EPOCH_KEYS = 4,   /* counters are kept by epoch mod this */
	FERRY_PART_BLOCK = 16,  /* tokens whose parts are added together */
};

/* Regions of one slot, in their order. */
enum ferry_region {
#define X(name, dimensions, stride) FERRY_REGION_##name,
#include "region.def"
#undef X
	FERRY_N_REGIONS,
};

/*
 * A line carries its own flag: 120 bytes of data, then the 64-bit epoch.
 * docs/protocol.md says who may write one.
 */
enum {
	FERRY_LINE_BYTES = 128,
	FERRY_LINE_DATA = 120,
	FERRY_TABLE_PART_BYTES = 64, /* of a record in TABLE_PART */
	FERRY_POISON_BYTES = 64,     /* of a record of one rank */
};

struct ferry_window {
	size_t offset[FERRY_N_REGIONS]; /* within a slot */
	size_t slot_bytes;
	size_t poison_offset; /* a head and [n_ranks] records */
	size_t bytes;         /* of all slots, and poison on a GPU */
	/* Entries lie as lines, or as they are. */
	bool table_lines, row_lines, back_lines;
	size_t table_stride, row_stride, back_stride;
	/*
	 * GPU, 0 otherwise: a flag stands for so many rows of one source
	 * (tokens of the owner, for back; tokens of the table, for parts), and
	 * a source has so many flags. No flags where there are lines.
	 */
	int32_t row_chunk, row_chunks;
	int32_t back_chunk, back_chunks;
	int32_t table_chunk, table_parts;
	int32_t stage_rows; /* 0: not staged. A send that has more rows fills
	                     * the stage again after ferry_segment_flush */
	size_t stage_stride;
};

/*
 * Checks a configuration and fills *shape; first_slot and slot_rank are
 * allocated. rank is only used for own_expert_slots. The refusal names field,
 * value and what is allowed.
 */
enum ferry_status ferry_shape_init(struct ferry_shape *shape,
                                   const struct ferry_moe_config *config,
                                   int32_t n_ranks, int32_t rank);
void ferry_shape_destroy(struct ferry_shape *shape);

/*
 * From here on rows travel once per host: takes over what `hosts` owns. Before
 * the window is laid out; a channel of one host has no hierarchy.
 */
void ferry_shape_use_hosts(struct ferry_shape *shape,
                           const struct ferry_hosts *hosts);

static inline int32_t ferry_shape_group(const struct ferry_shape *shape,
                                        int32_t rank)
{
	return rank / shape->group_size;
}

/* The rank of a group that sends a token, where the group has several. */
static inline int32_t ferry_shape_carrier(const struct ferry_shape *shape,
                                          int32_t group, int32_t token)
{
	return group * shape->group_size + token % shape->group_size;
}

/* Bytes of the scales of a row of this hidden size. */
static inline size_t ferry_shape_scale_bytes(const struct ferry_shape *shape,
                                             int32_t hidden)
{
	switch (shape->scale_type) {
	case FERRY_SCALE_FP32:
		return (size_t)div_up(hidden, shape->scale_block) *
		       sizeof(float);
	case FERRY_SCALE_UE8M0:
		return (size_t)div_up(hidden, shape->scale_block);
	case FERRY_SCALE_BYTES:
		return shape->scale_row_bytes;
	case FERRY_SCALE_NONE:
		break;
	}
	return 0;
}

/* staged: some peer is reached by put only. Errors: RANGE past size_t. */
enum ferry_status ferry_window_init(struct ferry_window *window,
                                    const struct ferry_shape *shape,
                                    bool staged);

/* Offsets in the window of rank `owner`. half is epoch & 1. */
size_t ferry_window_table(const struct ferry_window *window,
                          const struct ferry_shape *shape, int32_t slot,
                          uint32_t half, int32_t source);
/*
 * Row `index` (token / group_size) that `source` sends to `owner`. Sources in
 * the owner's group have rows in TOKEN layout only.
 */
size_t ferry_window_row(const struct ferry_window *window,
                        const struct ferry_shape *shape, int32_t slot,
                        uint32_t half, int32_t owner, int32_t source,
                        int32_t index);
/* Row `j` that comes back for a token of the owner. */
size_t ferry_window_back(const struct ferry_window *window,
                         const struct ferry_shape *shape, int32_t slot,
                         int32_t token, int32_t j);
/*
 * PER_HOST, tokens of a group of another host: the owner's part, and whether
 * it has one. In the window of the first rank of a host: how many of its ranks
 * have stored theirs, for a block of the group's tokens.
 */
size_t ferry_window_part(const struct ferry_window *window,
                         const struct ferry_shape *shape, int32_t slot,
                         int32_t group, int32_t token);
size_t ferry_window_part_here(const struct ferry_window *window,
                              const struct ferry_shape *shape, int32_t slot,
                              int32_t group, int32_t token);
size_t ferry_window_arrived(const struct ferry_window *window,
                            const struct ferry_shape *shape, int32_t slot,
                            int32_t group, int32_t block);
/* Row of the own stage. */
size_t ferry_window_stage(const struct ferry_window *window, int32_t slot,
                          int32_t row);

/* Bytes that `bytes` of data take as lines. */
static inline size_t ferry_lines_bytes(size_t bytes)
{
	return (bytes + FERRY_LINE_DATA - 1) / FERRY_LINE_DATA *
	       FERRY_LINE_BYTES;
}

/* What is counted on its own. */
enum ferry_stream_kind {
	FERRY_COUNT_TABLE,
	FERRY_COUNT_ROW,
	FERRY_COUNT_BACK,
	FERRY_N_COUNTS,
};

/*
 * Counter for writes of `source` of one kind in one epoch; fits 32 bits
 * together with all others of the channel, or shape_init has refused.
 */
uint32_t ferry_window_signal(const struct ferry_shape *shape, int32_t slot,
                             uint64_t epoch, enum ferry_stream_kind kind,
                             int32_t source);
/* Counters that a channel needs. */
uint32_t ferry_window_n_signals(const struct ferry_shape *shape);

/*
 * With PER_HOST sums of a hierarchy, the counter for those of a host; where
 * groups have several ranks, for those that land with the rank at `place` of
 * this host, raised at every rank of it.
 */
uint32_t ferry_window_sum(const struct ferry_shape *shape, int32_t slot,
                          uint64_t epoch, int32_t host, int32_t place);

/* Do the ranks of other hosts add parts before they travel? */
static inline bool ferry_shape_adds(const struct ferry_shape *shape)
{
	return shape->hosts.n && shape->combine == FERRY_PER_HOST;
}

/*
 * With a hierarchy, the counter for rows of dispatch that `source`, on another
 * host, has sent to the rank at `place` of this one. It is raised at every
 * rank of the host.
 */
uint32_t ferry_window_fan(const struct ferry_shape *shape, int32_t slot,
                          uint64_t epoch, int32_t source, int32_t place);
/* How many are raised at every rank of a host: they are the last of all. */
uint32_t ferry_window_n_fan(const struct ferry_shape *shape);
/* Do all counters have numbers of 32 bits with these hosts? */
bool ferry_window_fan_fits(const struct ferry_shape *shape,
                           const struct ferry_hosts *hosts);

#endif
