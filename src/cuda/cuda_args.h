/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels are given: plain structs, read by host and device. A kernel
 * takes exactly one of struct ferry_cuda_dispatch and struct
 * ferry_cuda_combine, by value; everything that is constant for a channel is
 * in struct ferry_cuda_channel inside it.
 */
#ifndef FERRY_CUDA_ARGS_H
#define FERRY_CUDA_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/moe.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	FERRY_CUDA_MAX_RANKS = 128, /* their addresses are in the argument */
	FERRY_CUDA_SEND = 1,        /* bits of `parts` */
	FERRY_CUDA_RECV = 2,
};

/*
 * A failure as the device knows it, 64 bytes: entry r of a window's poison
 * records is written by rank r. `seal` is stored last, with release.
 */
struct ferry_cuda_record {
	int32_t status; /* enum ferry_status */
	int32_t root;   /* rank that caused it, -1: nobody is known */
	int32_t phase;  /* enum ferry_phase */
	int32_t slot;
	int32_t token; /* of a mark, -1: none */
	int32_t choice;
	int32_t limit;  /* what `value` had to be below; or a rank */
	int32_t detail; /* enum ferry_cuda_detail */
	int64_t value;
	uint64_t epoch; /* of the operation, as in the tables */
	int64_t other;  /* what `value` differs from */
	uint64_t seal;  /* 1: the rest is there */
};

/*
 * Which words a failure gets on the host. All ranks look at the same tables in
 * the same order, so that all name the same root (proto/blame.h):
 * form of every table, then marks, then for each rank hidden, placement, mates.
 */
enum ferry_cuda_detail {
	FERRY_CUDA_WAITED,    /* for rank `root`, longer than allowed */
	FERRY_CUDA_BAD_ID,    /* id `value` of token, choice; below limit */
	FERRY_CUDA_BAD_COUNT, /* n_tokens is `value`; below limit */
	FERRY_CUDA_BAD_ORDER, /* this phase does not come next */
	FERRY_CUDA_NO_ROOM,   /* `value` rows arrive on root */
	/* Malformed: `value` in field `choice`, enum ferry_table_field. */
	FERRY_CUDA_BAD_TABLE,
	FERRY_CUDA_BAD_HIDDEN,    /* `value` on root, `other` on rank `limit` */
	FERRY_CUDA_BAD_PLACEMENT, /* hashes, likewise */
	FERRY_CUDA_BAD_MATE,      /* ids or weights of root differ from those of
	                           * rank `limit` of its group */
	FERRY_CUDA_STOPPED,       /* the host said so */
	FERRY_CUDA_BAD_MATE_COUNT, /* n_tokens `value` on root, `other` on its
	                            * mate `limit` */
	FERRY_CUDA_BAD_MATE_TOPK,  /* topk, likewise */
	/* Others have failed; this rank waited for root, -1: for nobody. For
	 * the own host only. */
	FERRY_CUDA_ASKED,
	FERRY_CUDA_ODD_TABLES, /* something is wrong with them, and not what */
};

/*
 * Head of the poison records, at ferry_window.poison_offset: `any` is set to 1
 * by whoever fails, in every rank's window, after its record. Every kernel
 * looks at its own first, and every wait while it waits.
 */
struct ferry_cuda_poison {
	uint64_t any;
	uint64_t pad[7];
	struct ferry_cuda_record of[]; /* [n_ranks] */
};

/* Pinned host memory, mapped: one per channel. */
struct ferry_cuda_host {
	uint32_t stop;    /* host: kernels shall end; read now and then */
	uint32_t pad[15]; /* the device writes below, the host above */
	struct ferry_cuda_record record; /* what this rank's device knows */
	/*
	 * A kernel has been waiting for some ms: rank + 1 (0: none), phase <<
	 * 8, slot << 16. Not a failure: the watcher looks whether the rank has
	 * gone, and sets it to 0, to see whether it is said again.
	 */
	uint32_t waiting;
	uint32_t pad2[15];
};

/* Device memory of the channel that is not in the window. */
struct ferry_cuda_local {
	uint32_t failing; /* 1: a block of this rank publishes the failure */
	uint32_t pad[31];
};

/* Device memory: where an operation slot stands. One 64-byte line. */
struct ferry_cuda_slot {
	uint64_t epoch;       /* of the newest dispatch that has begun */
	uint32_t state;       /* enum ferry_slot_state */
	uint32_t tickets;     /* blocks of the running kernel that have read the
	                       * two above; the last one advances them, and
	                       * sets this to 0 */
	uint32_t finished;    /* blocks that are through; last one: back to 0 */
	uint32_t scratch[11]; /* of the kernels, 0 between launches */
};

/* One choice of an arriving token that is served here. */
struct ferry_cuda_copy {
	int32_t slot;  /* own expert slot; -1: not here, masked, or dropped */
	int32_t index; /* row within the slot */
};

/*
 * Where some ranks are reached over a network only (net_port.cuh): their
 * windows have no address here, ch.window[rank] is NULL. Zero otherwise.
 */
struct ferry_cuda_net {
	/* The own window as the network writes it: offsets are those of the
	 * window, and what other ranks of the host store is not here. */
	unsigned char *in;
	unsigned char *out; /* on its way to far ranks: struct ferry_net_out */
	const uint64_t *counters; /* own, ferry_window_signal numbers them */
	/* What the port needs: of the proxy, its ring. Device addresses. */
	void *port;
	void *port_local;
	size_t max_put; /* 0: no rank is far */
	/* `out`: offsets within a slot. */
	size_t out_slot_bytes;
	size_t out_table_offset, out_part_offset;
	size_t out_row_offset, out_back_offset;
	int32_t out_back_rows; /* of a token of a group */
	int32_t first_far;     /* lowest rank that is */
};

/*
 * Device memory of one operation slot: what dispatch leaves for combine.
 * Arrays [..][max_tokens][topk] have the channel's maxima as strides.
 */
struct ferry_cuda_op {
	struct ferry_cuda_slot *slot;
	/* Latched by dispatch_send: the own group's batch. */
	int32_t *own_slots; /* [max_tokens][topk] in the world, -1 */
	float *own_weights; /* likewise; times routed_scale, 0 where masked */
	int32_t *own_count; /* [1] tokens of the own group */
	/* Made by dispatch_recv. g: source group. */
	int32_t *n_tokens;              /* [n_groups] */
	struct ferry_cuda_copy *copies; /* [n_groups][max_tokens][topk] */
	float *weights;                 /* likewise; NULL unless send_weights */
	int64_t *offsets; /* [own slots + 1] as in EXPERT_PACKED */
	uint8_t *dropped; /* [max_tokens][topk] own choices that their rank
	                   * leaves out; NULL unless bounded and DROP */
	/*
	 * Where some ranks are far, by kind and rank: what the counters of an
	 * epoch were raised to in all those before that have the same ones,
	 * [FERRY_EPOCH_KEYS][FERRY_N_COUNTS][n_ranks], and by how much this
	 * epoch raises them, [2][FERRY_N_COUNTS][n_ranks], by its parity.
	 */
	uint64_t *net_base;
	uint32_t *net_due;
	/* Of the kernels, zeroed at open; a dispatch and a combine kernel are
	 * given different memory here. */
	void *scratch;
	size_t scratch_bytes;
};

/* Constant from open to close. */
struct ferry_cuda_channel {
	unsigned char *window[FERRY_CUDA_MAX_RANKS];  /* data of every rank's
	                                               * window, mapped here */
	int32_t first_slot[FERRY_CUDA_MAX_RANKS + 1]; /* expert slots */
	int32_t n_ranks, rank;
	int32_t group_size, n_groups, group; /* group: the own */
	int32_t row_sources;
	int32_t max_tokens, cap;
	int32_t max_hidden, max_topk;
	int32_t n_experts, n_expert_slots, own_expert_slots;
	int32_t even_slots; /* > 0: every rank has so many */
	int32_t n_slots;    /* operations in flight */
	/* Enumerators of ferry/moe_config.h. */
	int32_t dtype, in_dtype, combine_dtype, out_dtype;
	int32_t quantize, scale_type, scale_block;
	int32_t layout, overflow, bad_id, combine, weight_use;
	int32_t send_weights, bounded, alignment;
	float routed_scale;
	int32_t back_rows;
	int64_t padded_rows, recv_rows;
	size_t scale_offset; /* of the scales in a row */
	/* The window: see ferry_window. Offsets within a slot. */
	size_t slot_bytes, poison_offset;
	size_t table_offset, row_offset, back_offset;
	size_t table_part_offset, row_flag_offset, back_flag_offset;
	size_t table_stride, row_stride, back_stride;
	int32_t table_lines, row_lines, back_lines;
	int32_t row_chunk, row_chunks, back_chunk, back_chunks;
	int32_t table_chunk, table_parts;
	/*
	 * 1: a kernel may be launched to start while the one in front of it
	 * still runs (programmatic stream serialization). 0: others need the
	 * room that it would take: they have been promised it.
	 */
	int32_t early;
	struct ferry_cuda_net net;
	/* Failures. */
	struct ferry_cuda_local *local;
	struct ferry_cuda_host *host; /* device address of pinned memory */
	uint64_t timeout_ns;          /* of a wait */
};

/* A placement in device memory. */
struct ferry_cuda_placement {
	uint64_t hash;         /* 0: nothing to compare */
	const int32_t *first;  /* [n_experts + 1]; NULL: expert e in slot e */
	const int32_t *slots;  /* ascending for each expert */
	const uint32_t *start; /* as slots, by quota.h; NULL: split EVEN */
};

/* One launch of a dispatch kernel. */
struct ferry_cuda_dispatch {
	struct ferry_cuda_channel ch;
	struct ferry_cuda_op op;
	int32_t parts; /* FERRY_CUDA_SEND | FERRY_CUDA_RECV */
	int32_t slot;
	/* Of the matching send, also when only RECV is asked for. Strides are
	 * filled in; in.placement is not looked at, `placement` is. */
	struct ferry_dispatch_in in;
	struct ferry_cuda_placement placement;
	struct ferry_dispatch_out out;     /* all 0 when only SEND */
	size_t row_bytes, scale_row_bytes; /* of this call's hidden */
	int32_t n_scales;
};

/* One launch of a combine kernel. */
struct ferry_cuda_combine {
	struct ferry_cuda_channel ch;
	struct ferry_cuda_op op;
	int32_t parts;
	int32_t slot;
	int32_t hidden, topk;       /* of the dispatch */
	struct ferry_combine_in in; /* of the matching send */
	struct ferry_combine_out out;
	size_t row_bytes; /* of a row of y, hidden elements */
};

#ifdef __cplusplus
}
#endif
#endif
