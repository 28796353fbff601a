/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory of fabric ofi from its opening to its end: slots mem_create,
 * mem_attach and mem_destroy.
 */
#include "ofi_memory.h"

/*
 * Data of the inner memory where those of this one are the GPU's. Nobody uses
 * them: but kernels poll control, and only a memory that has data is of the
 * kind that they use as it is (fab_local.c).
 */
enum { UNUSED_BYTES = 4096 };

static void close_endpoint(void *mem)
{
	ferry_ofi_endpoint_close(mem);
}

void ferry_ofi_mem_destroy(struct ferry_mem *mem)
{
	struct ofi_mem *m = ofi_mem(mem);

	ferry_ofi_settle(m);
	ferry_ofi_thread_close(m);
	ferry_gpu_within(ofi_gpu(m), close_endpoint, m);
	ferry_ofi_queue_close(m);
	ferry_ofi_hmem_free(m);
	pthread_cond_destroy(&m->room);
	pthread_mutex_destroy(&m->lock);
	ferry_wrap_mem_destroy(mem);
}

/* A memory that gets its endpoint. */
struct opening {
	struct ofi_mem *m;
	uint8_t *handle;
	enum ferry_status status;
};

static void open_endpoint(void *arg)
{
	struct opening *o = arg;

	o->status = ferry_ofi_endpoint_open(o->m, o->handle);
}

static enum ferry_status create(struct ferry_fabric *fabric,
                                size_t control_bytes, size_t data_bytes,
                                bool on_gpu, struct ferry_mem **mem,
                                uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_mem *made;

	FERRY_TRY(ferry_wrap_mem_create(fabric, control_bytes,
	                                on_gpu ? UNUSED_BYTES : data_bytes,
	                                &made, handle));
	struct ofi_mem *m = ofi_mem(made);
	struct opening o = {m, handle, FERRY_OK};

	m->cq_fd = -1;
	m->bell_fd = -1;
	pthread_mutex_init(&m->lock, NULL);
	ferry_cond_init(&m->room);
	if (on_gpu)
		o.status = ferry_ofi_hmem_alloc(m, data_bytes);
	if (o.status == FERRY_OK)
		o.status = ferry_ofi_queue_open(m);
	if (o.status == FERRY_OK)
		ferry_gpu_within(ofi_gpu(m), open_endpoint, &o);
	if (o.status != FERRY_OK) {
		ferry_ofi_mem_destroy(made);
		return o.status;
	}
	*mem = made;
	return FERRY_OK;
}

/* Data on the GPU, if that seemed possible at open and is not refused now. */
enum ferry_status ferry_ofi_mem_create(struct ferry_fabric *fabric,
                                       size_t control_bytes, size_t data_bytes,
                                       struct ferry_mem **mem,
                                       uint8_t handle[FERRY_HANDLE_BYTES])
{
	const struct ofi_fabric *f = (const struct ofi_fabric *)fabric;
	const bool on_gpu = f->choice.hmem && data_bytes > 0;
	enum ferry_status status =
		create(fabric, control_bytes, data_bytes, on_gpu, mem, handle);

	if (status == FERRY_OK || !on_gpu || ofi_requires_hmem(f))
		return status;
	ferry_log(&fabric->world->ctx, FERRY_LOG_WARN,
	          "rows bounce through memory of the host: %s",
	          ferry_last_error());
	return create(fabric, control_bytes, data_bytes, false, mem, handle);
}

enum ferry_status ferry_ofi_mem_attach(struct ferry_mem *mem,
                                       const uint8_t *handles)
{
	struct ofi_mem *m = ofi_mem(mem);

	FERRY_TRY(ferry_wrap_mem_attach(mem, handles));
	FERRY_TRY(ferry_ofi_endpoint_attach(m, handles));
	return ferry_ofi_thread_open(m);
}
