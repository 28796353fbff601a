/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 06: a rank dies in the middle of a step. The others notice at once, agree on
 * who it was, close, and would go on in a new world. Ranks are processes.
 *
 *     cc 06_failure.c $(pkg-config --cflags --libs ferry) -o 06_failure
 *     ferry run -n 3 --grace-ms 5000 -- ./06_failure
 *
 * prints, in any order,
 *
 *     rank 0: PEER, root rank 1, in dispatch_recv, after less than a second
 *     rank 2: PEER, root rank 1, in dispatch_recv, after less than a second
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "example.h"

enum { HIDDEN = 16, EXPERTS = 6, DIES_AT = 3, VICTIM = 1 };

static struct ferry_moe *open_channel(struct ferry_world *world)
{
	struct ferry_moe_config config = FERRY_MOE_CONFIG_INIT;
	struct ferry_moe *moe;

	config.max_tokens = 1;
	config.hidden = HIDDEN;
	config.topk = 1;
	config.n_experts = EXPERTS;
	must(ferry_moe_open(world, &config, &moe));
	return moe;
}

/* One token that wants an expert of the next rank. */
static enum ferry_status step(struct ferry_moe *moe, int32_t expert)
{
	struct ferry_dispatch_in in = FERRY_DISPATCH_IN_INIT;
	struct ferry_dispatch_out out = FERRY_DISPATCH_OUT_INIT;
	const uint16_t x[HIDDEN] = {0};
	uint16_t rows[EXPERTS * 3][HIDDEN];
	enum ferry_status status;

	in.n_tokens = 1;
	in.x = x;
	in.topk_ids = &expert;
	out.rows = rows;
	status = ferry_dispatch_send(moe, 0, &in, NULL);
	if (status != FERRY_OK)
		return status;
	return ferry_dispatch_recv(moe, 0, &out, NULL);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void report(struct ferry_world *world, enum ferry_status status,
                   double waited)
{
	struct ferry_error error = FERRY_ERROR_INIT;

	check(ferry_world_poll(world, &error) == status, "poll");
	check(error.root_rank == VICTIM, "root rank");
	check(waited < 1, "a death is noticed at once");
	printf("rank %d: %s, root rank %d, in %s, after less than a second\n",
	       ferry_world_rank(world), ferry_status_name(status) + 6,
	       error.root_rank, ferry_phase_name(error.phase));
}

int main(void)
{
	enum ferry_status status = FERRY_OK;
	struct ferry_world *world;
	double begin = 0;

	must(ferry_world_open(NULL, &world));
	const int32_t rank = ferry_world_rank(world);
	const int32_t n_ranks = ferry_world_size(world);
	struct ferry_moe *moe = open_channel(world);

	check(n_ranks > VICTIM,
	      "this example needs 2 ranks or more: ferry run -n 3 -- PROGRAM");
	for (int i = 0; status == FERRY_OK; i++) {
		if (i == DIES_AT && rank == VICTIM)
			raise(SIGKILL);
		begin = seconds();
		status = step(moe, (rank + 1) % n_ranks * EXPERTS / n_ranks);
	}
	report(world, status, seconds() - begin);

	/* Whatever is asked now has the same answer; close always works. */
	check(step(moe, 0) == FERRY_BROKEN, "broken");
	check(strstr(ferry_last_error(), "rank 1") != NULL, "message");
	ferry_moe_close(moe);
	ferry_world_close(world);
	return 0;
}
