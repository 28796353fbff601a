/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-level BPE, from a tokenizer.json of Hugging Face's library: normalizer
 * (NFC or none), pre-tokenizer (a Split pattern, then ByteLevel), vocabulary,
 * merges, added tokens. Forms that it does not know are refused by name. No
 * token is put before or behind a text: a template that does is refused, too.
 * Threads may share a tokenizer.
 */
#ifndef FERRY_LM_TOKENIZER_H
#define FERRY_LM_TOKENIZER_H

#include <stdint.h>

#include "../fault.h"

struct lm_tokenizer;

/* Opens DIRECTORY/tokenizer.json. */
bool lm_tokenizer_open(const char *directory, struct lm_tokenizer **tokenizer,
                       struct fault *fault);

/* tokenizer.json in memory; `name` is what faults call it. */
bool lm_tokenizer_parse(const char *name, const char *text, int64_t bytes,
                        struct lm_tokenizer **tokenizer, struct fault *fault);

void lm_tokenizer_close(struct lm_tokenizer *tokenizer);

/* Highest id + 1, added tokens included. */
int32_t lm_tokenizer_vocab(const struct lm_tokenizer *tokenizer);

/*
 * Ids of a text; the caller frees *ids. Added tokens in the text count as such.
 * `name` is what faults call the text; one that is no UTF-8 is refused, with
 * the byte. An empty text has no ids.
 */
bool lm_tokenizer_encode(const struct lm_tokenizer *tokenizer, const char *name,
                         const char *text, int64_t bytes, int32_t **ids,
                         int64_t *n_ids, struct fault *fault);

/* Bytes of one id, for people: *bytes points into the tokenizer. False for an
 * id out of range. */
bool lm_tokenizer_bytes(const struct lm_tokenizer *tokenizer, int32_t id,
                        const char **bytes, int32_t *n);

#endif
