/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data of a memory in a GPU, registered with the NIC (FI_HMEM), instead of
 * host memory behind control: so rows of a GPU world leave from there and
 * arrive there. Peers see no difference, a handle has address and key; each
 * rank decides for itself, and again for each memory.
 *
 * Order at the receiver: the NIC writes bytes to the GPU, then a completion to
 * the host; the thread reads it and raises the counter, in host memory; a
 * kernel acquires the counter, and then loads. That the GPU shows the bytes by
 * then is what ferry_gpu_takes_rdma asks for.
 *
 * Nothing may call CUDA on the way of a row: a copy can be queued behind a
 * kernel that waits for that very row. Where the provider's writes do not go
 * to the NIC as they are by construction, the endpoint has to promise that.
 */
#include <stdio.h>
#include <string.h>

#include "ofi_memory.h"

/* FI_OPT_CUDA_API_PERMITTED, which headers before 1.18 do not have. */
enum { OPT_CUDA_API_PERMITTED = 10 };

bool ferry_ofi_hmem_find(const struct ferry_ofi_api *api,
                         const struct ferry_world *world,
                         const struct ferry_options *opt,
                         struct ferry_ofi_choice *choice,
                         char reason[FERRY_REASON_BYTES])
{
	if (!strcmp(opt->ofi_hmem, "off")) {
		snprintf(reason, FERRY_REASON_BYTES, "FERRY_OFI_HMEM=off");
		return false;
	}
	if (world && !ferry_gpu_takes_rdma(world->gpu, reason))
		return false;
	/* Its memory is copied by the host, from and to sockets. */
	if (!choice->is_stream)
		ferry_ofi_choose_hmem(api, opt, choice);
	if (!choice->hmem)
		snprintf(reason, FERRY_REASON_BYTES, "%s offers no FI_HMEM",
		         choice->provider);
	return choice->hmem != NULL;
}

enum ferry_status ferry_ofi_hmem_alloc(struct ofi_mem *m, size_t bytes)
{
	struct ferry_world *world = ofi_world(m);
	struct ferry_mem *mem = &m->net.wrap.mem;

	FERRY_TRY(ferry_gpu_alloc_rdma(&world->ctx, world->gpu, bytes,
	                               &m->gpu_memory));
	mem->data = ferry_gpu_address(m->gpu_memory);
	mem->data_bytes = bytes;
	return FERRY_OK;
}

int ferry_ofi_hmem_promise(struct ofi_mem *m)
{
	const bool permitted = false;

	if (!m->gpu_memory || ofi_fabric(m)->choice.is_direct)
		return 0;
	return fi_setopt(&m->ep->fid, FI_OPT_ENDPOINT, OPT_CUDA_API_PERMITTED,
	                 &permitted, sizeof(permitted));
}

int ferry_ofi_hmem_register(struct ofi_mem *m, uint64_t key, struct fid_mr **mr)
{
	const struct ferry_mem *mem = &m->net.wrap.mem;
	const struct iovec all = {mem->data, mem->data_bytes};
	const struct fi_mr_attr attr = {
		.mr_iov = &all,
		.iov_count = 1,
		.access = FI_WRITE | FI_REMOTE_WRITE,
		.requested_key = key,
		.iface = FI_HMEM_CUDA,
		.device.cuda = ferry_gpu_ordinal(ofi_world(m)->gpu),
	};

	return fi_mr_regattr(m->domain, &attr, 0, mr);
}

void ferry_ofi_hmem_free(struct ofi_mem *m)
{
	if (m->gpu_memory)
		ferry_gpu_free(ofi_world(m)->gpu, m->gpu_memory);
}
