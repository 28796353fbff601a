/* SPDX-License-Identifier: Apache-2.0 */
/* See split_lab.h. */
#include "split_lab.h"

#include <stdio.h>

#include "core/bits.h"

const struct lab_setting lab_settings[LAB_N_SETTINGS] = {
	{"local", "local", RANKS_THREADS, ""},
	{"shm threads", "shm", RANKS_THREADS, "SPIN_US=0"},
	{"shm", "shm", RANKS_PROCESSES, ""},
	{"wire threads", "wire", RANKS_THREADS, "WIRE_DELAY_US=0;WIRE_SEED=7"},
	{"wire", "wire", RANKS_PROCESSES, "WIRE_SEED=3"},
	{"hosts of 2", "shm+wire", RANKS_PROCESSES, "RANKS_PER_HOST=2"},
	{"trace", "trace:shm", RANKS_PROCESSES, ""},
};

void lab_run(const struct lab_setting *setting, struct ranks how,
             const char *fault, ranks_body *body)
{
	char options[200];

	snprintf(options, sizeof(options), "%s%s%s", setting->options,
	         fault[0] ? ";FAULT=" : "", fault);
	how.fabric = setting->fabric;
	how.kind = setting->kind;
	how.options = options;
	ranks_run(&how, body);
}

void lab_fill(struct lab_batch *batch, uint64_t seed, int32_t source,
              int32_t round, int32_t n_experts)
{
	uint64_t rng =
		hash_u64(hash_u64(seed, (uint64_t)round), (uint64_t)source);
	const uint64_t n = (uint64_t)n_experts;
	const uint64_t hot = hash_u64(seed, (uint64_t)round) % n;

	batch->n_tokens = (int32_t)(rng_next(&rng) % (LAB_TOKENS + 1));
	for (int i = 0; i < LAB_TOKENS * LAB_TOPK; i++) {
		const uint64_t kind = rng_next(&rng) % 8;
		const uint64_t id = kind < 3 ? hot : rng_next(&rng) % n;

		batch->ids[i / LAB_TOPK][i % LAB_TOPK] =
			kind == 7 ? -1 : (int32_t)id;
	}
}

void lab_count(const struct lab_batch *batch, int64_t *loads)
{
	for (int i = 0; i < batch->n_tokens * LAB_TOPK; i++)
		if (batch->ids[i / LAB_TOPK][i % LAB_TOPK] >= 0)
			loads[batch->ids[i / LAB_TOPK][i % LAB_TOPK]]++;
}

struct ferry_splitter *lab_open(struct rank *rank, int32_t n_slots,
                                int32_t group_size)
{
	struct ferry_splitter_config config = FERRY_SPLITTER_CONFIG_INIT;
	struct ferry_splitter *splitter = NULL;

	config.max_tokens = LAB_TOKENS;
	config.topk = LAB_TOPK;
	config.max_experts = LAB_SLOTS;
	config.n_slots = n_slots;
	config.group_size = group_size;
	RANKS_OK(ferry_splitter_open(rank->world, &config, &splitter));
	ranks_defer((void (*)(void *))ferry_splitter_close, splitter);
	return splitter;
}

struct ferry_split_in lab_in(const struct lab_batch *batch,
                             const struct ferry_placement *placement)
{
	struct ferry_split_in in = FERRY_SPLIT_IN_INIT;

	in.n_tokens = batch->n_tokens;
	in.ids = batch->ids;
	in.placement = placement;
	return in;
}
