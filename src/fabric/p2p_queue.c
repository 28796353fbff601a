/* SPDX-License-Identifier: Apache-2.0 */
/* See p2p_queue.h. */
#include "p2p_queue.h"

#include <stdlib.h>
#include <unistd.h>

#include "../core/clock.h"
#include "../core/thread.h"
#include "segment.h"

enum {
	QUEUE = 256,
	NAP_US = 50,
	LOOK_NS = 10000000, /* how often a wait asks whether the GPU lives */
};

struct entry {
	struct ferry_p2p_queue *queue;
	unsigned char *control;
	size_t counters_offset;
	uint32_t counter;
	struct entry *next; /* free one */
};

struct ferry_p2p_queue {
	struct ferry_gpu *gpu;
	uint32_t n_under_way;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t room;
	struct entry *free;
	struct entry entries[QUEUE];
};

enum ferry_status ferry_p2p_queue_new(struct ferry_ctx *ctx,
                                      struct ferry_gpu *gpu,
                                      struct ferry_p2p_queue **queue)
{
	struct ferry_p2p_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return ferry_fail(ctx, FERRY_NOMEM, "p2p: a queue of %d puts",
		                  QUEUE);
	q->gpu = gpu;
	pthread_mutex_init(&q->lock, NULL);
	ferry_cond_init(&q->room);
	for (int i = 0; i < QUEUE; i++) {
		q->entries[i].queue = q;
		q->entries[i].next = q->free;
		q->free = &q->entries[i];
	}
	*queue = q;
	return FERRY_OK;
}

bool ferry_p2p_queue_empty(struct ferry_p2p_queue *queue)
{
	return load_seq_u32(&queue->n_under_way) == 0;
}

bool ferry_p2p_queue_free(struct ferry_p2p_queue *queue, uint64_t deadline_ns)
{
	if (!queue)
		return true;
	while (!ferry_p2p_queue_empty(queue)) {
		if (ferry_gpu_failed(queue->gpu))
			break; /* nothing is done any more */
		if (ferry_now_ns() >= deadline_ns)
			return false;
		usleep(NAP_US);
	}
	/* The last one may still hold the lock. */
	pthread_mutex_lock(&queue->lock);
	pthread_mutex_unlock(&queue->lock);
	pthread_cond_destroy(&queue->room);
	pthread_mutex_destroy(&queue->lock);
	free(queue);
	return true;
}

static void give_back(struct entry *entry)
{
	struct ferry_p2p_queue *queue = entry->queue;

	pthread_mutex_lock(&queue->lock);
	entry->next = queue->free;
	queue->free = entry;
	pthread_cond_signal(&queue->room);
	sub_seq_u32(&queue->n_under_way, 1);
	pthread_mutex_unlock(&queue->lock);
}

/* The copy is complete. A thread of the driver. */
static void arrived(void *arg)
{
	struct entry *entry = arg;

	ferry_mem_raise(entry->control, entry->counters_offset, entry->counter);
	give_back(entry);
}

/* NULL: there is none within LOOK_NS. */
static struct entry *try_take(struct ferry_p2p_queue *queue)
{
	struct entry *entry;

	pthread_mutex_lock(&queue->lock);
	if (!queue->free)
		ferry_cond_wait(&queue->room, &queue->lock,
		                ferry_now_ns() + LOOK_NS);
	entry = queue->free;
	if (entry) {
		queue->free = entry->next;
		add_seq_u32(&queue->n_under_way, 1);
	}
	pthread_mutex_unlock(&queue->lock);
	return entry;
}

/* The lock is free while the GPU is asked: what has arrived needs it. */
static struct entry *take(struct ferry_p2p_queue *queue, uint64_t deadline_ns)
{
	struct entry *entry = try_take(queue);

	while (!entry && ferry_now_ns() < deadline_ns &&
	       !ferry_gpu_failed(queue->gpu))
		entry = try_take(queue);
	return entry;
}

enum ferry_status ferry_p2p_queue_put(struct ferry_ctx *ctx,
                                      struct ferry_p2p_queue *queue,
                                      const struct ferry_p2p_put *put,
                                      size_t counters_offset,
                                      uint64_t deadline_ns)
{
	struct entry *entry = take(queue, deadline_ns);
	enum ferry_status status;

	if (!entry)
		return ferry_fail(ctx, FERRY_TIMEOUT,
		                  "p2p: the GPU has not copied %d puts in "
		                  "time",
		                  QUEUE);
	entry->control = put->control;
	entry->counters_offset = counters_offset;
	entry->counter = put->counter;
	status = ferry_gpu_copy(ctx, queue->gpu, put->to, put->from, put->bytes,
	                        arrived, entry);
	if (status != FERRY_OK)
		give_back(entry);
	return status;
}
