/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few calls of NCCL that the baseline makes, by dlopen: neither the build
 * nor the tool needs NCCL. Declared here as nccl.h has had them since 2.7.
 */
#ifndef FERRY_NCCL_API_H
#define FERRY_NCCL_API_H

#include <stdbool.h>
#include <stddef.h>

struct CUstream_st;
struct ncclComm;

struct nccl_id {
	char bytes[128];
};

enum { NCCL_SUCCESS = 0, NCCL_UINT8 = 1 };

struct nccl_api {
	int (*version)(int *version);
	const char *(*error)(int result);
	int (*unique_id)(struct nccl_id *id);
	int (*comm_init)(struct ncclComm **comm, int n_ranks, struct nccl_id id,
	                 int rank);
	int (*comm_destroy)(struct ncclComm *comm);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*send)(const void *from, size_t n, int type, int peer,
	            struct ncclComm *comm, struct CUstream_st *stream);
	int (*recv)(void *to, size_t n, int type, int peer,
	            struct ncclComm *comm, struct CUstream_st *stream);
};

/*
 * Opens libnccl.so.2 for the life of the process. NULL, or why not; the text
 * lives until the next call.
 */
const char *nccl_open(struct nccl_api *api);

/* "2.28.3" */
void nccl_version_text(const struct nccl_api *api, char text[32]);

#endif
