/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the tokenizer share: bytes and letters, tables, the stages
 * that a text goes through, and the tokenizer itself. Users include
 * lm_tokenizer.h.
 */
#ifndef FERRY_LM_TOKENIZER_PARTS_H
#define FERRY_LM_TOKENIZER_PARTS_H

#include <stddef.h>

#include <cjson/cJSON.h>

#include "lm_tokenizer.h"

enum {
	LM_MAX_SPLITS = 8,
	/* Positions are int32_t. */
	LM_MAX_TEXT = INT32_MAX / 2,
};

/* Bytes that somebody else owns. */
struct lm_text {
	const char *bytes;
	size_t n;
};

/* Bytes that grow; zeroed is empty, lm_buffer_close() frees. */
struct lm_buffer {
	char *bytes;
	size_t n, max;
};

/*
 * Makes an array hold n elements at least: *array_pointer is a pointer from
 * malloc, *max what it holds. False where memory ran out.
 */
bool lm_tokenizer_reserve(void *array_pointer, size_t *max, size_t n,
                          size_t size, struct fault *fault);
bool lm_buffer_add(struct lm_buffer *buffer, const char *bytes, size_t n,
                   struct fault *fault);

/* A token or a value of JSON for a fault: short, without control characters. */
struct lm_shown {
	char text[48];
};
struct lm_shown lm_shown(const char *bytes, size_t n);

/* UTF-8, normal form, and the letters that stand for bytes in files. */
size_t lm_text_bad_byte(struct lm_text text); /* its length: all is UTF-8 */
/* Memory for lm_text_nfc(); zeroed at first. */
struct lm_nfc {
	struct lm_buffer out;
	int32_t *points;
	uint64_t *keys;
	size_t n, max_points, max_keys;
};
/* *normal is the text itself where it is normal for sure. */
bool lm_text_nfc(struct lm_nfc *nfc, struct lm_text text,
                 struct lm_text *normal, struct fault *fault);
void lm_nfc_close(struct lm_nfc *nfc);
/* Letter of a byte, as UTF-8: 1 or 2 bytes. */
int32_t lm_text_letter(uint8_t byte, char letter[2]);
/* Bytes of a name made of letters; other names stand for themselves. At most
 * n bytes are written. */
size_t lm_text_of_letters(struct lm_text name, char *bytes);

/* Pairs of numbers from 0 on, and what each leads to. */
struct lm_pair {
	uint64_t key; /* 0: free */
	int32_t rank;
	int32_t id;
};
struct lm_pairs {
	struct lm_pair *slots;
	int32_t shift;
	size_t mask;
};
bool lm_pairs_open(struct lm_pairs *pairs, size_t max_pairs,
                   struct fault *fault);
void lm_pairs_close(struct lm_pairs *pairs);
/* A pair that is there gets the new rank and id. */
void lm_pairs_put(struct lm_pairs *pairs, int32_t left, int32_t right,
                  int32_t rank, int32_t id);
/* NULL: not there. */
const struct lm_pair *lm_pairs_find(const struct lm_pairs *pairs, int32_t left,
                                    int32_t right);

/* Tokens by id, and ids by name: as the file writes them. */
struct lm_names {
	int32_t n; /* ids that have a name, or will have one */
	struct lm_text *names;
	struct lm_text *bytes; /* what they stand for */
	char *memory;
	size_t used;
	int32_t *slots; /* id + 1 */
	size_t mask;
};
bool lm_names_open(struct lm_names *names, size_t max_names, size_t max_bytes,
                   struct fault *fault);
void lm_names_close(struct lm_names *names);
int32_t lm_names_find(const struct lm_names *names, struct lm_text name);
/* id has no name, and the name no id. `raw`: it stands for itself. */
void lm_names_put(struct lm_names *names, int32_t id, struct lm_text name,
                  bool raw);

/* Added tokens: a trie. */
struct lm_added {
	struct lm_pairs children; /* of (node, byte) */
	int32_t *tokens;          /* of nodes; -1: none ends here */
	int32_t n_nodes;
	bool begins[256];
};
struct lm_added_hit {
	size_t start, end;
	int32_t id;
};
bool lm_added_open(struct lm_added *added, size_t max_bytes,
                   struct fault *fault);
void lm_added_close(struct lm_added *added);
/* False where another token has the same bytes. */
bool lm_added_put(struct lm_added *added, struct lm_text bytes, int32_t id);
/* The leftmost one from a byte on, the longest there. */
bool lm_added_find(const struct lm_added *added, struct lm_text text,
                   size_t from, struct lm_added_hit *hit);

/* A pattern of Oniguruma as one of PCRE2 with the same meaning; else a fault
 * that names what has none. */
bool lm_pattern_translate(const char *name, const char *pattern,
                          struct lm_buffer *out, struct fault *fault);

/* Patterns that cut a text into pieces, one after the other. */
struct lm_split {
	int32_t n;
	struct pcre2_real_code_8 *codes[LM_MAX_SPLITS];
};
struct lm_split_work {
	const char *name; /* of the text, for faults */
	struct pcre2_real_match_data_8 *matches[LM_MAX_SPLITS];
	struct pcre2_real_match_context_8 *context;
	struct pcre2_real_jit_stack_8 *stack;
};
typedef bool lm_split_visit(void *arg, struct lm_text piece,
                            struct fault *fault);
bool lm_split_add(struct lm_split *split, const char *name, const char *pattern,
                  struct fault *fault);
void lm_split_close(struct lm_split *split);
bool lm_split_work_open(const struct lm_split *split, const char *name,
                        struct lm_split_work *work, struct fault *fault);
void lm_split_work_close(struct lm_split_work *work);
/* Visits all pieces in order; none is empty, together they are the text. */
bool lm_split_text(const struct lm_split *split, struct lm_split_work *work,
                   struct lm_text text, lm_split_visit *visit, void *arg,
                   struct fault *fault);

/* Ids that grow; zeroed is empty. */
struct lm_ids {
	int32_t *ids;
	size_t n, max;
};
bool lm_ids_add(struct lm_ids *ids, int32_t id, struct fault *fault);

struct lm_tokenizer {
	bool nfc;
	bool ignore_merges; /* a piece that is a token is not merged */
	struct lm_split split;
	struct lm_names names;
	struct lm_pairs merges; /* of ids */
	int32_t byte_ids[256];
	struct lm_added added;        /* in the text as it is */
	struct lm_added added_normal; /* in the normalized text */
};

/* Memory for merging; zeroed at first. */
struct lm_symbol;
struct lm_bpe_work {
	struct lm_symbol *symbols;
	uint64_t *heap;
	char *letters;
	size_t n_heap, max_symbols, max_heap, max_letters;
};
void lm_bpe_work_close(struct lm_bpe_work *work);
/* Ids of one piece. */
bool lm_bpe_encode(const struct lm_tokenizer *tokenizer,
                   struct lm_bpe_work *work, struct lm_text piece,
                   struct lm_ids *ids, struct fault *fault);

/* The parts of the file, into a zeroed tokenizer. */
bool lm_tokenizer_read_stages(const char *name, const cJSON *root,
                              struct lm_tokenizer *tokenizer,
                              struct fault *fault);
bool lm_tokenizer_read_tokens(const char *name, const cJSON *root,
                              struct lm_tokenizer *tokenizer,
                              struct fault *fault);
bool lm_tokenizer_read_merges(const char *name, const cJSON *model,
                              struct lm_tokenizer *tokenizer,
                              struct fault *fault);

/* true or false under a key; *value stays where the key or its value is not
 * there. */
bool lm_tokenizer_read_flag(const char *name, const cJSON *object,
                            const char *key, bool *value, struct fault *fault);
/* Its "type"; "" where there is none. */
const char *lm_tokenizer_type(const cJSON *object);

#endif
