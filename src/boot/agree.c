/* SPDX-License-Identifier: Apache-2.0 */
/* The step of every collective open: statuses and blobs of all ranks. */
#include "boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ferry_agree /* a macro for the analyzer */

/* Goes before the blob of each rank. */
struct vote {
	int32_t status;
	char text[252]; /* of ferry_last_error, for the others to quote */
};

static void vote_make(struct vote *vote, enum ferry_status mine)
{
	memset(vote, 0, sizeof(*vote));
	vote->status = mine;
	if (mine != FERRY_OK)
		snprintf(vote->text, sizeof(vote->text), "%.*s",
		         (int)sizeof(vote->text) - 1, ferry_last_error());
}

/* Copies the blobs out, or words the first failure of a peer. */
static enum ferry_status votes_read(struct ferry_boot *boot,
                                    const uint8_t *votes, void *out,
                                    size_t bytes)
{
	const size_t stride = sizeof(struct vote) + bytes;

	for (int32_t r = 0; r < boot->n_ranks; r++) {
		struct vote vote;

		memcpy(&vote, votes + (size_t)r * stride, sizeof(vote));
		vote.text[sizeof(vote.text) - 1] = 0;
		if (vote.status != FERRY_OK)
			return ferry_fail(boot->ctx,
			                  (enum ferry_status)vote.status,
			                  "rank %d: %s", r, vote.text);
	}
	for (int32_t r = 0; bytes && r < boot->n_ranks; r++)
		memcpy((uint8_t *)out + (size_t)r * bytes,
		       votes + (size_t)r * stride + sizeof(struct vote), bytes);
	return FERRY_OK;
}

static enum ferry_status exchange(struct ferry_boot *boot,
                                  const struct vote *mine, const void *in,
                                  void *out, size_t bytes, uint64_t deadline_ns)
{
	const size_t stride = sizeof(*mine) + bytes;

	if (stride > FERRY_BOOT_MAX_BYTES)
		return ferry_fail(boot->ctx, FERRY_INVAL,
		                  "agree: %zu bytes, at most %zu", bytes,
		                  FERRY_BOOT_MAX_BYTES - sizeof(*mine));
	uint8_t *votes = malloc(stride * ((size_t)boot->n_ranks + 1));
	if (!votes)
		return ferry_fail(boot->ctx, FERRY_NOMEM,
		                  "agree: out of memory for %zu bytes of each "
		                  "of %d ranks",
		                  stride, boot->n_ranks);
	uint8_t *own = votes + stride * (size_t)boot->n_ranks;

	memcpy(own, mine, sizeof(*mine));
	if (bytes)
		memcpy(own + sizeof(*mine), in, bytes);
	enum ferry_status status =
		boot->ops->allgather(boot, own, votes, stride, deadline_ns);
	if (status == FERRY_OK && mine->status == FERRY_OK)
		status = votes_read(boot, votes, out, bytes);
	free(votes);
	return status;
}

enum ferry_status ferry_agree(struct ferry_boot *boot, enum ferry_status mine,
                              const void *in, void *out, size_t bytes,
                              uint64_t deadline_ns)
{
	char text[sizeof(((struct ferry_error *)0)->text)];
	struct vote vote;

	vote_make(&vote, mine);
	snprintf(text, sizeof(text), "%s", ferry_last_error());
	const enum ferry_status status =
		exchange(boot, &vote, in, out, bytes, deadline_ns);
	if (mine == FERRY_OK)
		return status;
	ferry_last_error_set(text);
	return mine;
}
