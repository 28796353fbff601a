/* SPDX-License-Identifier: Apache-2.0 */
/* Reads messages piece by piece; proofs. */
#include "message.h"

#include <stdlib.h>
#include <string.h>

const char *ferry_leave_text(enum ferry_leave how)
{
	switch (how) {
	case FERRY_LEAVE_CLOSED:
		return "closed its world";
	case FERRY_LEAVE_SILENT:
		return "does not answer";
	default:
		return "died";
	}
}

void ferry_reader_destroy(struct ferry_reader *reader)
{
	free(reader->body);
	*reader = (struct ferry_reader){0};
}

/* Copies what is missing of a part that ends at `end` of the message. */
static bool take(struct ferry_reader *reader, uint8_t *to, size_t end,
                 const uint8_t **data, size_t *n_data)
{
	const size_t missing = end - reader->n_bytes;
	const size_t n = *n_data < missing ? *n_data : missing;

	if (n)
		memcpy(to, *data, n);
	*data += n;
	*n_data -= n;
	reader->n_bytes += n;
	return n == missing;
}

static enum ferry_status reserve(struct ferry_reader *reader)
{
	const size_t bytes = (size_t)reader->head.bytes;

	if (bytes <= reader->capacity)
		return FERRY_OK;
	uint8_t *body = realloc(reader->body, bytes);
	if (!body)
		return FERRY_NOMEM;
	reader->body = body;
	reader->capacity = bytes;
	return FERRY_OK;
}

/* The head is whole. */
static enum ferry_status judge(struct ferry_reader *reader,
                               ferry_msg_allowed *allowed, const void *arg)
{
	enum ferry_status status = FERRY_PROTO;

	if (reader->head.magic == FERRY_MSG_MAGIC &&
	    allowed(arg, &reader->head))
		status = reserve(reader);
	reader->bad = status != FERRY_OK;
	return status;
}

enum ferry_status ferry_reader_feed(struct ferry_reader *reader,
                                    const uint8_t **data, size_t *n_data,
                                    ferry_msg_allowed *allowed, const void *arg,
                                    bool *ready)
{
	const size_t head = sizeof(reader->head);

	*ready = false;
	if (reader->bad)
		return FERRY_PROTO;
	if (reader->whole)
		reader->n_bytes = 0;
	reader->whole = false;
	if (reader->n_bytes < head) {
		uint8_t *to = (uint8_t *)&reader->head + reader->n_bytes;

		if (!take(reader, to, head, data, n_data))
			return FERRY_OK;
		FERRY_TRY(judge(reader, allowed, arg));
	}
	reader->whole = !reader->head.bytes ||
	                take(reader, reader->body + (reader->n_bytes - head),
	                     head + (size_t)reader->head.bytes, data, n_data);
	*ready = reader->whole;
	return FERRY_OK;
}

size_t ferry_reader_missing(const struct ferry_reader *reader)
{
	const size_t head = sizeof(reader->head);

	if (reader->whole)
		return head;
	if (reader->n_bytes < head)
		return head - reader->n_bytes;
	return head + (size_t)reader->head.bytes - reader->n_bytes;
}

void ferry_proof(uint8_t mac[FERRY_SHA256_BYTES],
                 const struct ferry_secret *secret, const char *who,
                 const struct ferry_hello *hello,
                 const uint8_t nonce[FERRY_NONCE_BYTES])
{
	struct ferry_hmac hmac;

	ferry_hmac_begin(&hmac, secret->bytes, secret->n_bytes);
	ferry_hmac_add(&hmac, who, strlen(who) + 1);
	ferry_hmac_add(&hmac, hello, sizeof(*hello));
	ferry_hmac_add(&hmac, nonce, FERRY_NONCE_BYTES);
	ferry_hmac_end(&hmac, mac);
}
