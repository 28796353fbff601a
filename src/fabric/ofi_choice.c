/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice among what fi_getinfo offers: the best provider, then the domain
 * and the address that options name, or that reach the peers.
 */
#include "ofi_choice.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_endpoint.h>

#include "place.h"

enum {
	CQ_DATA_BYTES = 4,   /* of an immediate, at least */
	CQ_NUMBER_BYTES = 8, /* of one with source and number */
	MOST_NICS = 64,      /* of a machine */
	PCI_BYTES = 20,
};

/*
 * Best first. Others are used when they are named. `ordered` is by
 * construction: one connection per peer, and completions in its order; what
 * fi_info says of order (FI_ORDER_WAW) speaks of bytes, not of immediates.
 * `is_direct` is by the source: ofi_rxm copies messages, writes it passes on.
 */
static const struct provider {
	const char *name;
	bool ordered;
	bool is_stream;
	bool is_direct;
} providers[] = {
	{.name = "efa"},
	{.name = "cxi"},
	{.name = "verbs;ofi_rxm", .ordered = true, .is_direct = true},
	{.name = "psm3"},
	{.name = "opx"},
	{.name = "tcp", .ordered = true, .is_stream = true},
	{.name = "tcp;ofi_rxm", .ordered = true, .is_stream = true},
};

/* As good, but only when they are named. */
static const struct provider named[] = {
	{.name = "net", .ordered = true, .is_stream = true},
	{.name = "net;ofi_rxm", .ordered = true, .is_stream = true},
};

enum {
	N_PROVIDERS = sizeof(providers) / sizeof(*providers),
	N_NAMED = sizeof(named) / sizeof(*named),
};

static const char *provider_of(const struct fi_info *info)
{
	return info->fabric_attr->prov_name;
}

static const char *domain_of(const struct fi_info *info)
{
	return info->domain_attr->name ? info->domain_attr->name : "";
}

static bool is_auto(const struct ferry_options *opt)
{
	return !opt->ofi_provider[0] || !strcmp(opt->ofi_provider, "auto");
}

static const struct provider *find_in(const struct provider *list, int n,
                                      const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i].name, name))
			return &list[i];
	return NULL;
}

/* Smaller is better, -1: not without its name. */
static int provider_rank(const struct fi_info *info)
{
	const struct provider *p =
		find_in(providers, N_PROVIDERS, provider_of(info));

	return p ? (int)(p - providers) : -1;
}

static const struct sockaddr *address_of(const struct fi_info *info)
{
	const struct sockaddr *address = info->src_addr;

	if (info->addr_format != FI_SOCKADDR &&
	    info->addr_format != FI_SOCKADDR_IN &&
	    info->addr_format != FI_SOCKADDR_IN6)
		return NULL;
	if (!address ||
	    (address->sa_family != AF_INET && address->sa_family != AF_INET6))
		return NULL;
	return address;
}

/* The bytes of an IP address; *n of them. */
static const void *ip_of(const struct sockaddr *address, size_t *n)
{
	if (address->sa_family == AF_INET) {
		*n = sizeof(struct in_addr);
		return &((const struct sockaddr_in *)(const void *)address)
		                ->sin_addr;
	}
	*n = sizeof(struct in6_addr);
	return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

static bool is_loopback(const struct sockaddr *address)
{
	size_t n;
	const unsigned char *ip = ip_of(address, &n);

	if (address->sa_family == AF_INET)
		return ip[0] == 127;
	return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)(const void *)ip);
}

/* Means nothing without an interface, which fi_info does not carry. */
static bool is_link_local(const struct sockaddr *address)
{
	size_t n;
	const unsigned char *ip = ip_of(address, &n);

	return address->sa_family == AF_INET6 && ip[0] == 0xfe &&
	       (ip[1] & 0xc0) == 0x80;
}

/* Is the address written as `text`, or one of the interface of that name? */
static bool is_on(const struct sockaddr *address, const char *text)
{
	unsigned char own[sizeof(struct in6_addr)];
	struct ifaddrs *list = NULL;
	bool found = false;
	size_t n, m;
	const void *ip = ip_of(address, &n);

	if (inet_pton(address->sa_family, text, own) == 1)
		return !memcmp(own, ip, n);
	if (getifaddrs(&list))
		return false;
	for (struct ifaddrs *i = list; i && !found; i = i->ifa_next)
		found = i->ifa_addr && !strcmp(i->ifa_name, text) &&
		        i->ifa_addr->sa_family == address->sa_family &&
		        !memcmp(ip_of(i->ifa_addr, &m), ip, n);
	freeifaddrs(list);
	return found;
}

/* Does an offer fit what the options name? */
static bool fits(const struct fi_info *info, const struct ferry_options *opt)
{
	const struct sockaddr *address = address_of(info);

	if (info->domain_attr->cq_data_size < CQ_DATA_BYTES)
		return false;
	/* Never completes a write of no bytes; fabric shm does better. */
	if (!strcmp(provider_of(info), "shm"))
		return false;
	if (is_auto(opt) ? provider_rank(info) < 0
	                 : strcmp(provider_of(info), opt->ofi_provider) != 0)
		return false;
	if (opt->ofi_domain[0] && strcmp(domain_of(info), opt->ofi_domain) != 0)
		return false;
	if (!opt->ofi_interface[0])
		return true;
	return address ? is_on(address, opt->ofi_interface)
	               : !strcmp(domain_of(info), opt->ofi_interface);
}

/* How well an address suits, where no option names one. Smaller is better. */
static int address_rank(const struct fi_info *info, bool nearby)
{
	const struct sockaddr *address = address_of(info);

	if (!address)
		return 0;
	if (is_link_local(address))
		return 3;
	return is_loopback(address) == nearby ? 0 : 2;
}

static int rank_of(const struct fi_info *info, bool nearby)
{
	return provider_rank(info) * 4 + address_rank(info, nearby);
}

static struct fi_info *hints_new(const struct ferry_ofi_api *api,
                                 const struct ferry_options *opt)
{
	struct fi_info *hints = api->dupinfo(NULL);

	if (!hints)
		return NULL;
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
	                              FI_MR_ALLOCATED | FI_MR_PROV_KEY |
	                              FI_MR_ENDPOINT;
	if (!is_auto(opt))
		hints->fabric_attr->prov_name = strdup(opt->ofi_provider);
	return hints;
}

/* Is an offer before this one alike, as far as it is listed? */
static bool is_listed(const struct fi_info *offers, const struct fi_info *offer)
{
	const struct fi_info *i = offers;

	while (i != offer && (strcmp(provider_of(i), provider_of(offer)) != 0 ||
	                      strcmp(domain_of(i), domain_of(offer)) != 0))
		i = i->next;
	return i != offer;
}

static void append(char reason[FERRY_REASON_BYTES], const char *before,
                   const char *what)
{
	const size_t n = strlen(reason);

	snprintf(reason + n, FERRY_REASON_BYTES - n, "%s%.40s", before, what);
}

/* What was asked for, and what was offered. */
static void say_misfit(const struct fi_info *offers,
                       const struct ferry_options *opt,
                       char reason[FERRY_REASON_BYTES])
{
	snprintf(reason, FERRY_REASON_BYTES,
	         "no provider with remote writes fits");
	if (!is_auto(opt))
		append(reason, " FERRY_OFI_PROVIDER=", opt->ofi_provider);
	if (opt->ofi_domain[0])
		append(reason, " FERRY_OFI_DOMAIN=", opt->ofi_domain);
	if (opt->ofi_interface[0])
		append(reason, " FERRY_OFI_INTERFACE=", opt->ofi_interface);
	append(reason, "; found:", offers ? "" : " nothing");
	for (const struct fi_info *i = offers; i; i = i->next)
		if (!is_listed(offers, i)) {
			append(reason, i == offers ? " " : ", ",
			       provider_of(i));
			append(reason, " on ", domain_of(i));
		}
}

static const struct fi_info *best_of(const struct fi_info *offers,
                                     const struct ferry_options *opt,
                                     bool nearby)
{
	const struct fi_info *best = NULL;

	for (const struct fi_info *i = offers; i; i = i->next)
		if (fits(i, opt) &&
		    (!best || rank_of(i, nearby) < rank_of(best, nearby)))
			best = i;
	return best;
}

/* "0000:3b:00.0" of the NIC; false where there is none on PCI. */
static bool pci_of(const struct fi_info *info, char text[PCI_BYTES])
{
	const struct fid_nic *nic = info->nic;

	if (!nic || !nic->bus_attr || nic->bus_attr->bus_type != FI_BUS_PCI)
		return false;
	const struct fi_pci_attr *pci = &nic->bus_attr->attr.pci;

	snprintf(text, PCI_BYTES, "%04x:%02x:%02x.%x", pci->domain_id,
	         pci->bus_id, pci->device_id, pci->function_id);
	return true;
}

/* Another NIC of the same kind on the same network? */
static bool is_alike(const struct fi_info *info, const struct fi_info *best,
                     const struct ferry_options *opt)
{
	return fits(info, opt) &&
	       !strcmp(provider_of(info), provider_of(best)) &&
	       !strcmp(info->fabric_attr->name, best->fabric_attr->name) &&
	       info->addr_format == best->addr_format;
}

/*
 * The offer of this rank's own NIC, where several are as good as the best. Not
 * for interfaces of TCP: those of one machine need not reach the same hosts.
 */
static const struct fi_info *rail_of(const struct ferry_world *world,
                                     const struct fi_info *offers,
                                     const struct ferry_options *opt,
                                     const struct fi_info *best)
{
	const struct fi_info *nics[MOST_NICS];
	char text[MOST_NICS][PCI_BYTES];
	const char *pci[MOST_NICS];
	int32_t n = 0;

	for (const struct fi_info *i = offers; i && n < MOST_NICS;
	     i = i->next) {
		bool is_new = is_alike(i, best, opt) && pci_of(i, text[n]);

		for (int32_t k = 0; k < n && is_new; k++)
			is_new = strcmp(domain_of(i), domain_of(nics[k])) != 0;
		if (!is_new)
			continue;
		nics[n] = i;
		pci[n] = text[n];
		n++;
	}
	return n ? nics[ferry_place_nic(world, pci, n)] : best;
}

/* Fills in the choice from an offer. */
static bool take(const struct ferry_ofi_api *api, const struct fi_info *offer,
                 struct ferry_ofi_choice *choice)
{
	const char *name = provider_of(offer);
	const struct provider *p = find_in(providers, N_PROVIDERS, name);

	if (!p)
		p = find_in(named, N_NAMED, name);
	memset(choice, 0, sizeof(*choice));
	choice->ordered = p && p->ordered;
	choice->is_stream = p && p->is_stream;
	choice->is_direct = p && p->is_direct;
	choice->numbered = choice->is_stream &&
	                   offer->domain_attr->cq_data_size >= CQ_NUMBER_BYTES;
	snprintf(choice->provider, sizeof(choice->provider), "%s", name);
	choice->info = api->dupinfo(offer);
	if (!choice->info)
		return false;
	if (!choice->ordered)
		choice->info->tx_attr->op_flags |= FI_DELIVERY_COMPLETE;
	return true;
}

bool ferry_ofi_choose(const struct ferry_ofi_api *api,
                      const struct ferry_world *world,
                      const struct ferry_options *opt, bool nearby,
                      struct ferry_ofi_choice *choice,
                      char reason[FERRY_REASON_BYTES])
{
	struct ferry_ofi_signals *saved = ferry_ofi_signals_save();
	struct fi_info *hints = hints_new(api, opt);
	struct fi_info *offers = NULL;
	const struct fi_info *best;
	int err = -FI_ENOMEM;
	bool taken = false;

	if (hints)
		err = api->getinfo(FERRY_OFI_VERSION, NULL, NULL, 0, hints,
		                   &offers);
	best = err ? NULL : best_of(offers, opt, nearby);
	if (best && world)
		best = rail_of(world, offers, opt, best);
	if (err && err != -FI_ENODATA) {
		snprintf(reason, FERRY_REASON_BYTES, "fi_getinfo: %s",
		         api->strerror(-err));
	} else if (!best) {
		say_misfit(err ? NULL : offers, opt, reason);
	} else {
		taken = take(api, best, choice);
		if (!taken)
			snprintf(reason, FERRY_REASON_BYTES, "no memory");
	}
	if (offers)
		api->freeinfo(offers);
	if (hints)
		api->freeinfo(hints);
	ferry_ofi_signals_restore(saved);
	return taken;
}

static bool is_same(const struct fi_info *a, const struct fi_info *b)
{
	const struct sockaddr *at = address_of(a);

	return !strcmp(provider_of(a), provider_of(b)) &&
	       !strcmp(domain_of(a), domain_of(b)) &&
	       a->addr_format == b->addr_format &&
	       a->src_addrlen == b->src_addrlen &&
	       (!at || !memcmp(at, b->src_addr, a->src_addrlen));
}

void ferry_ofi_choose_hmem(const struct ferry_ofi_api *api,
                           const struct ferry_options *opt,
                           struct ferry_ofi_choice *choice)
{
	struct ferry_ofi_signals *saved = ferry_ofi_signals_save();
	struct fi_info *hints = hints_new(api, opt);
	struct fi_info *offers = NULL;

	if (hints) {
		hints->caps |= FI_HMEM;
		hints->domain_attr->mr_mode |= FI_MR_HMEM;
		/* efa leaves the NIC's own writes out where less is asked. */
		if (api->getinfo(api->version() >= FERRY_OFI_HMEM_VERSION
		                         ? FERRY_OFI_HMEM_VERSION
		                         : FERRY_OFI_VERSION,
		                 NULL, NULL, 0, hints, &offers))
			offers = NULL;
		api->freeinfo(hints);
	}
	for (const struct fi_info *i = offers; i && !choice->hmem; i = i->next)
		if (i->caps & FI_HMEM && is_same(i, choice->info))
			choice->hmem = api->dupinfo(i);
	if (offers)
		api->freeinfo(offers);
	if (choice->hmem)
		choice->hmem->tx_attr->op_flags =
			choice->info->tx_attr->op_flags;
	ferry_ofi_signals_restore(saved);
}

void ferry_ofi_choice_drop(const struct ferry_ofi_api *api,
                           struct ferry_ofi_choice *choice)
{
	if (choice->info)
		api->freeinfo(choice->info);
	if (choice->hmem)
		api->freeinfo(choice->hmem);
	choice->info = NULL;
	choice->hmem = NULL;
}
