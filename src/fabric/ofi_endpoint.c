/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of libfabric that a memory has, what peers must know of them,
 * and what is known of the peers'.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "../core/bits.h"
#include "ofi_memory.h"

enum {
	PROVIDER_BYTES = 16, /* of its name, for a refusal */
	PORT_TRIES = 16,
};

/* What a network's part of a handle holds. */
struct ofi_handle {
	uint64_t key[OFI_PARTS];
	uint64_t base[OFI_PARTS];
	char provider[PROVIDER_BYTES]; /* its beginning */
	uint32_t max_put;
	uint32_t name_bytes;
	uint8_t name[OFI_NAME_BYTES];
};

_Static_assert(sizeof(struct ofi_handle) <=
                       FERRY_HANDLE_BYTES - FERRY_NET_HANDLE_AT,
               "it comes behind the handle of the memory");

enum ferry_status ferry_ofi_fail(struct ferry_ctx *ctx,
                                 const struct ofi_fabric *f, int err,
                                 const char *what)
{
	return ferry_fail(ctx, err == -FI_ENOMEM ? FERRY_NOMEM : FERRY_FABRIC,
	                  "ofi: %s: %s: %s", f->choice.provider, what,
	                  f->api.strerror(-err));
}

static void *part_base(const struct ofi_mem *m, int part)
{
	return part == OFI_CONTROL ? m->net.wrap.mem.control
	                           : m->net.wrap.mem.data;
}

static size_t part_bytes(const struct ofi_mem *m, int part)
{
	return part == OFI_CONTROL ? m->net.wrap.mem.control_bytes
	                           : m->net.wrap.mem.data_bytes;
}

static bool has_mr_mode(const struct ofi_mem *m, int mode)
{
	return ofi_info(m)->domain_attr->mr_mode & mode;
}

/*
 * Keys are random where they are ours to choose: who finds the port of an
 * endpoint does not know yet what he may write to.
 */
static uint64_t new_key(const struct ofi_mem *m, int part)
{
	const size_t bytes = ofi_info(m)->domain_attr->mr_key_size;
	uint64_t key = 0;

	if (getrandom(&key, sizeof(key), GRND_NONBLOCK) != (ssize_t)sizeof(key))
		key = (uint64_t)(uintptr_t)m;
	if (bytes && bytes < sizeof(key))
		key &= ((uint64_t)1 << 8 * bytes) - 1;
	return (key & ~(uint64_t)1) | (uint64_t)part;
}

static int register_memory(struct ofi_mem *m, int part)
{
	if (part == OFI_DATA && m->gpu_memory)
		return ferry_ofi_hmem_register(m, new_key(m, part),
		                               &m->mr[part]);
	return fi_mr_reg(m->domain, part_base(m, part), part_bytes(m, part),
	                 FI_WRITE | FI_REMOTE_WRITE, 0, new_key(m, part), 0,
	                 &m->mr[part], NULL);
}

static enum ferry_status register_part(struct ofi_mem *m, int part)
{
	const struct ofi_fabric *f = ofi_fabric(m);
	struct ferry_ctx *ctx = &ofi_world(m)->ctx;
	const bool on_gpu = part == OFI_DATA && m->gpu_memory;
	char what[80];
	int err = register_memory(m, part);

	if (!err && has_mr_mode(m, FI_MR_ENDPOINT)) {
		err = fi_mr_bind(m->mr[part], &m->ep->fid, 0);
		if (!err)
			err = fi_mr_enable(m->mr[part]);
	}
	if (!err)
		return FERRY_OK;
	snprintf(what, sizeof(what), "registering %zu bytes%s%s",
	         part_bytes(m, part), on_gpu ? " of a GPU" : "",
	         err == -FI_ENOMEM && !on_gpu ? " (see ulimit -l)" : "");
	return ferry_ofi_fail(ctx, f, err, what);
}

/* With a descriptor to sleep on, where the provider has one. */
static int open_cq(struct ofi_mem *m)
{
	const struct fi_info *info = ofi_info(m);
	struct fi_cq_attr attr = {
		.size = info->tx_attr->size + info->rx_attr->size,
		.format = FI_CQ_FORMAT_DATA,
		.wait_obj = FI_WAIT_FD,
	};
	int err = fi_cq_open(m->domain, &attr, &m->cq, NULL);

	m->cq_fd = -1;
	if (!err && !fi_control(&m->cq->fid, FI_GETWAIT, &m->cq_fd))
		return 0;
	if (!err)
		fi_close(&m->cq->fid);
	m->cq = NULL;
	m->cq_fd = -1;
	attr.wait_obj = FI_WAIT_NONE;
	return fi_cq_open(m->domain, &attr, &m->cq, NULL);
}

static int open_av(struct ofi_mem *m)
{
	const struct fi_info *info = ofi_info(m);
	struct fi_av_attr attr = {
		.type = info->domain_attr->av_type,
		.count = (size_t)ofi_world(m)->n_ranks,
	};

	if (attr.type == FI_AV_UNSPEC)
		attr.type = FI_AV_TABLE;
	return fi_av_open(m->domain, &attr, &m->av, NULL);
}

/*
 * Binds the endpoint to its addresses. One of tcp;ofi_rxm (1.17) that has none
 * cannot be closed, its provider crashes: so they are there before it is, and
 * when even this fails, it is left alone.
 */
static int open_ep(struct ofi_mem *m)
{
	struct fid_ep *ep;
	int err = fi_endpoint(m->domain, ofi_info(m), &ep, NULL);

	if (err)
		return err;
	err = fi_ep_bind(ep, &m->av->fid, 0);
	if (!err)
		m->ep = ep;
	return err;
}

/* 0, or an error of `what`. */
static int try_objects(struct ofi_mem *m, const char **what)
{
	struct ofi_fabric *f = ofi_fabric(m);
	int err = fi_domain(f->fid, ofi_info(m), &m->domain, NULL);

	*what = "fi_domain";
	if (err)
		return err;
	*what = "fi_cq_open";
	err = open_cq(m);
	if (err)
		return err;
	*what = "fi_av_open";
	err = open_av(m);
	if (err)
		return err;
	*what = "fi_endpoint";
	err = open_ep(m);
	if (err)
		return err;
	*what = "fi_setopt: memory of a GPU without calls of CUDA";
	err = ferry_ofi_hmem_promise(m);
	if (err)
		return err;
	*what = "fi_enable";
	err = fi_ep_bind(m->ep, &m->cq->fid, FI_TRANSMIT | FI_RECV);
	return err ? err : fi_enable(m->ep);
}

/*
 * Where FI_TCP_PORT_LOW_RANGE and FI_TCP_PORT_HIGH_RANGE are set, the provider
 * of TCP takes a port at random, which another rank of the machine may take at
 * the same moment: both can bind it, and one cannot listen. That one begins
 * again with everything, since the queue would remember the failed endpoint.
 */
static enum ferry_status open_objects(struct ofi_mem *m)
{
	const char *what;
	int err = try_objects(m, &what);

	for (int i = 0; err == -FI_EADDRINUSE && i < PORT_TRIES; i++) {
		ferry_ofi_endpoint_close(m);
		err = try_objects(m, &what);
	}
	if (err == -FI_EADDRINUSE)
		what = "fi_enable (see FI_TCP_PORT_LOW_RANGE)";
	return err ? ferry_ofi_fail(&ofi_world(m)->ctx, ofi_fabric(m), err,
	                            what)
	           : FERRY_OK;
}

static enum ferry_status fill_handle(struct ofi_mem *m,
                                     struct ofi_handle *handle)
{
	const struct ofi_fabric *f = ofi_fabric(m);
	size_t bytes = sizeof(handle->name);
	const int err = fi_getname(&m->ep->fid, handle->name, &bytes);

	if (err)
		return ferry_ofi_fail(&ofi_world(m)->ctx, f, err, "fi_getname");
	handle->name_bytes = (uint32_t)bytes;
	handle->max_put = (uint32_t)f->max_put;
	memcpy(handle->provider, f->choice.provider, sizeof(handle->provider));
	for (int i = 0; i < OFI_PARTS; i++) {
		handle->key[i] = fi_mr_key(m->mr[i]);
		if (has_mr_mode(m, FI_MR_VIRT_ADDR))
			handle->base[i] = (uintptr_t)part_base(m, i);
	}
	return FERRY_OK;
}

enum ferry_status ferry_ofi_endpoint_open(struct ofi_mem *m,
                                          uint8_t handle[FERRY_HANDLE_BYTES])
{
	struct ferry_ofi_signals *saved = ferry_ofi_signals_save();
	struct ofi_handle own = {0};
	enum ferry_status status = open_objects(m);

	ferry_ofi_signals_restore(saved);
	for (int i = 0; status == FERRY_OK && i < OFI_PARTS; i++)
		status = register_part(m, i);
	if (status == FERRY_OK)
		status = fill_handle(m, &own);
	memcpy(handle + FERRY_NET_HANDLE_AT, &own, sizeof(own));
	return status;
}

static enum ferry_status attach_peer(struct ofi_mem *m, int32_t rank,
                                     const struct ofi_handle *handle)
{
	const struct ofi_fabric *f = ofi_fabric(m);
	struct ferry_ctx *ctx = &ofi_world(m)->ctx;
	struct ofi_peer *p = &m->peers[rank];
	char what[48];

	if (strncmp(handle->provider, f->choice.provider,
	            sizeof(handle->provider)) != 0)
		return ferry_fail(
			ctx, FERRY_MISMATCH,
			"ofi: rank %d uses provider %.*s, rank %d %s: "
			"set FERRY_OFI_PROVIDER",
			rank, PROVIDER_BYTES, handle->provider,
			ofi_world(m)->rank, f->choice.provider);
	if (handle->max_put != f->max_put)
		return ferry_fail(
			ctx, FERRY_MISMATCH,
			"ofi: rank %d writes %llu bytes at once, rank "
			"%d %zu",
			rank, (unsigned long long)handle->max_put,
			ofi_world(m)->rank, f->max_put);
	memcpy(p->key, handle->key, sizeof(p->key));
	memcpy(p->base, handle->base, sizeof(p->base));
	const int n =
		fi_av_insert(m->av, handle->name, 1, &p->address, 0, NULL);

	if (n == 1)
		return FERRY_OK;
	snprintf(what, sizeof(what), "address of rank %d", rank);
	return ferry_ofi_fail(ctx, f, n < 0 ? n : -FI_EINVAL, what);
}

enum ferry_status ferry_ofi_endpoint_attach(struct ofi_mem *m,
                                            const uint8_t *handles)
{
	struct ofi_handle handle;

	for (int32_t r = 0; r < ofi_world(m)->n_ranks; r++) {
		memcpy(&handle,
		       handles + (size_t)r * FERRY_HANDLE_BYTES +
		               FERRY_NET_HANDLE_AT,
		       sizeof(handle));
		FERRY_TRY(attach_peer(m, r, &handle));
	}
	return FERRY_OK;
}

static void close_fid(struct fid *fid)
{
	if (fid)
		fi_close(fid);
}

void ferry_ofi_endpoint_close(struct ofi_mem *m)
{
	close_fid(m->ep ? &m->ep->fid : NULL);
	for (int i = 0; i < OFI_PARTS; i++)
		close_fid(m->mr[i] ? &m->mr[i]->fid : NULL);
	close_fid(m->cq ? &m->cq->fid : NULL);
	close_fid(m->av ? &m->av->fid : NULL);
	close_fid(m->domain ? &m->domain->fid : NULL);
	m->ep = NULL;
	m->mr[OFI_CONTROL] = NULL;
	m->mr[OFI_DATA] = NULL;
	m->cq = NULL;
	m->av = NULL;
	m->domain = NULL;
}
