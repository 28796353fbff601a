/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module of host memory in the place of libferry_nvshmem.so, so that
 * everything of fabric nvshmem but NVSHMEM is tried on any machine. The heap
 * is shared memory; what is collective meets at a word that all map. Compiled
 * again as modules that must be refused: FAKE_SIZE, FAKE_VERSION, FAKE_MINOR,
 * FAKE_MAJOR; FAKE_NO_ENTRY; and as ones that have no room for a block of more
 * than FAKE_NO_ROOM bytes, on one rank or on all.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ferry/base.h>

#include "fabric/nvshmem_module.h"

#ifndef FAKE_SIZE
#define FAKE_SIZE 0
#endif
#ifndef FAKE_VERSION
#define FAKE_VERSION 0
#endif
#ifndef FAKE_MINOR
#define FAKE_MINOR 4
#endif
#ifndef FAKE_MAJOR
#define FAKE_MAJOR 3
#endif
#ifndef FAKE_NO_ROOM
#define FAKE_NO_ROOM SIZE_MAX
#endif
#ifndef FAKE_ROOM_RANK
#define FAKE_ROOM_RANK -1
#endif
#ifdef FAKE_NO_ENTRY
#define ferry_nvshmem_module ferry_nvshmem_other
#endif

enum { BLOCKS = 64, RANKS = 16, NAME = 64, NAP_US = 200, MEET_NAPS = 50000 };

struct block {
	size_t bytes;
	unsigned char *at[RANKS]; /* NULL: no block */
};

struct job {
	unsigned char *to;
	const void *from;
	size_t bytes;
	void (*done)(void *arg);
	void *arg;
	struct job *next;
};

/* What all map. */
struct hall {
	uint32_t come; /* over all meetings */
	char names[RANKS][NAME];
};

struct ferry_nvshmem {
	int32_t rank, n_ranks;
	struct hall *hall;
	uint32_t meetings; /* of this rank */
	struct block blocks[BLOCKS];
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t work;
	bool stop;
	struct job *first, **end;
};

ferry_nvshmem_entry ferry_nvshmem_module;

static bool is_open;
static int made = -1; /* memory of the newest id */

static int say(char why[FERRY_NVSHMEM_WHY_BYTES], const char *what)
{
	snprintf(why, FERRY_NVSHMEM_WHY_BYTES, "pretended: %s: %s", what,
	         strerror(errno));
	return 1;
}

static struct ferry_nvshmem_version version(void)
{
	return (struct ferry_nvshmem_version){FAKE_MAJOR, FAKE_MINOR, 5};
}

static bool in_use(void)
{
	return is_open;
}

static void *map(int fd, size_t bytes)
{
	void *p = MAP_FAILED;

	if (fd >= 0)
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		         0);
	return p == MAP_FAILED ? NULL : p;
}

/* New memory, under a name that is gone with its descriptor. */
static int make(size_t bytes, char name[NAME])
{
	const int fd = memfd_create("fake_nvshmem", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
		close(fd);
		return -1;
	}
	snprintf(name, NAME, "/proc/%d/fd/%d", getpid(), fd);
	return fd;
}

static void *map_name(const char *name, size_t bytes)
{
	const int fd = open(name, O_RDWR | O_CLOEXEC);
	void *p = map(fd, bytes);

	if (fd >= 0)
		close(fd);
	return p;
}

/* The descriptor stays until the next id: the peers open it by its name. */
static int unique_id(uint8_t id[FERRY_NVSHMEM_ID_BYTES],
                     char why[FERRY_NVSHMEM_WHY_BYTES])
{
	char name[FERRY_NVSHMEM_ID_BYTES] = {0};

	if (made >= 0)
		close(made);
	made = make(sizeof(struct hall), name);
	memcpy(id, name, sizeof(name));
	return made < 0 ? say(why, "memfd_create") : 0;
}

/* False: somebody does not come. The real one waits for ever. */
static bool meet(struct ferry_nvshmem *n)
{
	const uint32_t all = ++n->meetings * (uint32_t)n->n_ranks;

	__atomic_add_fetch(&n->hall->come, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < MEET_NAPS; i++) {
		if (__atomic_load_n(&n->hall->come, __ATOMIC_SEQ_CST) >= all)
			return true;
		usleep(NAP_US);
	}
	errno = ETIMEDOUT;
	return false;
}

static struct job *next_job(struct ferry_nvshmem *n)
{
	struct job *job;

	pthread_mutex_lock(&n->lock);
	while (!n->first && !n->stop)
		pthread_cond_wait(&n->work, &n->lock);
	job = n->first;
	if (job) {
		n->first = job->next;
		if (!n->first)
			n->end = &n->first;
	}
	pthread_mutex_unlock(&n->lock);
	return job;
}

/* The stream: late, and in order. */
static void *run(void *arg)
{
	struct job *job;

	while ((job = next_job(arg))) {
		if ((uintptr_t)job / 16 % 16 == 0)
			usleep(NAP_US / 10);
		if (job->bytes)
			memcpy(job->to, job->from, job->bytes);
		job->done(job->arg);
		free(job);
	}
	return NULL;
}

static int pe_open(const struct ferry_nvshmem_pe *pe,
                   struct ferry_nvshmem **nvshmem,
                   char why[FERRY_NVSHMEM_WHY_BYTES])
{
	struct ferry_nvshmem *n = calloc(1, sizeof(*n));

	if (!n || pe->n_ranks > RANKS)
		return say(why, "open");
	n->rank = pe->rank;
	n->n_ranks = pe->n_ranks;
	n->hall = map_name((const char *)pe->id, sizeof(*n->hall));
	if (!n->hall || !meet(n))
		return say(why, "open");
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->work, NULL);
	n->end = &n->first;
	if (pthread_create(&n->thread, NULL, run, n))
		return say(why, "a thread");
	is_open = true;
	*nvshmem = n;
	return 0;
}

static void unmap(struct ferry_nvshmem *n, struct block *b)
{
	for (int32_t r = 0; r < n->n_ranks; r++)
		if (b->at[r])
			munmap(b->at[r], b->bytes);
	memset(b, 0, sizeof(*b));
}

static void stop(struct ferry_nvshmem *n)
{
	pthread_mutex_lock(&n->lock);
	n->stop = true;
	pthread_cond_signal(&n->work);
	pthread_mutex_unlock(&n->lock);
	pthread_join(n->thread, NULL);
	for (int i = 0; i < BLOCKS; i++)
		unmap(n, &n->blocks[i]);
	munmap(n->hall, sizeof(*n->hall));
	pthread_cond_destroy(&n->work);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static void pe_close(struct ferry_nvshmem *n)
{
	(void)meet(n);
	is_open = false;
	stop(n);
}

/* Stays in use, as the real one does. */
static void leave(struct ferry_nvshmem *n)
{
	stop(n);
}

static int take(struct ferry_nvshmem *n, struct block *b, size_t bytes)
{
	const int fd = make(bytes, n->hall->names[n->rank]);
	bool good = fd >= 0 && meet(n);

	b->bytes = bytes;
	for (int32_t r = 0; good && r < n->n_ranks; r++) {
		b->at[r] = r == n->rank ? map(fd, bytes)
		                        : map_name(n->hall->names[r], bytes);
		good = b->at[r];
	}
	good = good && meet(n);
	if (fd >= 0)
		close(fd);
	return !good;
}

static int alloc(struct ferry_nvshmem *n, size_t bytes, void **memory,
                 char why[FERRY_NVSHMEM_WHY_BYTES])
{
	int i = 0;

	errno = ENOMEM;
	while (i < BLOCKS && n->blocks[i].bytes)
		i++;
	if (i == BLOCKS || (bytes > FAKE_NO_ROOM && FAKE_ROOM_RANK < 0) ||
	    take(n, &n->blocks[i], bytes))
		return say(why, "alloc");
	errno = ENOMEM;
	if (bytes > FAKE_NO_ROOM && n->rank == FAKE_ROOM_RANK)
		return say(why, "alloc");
	*memory = n->blocks[i].at[n->rank];
	return 0;
}

static void free_block(struct ferry_nvshmem *n, void *memory)
{
	(void)meet(n);
	for (int i = 0; i < BLOCKS; i++)
		if (n->blocks[i].at[n->rank] == memory)
			unmap(n, &n->blocks[i]);
}

static void *ptr(struct ferry_nvshmem *n, const void *memory, int32_t peer)
{
	const unsigned char *p = memory;

	for (int i = 0; i < BLOCKS; i++) {
		const struct block *b = &n->blocks[i];

		if (b->bytes && p >= b->at[n->rank] &&
		    p < b->at[n->rank] + b->bytes)
			return b->at[peer] + (p - b->at[n->rank]);
	}
	return NULL;
}

static int alltoall(struct ferry_nvshmem *n, void *to, const void *from,
                    size_t bytes, struct CUstream_st *stream,
                    char why[FERRY_NVSHMEM_WHY_BYTES])
{
	(void)n;
	(void)to;
	(void)from;
	(void)bytes;
	(void)stream;
	errno = ENOSYS;
	return say(why, "alltoall");
}

static int put(struct ferry_nvshmem *n, int32_t peer, void *to,
               const void *from, size_t bytes, void (*done)(void *arg),
               void *arg, char why[FERRY_NVSHMEM_WHY_BYTES])
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return say(why, "put");
	*job = (struct job){ptr(n, to, peer), from, bytes, done, arg, NULL};
	pthread_mutex_lock(&n->lock);
	*n->end = job;
	n->end = &job->next;
	pthread_cond_signal(&n->work);
	pthread_mutex_unlock(&n->lock);
	return 0;
}

static const struct ferry_nvshmem_ops ops = {
	.size = sizeof(ops) + FAKE_SIZE,
	.ferry_version = FERRY_VERSION + FAKE_VERSION,
	.built = {3, 4, 5},
	.version = version,
	.in_use = in_use,
	.unique_id = unique_id,
	.open = pe_open,
	.close = pe_close,
	.leave = leave,
	.alloc = alloc,
	.free = free_block,
	.ptr = ptr,
	.alltoall = alltoall,
	.put = put,
};

__attribute__((visibility("default"))) const struct ferry_nvshmem_ops *
ferry_nvshmem_module(void)
{
	return &ops;
}
