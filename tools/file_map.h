/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files mapped for reading: nothing is read before it is used. A file must not
 * change while it is mapped: what is behind its new end is no memory any more,
 * and to read it ends the process (SIGBUS).
 */
#ifndef FERRY_FILE_MAP_H
#define FERRY_FILE_MAP_H

#include <stddef.h>
#include <sys/types.h>

#include "fault.h"

struct file_map {
	const char *bytes; /* begins a page; no 0 behind the last byte */
	size_t n;
};

/* Maps a plain file, which is no pointer of Git LFS; does not wait for who
 * writes into a pipe. */
bool file_map_open(const char *path, struct file_map *map, struct fault *fault);
void file_map_close(struct file_map *map);

/* Whether st_mode is a plain file's; a fault says what it is instead. */
bool file_is_plain(const char *path, mode_t mode, struct fault *fault);

#endif
