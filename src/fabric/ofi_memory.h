/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory of fabric ofi from its opening to its end: what ofi_memory.c calls,
 * and its own slots. What happens in between is in ofi_inner.h.
 */
#ifndef FERRY_OFI_MEMORY_H
#define FERRY_OFI_MEMORY_H

#include <string.h>

#include "ofi_inner.h"

/* Words for a call of libfabric that returned `err` < 0. */
enum ferry_status ferry_ofi_fail(struct ferry_ctx *ctx,
                                 const struct ofi_fabric *f, int err,
                                 const char *what);

/* FERRY_OFI_HMEM=require */
static inline bool ofi_requires_hmem(const struct ofi_fabric *f)
{
	return !strcmp(f->net.wrap.fabric.world->ctx.opt.ofi_hmem, "require");
}

/* ofi_memory.c: slots of the table. */
enum ferry_status ferry_ofi_mem_create(struct ferry_fabric *fabric,
                                       size_t control_bytes, size_t data_bytes,
                                       struct ferry_mem **mem,
                                       uint8_t handle[FERRY_HANDLE_BYTES]);
enum ferry_status ferry_ofi_mem_attach(struct ferry_mem *mem,
                                       const uint8_t *handles);
void ferry_ofi_mem_destroy(struct ferry_mem *mem);

/* ofi_endpoint.c: the objects of a memory whose inner one is there. */
enum ferry_status ferry_ofi_endpoint_open(struct ofi_mem *m,
                                          uint8_t handle[FERRY_HANDLE_BYTES]);
enum ferry_status ferry_ofi_endpoint_attach(struct ofi_mem *m,
                                            const uint8_t *handles);
/* Also what was opened in part only. */
void ferry_ofi_endpoint_close(struct ofi_mem *m);

/* ofi_hmem.c */

/*
 * Can data lie in memory of this world's GPU, by all that is known at open?
 * Then the choice has hmem. world NULL: of any GPU. False with the reason.
 */
bool ferry_ofi_hmem_find(const struct ferry_ofi_api *api,
                         const struct ferry_world *world,
                         const struct ferry_options *opt,
                         struct ferry_ofi_choice *choice,
                         char reason[FERRY_REASON_BYTES]);
/* Gives a memory so many bytes of the GPU for data; mem_destroy frees them. */
enum ferry_status ferry_ofi_hmem_alloc(struct ofi_mem *m, size_t bytes);
/* The endpoint is there: 0, or it would call CUDA for memory of GPUs. */
int ferry_ofi_hmem_promise(struct ofi_mem *m);
int ferry_ofi_hmem_register(struct ofi_mem *m, uint64_t key,
                            struct fid_mr **mr);
void ferry_ofi_hmem_free(struct ofi_mem *m);
/* The GPU that is to be current where libfabric is called; NULL: none. */
static inline const struct ferry_gpu *ofi_gpu(const struct ofi_mem *m)
{
	return m->gpu_memory ? ofi_world(m)->gpu : NULL;
}

/* ofi_queue.c */
enum ferry_status ferry_ofi_queue_open(struct ofi_mem *m);
void ferry_ofi_queue_close(struct ofi_mem *m);

/* ofi_write.c: begins connections to peers; the lock is held. */
void ferry_ofi_greet(struct ofi_mem *m);

/* ofi_thread.c */
enum ferry_status ferry_ofi_thread_open(struct ofi_mem *m);
void ferry_ofi_thread_close(struct ofi_mem *m);

/*
 * ofi_close.c: waits, a second at most, until what this rank has written has
 * arrived at whoever is still there.
 */
void ferry_ofi_settle(struct ofi_mem *m);

#endif
