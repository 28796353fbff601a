/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for a channel after a failure. */
#include "broken.h"

#include <stdio.h>
#include <string.h>

/* Every later call answers BROKEN with the first message. */
static void check_calls(struct drive *d, const char *text)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	struct ferry_combine_in y = FERRY_COMBINE_IN_INIT;
	struct ferry_combine_out sum = FERRY_COMBINE_OUT_INIT;
	struct CUstream_st *stream = rank_memory_stream(d->memory, 0);
	struct mirror row = mirror_make(d->memory, 8, 8);
	struct mirror n_rows = mirror_make(d->memory, 8, 8);

	memset(n_rows.host, 0xff, 8);
	mirror_push(d->memory, &n_rows, stream);
	out.n_rows = (void *)n_rows.device;
	if (d->config.layout != FERRY_TOKEN)
		out.rows = row.device;
	y.y = row.device;
	sum.out = row.device;
	RANKS_STATUS(ferry_dispatch_send(d->moe, 0, &in, stream), FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), text);
	RANKS_STATUS(ferry_dispatch_recv(d->moe, 0, &out, stream),
	             FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), text);
	mirror_pull(d->memory, &n_rows, stream);
	rank_memory_sync(d->memory, stream);
	RANKS_EQ(*(int64_t *)(void *)n_rows.host, 0);
	RANKS_STATUS(ferry_combine_send(d->moe, 0, &y, stream), FERRY_BROKEN);
	RANKS_STATUS(ferry_combine_recv(d->moe, 0, &sum, stream), FERRY_BROKEN);
	RANKS_STATUS(ferry_dispatch(d->moe, 0, &in, &out, stream),
	             FERRY_BROKEN);
	RANKS_STATUS(ferry_combine(d->moe, 0, &y, &sum, stream), FERRY_BROKEN);
	RANKS_TEXT(ferry_last_error(), text);
	rank_memory_sync(d->memory, NULL);
	mirror_drop(d->memory, &row);
	mirror_drop(d->memory, &n_rows);
}

void broken_check(struct rank *rank, struct drive *d, enum ferry_status status,
                  int32_t root, const char *part)
{
	struct ferry_error error = FERRY_ERROR_INIT;
	char text[sizeof(error.text)];

	snprintf(text, sizeof(text), "%s", d->failure);
	RANKS_TEXT(text, part);
	RANKS_STATUS(ferry_moe_poll(d->moe, &error), status);
	RANKS_EQ(error.status, status);
	RANKS_EQ(error.root_rank, root);
	RANKS_EQ(error.rank, rank->rank);
	RANKS_TEXT(error.text, part);
	RANKS_STATUS(ferry_world_poll(rank->world, NULL), status);
	check_calls(d, text);
}

void broken_reopen(struct rank *rank, struct drive *d)
{
	const struct ferry_moe_config config = d->config;
	struct drive_step step = {
		.from = config.layout == FERRY_EXPERT_PADDED
	                        ? FERRY_FROM_PADDED
	                        : FERRY_FROM_PACKED,
	};

	drive_close(d);
	d = drive_open(rank, &config, NULL);
	step.spec.seed = 1;
	step.n_tokens[0] = 1;
	for (int i = 0; i < 3; i++)
		drive_run(d, 0, &step);
	drive_close(d);
}

struct opinion {
	int32_t here;
	int32_t root;
	int32_t status;
};

void broken_same_root(struct rank *rank, const struct drive *d, int meeting,
                      int n_survivors)
{
	struct opinion *all = rank->shared;
	struct ferry_error error = FERRY_ERROR_INIT;

	(void)ferry_moe_poll(d->moe, &error);
	all[rank->rank] = (struct opinion){1, error.root_rank, error.status};
	ranks_meet(meeting, n_survivors);
	for (int32_t r = 0; r < rank->n_ranks; r++) {
		if (!all[r].here)
			continue;
		RANKS_EQ(all[r].root, error.root_rank);
		RANKS_STATUS((enum ferry_status)all[r].status, error.status);
	}
}
