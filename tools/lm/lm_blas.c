/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS at run time: the library, and the three functions of it. */
#include "lm_blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The name that programs which link it ask for. */
static const char library_name[] = "libopenblas.so.0";

struct lm_blas lm_blas;

/* A function's address comes as that of an object. */
static bool find(void *library, const char *name, void *function_pointer,
                 struct fault *fault)
{
	void *const found = dlsym(library, name);

	if (!found)
		return fault_set(fault, "%s: no function %s", library_name,
		                 name);
	memcpy(function_pointer, &found, sizeof(found));
	return true;
}

static bool find_all(void *library, struct lm_blas *blas, struct fault *fault)
{
	return find(library, "cblas_sgemm", &blas->sgemm, fault) &&
	       find(library, "openblas_get_num_threads", &blas->get_threads,
	            fault) &&
	       find(library, "openblas_set_num_threads", &blas->set_threads,
	            fault);
}

bool lm_blas_open(struct fault *fault)
{
	struct lm_blas blas;

	if (lm_blas.sgemm)
		return true;
	setenv("OPENBLAS_NUM_THREADS", "1", true);
	/* Never closed: threads may be in it until the process ends. */
	void *const library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return fault_set(fault, "OpenBLAS: %s", dlerror());
	if (!find_all(library, &blas, fault))
		return false;
	/* Where it was loaded before. In a fork the call could start threads
	 * even for one, so not without need. */
	if (blas.get_threads() != 1)
		blas.set_threads(1);
	lm_blas = blas;
	return true;
}
