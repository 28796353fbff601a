/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that other processes can map: a memfd that they find through /proc,
 * or a file in /dev/shm. Backed in full when it is made.
 */
#ifndef FERRY_SHM_FILE_H
#define FERRY_SHM_FILE_H

#include <stdbool.h>

#include "../core/ctx.h"

enum { FERRY_SHM_NAME_BYTES = 64 };

/* How a peer finds it. */
struct ferry_shm_handle {
	uint64_t bytes;
	uint64_t device; /* device and inode tell it from any other file */
	uint64_t inode;
	int32_t pid;
	int32_t fd;                      /* of pid; -1: name */
	char name[FERRY_SHM_NAME_BYTES]; /* "/dev/shm/ferry-..." */
};

/*
 * Makes and maps `bytes` zeroed bytes, fills in the handle, and returns a
 * descriptor in *fd. Errors: NOMEM when they cannot all be backed; SYS.
 */
enum ferry_status ferry_shm_make(struct ferry_ctx *ctx, size_t bytes, bool file,
                                 struct ferry_shm_handle *handle, int *fd,
                                 void **base);

/* Removes the name, if there is one. More than once is fine. */
void ferry_shm_unlink(const struct ferry_shm_handle *handle);

/* Finds and maps the memory of rank `rank`. Errors: NOMEM, SYS. */
enum ferry_status ferry_shm_find(struct ferry_ctx *ctx, int32_t rank,
                                 const struct ferry_shm_handle *handle,
                                 void **base);

#endif
