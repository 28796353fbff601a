/* SPDX-License-Identifier: Apache-2.0 */
/* What a channel tells about itself: counters, their text, its failure. */
#include "../core/sized.h"
#include "../fabric/segment_break.h"
#include "../proto/channel.h"
#include "../trace/events.h"

static void find_hottest(const struct ferry_moe *moe,
                         struct ferry_moe_stats *stats)
{
	for (int32_t s = 0; s < moe->shape.own_expert_slots; s++)
		if (moe->slot_rows[s] > stats->hottest_rows) {
			stats->hottest_slot = s;
			stats->hottest_rows = moe->slot_rows[s];
		}
}

static void find_slowest(const struct ferry_moe *moe,
                         struct ferry_moe_stats *stats)
{
	for (int32_t r = 0; r < moe->shape.n_ranks; r++)
		if (moe->wait_ns[r] > stats->slowest_peer_ns) {
			stats->slowest_peer = r;
			stats->slowest_peer_ns = moe->wait_ns[r];
		}
}

static struct ferry_moe_stats stats_of(const struct ferry_moe *moe)
{
	struct ferry_moe_stats stats = moe->stats;

	find_hottest(moe, &stats);
	find_slowest(moe, &stats);
	return stats;
}

enum ferry_status ferry_moe_get_stats(const struct ferry_moe *moe,
                                      struct ferry_moe_stats *stats)
{
	if (!moe)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "moe_get_stats: moe is NULL");
	const struct ferry_moe_stats found = stats_of(moe);

	return ferry_sized_give(stats, &found, sizeof(found),
	                        "moe_get_stats: stats");
}

size_t ferry_moe_metrics(const struct ferry_moe *moe, const char *name,
                         char *buffer, size_t bytes)
{
	if (!moe) {
		if (bytes)
			buffer[0] = 0;
		return 0;
	}
	const struct ferry_moe_stats stats = stats_of(moe);

	return ferry_prom_render(&stats, name, moe->world->rank, buffer, bytes);
}

enum ferry_status ferry_moe_poll(const struct ferry_moe *moe,
                                 struct ferry_error *error)
{
	struct ferry_error found = FERRY_ERROR_INIT;

	if (!moe)
		return ferry_fail(NULL, FERRY_INVAL, "moe_poll: moe is NULL");
	/* Whose kernels are over is told of their failure, not soon after. */
	if (moe->shape.device == FERRY_DEVICE_CUDA)
		(void)ferry_segment_check(moe->segment);
	pthread_mutex_lock(&moe->world->lock);
	if (ferry_segment_decide(moe->segment)) {
		ferry_segment_blame_world(moe->segment);
		found = moe->segment->error;
	}
	pthread_mutex_unlock(&moe->world->lock);
	if (found.status != FERRY_OK && error)
		FERRY_TRY(ferry_sized_give(error, &found, sizeof(found),
		                           "moe_poll: error"));
	return found.status;
}
