/* SPDX-License-Identifier: Apache-2.0 */
/* What to do, and the entry points that the library looks up. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fabric/ofi_api.h"
#include "libfabric_faults_inner.h"

static const char real_name[] = "tcp;ofi_rxm";

static struct ferry_ofi_api real; /* without its module */

struct faults_board *faults_board;
_Thread_local int32_t faults_rank = -1;

static void find(void *module, const char *name, void *slot)
{
	void *function = module ? dlsym(module, name) : NULL;

	if (!function) {
		fprintf(stderr, "libfabric_faults: no %s\n", name);
		abort();
	}
	memcpy(slot, &function, sizeof(function));
}

/* At the first call, not before: it installs signal handlers. */
static void load(void)
{
	void *module = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);

	find(module, "fi_getinfo", &real.getinfo);
	find(module, "fi_dupinfo", &real.dupinfo);
	find(module, "fi_freeinfo", &real.freeinfo);
	find(module, "fi_fabric", &real.fabric);
	find(module, "fi_strerror", &real.strerror);
	find(module, "fi_version", &real.version);
}

static void need_real(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
}

static void read_number(const char *text, const char *name, uint32_t *number)
{
	const char *at = strstr(text, name);

	if (at)
		*number = (uint32_t)strtoul(at + strlen(name), NULL, 0);
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("OFI_FAULTS");
	const char *as = text ? strstr(text, "as=") : NULL;
	struct ofi_faults *set;

	faults_board = mmap(NULL, sizeof(*faults_board), PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (faults_board == MAP_FAILED)
		abort();
	if (!text)
		return;
	set = &faults_board->set;
	read_number(text, "again_every=", &set->again_every);
	read_number(text, "again_ms=", &set->again_ms);
	read_number(text, "hold_us=", &set->hold_us);
	read_number(text, "late_us=", &set->late_us);
	read_number(text, "seed=", &set->seed);
	read_number(text, "hmem=", &set->hmem);
	if (as)
		sscanf(as, "as=%31[^ ]", set->as);
}

void ofi_faults_set(const struct ofi_faults *faults)
{
	const uint32_t n_open = faults_board->done.n_open;

	memset(&faults_board->done, 0, sizeof(faults_board->done));
	memset(faults_board->calls, 0, sizeof(faults_board->calls));
	faults_board->set = *faults;
	faults_board->done.n_open = n_open;
}

void ofi_faults_rank(int32_t rank)
{
	faults_rank = rank;
}

void ofi_faults_done(struct ofi_faults_done *done)
{
	*done = faults_board->done;
}

bool faults_chosen(int32_t rank)
{
	const uint64_t ranks = faults_board->set.ranks;

	return !ranks || (rank >= 0 && ranks >> rank & 1);
}

int faults_fail(int32_t rank, enum ofi_call call)
{
	const struct ofi_faults *set = &faults_board->set;
	const uint32_t times = set->times ? set->times : 1;

	if (!set->nth || set->call != call || !faults_chosen(rank))
		return 0;
	const uint32_t n = add_seq_u32(&faults_board->calls[rank + 1][call], 1);

	if (n + 1 < set->nth || n + 1 - set->nth >= times)
		return 0;
	add_seq_u32(&faults_board->done.failed, 1);
	return -set->error;
}

static void rename_provider(struct fi_fabric_attr *attr, const char *name)
{
	free(attr->prov_name);
	attr->prov_name = strdup(name);
}

/* Does an offer, or who asks for one, speak of memory of GPUs? */
static void set_hmem(struct fi_info *info, bool hmem)
{
	info->caps = (info->caps & ~FI_HMEM) | (hmem ? FI_HMEM : 0);
	info->domain_attr->mr_mode =
		(info->domain_attr->mr_mode & ~FI_MR_HMEM) |
		(hmem ? FI_MR_HMEM : 0);
}

struct fi_info *faults_real_info(const struct fi_info *info)
{
	struct fi_info *own = real.dupinfo(info);

	if (own && faults_board->set.as[0])
		rename_provider(own->fabric_attr, real_name);
	if (own && faults_board->set.hmem)
		set_hmem(own, false);
	return own;
}

void faults_free_info(struct fi_info *info)
{
	real.freeinfo(info);
}

OFI_FAULTS_API int fi_getinfo(uint32_t version, const char *node,
                              const char *service, uint64_t flags,
                              const struct fi_info *hints,
                              struct fi_info **info)
{
	const char *as = faults_board->set.as;

	need_real();
	const bool hmem =
		hints && hints->caps & FI_HMEM && faults_board->set.hmem;
	struct fi_info *plain = hmem ? real.dupinfo(hints) : NULL;
	int err = faults_fail(faults_rank, OFI_CALL_GETINFO);

	if (plain)
		set_hmem(plain, false);
	if (!err)
		err = real.getinfo(version, node, service, flags,
		                   plain ? plain : hints, info);
	for (struct fi_info *i = err ? NULL : *info; i; i = i->next) {
		if (hmem)
			set_hmem(i, true);
		if (as[0] && !strcmp(i->fabric_attr->prov_name, real_name))
			rename_provider(i->fabric_attr, as);
	}
	if (plain)
		real.freeinfo(plain);
	return err;
}

OFI_FAULTS_API struct fi_info *fi_dupinfo(const struct fi_info *info)
{
	need_real();
	return real.dupinfo(info);
}

OFI_FAULTS_API void fi_freeinfo(struct fi_info *info)
{
	real.freeinfo(info);
}

OFI_FAULTS_API int fi_fabric(struct fi_fabric_attr *attr,
                             struct fid_fabric **fabric, void *context)
{
	struct fi_fabric_attr own = *attr;
	char name[sizeof(real_name)];
	int err = faults_fail(faults_rank, OFI_CALL_FABRIC);

	memcpy(name, real_name, sizeof(name));
	if (faults_board->set.as[0])
		own.prov_name = name;
	if (!err)
		err = real.fabric(&own, fabric, context);
	return err ? err : faults_take_fabric(*fabric);
}

OFI_FAULTS_API const char *fi_strerror(int error)
{
	need_real();
	return real.strerror(error);
}

OFI_FAULTS_API uint32_t fi_version(void)
{
	need_real();
	return real.version();
}
