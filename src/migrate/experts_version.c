/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Versions of a layer's placement: which buffers belong to one, who still uses
 * it, and when what it had is free. Lookups may come from any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "../core/sized.h"
#include "experts_layout.h"

struct experts_version *
ferry_experts_version_make(const struct ferry_experts *x,
                           const struct experts_layer *layer,
                           const struct ferry_placement *placement)
{
	const int32_t n_own =
		x->mode == FERRY_EXPERTS_REMAP ? experts_n_own(x, layer) : 0;
	struct experts_version *v =
		calloc(1, sizeof(*v) + (size_t)n_own * sizeof(v->buffers[0]));

	if (!v)
		return NULL;
	v->placement = placement;
	for (int32_t i = 0; i < n_own; i++)
		v->buffers[i] = layer->buffers[layer->first_slot[x->rank] + i];
	return v;
}

void ferry_experts_version_free(struct experts_version *version)
{
	if (!version)
		return;
	ferry_placement_destroy(version->made);
	free(version);
}

static void lock(const struct ferry_experts *x)
{
	pthread_mutex_lock((pthread_mutex_t *)(uintptr_t)&x->lock);
}

static void unlock(const struct ferry_experts *x)
{
	pthread_mutex_unlock((pthread_mutex_t *)(uintptr_t)&x->lock);
}

bool ferry_experts_version_in_use(struct ferry_experts *x,
                                  const struct experts_version *version)
{
	lock(x);
	const bool held = version->holds > 0;

	unlock(x);
	return held || ferry_placement_in_use(version->placement) > 0;
}

/* The version of a placement; NULL: the newest. Under the lock. */
static struct experts_version *find(const struct ferry_experts *x,
                                    int32_t layer,
                                    const struct ferry_placement *placement)
{
	struct experts_version *v = x->layers[layer].newest;

	while (placement && v && v->placement != placement)
		v = v->older;
	return v;
}

static bool is_layer(const struct ferry_experts *x, int32_t layer)
{
	return x && layer >= 0 && layer < x->n_layers;
}

const struct ferry_placement *
ferry_experts_placement(const struct ferry_experts *experts, int32_t layer)
{
	if (!is_layer(experts, layer))
		return NULL;
	lock(experts);
	const struct ferry_placement *placement =
		find(experts, layer, NULL)->placement;

	unlock(experts);
	return placement;
}

const struct ferry_placement *
ferry_experts_acquire(struct ferry_experts *experts, int32_t layer)
{
	if (!is_layer(experts, layer))
		return NULL;
	lock(experts);
	while (experts->layers[layer].closing)
		pthread_cond_wait(&experts->opened, &experts->lock);
	struct experts_version *v = find(experts, layer, NULL);
	const struct ferry_placement *placement = v->placement;

	v->holds++;
	unlock(experts);
	return placement;
}

void ferry_experts_release(struct ferry_experts *experts, int32_t layer,
                           const struct ferry_placement *placement)
{
	if (!is_layer(experts, layer) || !placement)
		return;
	lock(experts);
	struct experts_version *v = find(experts, layer, placement);

	if (v && v->holds > 0)
		v->holds--;
	unlock(experts);
}

/* Address of a tensor in a buffer of the own pool. */
static unsigned char *in_pool(const struct ferry_experts *x, int32_t buffer,
                              int32_t tensor)
{
	return experts_base(x) + experts_buffer_at(x, buffer) +
	       x->tensor_offset[tensor];
}

static unsigned char *registered(const struct ferry_experts *x,
                                 const struct experts_layer *layer,
                                 int32_t own_slot, int32_t tensor)
{
	const size_t i = (size_t)layer->first_own + (size_t)own_slot;

	return x->tensors[i * (size_t)x->n_tensors + (size_t)tensor];
}

unsigned char *ferry_experts_address(const struct ferry_experts *x,
                                     const struct experts_layer *layer,
                                     int32_t slot, int32_t tensor)
{
	if (x->mode == FERRY_EXPERTS_REMAP)
		return in_pool(x, layer->buffers[slot], tensor);
	return registered(x, layer, slot - layer->first_slot[x->rank], tensor);
}

void *ferry_experts_tensor(const struct ferry_experts *experts, int32_t layer,
                           const struct ferry_placement *placement,
                           int32_t own_slot, int32_t tensor)
{
	const struct ferry_experts *const x = experts;
	void *address = NULL;

	if (!is_layer(x, layer) || tensor < 0 || tensor >= x->n_tensors ||
	    own_slot < 0 || own_slot >= experts_n_own(x, &x->layers[layer]))
		return NULL;
	lock(x);
	const struct experts_version *v = find(x, layer, placement);

	if (v && x->mode == FERRY_EXPERTS_REMAP)
		address = in_pool(x, v->buffers[own_slot], tensor);
	else if (v)
		address = registered(x, &x->layers[layer], own_slot, tensor);
	unlock(x);
	return address;
}

enum ferry_status ferry_experts_get_stats(const struct ferry_experts *experts,
                                          struct ferry_experts_stats *stats)
{
	if (!experts)
		return ferry_fail(NULL, FERRY_INVAL,
		                  "experts_get_stats: experts is NULL");
	lock(experts);
	const struct ferry_experts_stats found = experts->stats;

	unlock(experts);
	return ferry_sized_give(stats, &found, sizeof(found),
	                        "experts_get_stats: stats");
}
