/* SPDX-License-Identifier: Apache-2.0 */
/* Which provider, domain and address of libfabric a rank uses, and why not. */
#ifndef FERRY_OFI_CHOICE_H
#define FERRY_OFI_CHOICE_H

#include "ofi_api.h"

enum { FERRY_OFI_NAME_BYTES = 32 }; /* of a provider */

/* What follows from the provider. */
struct ferry_ofi_choice {
	struct fi_info *info; /* own copy, with what Ferry wants of it */
	/* The same with memory of GPUs (FI_HMEM), NULL: there is none. */
	struct fi_info *hmem;
	/*
	 * Writes to one peer arrive, immediates included, in the order in which
	 * they were posted. Otherwise each is complete only when it has
	 * arrived (FI_DELIVERY_COMPLETE).
	 */
	bool ordered;
	/*
	 * Complete means handed to a socket, which drops what it still holds
	 * when it is closed: before that, peers are asked whether all is there.
	 */
	bool is_stream;
	/*
	 * Such a provider may lose what a socket held when its connection was
	 * reset, and connect again: arrivals are numbered (ofi_arrival.c).
	 */
	bool numbered;
	/* A write goes to the NIC as it is, whatever else makes copies. */
	bool is_direct;
	char provider[FERRY_OFI_NAME_BYTES];
};

struct ferry_world;

/*
 * The best that fits the options ofi_provider, ofi_domain, ofi_interface.
 * `nearby`: all ranks are on this machine, so the loopback interface is
 * preferred, else any other. `world`: its ranks take the NICs that are equally
 * good in turn (ferry_place_nic); NULL: the first. False with the reason.
 */
bool ferry_ofi_choose(const struct ferry_ofi_api *api,
                      const struct ferry_world *world,
                      const struct ferry_options *opt, bool nearby,
                      struct ferry_ofi_choice *choice,
                      char reason[FERRY_REASON_BYTES]);

/* Looks for the same offer with memory of GPUs, for hmem of the choice. */
void ferry_ofi_choose_hmem(const struct ferry_ofi_api *api,
                           const struct ferry_options *opt,
                           struct ferry_ofi_choice *choice);
/* Frees what a choice has. */
void ferry_ofi_choice_drop(const struct ferry_ofi_api *api,
                           struct ferry_ofi_choice *choice);

#endif
