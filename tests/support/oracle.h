/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: what dispatch and combine must give, computed from the inputs of
 * all ranks at once by plain loops. It knows no window, no table, no protocol,
 * and shares no code with src/; the public headers are its specification.
 *
 * Its results have the form of the public calls: a test gives it buffers of
 * its own, filled with the same bytes as the buffers that it gave to the
 * library, and compares whole buffers. What the library must not touch, the
 * oracle does not touch. All pointers are host pointers: tests of a GPU copy
 * outputs to the host first.
 *
 *	struct oracle *o = oracle_create(&(struct oracle_case){
 *		.config = &config, .need = &need, .in = inputs });
 *	oracle_dispatch(o, rank, &expected);     compare with out
 *	... the expert outputs come from oracle_expert ...
 *	oracle_combine(o, rank, &how, &expected_sum);
 *	oracle_destroy(o);
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <ferry/moe.h>

struct oracle;

/* One dispatch of all ranks. The inputs must outlive the oracle. */
struct oracle_case {
	const struct ferry_moe_config *config; /* n_ranks is set */
	const struct ferry_moe_need *need;     /* of config: sizes of outputs */
	/* NULL: expert e in slot e. in[].placement is not looked at. */
	const struct ferry_placement_config *placement;
	/* [n_ranks]; within a group only the first rank's is looked at. */
	const struct ferry_dispatch_in *in;
	uint32_t half; /* TOKEN: in which half of the view the rows are */
	/* [n_ranks] equal for ranks of one host, for PER_HOST; NULL: all are */
	const int32_t *host;
};

struct oracle *oracle_create(const struct oracle_case *c);
void oracle_destroy(struct oracle *oracle);

/*
 * How the dispatch must end on every rank: FERRY_OK, FERRY_RANGE (a bad id
 * under BAD_ID_ERROR) or FERRY_OVERFLOW; *root is the rank to be named. Only
 * after FERRY_OK do the calls below mean something.
 */
enum ferry_status oracle_status(const struct oracle *oracle, int32_t *root);

/* As ferry_dispatch_recv on `rank`; strides as there. */
void oracle_dispatch(const struct oracle *oracle, int32_t rank,
                     const struct ferry_dispatch_out *out);

/*
 * Compares the view of a TOKEN channel with what must have arrived there for
 * this dispatch. The first row that differs, or -1; rows that did not arrive
 * are not looked at.
 */
int64_t oracle_view_differs(const struct oracle *oracle, int32_t rank,
                            const struct ferry_moe_view *view);

/* A row that `rank` keeps, in receive order. */
struct oracle_row {
	int32_t slot;   /* own expert slot, 0-based on the rank */
	int32_t group;  /* source group */
	int32_t source; /* sending rank; in a group the carrier */
	int32_t token;
	int32_t choice;
	int32_t expert; /* logical expert, or the slot's number in the world */
	float weight;   /* with routed_scale */
	int64_t padded; /* row in EXPERT_PADDED */
	int64_t packed; /* row in EXPERT_PACKED, entry of a TOKEN list */
	int64_t view;   /* row in the TOKEN view */
};
int64_t oracle_rows(const struct oracle *oracle, int32_t rank,
                    const struct oracle_row **rows);

/*
 * The bits that the expert of a row gets: its payload into `payload`, weighted
 * where the channel weighs inputs, and a pointer to its scales (NULL: none).
 */
void oracle_row_bits(const struct oracle *oracle, const struct oracle_row *row,
                     uint8_t *payload, const uint8_t **scales);

/* What experts answer. */
enum oracle_values {
	ORACLE_PLAIN,   /* finite, of moderate size */
	ORACLE_SPECIAL, /* with NaN, infinities, -0, denormals, huge ones */
};

/*
 * The expert of the tests: element i of y[n] follows from the bits of the
 * received row and its scales, the expert, and i; not from where the expert
 * is. `dtype` is combine_dtype. For PRESUMMED rows of rank r the "expert" is
 * ORACLE_PRESUMMED(r).
 */
void oracle_expert(void *y, enum ferry_dtype dtype, size_t n, const void *row,
                   size_t row_bytes, const void *scales, size_t scale_bytes,
                   int32_t expert, enum oracle_values values);
#define ORACLE_PRESUMMED(rank) (-2 - (rank))

/* How the expert outputs came into combine_send. */
struct oracle_combine_how {
	bool presummed;
	enum oracle_values values;
};

/*
 * As ferry_combine_recv on `rank` after every rank's experts answered with
 * oracle_expert. config.combine chooses EXACT, REDUCED or PER_HOST.
 */
void oracle_combine(const struct oracle *oracle, int32_t rank,
                    const struct oracle_combine_how *how,
                    const struct ferry_combine_out *out);

#endif
