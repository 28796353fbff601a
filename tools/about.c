/* SPDX-License-Identifier: Apache-2.0 */
/* See about.h. */
#include "about.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "build_info.h"
#include "machine.h"
#include "shown.h"

void about_print(void)
{
	struct build_info build;
	struct machine m;

	build_info_read(&build);
	machine_read(&m);
	printf("# ferry    %s, commit %s, %s\n", build.version, build.commit,
	       build.compiler);
	printf("# machine  %s, %s, %d of %d CPUs usable\n", m.host, m.cpu,
	       m.n_usable_cpus, m.n_cpus);
}

static void add_date(cJSON *meta)
{
	char text[32];
	struct tm utc;
	const time_t now = time(NULL);

	gmtime_r(&now, &utc);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	cJSON_AddStringToObject(meta, "date", text);
}

static void add_command(cJSON *meta, int argc, char *const *argv)
{
	cJSON *words = cJSON_AddArrayToObject(meta, "command");

	cJSON_AddItemToArray(words, cJSON_CreateString("ferry"));
	for (int i = 0; i < argc; i++) {
		char *const word = shown_utf8(argv[i]);

		cJSON_AddItemToArray(words, cJSON_CreateString(word));
		free(word);
	}
}

void about_json(cJSON *meta, int argc, char *const *argv)
{
	struct build_info build;
	struct machine machine;

	build_info_read(&build);
	machine_read(&machine);
	cJSON_AddStringToObject(meta, "version", build.version);
	cJSON_AddStringToObject(meta, "commit", build.commit);
	cJSON_AddStringToObject(meta, "compiler", build.compiler);
	add_date(meta);
	add_command(meta, argc, argv);
	cJSON_AddItemToObject(meta, "machine", machine_json(&machine));
}
