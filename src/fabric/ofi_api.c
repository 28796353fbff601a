/* SPDX-License-Identifier: Apache-2.0 */
/* See ofi_api.h. */
#include "ofi_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static bool find(const struct ferry_ofi_api *api, const char *name, void *slot,
                 char reason[FERRY_REASON_BYTES])
{
	void *function = dlsym(api->module, name);

	memcpy(slot, &function, sizeof(function));
	if (!function)
		snprintf(reason, FERRY_REASON_BYTES, "libfabric without %s",
		         name);
	return function != NULL;
}

static void *open_library(const char *library)
{
	struct ferry_ofi_signals *saved = ferry_ofi_signals_save();
	void *module = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	ferry_ofi_signals_restore(saved);
	return module;
}

bool ferry_ofi_load(const char *library, struct ferry_ofi_api *api,
                    char reason[FERRY_REASON_BYTES])
{
	memset(api, 0, sizeof(*api));
	api->module = open_library(library);
	if (!api->module) {
		const char *why = dlerror();

		snprintf(reason, FERRY_REASON_BYTES, "no libfabric: %s",
		         why ? why : library);
		return false;
	}
	if (find(api, "fi_getinfo", &api->getinfo, reason) &&
	    find(api, "fi_dupinfo", &api->dupinfo, reason) &&
	    find(api, "fi_freeinfo", &api->freeinfo, reason) &&
	    find(api, "fi_fabric", &api->fabric, reason) &&
	    find(api, "fi_strerror", &api->strerror, reason) &&
	    find(api, "fi_version", &api->version, reason))
		return true;
	ferry_ofi_unload(api);
	return false;
}

void ferry_ofi_unload(struct ferry_ofi_api *api)
{
	if (api->module)
		dlclose(api->module);
	api->module = NULL;
}
