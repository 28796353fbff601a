/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank finds wrong with an operation, as a verdict and in words; the
 * same on every engine. All ranks have the same tables, look at them in the
 * same order and so find the same:
 *
 *	the form of every table, by rank; marks, by rank;
 *	then rank by rank: hidden, placement, mates of the group;
 *	room for what arrives, by rank
 */
#ifndef FERRY_BLAME_H
#define FERRY_BLAME_H

#include "../fabric/segment.h"
#include "table.h"
#include "window.h"

struct ferry_blame {
	struct ferry_verdict verdict; /* phase, slot, epoch are the engine's */
	char text[sizeof(((struct ferry_error *)0)->text)];
};

/* What the sender marked its table with: a bad id, a bad number of tokens. */
void ferry_blame_mark(struct ferry_blame *blame,
                      const struct ferry_shape *shape, int32_t rank,
                      const struct ferry_table *mark);
/* A table that is malformed: the value of a field. */
void ferry_blame_form(struct ferry_blame *blame, int32_t rank,
                      enum ferry_table_field field, int64_t value);
/* A field that differs from another rank's. */
void ferry_blame_unequal(struct ferry_blame *blame, const char *field,
                         const int32_t rank[2], const int64_t value[2]);
void ferry_blame_placement(struct ferry_blame *blame, const int32_t rank[2],
                           const uint64_t hash[2]);
/* Ids or weights that differ from those of the first rank of the group. */
void ferry_blame_mate(struct ferry_blame *blame, const int32_t rank[2]);
/* More rows than a rank has room for. */
void ferry_blame_room(struct ferry_blame *blame,
                      const struct ferry_shape *shape, int32_t rank,
                      int64_t n_rows);

#endif
