/* SPDX-License-Identifier: Apache-2.0 */
/* See nvml_links.h. The few declarations of NVML's ABI that it takes. */
#include "nvml_links.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
	NVML_SUCCESS = 0,
	NVML_P2P_NVLINK = 2, /* NVML_P2P_CAPS_INDEX_NVLINK */
	NVML_MAX_LINKS = 64,
};

struct nvml_pci {
	char bus_legacy[16];
	unsigned int domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

struct nvml_device; /* opaque */

struct nvml {
	void *module;
	int (*init)(void);
	int (*shutdown)(void);
	int (*by_uuid)(const char *uuid, struct nvml_device **device);
	int (*pci)(struct nvml_device *device, struct nvml_pci *pci);
	int (*p2p)(struct nvml_device *from, struct nvml_device *to, int index,
	           int *status);
	int (*link_state)(struct nvml_device *device, unsigned int link,
	                  unsigned int *active);
	int (*link_pci)(struct nvml_device *device, unsigned int link,
	                struct nvml_pci *pci);
};

void ferry_gpu_uuid_text(const uint8_t uuid[FERRY_GPU_UUID_BYTES],
                         char text[FERRY_GPU_UUID_TEXT])
{
	size_t n = (size_t)snprintf(text, FERRY_GPU_UUID_TEXT, "GPU");

	for (int i = 0; i < FERRY_GPU_UUID_BYTES; i++) {
		const bool dash =
			i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

		n += (size_t)snprintf(text + n, FERRY_GPU_UUID_TEXT - n,
		                      "%s%02x", dash ? "-" : "", uuid[i]);
	}
}

static bool find(const struct nvml *nvml, const char *name, void *slot)
{
	void *function = dlsym(nvml->module, name);

	memcpy(slot, &function, sizeof(function));
	return function != NULL;
}

static bool load(struct nvml *nvml)
{
	nvml->module = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	return nvml->module && find(nvml, "nvmlInit_v2", &nvml->init) &&
	       find(nvml, "nvmlShutdown", &nvml->shutdown) &&
	       find(nvml, "nvmlDeviceGetHandleByUUID", &nvml->by_uuid) &&
	       find(nvml, "nvmlDeviceGetPciInfo_v3", &nvml->pci) &&
	       find(nvml, "nvmlDeviceGetP2PStatus", &nvml->p2p) &&
	       find(nvml, "nvmlDeviceGetNvLinkState", &nvml->link_state) &&
	       find(nvml, "nvmlDeviceGetNvLinkRemotePciInfo_v2",
	            &nvml->link_pci);
}

/* Links that end at the other GPU; behind a switch all that are active. */
static int32_t count(const struct nvml *nvml, struct nvml_device *from,
                     struct nvml_device *to)
{
	struct nvml_pci other, remote;
	int32_t n_active = 0, n_direct = 0;

	if (nvml->pci(to, &other) != NVML_SUCCESS)
		return -1;
	for (unsigned int i = 0; i < NVML_MAX_LINKS; i++) {
		unsigned int active = 0;

		if (nvml->link_state(from, i, &active) != NVML_SUCCESS ||
		    !active)
			continue;
		n_active++;
		n_direct += nvml->link_pci(from, i, &remote) == NVML_SUCCESS &&
		            !strncmp(remote.bus_id, other.bus_id,
		                     sizeof(remote.bus_id));
	}
	return n_direct ? n_direct : n_active;
}

static int32_t ask(const struct nvml *nvml,
                   const uint8_t from[FERRY_GPU_UUID_BYTES],
                   const uint8_t to[FERRY_GPU_UUID_BYTES])
{
	struct nvml_device *a, *b;
	char text[FERRY_GPU_UUID_TEXT];
	int status = -1;

	ferry_gpu_uuid_text(from, text);
	if (nvml->by_uuid(text, &a) != NVML_SUCCESS)
		return -1;
	ferry_gpu_uuid_text(to, text);
	if (nvml->by_uuid(text, &b) != NVML_SUCCESS)
		return -1;
	if (nvml->p2p(a, b, NVML_P2P_NVLINK, &status) != NVML_SUCCESS)
		return -1;
	return status == 0 ? count(nvml, a, b) : 0;
}

int32_t ferry_nvml_links(const uint8_t from[FERRY_GPU_UUID_BYTES],
                         const uint8_t to[FERRY_GPU_UUID_BYTES])
{
	struct nvml nvml = {0};
	int32_t n = -1;

	if (load(&nvml) && nvml.init() == NVML_SUCCESS) {
		n = ask(&nvml, from, to);
		nvml.shutdown();
	}
	if (nvml.module)
		dlclose(nvml.module);
	return n;
}
