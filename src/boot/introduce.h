/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's way to the hub: connect, prove the secret, be let in. */
#ifndef FERRY_INTRODUCE_H
#define FERRY_INTRODUCE_H

#include "address.h"
#include "message.h"

struct ferry_visit {
	struct ferry_ctx *ctx;
	const struct ferry_address *address;
	const struct ferry_secret *secret;
	int32_t rank;
	int32_t n_ranks;
	uint32_t patience_ms;
	uint64_t deadline_ns;
};

/*
 * Tries until the hub lets this rank in or refuses it, or the deadline passes.
 * *fd does not block. Errors: TIMEOUT with what was wrong last, MISMATCH.
 */
enum ferry_status ferry_introduce(const struct ferry_visit *visit, int *fd);

#endif
