/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank is: host, processors, network interfaces, environment. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/text.h"
#include "fabric/world.h"
#include "hosts.h"

enum { PATH_BYTES = 512 };

/* Appends "; " and what fits. */
static void add_text(char *list, size_t bytes, const char *text)
{
	const size_t used = strlen(list);

	snprintf(list + used, bytes - used, "%s%s", used ? "; " : "", text);
}

/* The first line of a file of /sys; "" where there is none. */
static void read_line(const char *path, char *line, size_t bytes)
{
	ferry_text_read(path, line, bytes);
	line[strcspn(line, "\n")] = '\0';
}

static void add_interface(const struct ifaddrs *a, char *nics)
{
	const struct sockaddr_in *in = (const void *)a->ifa_addr;
	char address[INET_ADDRSTRLEN] = "?", path[PATH_BYTES], speed[32];
	char text[128];

	inet_ntop(AF_INET, &in->sin_addr, address, sizeof(address));
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", a->ifa_name);
	read_line(path, speed, sizeof(speed));
	/* Virtual ones say -1 or nothing. */
	const long mbits = strtol(speed, NULL, 10);

	snprintf(text, sizeof(text), "%s %s", a->ifa_name, address);
	if (mbits > 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
		         " %ld Mb/s", mbits);
	add_text(nics, HOSTS_NICS_BYTES, text);
}

static void add_interfaces(char *nics)
{
	struct ifaddrs *all;

	if (getifaddrs(&all))
		return;
	for (const struct ifaddrs *a = all; a; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
		    (a->ifa_flags & IFF_UP) && !(a->ifa_flags & IFF_LOOPBACK))
			add_interface(a, nics);
	freeifaddrs(all);
}

/* Of InfiniBand, RoCE and EFA: "mlx5_0 400 Gb/sec (4X NDR) ACTIVE". */
static void add_rdma(char *nics)
{
	DIR *folder = opendir("/sys/class/infiniband");
	const struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		char path[PATH_BYTES], rate[48], state[32], text[128];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path),
		         "/sys/class/infiniband/%.64s/ports/1/rate",
		         entry->d_name);
		read_line(path, rate, sizeof(rate));
		snprintf(path, sizeof(path),
		         "/sys/class/infiniband/%.64s/ports/1/state",
		         entry->d_name);
		read_line(path, state, sizeof(state));
		/* "4: ACTIVE" */
		const char *colon = strchr(state, ':');

		snprintf(text, sizeof(text), "%.32s %.44s%s", entry->d_name,
		         rate, colon ? colon + 1 : "");
		add_text(nics, HOSTS_NICS_BYTES, text);
	}
	if (folder)
		closedir(folder);
}

/* Set variables but those that tell ranks apart, and secrets. */
static void add_options(char *options, size_t bytes)
{
	static const char *const own[] = {
		"FERRY_RANK",    "FERRY_SIZE", "FERRY_RENDEZVOUS",
		"FERRY_SECRET",  "FERRY_HOST", "FERRY_SECRET_FILE",
		"FERRY_LOG_FILE"};
	struct ferry_env env = FERRY_ENV_INIT;

	for (int i = 0; ferry_env_get(i, &env); i++) {
		char text[128];
		bool shared = env.value;

		for (size_t k = 0; k < sizeof(own) / sizeof(*own); k++)
			shared = shared && strcmp(env.name, own[k]) != 0;
		if (!shared)
			continue;
		snprintf(text, sizeof(text), "%s=%s", env.name, env.value);
		add_text(options, bytes, text);
	}
}

/* What it has taken for this world, or would take on this machine. */
static void read_reason(const struct ferry_world *world, char reason[160])
{
	struct ferry_fabric_info fabric = FERRY_FABRIC_INFO_INIT;

	snprintf(reason, 160, "%s", world->fabric_says);
	for (int i = 0; !*reason && ferry_fabric_get(i, &fabric); i++)
		if (!strcmp(fabric.name, ferry_world_fabric(world)))
			snprintf(reason, 160, "%s", fabric.reason);
}

void hosts_fact_read(const struct ferry_world *world, struct hosts_fact *fact)
{
	const struct ferry_place *place = &world->places[world->rank];

	memset(fact, 0, sizeof(*fact)); /* it travels with its padding */
	fact->host_id = place->host_id;
	fact->machine_id = place->machine_id;
	fact->pid = (int32_t)getpid();
	fact->n_cpus = place->n_cpus;
	fact->has_secret =
		getenv("FERRY_SECRET") || getenv("FERRY_SECRET_FILE");
	gethostname(fact->host, sizeof(fact->host) - 1);
	snprintf(fact->version, sizeof(fact->version), "%s",
	         ferry_version_text());
	add_options(fact->options, sizeof(fact->options));
	add_interfaces(fact->nics);
	add_rdma(fact->nics);
	read_reason(world, fact->reason);
}
