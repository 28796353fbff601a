/* SPDX-License-Identifier: Apache-2.0 */
/* Directories and files of tests' checkpoints. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "tiny_inner.h"
#include "tiny_model.h"

static void end(const char *what)
{
	perror(what);
	abort();
}

void *tiny_alloc(size_t n)
{
	void *const memory = calloc(n ? n : 1, 1);

	if (!memory)
		end("memory of a test");
	return memory;
}

void *tiny_grow(void *memory, size_t n)
{
	void *const grown = realloc(memory, n ? n : 1);

	if (!grown)
		end("memory of a test");
	return grown;
}

char *tiny_print(struct cJSON *json)
{
	char *const text = cJSON_PrintUnformatted(json);

	cJSON_Delete(json);
	if (!text)
		end("memory of a test");
	return text;
}

static FILE *open_file(const char *directory, const char *name,
                       const char *mode)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	FILE *const f = fopen(path, mode);

	if (!f)
		end(path);
	return f;
}

void tiny_file_write(const char *directory, const char *name, const void *bytes,
                     size_t n)
{
	FILE *const f = open_file(directory, name, "wb");

	if (fwrite(bytes, 1, n, f) != n || fclose(f))
		end(name);
}

void tiny_file_resize(const char *directory, const char *name, size_t n)
{
	FILE *const f = open_file(directory, name, "r+b");

	if (ftruncate(fileno(f), (off_t)n) || fclose(f))
		end(name);
}

char *tiny_file_read(const char *directory, const char *name, size_t *n)
{
	FILE *const f = open_file(directory, name, "rb");

	fseek(f, 0, SEEK_END);
	*n = (size_t)ftell(f);
	rewind(f);
	char *const bytes = tiny_alloc(*n + 1);

	if (fread(bytes, 1, *n, f) != *n)
		end(name);
	fclose(f);
	return bytes;
}

char *tiny_model_make(const struct tiny_shape *shape)
{
	const char *const tmp = getenv("TMPDIR");
	const size_t n = strlen(tmp ? tmp : "/tmp") + 32;
	char *const directory = tiny_alloc(n);

	snprintf(directory, n, "%s/ferry-tiny-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(directory))
		end(directory);
	tiny_model_write(directory, shape);
	return directory;
}

void tiny_model_remove(char *directory)
{
	DIR *const dir = directory ? opendir(directory) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	if (directory)
		rmdir(directory);
	free(directory);
}
