/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans have to promise more than they were wrong by. What a plan would come to
 * is known once the true router has chosen, whether it was carried out or not:
 * so each is kept, with the placement before it, until the next prediction of
 * its layer brings the truth.
 */
#include <stdlib.h>

#include "balancer_inner.h"

struct ferry_placement *
ferry_balancer_copy(const struct ferry_placement *placement)
{
	const size_t bytes = ferry_placement_pack(placement, NULL, 0);
	struct ferry_placement *copy = NULL;
	void *packed = malloc(bytes);

	if (packed &&
	    (ferry_placement_pack(placement, packed, bytes) != bytes ||
	     ferry_placement_unpack(packed, bytes, &copy) != FERRY_OK))
		copy = NULL;
	free(packed);
	return copy;
}

void ferry_balancer_forget(struct balancer_layer *layer)
{
	ferry_placement_destroy(layer->from);
	ferry_placement_destroy(layer->to);
	layer->from = NULL;
	layer->to = NULL;
}

enum ferry_status ferry_balancer_promise(struct ferry_balancer *b,
                                         int32_t layer,
                                         const struct ferry_placement *to,
                                         bool *taken)
{
	struct balancer_layer *l = &b->layers[layer];

	*taken = true;
	if (!b->config.margin_ppm)
		return FERRY_OK;
	l->from =
		ferry_balancer_copy(ferry_experts_placement(b->experts, layer));
	l->to = ferry_balancer_copy(to);
	if (!l->from || !l->to)
		return ferry_fail(&b->world->ctx, FERRY_NOMEM,
		                  "balancer: copies of placements of layer %d",
		                  layer);
	l->promised_ppm = l->report.before_ppm - l->report.after_ppm;
	*taken = ferry_margin_allows(&l->margin, l->promised_ppm,
	                             b->config.margin_ppm);
	return FERRY_OK;
}

enum ferry_status ferry_balancer_redeem(struct ferry_balancer *b, int32_t layer,
                                        const int64_t *truth)
{
	struct balancer_layer *l = &b->layers[layer];
	int64_t before, after;

	if (!l->from)
		return FERRY_OK;
	FERRY_TRY(ferry_balancer_level(b, l->from, truth, &before));
	FERRY_TRY(ferry_balancer_level(b, l->to, truth, &after));
	ferry_margin_add(
		&l->margin, l->promised_ppm,
		ferry_balancer_ppm(b, before, truth, l->n_experts) -
			ferry_balancer_ppm(b, after, truth, l->n_experts));
	return FERRY_OK;
}
