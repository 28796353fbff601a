/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry/moe_config.h: the shape of a dispatch/combine channel, and the
 * question whether it is legal and what it needs. Included by moe.h.
 */
#ifndef FERRY_MOE_CONFIG_H
#define FERRY_MOE_CONFIG_H

#include <ferry/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Element types of payloads. Values never change. */
enum ferry_dtype {
	FERRY_DTYPE_NONE = 0,
	FERRY_BF16 = 1,
	FERRY_FP16 = 2,
	FERRY_FP32 = 3,
	FERRY_FP8_E4M3 = 4, /* OCP: no infinity, NaN 0x7f, largest 448 */
	FERRY_FP8_E5M2 = 5,
	FERRY_BYTES = 6, /* opaque, 1 byte an element */
};

/** Scales that travel with a row. */
enum ferry_scale_type {
	FERRY_SCALE_NONE = 0,
	FERRY_SCALE_FP32 = 1,  /* float per block of scale_block elements */
	FERRY_SCALE_UE8M0 = 2, /* power of two per block: byte e is 2^(e-127) */
	FERRY_SCALE_BYTES = 3, /* scale_bytes opaque bytes a row */
};

/** How scales are laid out at the receiver. n_scales = blocks of a row. */
enum ferry_scale_form {
	/** [rows][n_scales]; scales_stride bytes from row to row. */
	FERRY_SCALES_ROW_MAJOR = 0,
	/**
	 * [n_scales][rows]; scales_stride bytes from column to column, a
	 * multiple of 16 as TMA wants it.
	 */
	FERRY_SCALES_COL_MAJOR = 1,
	/**
	 * UE8M0 only: four blocks to a 32-bit word, block 0 in the low byte,
	 * missing blocks 0; [ceil(n_scales / 4)][rows] words,
	 * scales_stride bytes from column to column, a multiple of 16.
	 */
	FERRY_SCALES_PACKED_UE8M0 = 2,
};

/** Where a receiver finds its rows. R is n_ranks / group_size. */
enum ferry_layout {
	/**
	 * [own expert slots][R * max_tokens rows]; tail rows untouched. The
	 * rows of a slot can be chosen with max_recv_rows.
	 */
	FERRY_EXPERT_PADDED = 0,
	/**
	 * [rows]; the rows of a slot begin at offsets[slot], aligned; the end,
	 * offsets[slots], is aligned too.
	 */
	FERRY_EXPERT_PACKED = 1,
	/**
	 * Each row once, in the window; an index list per expert slot, whose
	 * entries are numbered as the rows of EXPERT_PACKED are.
	 */
	FERRY_TOKEN = 2,
};

/** How expert outputs come back. */
enum ferry_combine_mode {
	/** One row per (token, choice); bit-identical for any placement. */
	FERRY_EXACT = 0,
	/** One row per (token, rank), summed and rounded there. */
	FERRY_REDUCED = 1,
	/**
	 * As REDUCED within a host; from another host one row per token, the
	 * sum of its ranks' parts, rounded once more. CPU worlds whose fabric
	 * stores within a host and puts between hosts; groups must not span
	 * hosts. In a world of one host it is REDUCED.
	 */
	FERRY_PER_HOST = 2,
};

/** What an expert id out of range does. */
enum ferry_bad_id {
	FERRY_BAD_ID_ERROR = 0, /* RANGE on all ranks, channel broken */
	FERRY_BAD_ID_SKIP = 1,  /* as if masked with -1 */
};

/** What more rows than max_recv_rows do. */
enum ferry_overflow {
	FERRY_OVERFLOW_ERROR = 0, /* OVERFLOW on all ranks, channel broken */
	/** The last rows in receive order are left out, here and in combine. */
	FERRY_OVERFLOW_DROP = 1,
};

/** Type of the expert ids. */
enum ferry_id_type {
	FERRY_ID_INT32 = 0,
	FERRY_ID_INT64 = 1,
};

/** What the ids mean. */
enum ferry_id_kind {
	FERRY_ID_LOGICAL = 0, /* logical experts, resolved by the placement */
	FERRY_ID_SLOT = 1,    /* expert slots, numbered through the world */
};

/** What the routing weights do. */
enum ferry_weight_use {
	FERRY_WEIGHT_OUTPUT = 0, /* weigh expert outputs in combine */
	/**
	 * Multiply the rows on their way to the expert: one rounding to
	 * dtype; combine then sums with weight 1. bf16, fp16, fp32 rows and
	 * the expert-major layouts only.
	 */
	FERRY_WEIGHT_INPUT = 1,
};

/** How rows travel. */
enum ferry_path {
	FERRY_PATH_AUTO = 0, /* CPU: counts; CUDA: by measured thresholds */
	/** Rows, and counters that say how many have come. CPU worlds. */
	FERRY_PATH_COUNTS = 1,
	/**
	 * Lines of 128 bytes that carry their own flag: least latency. CUDA,
	 * where every pair of ranks shares a GPU or has NVLink. Each block
	 * keeps the tables of all ranks in 212 KiB: 2 bytes for a choice of
	 * n_ranks / group_size * max_tokens * topk, 8 for an expert slot of
	 * the world, some for rows. Expert slots are at most 8192, rows
	 * 1 GiB, alignment times expert slots 2^30. What does not fit is
	 * UNSUPPORTED, and AUTO takes chunks.
	 */
	FERRY_PATH_LINES = 2,
	/** Rows, and a flag for several of them: most bandwidth. CUDA. */
	FERRY_PATH_CHUNKS = 3,
};

/**
 * Shape of a channel: maxima, equal on all ranks (compared at open). Zero
 * means default.
 */
struct ferry_moe_config {
	size_t size;
	int32_t n_ranks;    /* for ferry_moe_query; open takes the world's */
	int32_t max_tokens; /* per rank and call, 1.. */
	int32_t hidden;     /* elements of a row (bytes for FERRY_BYTES), 1.. */
	int32_t topk;       /* choices of a token, 1..64 */
	int32_t n_experts;  /* logical experts, 1..2^24 */
	const int32_t *expert_slots; /* [n_ranks]; NULL: as even as possible */
	int32_t n_slots;             /* operations in flight, 1..256; 0: 1 */
	int32_t group_size; /* ranks with the same tokens, divides n_ranks; 0: 1
	                     */

	enum ferry_dtype dtype;    /* of the rows that experts get; 0: BF16 */
	enum ferry_dtype in_dtype; /* of x; 0: dtype. BF16 with dtype
	                            * FP8_E4M3 quantises on the way */
	enum ferry_scale_type scale_type; /* quantising: FP32 or UE8M0 */
	int32_t scale_block; /* elements per scale, 0: 128; quantising: 128 */
	int32_t scale_bytes; /* bytes a row for FERRY_SCALE_BYTES */

	enum ferry_layout layout;
	int32_t alignment; /* of offsets in EXPERT_PACKED and TOKEN, a power
	                    * of two; 0: 1 */
	/*
	 * Capacity for arriving rows; 0: the default. EXPERT_PADDED: rows of
	 * one slot, by default R * max_tokens; only a token that names an
	 * expert twice can bring more, and `overflow` says what then happens.
	 * EXPERT_PACKED: rows of all slots, with alignment, rounded down to a
	 * multiple of it; TOKEN: entries of all index lists, likewise. Both by
	 * default the worst case, R * max_tokens * topk and the alignment of
	 * each slot, which nothing exceeds.
	 */
	int64_t max_recv_rows;
	enum ferry_overflow overflow;
	enum ferry_bad_id bad_id;

	enum ferry_combine_mode combine;
	enum ferry_dtype combine_dtype; /* of expert outputs; 0: BF16 */
	enum ferry_dtype out_dtype;     /* of the sum; 0: combine_dtype */
	enum ferry_weight_use weight_use;
	bool send_weights;  /* receivers get weights in ferry_dispatch_out;
	                     * implied by REDUCED, PER_HOST, WEIGHT_INPUT */
	float routed_scale; /* factor of every weight, rounded once to fp32 at
	                     * send; 0: 1 */
	enum ferry_device device; /* for ferry_moe_query; open takes the
	                           * world's */
	enum ferry_path path;
	/*
	 * CUDA: most multiprocessors that one phase occupies; 0: as many as
	 * there are. May differ between ranks.
	 */
	int32_t max_sms;
};
#define FERRY_MOE_CONFIG_INIT                                                  \
	{                                                                      \
		sizeof(struct ferry_moe_config), 0, 0, 0, 0, 0, NULL, 0, 0,    \
			FERRY_DTYPE_NONE, FERRY_DTYPE_NONE, FERRY_SCALE_NONE,  \
			0, 0, FERRY_EXPERT_PADDED, 0, 0, FERRY_OVERFLOW_ERROR, \
			FERRY_BAD_ID_ERROR, FERRY_EXACT, FERRY_DTYPE_NONE,     \
			FERRY_DTYPE_NONE, FERRY_WEIGHT_OUTPUT, false, 0,       \
			FERRY_DEVICE_CPU, FERRY_PATH_AUTO, 0                   \
	}

/** What a channel would need. */
struct ferry_moe_need {
	size_t size;
	size_t window_bytes;      /* symmetric memory, per rank, of a world of
	                           * one host; several need more: a stage,
	                           * and for PER_HOST parts */
	size_t heap_bytes;        /* further memory, per rank */
	int64_t recv_rows;        /* rows that out.rows must hold */
	int64_t recv_rows_slot;   /* rows of one slot where they are padded,
	                           * also for FERRY_FROM_PADDED */
	size_t row_bytes;         /* of a row at the receiver, without scales */
	size_t scale_row_bytes;   /* scales of a row */
	int32_t n_scales;         /* scale blocks of a row */
	size_t view_row_stride;   /* TOKEN: bytes from row to row of the view */
	int32_t max_expert_slots; /* most expert slots of a rank */
	const char *path;         /* "counts", "lines", "chunks" */
	/*
	 * CUDA, 0 otherwise: multiprocessors that a phase occupies, and thread
	 * blocks that must be resident at once for all slots together. With no
	 * device at hand (ferry_moe_query) those of a whole GPU of 132.
	 */
	int32_t n_sms;
	int32_t resident_ctas;
	/*
	 * CUDA, 0 otherwise: memory per rank on top of all else in a world of
	 * several hosts: the host's, pinned, or the GPU's where the network
	 * reaches that.
	 */
	size_t mirror_bytes;
};
#define FERRY_MOE_NEED_INIT                                                    \
	{                                                                      \
		sizeof(struct ferry_moe_need), 0, 0, 0, 0, 0, 0, 0, 0, 0,      \
			NULL, 0, 0, 0                                          \
	}

/**
 * Is this configuration legal, and what does it need? Needs neither peers nor
 * device; set config->n_ranks. A refusal names the field, its value and what
 * is allowed (ferry_last_error).
 * Errors: INVAL, RANGE, UNSUPPORTED.
 */
FERRY_API enum ferry_status
ferry_moe_query(const struct ferry_moe_config *config,
                struct ferry_moe_need *need) FERRY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
