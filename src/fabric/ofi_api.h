/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libfabric, opened at run time: libferry.so loads where there is none. Six
 * functions are looked up; all others are inline calls through the tables of
 * objects.
 */
#ifndef FERRY_OFI_API_H
#define FERRY_OFI_API_H

#include <rdma/fabric.h>

#include "fabric_ops.h"

/*
 * What is asked for, so that older libraries do, too. Providers look at it and
 * behave as it was then.
 */
#define FERRY_OFI_VERSION FI_VERSION(1, 11)

/* The same for memory of GPUs. */
#define FERRY_OFI_HMEM_VERSION FI_VERSION(1, 18)

struct ferry_ofi_api {
	void *module; /* NULL: not open */
	int (*getinfo)(uint32_t version, const char *node, const char *service,
	               uint64_t flags, const struct fi_info *hints,
	               struct fi_info **info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	void (*freeinfo)(struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
	              void *context);
	const char *(*strerror)(int error);
	uint32_t (*version)(void);
};

/*
 * Opens `library`, a name or a path. False with the reason. The library stays
 * in the process when it is closed: its providers keep state of their own, and
 * some take 0.2 s to load.
 */
bool ferry_ofi_load(const char *library, struct ferry_ofi_api *api,
                    char reason[FERRY_REASON_BYTES]);
void ferry_ofi_unload(struct ferry_ofi_api *api);

/*
 * Signal handlers of the process. Loading psm2 and making an endpoint of shm
 * install some, which a library must not: whatever calls in there first saves
 * them and then puts them back.
 */
struct ferry_ofi_signals;

struct ferry_ofi_signals *ferry_ofi_signals_save(void);
void ferry_ofi_signals_restore(struct ferry_ofi_signals *saved);

#endif
