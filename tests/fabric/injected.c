/* SPDX-License-Identifier: Apache-2.0 */
/* See injected.h. */
#include "injected.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*set)(const struct ofi_faults *faults);
static void (*done_of)(struct ofi_faults_done *done);
static void (*rank_is)(int32_t rank);

static void find(void *module, const char *name, void *slot)
{
	void *function = module ? dlsym(module, name) : NULL;

	if (!function) {
		fprintf(stderr, "%s: no %s: %s\n", FAULTS_LIBRARY, name,
		        dlerror());
		exit(1);
	}
	memcpy(slot, &function, sizeof(function));
}

void injected_begin(void)
{
	void *module = dlopen(FAULTS_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	find(module, "ofi_faults_set", &set);
	find(module, "ofi_faults_done", &done_of);
	find(module, "ofi_faults_rank", &rank_is);
}

void injected_set(const struct ofi_faults *faults)
{
	set(faults ? faults : &(const struct ofi_faults){0});
}

void injected_done(struct ofi_faults_done *done)
{
	done_of(done);
}

void injected_rank(int32_t rank)
{
	rank_is(rank);
}

static void configure(const struct rank *rank,
                      struct ferry_world_config *config)
{
	(void)config;
	injected_rank(rank->rank);
}

void injected_ranks(struct ranks *how)
{
	if (!how->fabric)
		how->fabric = "ofi";
	if (!how->options)
		how->options = "OFI_LIBRARY=" FAULTS_LIBRARY;
	how->configure = configure;
}

static void close_segment(void *segment)
{
	ferry_segment_close(segment);
}

struct ferry_segment *injected_open(struct rank *rank, size_t bytes,
                                    uint32_t n_signals)
{
	struct ferry_segment *s = NULL;

	RANKS_OK(ferry_segment_open(rank->world, bytes, n_signals, &s));
	ranks_defer(close_segment, s);
	return s;
}
