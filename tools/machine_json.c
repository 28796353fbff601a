/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a machine as JSON. */
#include "machine.h"

static cJSON *caches_json(const struct machine *m)
{
	cJSON *array = cJSON_CreateArray();

	for (int i = 0; i < m->n_caches; i++) {
		cJSON *o = cJSON_CreateObject();

		cJSON_AddNumberToObject(o, "level", m->caches[i].level);
		cJSON_AddNumberToObject(o, "count", m->caches[i].n);
		cJSON_AddNumberToObject(o, "bytes", (double)m->caches[i].bytes);
		cJSON_AddItemToArray(array, o);
	}
	return array;
}

static cJSON *nodes_json(const struct machine *m)
{
	cJSON *array = cJSON_CreateArray();

	for (int i = 0; i < m->n_nodes; i++) {
		cJSON *o = cJSON_CreateObject();

		cJSON_AddNumberToObject(o, "node", m->nodes[i].id);
		cJSON_AddNumberToObject(o, "cpus", m->nodes[i].n_cpus);
		cJSON_AddNumberToObject(o, "memory_bytes",
		                        (double)m->nodes[i].memory_bytes);
		cJSON_AddItemToArray(array, o);
	}
	return array;
}

cJSON *machine_json(const struct machine *m)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "host", m->host);
	cJSON_AddStringToObject(o, "system", m->system);
	cJSON_AddStringToObject(o, "cpu", m->cpu);
	cJSON_AddStringToObject(o, "isa", m->isa);
	cJSON_AddNumberToObject(o, "packages", m->n_packages);
	cJSON_AddNumberToObject(o, "cores", m->n_cores);
	cJSON_AddNumberToObject(o, "cpus", m->n_cpus);
	cJSON_AddNumberToObject(o, "usable_cpus", m->n_usable_cpus);
	cJSON_AddNumberToObject(o, "memory_bytes", (double)m->memory_bytes);
	cJSON_AddNumberToObject(o, "shm_bytes", (double)m->shm_bytes);
	cJSON_AddItemToObject(o, "caches", caches_json(m));
	cJSON_AddItemToObject(o, "numa", nodes_json(m));
	return o;
}
