/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NIC each rank takes of those that libfabric offers: a table of offers
 * stands in for the library, places for the ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "fabric/ofi_choice.h"
#include "fabric/world.h"

enum { OFFERS = 6, RANKS = 6 };

/* One offer, and all that it points at. */
struct offer {
	struct fi_info info;
	bool is_hints; /* their provider's name is their own */
	struct fi_fabric_attr fabric;
	struct fi_domain_attr domain;
	struct fi_ep_attr ep;
	struct fi_tx_attr tx;
	struct fi_rx_attr rx;
	struct fid_nic nic;
	struct fi_bus_attr bus;
};

static struct offer offers[OFFERS];
static int n_offers;

static struct fi_info *link_up(struct offer *o)
{
	o->info.fabric_attr = &o->fabric;
	o->info.domain_attr = &o->domain;
	o->info.ep_attr = &o->ep;
	o->info.tx_attr = &o->tx;
	o->info.rx_attr = &o->rx;
	if (o->bus.bus_type == FI_BUS_PCI) {
		o->nic.bus_attr = &o->bus;
		o->info.nic = &o->nic;
	}
	return &o->info;
}

/* bus 0: no NIC is told. */
static void offer(const char *provider, const char *network, const char *domain,
                  uint8_t bus)
{
	struct offer *o = &offers[n_offers++];

	memset(o, 0, sizeof(*o));
	o->fabric.prov_name = strdup(provider);
	o->fabric.name = strdup(network);
	o->domain.name = strdup(domain);
	o->domain.cq_data_size = 4;
	o->bus.bus_type = bus ? FI_BUS_PCI : FI_BUS_UNKNOWN;
	/* An address that no machine has: near nothing, so only turns count. */
	o->bus.attr.pci.domain_id = 0xfffe;
	o->bus.attr.pci.bus_id = bus;
}

static uint32_t asked_version;
static uint64_t asked_caps;

static int getinfo(uint32_t version, const char *node, const char *service,
                   uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info)
{
	asked_version = version;
	(void)node;
	(void)service;
	(void)flags;
	asked_caps = hints->caps;
	for (int i = 0; i < n_offers; i++) {
		link_up(&offers[i]);
		offers[i].info.next =
			i + 1 < n_offers ? &offers[i + 1].info : NULL;
	}
	*info = n_offers ? &offers[0].info : NULL;
	return n_offers ? 0 : -FI_ENODATA;
}

/* As the library: NULL makes empty hints. The domain's name is shared. */
static struct fi_info *dupinfo(const struct fi_info *info)
{
	struct offer *o = calloc(1, sizeof(*o));

	if (o && info) {
		o->fabric = *info->fabric_attr;
		o->domain = *info->domain_attr;
	}
	if (o)
		o->is_hints = !info;
	return o ? link_up(o) : NULL;
}

static void freeinfo(struct fi_info *info)
{
	struct offer *o = (struct offer *)info;

	if (n_offers && o == &offers[0])
		return;
	if (o->is_hints)
		free(o->fabric.prov_name);
	free(o);
}

static const char *strerror_of(int error)
{
	(void)error;
	return "some error";
}

static uint32_t library_version(void)
{
	return FI_VERSION(2, 3);
}

static const struct ferry_ofi_api api = {
	.version = library_version,
	.getinfo = getinfo,
	.dupinfo = dupinfo,
	.freeinfo = freeinfo,
	.strerror = strerror_of,
};

static int forget_offers(void **state)
{
	(void)state;
	for (int i = 0; i < n_offers; i++) {
		free(offers[i].fabric.prov_name);
		free(offers[i].fabric.name);
		free(offers[i].domain.name);
	}
	n_offers = 0;
	return 0;
}

/* The domain of rank `rank` among RANKS ranks, 3 on each machine. */
static void expect(int32_t rank, const struct ferry_options *opt,
                   const char *domain)
{
	struct ferry_place places[RANKS];
	struct ferry_world world;
	struct ferry_ofi_choice choice;
	char reason[FERRY_REASON_BYTES] = "";

	memset(&world, 0, sizeof(world));
	memset(places, 0, sizeof(places));
	for (int32_t r = 0; r < RANKS; r++)
		places[r].machine_id = (uint64_t)(r / 3);
	world.places = places;
	world.rank = rank;
	world.n_ranks = RANKS;
	assert_true(
		ferry_ofi_choose(&api, &world, opt, false, &choice, reason));
	assert_string_equal(choice.info->domain_attr->name, domain);
	freeinfo(choice.info);
	/* Who has no world yet looks at the first. */
	assert_true(ferry_ofi_choose(&api, NULL, opt, false, &choice, reason));
	if (!opt->ofi_domain[0])
		assert_string_equal(choice.info->domain_attr->name,
		                    offers[0].domain.name);
	freeinfo(choice.info);
}

static void test_in_turn(void **state)
{
	const struct ferry_options opt = {.ofi_provider = "auto"};
	static const char *const domains[RANKS] = {
		"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_0", "mlx5_1", "mlx5_2"};

	(void)state;
	offer("verbs;ofi_rxm", "IB-1", "mlx5_0", 1);
	offer("verbs;ofi_rxm", "IB-1", "mlx5_0", 1); /* another format */
	offer("verbs;ofi_rxm", "IB-1", "mlx5_1", 2);
	offer("verbs;ofi_rxm", "IB-1", "mlx5_2", 3);
	for (int32_t r = 0; r < RANKS; r++)
		expect(r, &opt, domains[r]);
}

/* What reaches other hosts, or is of another kind, is no rail. */
static void test_others_are_left_out(void **state)
{
	const struct ferry_options opt = {.ofi_provider = "auto"};
	static const char *const domains[RANKS] = {
		"mlx5_0", "mlx5_3", "mlx5_0", "mlx5_0", "mlx5_3", "mlx5_0"};

	(void)state;
	offer("verbs;ofi_rxm", "IB-1", "mlx5_0", 1);
	offer("verbs;ofi_rxm", "IB-2", "mlx5_1", 2);
	offer("tcp", "IB-1", "eth0", 4);
	offer("verbs;ofi_rxm", "IB-1", "mlx5_2", 0);
	offer("verbs;ofi_rxm", "IB-1", "mlx5_3", 3);
	for (int32_t r = 0; r < RANKS; r++)
		expect(r, &opt, domains[r]);
}

static void test_named_domain(void **state)
{
	const struct ferry_options opt = {.ofi_provider = "auto",
	                                  .ofi_domain = "mlx5_1"};

	(void)state;
	offer("verbs;ofi_rxm", "IB-1", "mlx5_0", 1);
	offer("verbs;ofi_rxm", "IB-1", "mlx5_1", 2);
	for (int32_t r = 0; r < RANKS; r++)
		expect(r, &opt, "mlx5_1");
}

/* Interfaces of TCP need not reach the same hosts. */
static void test_tcp_has_none(void **state)
{
	const struct ferry_options opt = {.ofi_provider = "auto"};

	(void)state;
	offer("tcp", "10.0.0.0/8", "eth0", 0);
	offer("tcp", "10.0.0.0/8", "eth1", 0);
	for (int32_t r = 0; r < RANKS; r++)
		expect(r, &opt, "eth0");
}

/* For memory of GPUs the same NIC, or none. */
static void test_gpu_memory(void **state)
{
	static const char *const domains[] = {"mlx5_0", "mlx5_1"};
	struct ferry_ofi_choice choice;
	char reason[FERRY_REASON_BYTES] = "";

	(void)state;
	offer("verbs;ofi_rxm", "IB-1", "mlx5_0", 1);
	offer("efa", "IB-1", "mlx5_1", 2);
	offer("verbs;ofi_rxm", "IB-1", "mlx5_1", 2);
	offers[1].info.caps = FI_HMEM;
	offers[2].info.caps = FI_HMEM;
	for (int i = 0; i < 2; i++) {
		struct ferry_options opt = {.ofi_provider = "verbs;ofi_rxm"};

		snprintf(opt.ofi_domain, sizeof(opt.ofi_domain), "%s",
		         domains[i]);
		assert_true(ferry_ofi_choose(&api, NULL, &opt, false, &choice,
		                             reason));
		assert_null(choice.hmem);
		assert_int_equal(asked_caps & FI_HMEM, 0);
		ferry_ofi_choose_hmem(&api, &opt, &choice);
		assert_int_equal(asked_caps & FI_HMEM, FI_HMEM);
		assert_int_equal(asked_version, FI_VERSION(1, 18));
		assert_int_equal(choice.hmem != NULL, i);
		if (choice.hmem)
			assert_string_equal(choice.hmem->domain_attr->name,
			                    domains[i]);
		ferry_ofi_choice_drop(&api, &choice);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_in_turn, forget_offers),
		cmocka_unit_test_teardown(test_others_are_left_out,
	                                  forget_offers),
		cmocka_unit_test_teardown(test_named_domain, forget_offers),
		cmocka_unit_test_teardown(test_tcp_has_none, forget_offers),
		cmocka_unit_test_teardown(test_gpu_memory, forget_offers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
