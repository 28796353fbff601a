/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The form of safetensors, in memory: 8 bytes with the length of a JSON header,
 * the header, then the bytes of the tensors. Only the header is read. Names are
 * found by bisection: models have tens of thousands.
 */
#ifndef FERRY_TENSOR_FILE_H
#define FERRY_TENSOR_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "fault.h"

enum {
	TENSOR_MAX_DIMS = 8,
	TENSOR_DTYPE_BYTES = 16,
};

/* Whose elements have a size that is known here; others have TENSOR_OTHER. */
enum tensor_type {
	TENSOR_BOOL,
	TENSOR_U8,
	TENSOR_I8,
	TENSOR_F8_E4M3,
	TENSOR_F8_E5M2,
	TENSOR_U16,
	TENSOR_I16,
	TENSOR_F16,
	TENSOR_BF16,
	TENSOR_U32,
	TENSOR_I32,
	TENSOR_F32,
	TENSOR_U64,
	TENSOR_I64,
	TENSOR_F64,
	TENSOR_OTHER,
};

struct tensor {
	const char *name;
	enum tensor_type type;
	char dtype[TENSOR_DTYPE_BYTES]; /* as the file says, cut where long */
	int32_t n_dims;                 /* 0: a single element */
	int64_t dims[TENSOR_MAX_DIMS];
	const char *bytes; /* in the file; any alignment */
	int64_t n_bytes;
};

struct tensor_file {
	const char *name; /* what faults call it; the caller's */
	const char *bytes;
	size_t n;
	size_t data_at; /* where the bytes of tensors begin */
	int32_t n_tensors;
	struct tensor *tensors; /* by name */
	char *names;
	void *metadata;
};

/*
 * Reads the header of a file in memory, which stays the caller's and has to
 * outlive *file. Refuses tensors outside the file, of another size than their
 * shape has, and two of one name.
 */
bool tensor_file_open(const char *name, const void *bytes, size_t n,
                      struct tensor_file *file, struct fault *fault);
void tensor_file_close(struct tensor_file *file);

/* The tensor of this name; NULL: there is none. */
const struct tensor *tensor_file_find(const struct tensor_file *file,
                                      const char *name);

/* A text of __metadata__: "" for what is no text, NULL where nothing is. */
const char *tensor_file_metadata(const struct tensor_file *file,
                                 const char *key);

/*
 * Refuses tensors that overlap, bytes that belong to none, and a tensor that
 * does not begin at a multiple of its element's size. The file has to begin at
 * a multiple of 8.
 */
bool tensor_file_check(const struct tensor_file *file, struct fault *fault);

/* "[64, 128]"; returns text. */
enum { TENSOR_SHAPE_BYTES = TENSOR_MAX_DIMS * 22 + 3 };
const char *tensor_shape_text(const int64_t *dims, int32_t n_dims,
                              char text[TENSOR_SHAPE_BYTES]);

#endif
