/* SPDX-License-Identifier: Apache-2.0 */
/* Files mapped for reading. */
#include "file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_is_plain(const char *path, mode_t mode, struct fault *fault)
{
	if (S_ISREG(mode))
		return true;
	return fault_set(fault, "%s: is a %s, allowed are plain files", path,
	                 S_ISDIR(mode)    ? "directory"
	                 : S_ISFIFO(mode) ? "pipe"
	                                  : "device");
}

/* What stands for a large file in a Git repository until it is fetched. */
static bool is_pointer(const char *bytes, size_t n)
{
	static const char begin[] = "version https://git-lfs.github.com/spec/";

	return n >= sizeof(begin) - 1 &&
	       !memcmp(bytes, begin, sizeof(begin) - 1);
}

static bool map_file(int fd, const char *path, struct file_map *map,
                     struct fault *fault)
{
	struct stat is;

	if (fstat(fd, &is))
		return fault_set(fault, "%s: %s", path, strerror(errno));
	if (!file_is_plain(path, is.st_mode, fault))
		return false;
	if (is.st_size == 0) {
		*map = (struct file_map){.bytes = ""};
		return true;
	}
	const size_t n = (size_t)is.st_size;
	void *const bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);

	if (bytes == MAP_FAILED)
		return fault_set(fault, "%s: mapping of %zu bytes: %s", path, n,
		                 strerror(errno));
	*map = (struct file_map){bytes, n};
	return true;
}

bool file_map_open(const char *path, struct file_map *map, struct fault *fault)
{
	/* To open a pipe would wait for who writes into it. */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	*map = (struct file_map){0};
	if (fd < 0)
		return fault_set(fault, "%s: %s", path, strerror(errno));
	const bool good = map_file(fd, path, map, fault);

	close(fd);
	if (!good || !is_pointer(map->bytes, map->n))
		return good;
	file_map_close(map);
	return fault_set(fault,
	                 "%s: is a pointer of Git LFS, not the file itself: "
	                 "'git lfs pull' fetches it",
	                 path);
}

void file_map_close(struct file_map *map)
{
	if (map->n)
		munmap((void *)(uintptr_t)map->bytes, map->n);
	*map = (struct file_map){0};
}
