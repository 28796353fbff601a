/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank knows from the hub's messages. Pure state, like the hub; sockets
 * are in boot_star.c.
 */
#ifndef FERRY_SPOKE_H
#define FERRY_SPOKE_H

#include "message.h"

struct ferry_spoke {
	int32_t rank;
	int32_t n_ranks;
	struct ferry_reader reader;
	bool go;         /* all ranks have come */
	uint64_t round;  /* of the next allgather */
	size_t expected; /* bytes of its result, 0: none is awaited */
	uint8_t *result; /* malloc'ed, once it is here */
	uint8_t *gone;   /* [n_ranks] 1 + enum ferry_leave, 0: here */
	enum ferry_status failed;
	int32_t root; /* rank that caused it, -1 */
	char text[FERRY_TEXT_BYTES];
};

/* False: out of memory. */
bool ferry_spoke_init(struct ferry_spoke *spoke, int32_t rank, int32_t n_ranks);
void ferry_spoke_destroy(struct ferry_spoke *spoke);

void ferry_spoke_input(struct ferry_spoke *spoke, const uint8_t *data,
                       size_t n_data);
/* The connection to rank 0 has ended. */
void ferry_spoke_end(struct ferry_spoke *spoke, enum ferry_leave how);

/* The first failure stays; root: the rank that caused it, -1. */
__attribute__((format(printf, 4, 5))) void
ferry_spoke_fail(struct ferry_spoke *spoke, enum ferry_status status,
                 int32_t root, const char *fmt, ...);

#endif
