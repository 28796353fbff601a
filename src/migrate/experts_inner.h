/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of registered experts: the segment, who owns which buffer, plans
 * in flight, versions. docs/balance.md has the protocol and its proof; in
 * short:
 *
 * Every rank keeps the same book of all ranks' buffers. It changes only in
 * start, commit and abandon, which all ranks call in the same order, and only
 * by what all ranks know then: the plan, and the records. So a
 * sender knows which buffer of its partner is free, without asking.
 *
 *	segment of a rank             written by    read by
 *	record[ring][word][source]    the source    owner, in commit
 *	outgoing[ring][word]          owner         the fabric
 *	bounce (COPY)                 owner         the fabric
 *	buffer[n_buffers]             senders       owner
 *
 *	signal (ring, word, source)   the record is there; STAGED: and what its
 *	                              sender has pushed is there, everywhere
 *	signal buffer                 pieces that came into it
 *
 * In worlds of GPUs the buffers are memory of the GPU, and records are notes of
 * the segment, which are stored and need neither outgoing nor bounce.
 */
#ifndef FERRY_EXPERTS_INNER_H
#define FERRY_EXPERTS_INNER_H

#include <pthread.h>

#include <ferry/experts.h>

#include "../core/placement_inner.h"
#include "../fabric/segment.h"

enum {
	/*
	 * Who starts plan n has finished n - PLANS, hence holds a record of
	 * every rank for it, which that rank sent after it had finished
	 * n - RING: the record is read that is overwritten.
	 */
	EXPERTS_RING = 2 * FERRY_EXPERTS_PLANS,
	EXPERTS_BUSY = 4, /* plans that do not keep later ones from ending */
	EXPERTS_ALIGN = 256,
	EXPERTS_DEFAULT_STAGING = 4,
	EXPERTS_PIECE_BYTES = 1 << 20, /* most of one put */
};

/* What ranks tell each other of a plan. */
enum experts_word {
	EXPERTS_STAGED, /* my part is out, and has arrived */
	EXPERTS_ENDS,   /* I have all that, and now commit or abandon */
	EXPERTS_WORDS,
};

/* One line. */
struct experts_record {
	uint64_t plan_hash;
	uint64_t history; /* of all starts up to this one */
	/*
	 * ENDS: of the plans that had ended before, this rank is done with the
	 * first n_done but for those that are busy: what they replaced is not
	 * in use here. UINT64_MAX: none.
	 */
	uint64_t n_done;
	uint64_t busy[EXPERTS_BUSY];
	int32_t layer;
	int32_t commits; /* ENDS: 1, or 0: abandons */
};

_Static_assert(sizeof(struct experts_record) == 64, "one line");

/* An expert on its way. Slots count through the world. */
struct experts_transfer {
	int32_t expert;
	int32_t from_rank;
	int32_t from_slot;
	int32_t to_rank;
	int32_t to_slot;
	int32_t buffer; /* of to_rank: staging; when ended, what became free */
};

/* A placement of a layer that this rank can still be asked for. */
struct experts_version {
	struct experts_version *older;
	const struct ferry_placement *placement;
	struct ferry_placement *made; /* by the library; NULL: the caller's */
	int32_t holds;                /* ferry_experts_acquire */
	int32_t buffers[]; /* [own slots] REMAP: the pool buffer of each */
};

/* A plan from its start until what it replaced is free on all ranks. */
struct experts_flight {
	struct experts_flight *next;    /* ended later */
	struct experts_version *target; /* NULL: nothing changes; abandoned */
	struct experts_version *old;    /* replaced; NULL: nothing was */
	uint64_t seq;                   /* plans started before it */
	uint64_t number;                /* plans that ended before it */
	bool done;                      /* this rank is done with it */
	bool is_marked;                 /* GPU: `over` is in a stream */
	struct CUevent_st *over; /* behind the last that reads what it freed */
	uint8_t *freed;          /* [n_ranks] and that rank has said so */
	int32_t n_freed;
	uint64_t plan_hash;
	uint64_t history;
	int32_t layer;
	int32_t n_transfers;
	bool held_back;      /* the plan's moves are left out */
	bool staged;         /* all ranks' records were read and are alike */
	uint64_t exposed_ns; /* in commits so far */
	uint64_t wait_ns;
	uint64_t copy_ns;
	uint64_t meet_ns;
	struct experts_transfer transfers[];
};

struct experts_layer {
	struct experts_version *newest;
	struct experts_flight *flight; /* NULL: no plan */
	const int32_t *first_slot;     /* [n_ranks + 1], of any version */
	int32_t *buffers;  /* [n_slots] REMAP: buffer of its rank's pool */
	int32_t first_own; /* own slots of the layers before */
	bool closing;      /* COPY: about to be overwritten: no new uses */
};

/* The free staging buffers of a rank, oldest first. */
struct experts_free {
	int32_t *buffers; /* ring [n_staging] */
	int32_t first;
	int32_t n;
};

struct ferry_experts {
	struct ferry_world *world; /* may end with the segment */
	struct ferry_segment *segment;
	int32_t rank;
	int32_t n_ranks;
	enum ferry_experts_mode mode;
	bool on_gpus;
	int32_t n_layers;
	int32_t n_tensors;
	int32_t n_staging;
	int32_t n_buffers; /* of the rank that has most */
	size_t *tensor_bytes;
	size_t *tensor_offset; /* in a buffer */
	size_t expert_bytes;   /* sum of tensor_bytes */
	size_t filled_bytes;   /* of a buffer, padding between tensors too */
	size_t buffer_bytes;
	size_t piece_bytes;
	size_t bounced; /* of the bounce, since the last flush */
	void **tensors; /* COPY: [own slots of all layers][n_tensors] */
	struct experts_layer *layers;
	int32_t *coming;           /* [n_ranks] scratch of a start */
	struct experts_free *free; /* [n_ranks] */
	uint64_t *pieces;          /* [n_buffers] that will have come into it */
	struct ferry_wait_item *items;             /* [n_ranks + n_staging] */
	struct experts_flight *ring[EXPERTS_RING]; /* by seq; NULL: ended */
	struct experts_flight *ended;              /* oldest first */
	struct experts_flight **ended_tail;
	uint64_t n_ended; /* plans */
	uint64_t history;
	uint64_t n_starts;
	pthread_mutex_t lock;  /* versions, closing, and the counters */
	pthread_cond_t opened; /* closing has become false */
	struct ferry_experts_stats stats;
};

static inline int32_t experts_n_own(const struct ferry_experts *x,
                                    const struct experts_layer *layer)
{
	const int32_t *first = &layer->first_slot[x->rank];

	return first[1] - first[0];
}

/* Where a tensor of an own slot (of the world's count) is now. */
unsigned char *ferry_experts_address(const struct ferry_experts *x,
                                     const struct experts_layer *layer,
                                     int32_t slot, int32_t tensor);

/* A plan, or a placement to go to. */
struct experts_asked {
	int32_t layer;
	const struct ferry_plan *plan;
	const int64_t *loads;
	const struct ferry_placement *to; /* NULL: there is a plan */
	bool held_back;                   /* leave its moves out */
	const int32_t *sources;           /* see experts_from.h */
};

/*
 * Turns what is asked for into transfers, without buffers, and the version that
 * it leads to. Nothing is touched but *flight, which is the caller's on
 * success. Errors: INVAL, RANGE, NOMEM.
 */
enum ferry_status ferry_experts_flight_make(struct ferry_experts *x,
                                            const struct experts_asked *asked,
                                            struct experts_flight **flight);
/* The part of it for a placement; the flight has room for all slots. */
enum ferry_status ferry_experts_flight_to(struct ferry_experts *x,
                                          const struct experts_asked *asked,
                                          struct experts_flight *flight);
/* Gives it a version to lead to, and that the placement, also on failure. */
enum ferry_status ferry_experts_flight_aim(struct ferry_experts *x,
                                           int32_t layer,
                                           struct ferry_placement *next,
                                           struct experts_flight *flight);
/* Frees it with a target that was not committed. */
void ferry_experts_flight_free(const struct ferry_experts *x,
                               struct experts_flight *flight);

/* The own slots' buffers as they are now; NULL: no memory. */
struct experts_version *
ferry_experts_version_make(const struct ferry_experts *x,
                           const struct experts_layer *layer,
                           const struct ferry_placement *placement);
void ferry_experts_version_free(struct experts_version *version);

/* May an operation of this rank still read what the version has? */
bool ferry_experts_version_in_use(struct ferry_experts *x,
                                  const struct experts_version *version);

/* What the GPU answers; its failure ends the object on all ranks. */
enum ferry_status ferry_experts_gpu(struct ferry_experts *x,
                                    enum ferry_status status);

/*
 * GPUs: marks in the stream of a commit what ended plans have freed and no
 * operation of the host uses any more: kernels may. Errors: INVAL, CUDA.
 */
enum ferry_status ferry_experts_mark(struct ferry_experts *x,
                                     struct CUstream_st *stream);

/* Which ended plans this rank is done with, for all others to know. */
void ferry_experts_say_done(struct ferry_experts *x,
                            struct experts_record *record);

/*
 * Ends a plan: its buffers wait in x->ended until every rank has said that it
 * is done with them; what records say of that is taken in now.
 */
void ferry_experts_end(struct ferry_experts *x, struct experts_flight *flight);

/* Sends a record to every rank, this one included. */
enum ferry_status ferry_experts_tell(struct ferry_experts *x,
                                     const struct experts_flight *flight,
                                     enum experts_word word,
                                     const struct experts_record *record);

/* Experts of a plan that leave this rank. */
int32_t ferry_experts_leaving(const struct ferry_experts *x,
                              const struct experts_flight *flight);

/* Says in ferry_last_error whose failure it was; returns status. */
enum ferry_status ferry_experts_named(struct ferry_experts *x, const char *call,
                                      int32_t layer, enum ferry_status status);

/* Frees what is left at close. */
void ferry_experts_books_destroy(struct ferry_experts *x);

#endif
