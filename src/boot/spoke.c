/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what the hub says. */
#include "spoke.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ferry_spoke_init(struct ferry_spoke *spoke, int32_t rank, int32_t n_ranks)
{
	*spoke = (struct ferry_spoke){.rank = rank, .n_ranks = n_ranks};
	spoke->gone = calloc((size_t)n_ranks, sizeof(*spoke->gone));
	return spoke->gone;
}

void ferry_spoke_destroy(struct ferry_spoke *spoke)
{
	ferry_reader_destroy(&spoke->reader);
	free(spoke->result);
	free(spoke->gone);
}

void ferry_spoke_fail(struct ferry_spoke *spoke, enum ferry_status status,
                      int32_t root, const char *fmt, ...)
{
	va_list args;

	if (spoke->failed)
		return;
	va_start(args, fmt);
	vsnprintf(spoke->text, sizeof(spoke->text), fmt, args);
	va_end(args);
	spoke->failed = status;
	spoke->root = root;
}

void ferry_spoke_end(struct ferry_spoke *spoke, enum ferry_leave how)
{
	if (!spoke->gone[0])
		spoke->gone[0] = (uint8_t)(1 + how);
	ferry_spoke_fail(
		spoke, FERRY_PEER, 0, "boot: rank 0 %s",
		ferry_leave_text((enum ferry_leave)(spoke->gone[0] - 1)));
}

static bool is_failure(uint32_t minus_status)
{
	switch (minus_status) {
#define CASE(name, value, text) case (uint32_t) - (value):
		FERRY_STATUS_MAP(CASE)
#undef CASE
		return minus_status != 0;
	default:
		return false;
	}
}

static bool is_awaited(const struct ferry_spoke *spoke,
                       const struct ferry_msg *head)
{
	return spoke->expected && !spoke->result &&
	       head->bytes == spoke->expected && head->arg == spoke->round;
}

/* Of a round that we have given up: to be read over, so that the dead that
 * are told behind it are heard of. */
static bool is_belated(const struct ferry_spoke *spoke,
                       const struct ferry_msg *head)
{
	return spoke->failed && head->arg < spoke->round &&
	       head->bytes <= (uint64_t)spoke->n_ranks * FERRY_BOOT_MAX_BYTES;
}

static bool allowed(const void *arg, const struct ferry_msg *head)
{
	const struct ferry_spoke *spoke = arg;

	switch (head->type) {
	case FERRY_MSG_GO:
		return head->bytes == 0 && !spoke->go;
	case FERRY_MSG_RESULT:
		return is_awaited(spoke, head) || is_belated(spoke, head);
	case FERRY_MSG_DEAD:
		return head->bytes == 0 &&
		       (uint32_t)head->arg < (uint32_t)spoke->n_ranks &&
		       head->arg >> 32 <= FERRY_LEAVE_SILENT;
	case FERRY_MSG_FAIL:
		return head->bytes < FERRY_TEXT_BYTES &&
		       is_failure((uint32_t)head->arg) &&
		       head->arg >> 32 <= (uint32_t)spoke->n_ranks;
	default:
		return false;
	}
}

static void message(struct ferry_spoke *spoke)
{
	struct ferry_reader *reader = &spoke->reader;

	switch (reader->head.type) {
	case FERRY_MSG_GO:
		spoke->go = true;
		return;
	case FERRY_MSG_RESULT:
		if (!is_awaited(spoke, &reader->head))
			return;
		spoke->result = reader->body;
		reader->body = NULL;
		reader->capacity = 0;
		return;
	case FERRY_MSG_DEAD:
		spoke->gone[(uint32_t)reader->head.arg] =
			(uint8_t)(1 + (reader->head.arg >> 32));
		return;
	default:
		ferry_spoke_fail(
			spoke, (enum ferry_status) - (int32_t)reader->head.arg,
			(int32_t)(reader->head.arg >> 32) - 1, "%.*s",
			(int)reader->head.bytes, (const char *)reader->body);
		return;
	}
}

void ferry_spoke_input(struct ferry_spoke *spoke, const uint8_t *data,
                       size_t n_data)
{
	while (n_data) {
		bool ready;
		const enum ferry_status status = ferry_reader_feed(
			&spoke->reader, &data, &n_data, allowed, spoke, &ready);

		if (status == FERRY_NOMEM)
			ferry_spoke_fail(spoke, status, -1,
			                 "boot: out of memory for %zu bytes "
			                 "from rank 0",
			                 spoke->expected);
		if (status == FERRY_PROTO)
			ferry_spoke_fail(spoke, status, 0,
			                 "boot: rank 0 sent a malformed "
			                 "message");
		if (status != FERRY_OK)
			return;
		if (ready)
			message(spoke);
	}
}
