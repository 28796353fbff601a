/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a world. */
#ifndef FERRY_WORLD_H
#define FERRY_WORLD_H

#include "../boot/boot.h"
#include "gpu.h"

struct ferry_fabric;
struct ferry_segment;
struct ferry_trace;

/* Where a rank lives; gathered when the world opens. */
struct ferry_place {
	uint64_t machine_id; /* equal for ranks under one kernel (boot id) */
	uint64_t host_id;    /* of one host: a machine, or the part of one
	                      * that FERRY_HOST or _RANKS_PER_HOST makes it */
	uint64_t named_id;   /* the same by FERRY_HOST alone */
	uint64_t process_id; /* random per process: equal for threads of one */
	uint64_t pid_ns;     /* pid namespace; 0: its /proc/PID is closed */
	int32_t pid;
	int32_t version; /* FERRY_VERSION of its library */
	uint64_t abi;    /* hash of wire structs: must be equal */
	uint64_t cpus;   /* hash of the set of CPUs that it may use */
	int32_t n_cpus;  /* of that set */
	int32_t numa;    /* node that has them all, -1: none, or not known */
	int32_t device;  /* enum ferry_device that it asks for */
	uint8_t gpu[FERRY_GPU_UUID_BYTES]; /* zero: none */
};

struct ferry_world {
	struct ferry_ctx ctx; /* first: a world is a context */
	struct ferry_boot *boot;
	struct ferry_fabric *fabric;
	char fabric_name[64];       /* with wrappers: "trace:shm" */
	char fabric_says[160];      /* what it has taken; "" says nothing */
	struct ferry_trace *trace;  /* NULL unless FERRY_TRACE */
	struct ferry_place *places; /* [n_ranks] */
	enum ferry_device device;
	struct ferry_gpu *gpu; /* of this rank; NULL: CPU world */
	int32_t cuda_device;   /* its ordinal; -1: CPU world */
	int32_t rank;
	int32_t n_ranks;
	int32_t n_nodes;         /* hosts */
	int32_t n_host_ranks;    /* ranks on this host */
	int32_t n_machine_ranks; /* that share cores and caches with this one */
	int32_t n_machine_cores; /* that these may use */
	int32_t n_gpu_ranks;     /* ranks on this rank's GPU; 0: CPU world */
	int64_t timeout_ms;
	int64_t open_timeout_ms;
	uint32_t aborted;
	pthread_mutex_t lock; /* segments, error */
	struct ferry_segment *segments;
	int32_t n_users; /* the caller, and segments that are not destroyed */
	struct ferry_error error; /* first failure, of a segment or of boot */
};

/* One user less; the last one ends the world. */
void ferry_world_release(struct ferry_world *world);

#endif
