/* SPDX-License-Identifier: Apache-2.0 */
/* See nvshmem_load.h. */
#include "nvshmem_load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ferry/base.h>

enum { PATH_BYTES = 4096 };

static const char module_name[] = "libferry_nvshmem.so";

/* Where the module is, if it lies beside the code that asks. */
static bool find_beside(char path[PATH_BYTES])
{
	Dl_info info;
	const char *slash;

	if (!dladdr(module_name, &info) || !info.dli_fname)
		return false;
	slash = strrchr(info.dli_fname, '/');
	if (!slash)
		return false;
	const int n = snprintf(path, PATH_BYTES, "%.*s/%s",
	                       (int)(slash - info.dli_fname), info.dli_fname,
	                       module_name);

	return n > 0 && n < PATH_BYTES && access(path, F_OK) == 0;
}

/*
 * Neither module nor NVSHMEM is closed again: threads and handlers of theirs
 * may stay, and kernels are registered.
 */
static void *open_module(const struct ferry_options *opt)
{
	char beside[PATH_BYTES];

	/* The loader takes what has this name already for the module's. */
	if (opt->nvshmem_library[0] &&
	    !dlopen(opt->nvshmem_library, RTLD_NOW | RTLD_LOCAL))
		return NULL;
	if (opt->nvshmem_module[0])
		return dlopen(opt->nvshmem_module, RTLD_NOW | RTLD_LOCAL);
	return dlopen(find_beside(beside) ? beside : module_name,
	              RTLD_NOW | RTLD_LOCAL);
}

static bool is_older(const struct ferry_nvshmem_version *a,
                     const struct ferry_nvshmem_version *b)
{
	return a->major != b->major ? a->major < b->major : a->minor < b->minor;
}

/* NVSHMEM ends the process where versions do not fit: this comes before. */
static bool fits(const struct ferry_nvshmem_ops *ops,
                 char why[FERRY_NVSHMEM_WHY_BYTES])
{
	if (ops->size != sizeof(*ops) || ops->ferry_version != FERRY_VERSION) {
		snprintf(why, FERRY_NVSHMEM_WHY_BYTES,
		         "%s is of another ferry: %d.%d.%d, table of %zu "
		         "bytes, not %zu",
		         module_name, ops->ferry_version / 10000,
		         ops->ferry_version / 100 % 100,
		         ops->ferry_version % 100, ops->size, sizeof(*ops));
		return false;
	}
	const struct ferry_nvshmem_version here = ops->version();
	const bool good =
		here.major == ops->built.major && !is_older(&here, &ops->built);

	snprintf(why, FERRY_NVSHMEM_WHY_BYTES, "NVSHMEM %d.%d.%d%s", here.major,
	         here.minor, here.patch, good ? "" : " is loaded");
	if (!good) {
		const size_t n = strlen(why);

		snprintf(why + n, FERRY_NVSHMEM_WHY_BYTES - n,
		         ", the module was built with %d.%d.%d: allowed are "
		         "%d.%d and later of %d",
		         ops->built.major, ops->built.minor, ops->built.patch,
		         ops->built.major, ops->built.minor, ops->built.major);
	}
	return good;
}

const struct ferry_nvshmem_ops *
ferry_nvshmem_load(const struct ferry_options *opt,
                   char why[FERRY_NVSHMEM_WHY_BYTES])
{
	ferry_nvshmem_entry *entry = NULL;
	void *const module = open_module(opt);

	if (!module) {
		snprintf(why, FERRY_NVSHMEM_WHY_BYTES, "%s", dlerror());
		return NULL;
	}
	/* ISO C has no conversion from object to function pointers. */
	void *const symbol = dlsym(module, FERRY_NVSHMEM_ENTRY);

	memcpy(&entry, &symbol, sizeof(entry));
	if (!symbol) {
		snprintf(why, FERRY_NVSHMEM_WHY_BYTES,
		         "%s: no function " FERRY_NVSHMEM_ENTRY, module_name);
		return NULL;
	}
	const struct ferry_nvshmem_ops *ops = entry();

	return fits(ops, why) ? ops : NULL;
}
