/* SPDX-License-Identifier: Apache-2.0 */
/* The way to a placement with a say in where experts come from. */
#ifndef FERRY_EXPERTS_FROM_H
#define FERRY_EXPERTS_FROM_H

#include <ferry/experts.h>

/*
 * ferry_experts_start_placement, where an expert that its new rank has not yet
 * comes from slot sources[n_slots] of the placement in force, -1: any. All
 * ranks have them alike; NULL: any for all.
 */
enum ferry_status
ferry_experts_start_from(struct ferry_experts *experts, int32_t layer,
                         const struct ferry_placement *placement,
                         const int32_t *sources, struct CUstream_st *stream);

#endif
