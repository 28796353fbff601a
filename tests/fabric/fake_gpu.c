/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs of host memory in the place of src/fabric/gpu_*.c, so that everything
 * of worlds and of fabric p2p but the calls of CUDA is tried on any machine.
 * There are four: 0 and 1 are joined by NVLink, 2 is reached over PCIe, 3 by
 * nobody else. Memory is a memfd; copies are made late, by a thread.
 */
#include "fake_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ferry/fabric.h>

#include "core/bits.h"
#include "core/order.h"
#include "core/thread.h"
#include "fabric/gpu.h"

enum { GRAIN = 65536, NEXT_US = 30 };

struct job {
	void *to;
	const void *from;
	size_t bytes;
	void (*done)(void *arg);
	void *arg;
	struct job *next;
};

struct copier {
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t work;
	bool stop;
	struct job *first, **end;
};

struct ferry_gpu {
	int32_t ordinal;
	struct copier *copier; /* its own memory: the GPU is const to copies */
};

struct ferry_gpu_memory {
	int fd;
	void *address;
	size_t bytes;
	uint32_t shared; /* bit g: GPU g has access */
};

int32_t fake_gpu_memories;
uint32_t fake_gpu_fails;
uint32_t fake_gpu_stuck;
uint32_t fake_gpu_busy;
uint32_t fake_gpu_no_host;
uint32_t fake_gpu_no_rdma;

int32_t ferry_gpu_sighted(char reason[FERRY_GPU_REASON_BYTES])
{
	snprintf(reason, FERRY_GPU_REASON_BYTES, "pretended");
	return FAKE_GPUS;
}

static struct job *next_job(struct copier *c)
{
	struct job *job;

	pthread_mutex_lock(&c->lock);
	while (!c->first && !c->stop)
		pthread_cond_wait(&c->work, &c->lock);
	job = c->first;
	if (job) {
		c->first = job->next;
		if (!c->first)
			c->end = &c->first;
	}
	pthread_mutex_unlock(&c->lock);
	return job;
}

static void *run(void *arg)
{
	struct copier *c = arg;
	struct job *job;

	while ((job = next_job(c))) {
		while (load_seq_u32(&fake_gpu_stuck))
			usleep(NEXT_US);
		if ((uintptr_t)job / 16 % 4 == 0)
			usleep(NEXT_US);
		if (job->bytes)
			memcpy(job->to, job->from, job->bytes);
		job->done(job->arg);
		free(job);
	}
	return NULL;
}

static struct copier *copier_new(void)
{
	struct copier *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->work, NULL);
	c->end = &c->first;
	if (!pthread_create(&c->thread, NULL, run, c))
		return c;
	free(c);
	return NULL;
}

enum ferry_status ferry_gpu_open(struct ferry_ctx *ctx, int32_t cuda_device,
                                 struct ferry_gpu **gpu)
{
	struct ferry_gpu *g;

	if (cuda_device < 0 || cuda_device > FAKE_GPUS)
		return ferry_fail(ctx, FERRY_RANGE,
		                  "world_open: cuda_device is %d, allowed are "
		                  "1..%d (CUDA ordinal + 1) and 0 for the "
		                  "current device",
		                  cuda_device, FAKE_GPUS);
	g = calloc(1, sizeof(*g));
	if (g)
		g->copier = copier_new();
	if (!g || !g->copier) {
		free(g);
		return ferry_fail(ctx, FERRY_NOMEM, "a pretended GPU");
	}
	g->ordinal = cuda_device ? cuda_device - 1 : 0;
	*gpu = g;
	return FERRY_OK;
}

void ferry_gpu_close(struct ferry_gpu *gpu)
{
	if (!gpu)
		return;
	struct copier *c = gpu->copier;

	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->work);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	pthread_cond_destroy(&c->work);
	pthread_mutex_destroy(&c->lock);
	free(c);
	free(gpu);
}

int32_t ferry_gpu_ordinal(const struct ferry_gpu *gpu)
{
	return gpu->ordinal;
}

int32_t ferry_gpu_compute(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return 90;
}

void ferry_gpu_uuid(const struct ferry_gpu *gpu,
                    uint8_t uuid[FERRY_GPU_UUID_BYTES])
{
	memset(uuid, 0xfa, FERRY_GPU_UUID_BYTES);
	uuid[15] = (uint8_t)gpu->ordinal;
}

void ferry_gpu_pci(const struct ferry_gpu *gpu, char pci[FERRY_GPU_PCI_BYTES])
{
	(void)gpu;
	pci[0] = 0;
}

void ferry_gpu_within(const struct ferry_gpu *gpu, void (*call)(void *arg),
                      void *arg)
{
	(void)gpu;
	call(arg);
}

bool ferry_gpu_takes_rdma(const struct ferry_gpu *gpu,
                          char reason[FERRY_GPU_REASON_BYTES])
{
	const bool takes =
		!(load_seq_u32(&fake_gpu_no_rdma) >> gpu->ordinal & 1);

	if (!takes)
		snprintf(reason, FERRY_GPU_REASON_BYTES,
		         "GPU %d has no pretended RDMA", gpu->ordinal);
	return takes;
}

uint32_t ferry_gpu_reach(const struct ferry_gpu *gpu,
                         const uint8_t uuid[FERRY_GPU_UUID_BYTES],
                         char reason[FERRY_GPU_REASON_BYTES])
{
	const int32_t peer = uuid[15];

	if (peer == gpu->ordinal)
		return FERRY_CAP_DEVICE | FERRY_CAP_NVLINK;
	if (peer == 3 || gpu->ordinal == 3) {
		snprintf(reason, FERRY_GPU_REASON_BYTES,
		         "the driver grants no peer access from GPU %d to "
		         "GPU %d",
		         gpu->ordinal, peer);
		return 0;
	}
	return peer == 2 || gpu->ordinal == 2
	               ? FERRY_CAP_DEVICE
	               : FERRY_CAP_DEVICE | FERRY_CAP_NVLINK;
}

static enum ferry_status map(struct ferry_ctx *ctx, int fd, size_t bytes,
                             struct ferry_gpu_memory **memory)
{
	struct ferry_gpu_memory *m = calloc(1, sizeof(*m));
	void *address =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (!m || address == MAP_FAILED || load_seq_u32(&fake_gpu_fails)) {
		if (address != MAP_FAILED)
			munmap(address, bytes);
		free(m);
		return ferry_fail(ctx, FERRY_NOMEM, "p2p: a pretended map");
	}
	m->fd = fd;
	m->address = address;
	m->bytes = bytes;
	__atomic_add_fetch(&fake_gpu_memories, 1, __ATOMIC_SEQ_CST);
	*memory = m;
	return FERRY_OK;
}

enum ferry_status ferry_gpu_alloc(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, size_t bytes,
                                  struct ferry_gpu_memory **memory)
{
	const size_t grains = round_up(bytes, GRAIN);
	const int fd = memfd_create("fake_gpu", MFD_CLOEXEC);
	enum ferry_status status;

	(void)gpu;
	if (fd < 0 || ftruncate(fd, (off_t)grains))
		status = ferry_fail(ctx, FERRY_NOMEM, "p2p: pretended memory");
	else
		status = map(ctx, fd, grains, memory);
	if (status != FERRY_OK && fd >= 0)
		close(fd);
	return status;
}

enum ferry_status ferry_gpu_alloc_host(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory)
{
	return ferry_gpu_alloc(ctx, gpu, bytes, memory);
}

enum ferry_status ferry_gpu_alloc_rdma(struct ferry_ctx *ctx,
                                       const struct ferry_gpu *gpu,
                                       size_t bytes,
                                       struct ferry_gpu_memory **memory)
{
	return ferry_gpu_alloc(ctx, gpu, bytes, memory);
}

bool ferry_gpu_has_host_memory(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return !load_seq_u32(&fake_gpu_no_host);
}

enum ferry_status ferry_gpu_export(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu,
                                   const struct ferry_gpu_memory *memory,
                                   int *fd)
{
	(void)gpu;
	*fd = dup(memory->fd);
	if (*fd < 0)
		return ferry_fail(ctx, FERRY_CUDA, "p2p: a pretended export");
	return FERRY_OK;
}

enum ferry_status ferry_gpu_import(struct ferry_ctx *ctx,
                                   const struct ferry_gpu *gpu, int32_t rank,
                                   int fd, size_t bytes,
                                   struct ferry_gpu_memory **memory)
{
	const int own = dup(fd);
	enum ferry_status status;

	(void)gpu;
	(void)rank;
	if (own < 0)
		return ferry_fail(ctx, FERRY_CUDA, "p2p: a pretended import");
	status = map(ctx, own, bytes, memory);
	if (status != FERRY_OK)
		close(own);
	return status;
}

enum ferry_status ferry_gpu_share(struct ferry_ctx *ctx,
                                  const struct ferry_gpu *gpu, int32_t rank,
                                  struct ferry_gpu_memory *memory)
{
	const uint32_t seen = __atomic_fetch_or(
		&memory->shared, 1u << gpu->ordinal, __ATOMIC_SEQ_CST);

	if (load_seq_u32(&fake_gpu_fails) || seen >> gpu->ordinal & 1)
		return ferry_fail(ctx, FERRY_CUDA,
		                  "p2p: GPU %d cannot use the memory of rank "
		                  "%d",
		                  gpu->ordinal, rank);
	return FERRY_OK;
}

void *ferry_gpu_address(const struct ferry_gpu_memory *memory)
{
	return memory->address;
}

size_t ferry_gpu_bytes(const struct ferry_gpu_memory *memory)
{
	return memory->bytes;
}

void ferry_gpu_free(const struct ferry_gpu *gpu,
                    struct ferry_gpu_memory *memory)
{
	(void)gpu;
	munmap(memory->address, memory->bytes);
	close(memory->fd);
	free(memory);
	__atomic_sub_fetch(&fake_gpu_memories, 1, __ATOMIC_SEQ_CST);
}

enum ferry_status ferry_gpu_copy(struct ferry_ctx *ctx, struct ferry_gpu *gpu,
                                 void *to, const void *from, size_t bytes,
                                 void (*done)(void *arg), void *arg)
{
	struct copier *c = gpu->copier;
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return ferry_fail(ctx, FERRY_CUDA, "p2p: a pretended copy");
	*job = (struct job){to, from, bytes, done, arg, NULL};
	pthread_mutex_lock(&c->lock);
	*c->end = job;
	c->end = &job->next;
	pthread_cond_signal(&c->work);
	pthread_mutex_unlock(&c->lock);
	return FERRY_OK;
}

/* In the copier, hence before all that is queued later. */
static void until_idle(void *arg)
{
	(void)arg;
	while (load_seq_u32(&fake_gpu_busy))
		usleep(NEXT_US);
}

enum ferry_status ferry_gpu_copy_after(struct ferry_ctx *ctx,
                                       struct ferry_gpu *gpu,
                                       struct CUstream_st *stream)
{
	(void)stream;
	return ferry_gpu_copy(ctx, gpu, NULL, NULL, 0, until_idle, NULL);
}

enum ferry_status ferry_gpu_copy_on(struct ferry_ctx *ctx,
                                    const struct ferry_gpu *gpu, void *to,
                                    const void *from, size_t bytes,
                                    struct CUstream_st *stream)
{
	(void)ctx;
	(void)gpu;
	(void)stream;
	memcpy(to, from, bytes);
	return FERRY_OK;
}

enum ferry_status ferry_gpu_mark(struct ferry_ctx *ctx,
                                 const struct ferry_gpu *gpu,
                                 struct CUstream_st *stream,
                                 struct CUevent_st **mark)
{
	(void)ctx;
	(void)gpu;
	(void)stream;
	if (!*mark)
		*mark = malloc(1);
	return FERRY_OK;
}

bool ferry_gpu_passed(const struct ferry_gpu *gpu, struct CUevent_st *mark)
{
	(void)gpu;
	return mark && !load_seq_u32(&fake_gpu_busy);
}

void ferry_gpu_mark_free(const struct ferry_gpu *gpu, struct CUevent_st *mark)
{
	(void)gpu;
	free(mark);
}

bool ferry_gpu_failed(const struct ferry_gpu *gpu)
{
	(void)gpu;
	return load_seq_u32(&fake_gpu_stuck) == 2;
}
