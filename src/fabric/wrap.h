/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What wrappers have in common: a fabric that owns an inner one, a memory that
 * owns an inner one, and slots that pass everything on.
 */
#ifndef FERRY_WRAP_H
#define FERRY_WRAP_H

#include "segment.h"

/* First member of a wrapper's state. */
struct ferry_wrap {
	struct ferry_fabric fabric;
	struct ferry_fabric *inner;
	size_t mem_bytes; /* of the wrapper's own struct for a memory */
};

/* First member of a wrapper's memory. */
struct ferry_wrap_mem {
	struct ferry_mem mem;
	struct ferry_mem *inner;
};

static inline struct ferry_mem *ferry_wrap_inner(const struct ferry_mem *mem)
{
	return ((const struct ferry_wrap_mem *)mem)->inner;
}

/* The fabric behind all of its wrappers for traces and faults. */
struct ferry_fabric *ferry_wrap_innermost(struct ferry_fabric *fabric);

int ferry_wrap_probe(const struct ferry_world *world,
                     char reason[FERRY_REASON_BYTES]);
enum ferry_status ferry_wrap_open(struct ferry_world *world,
                                  struct ferry_fabric **fabric);
void ferry_wrap_close(struct ferry_fabric *fabric);
/* A wrapper's own part of the memory is zero. */
enum ferry_status ferry_wrap_mem_create(struct ferry_fabric *fabric,
                                        size_t control_bytes, size_t data_bytes,
                                        struct ferry_mem **mem,
                                        uint8_t handle[FERRY_HANDLE_BYTES]);
enum ferry_status ferry_wrap_mem_attach(struct ferry_mem *mem,
                                        const uint8_t *handles);
void ferry_wrap_mem_seal(struct ferry_mem *mem);
void ferry_wrap_mem_destroy(struct ferry_mem *mem);
uint32_t ferry_wrap_caps(const struct ferry_mem *mem, int32_t peer);
void *ferry_wrap_control(const struct ferry_mem *mem, int32_t peer);
void *ferry_wrap_data(const struct ferry_mem *mem, int32_t peer);
size_t ferry_wrap_max_put(const struct ferry_mem *mem);
enum ferry_status ferry_wrap_put(struct ferry_mem *mem, int32_t peer,
                                 size_t offset, const void *source,
                                 size_t bytes, uint32_t signal);
enum ferry_status ferry_wrap_kick(struct ferry_mem *mem);
bool ferry_wrap_flushed(struct ferry_mem *mem);
bool ferry_wrap_progress(struct ferry_mem *mem);
bool ferry_wrap_dead(struct ferry_fabric *fabric, int32_t peer);
bool ferry_wrap_cut(struct ferry_mem *mem, int32_t peer,
                    char why[FERRY_REASON_BYTES]);

#endif
