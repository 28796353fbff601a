/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL by dlopen. */
#include "nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* ISO C has no conversion from object to function pointers; POSIX has. */
static bool find(void *library, const char *name, void *function)
{
	void *const symbol = dlsym(library, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol;
}

const char *nccl_open(struct nccl_api *api)
{
	void *const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return dlerror();
	if (!find(library, "ncclGetVersion", &api->version) ||
	    !find(library, "ncclGetErrorString", &api->error) ||
	    !find(library, "ncclGetUniqueId", &api->unique_id) ||
	    !find(library, "ncclCommInitRank", &api->comm_init) ||
	    !find(library, "ncclCommDestroy", &api->comm_destroy) ||
	    !find(library, "ncclGroupStart", &api->group_start) ||
	    !find(library, "ncclGroupEnd", &api->group_end) ||
	    !find(library, "ncclSend", &api->send) ||
	    !find(library, "ncclRecv", &api->recv))
		return dlerror();
	return NULL;
}

void nccl_version_text(const struct nccl_api *api, char text[32])
{
	int v = 0;

	if (api->version(&v) != NCCL_SUCCESS)
		v = 0;
	snprintf(text, 32, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}
