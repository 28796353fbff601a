/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in /dev/shm: to see that nothing is left behind, while other
 * programs come and go.
 */
#ifndef SHM_NAMES_H
#define SHM_NAMES_H

enum { SHM_NAMES_MAX = 256 };

struct shm_names {
	int n;
	char names[SHM_NAMES_MAX][256];
};

/* Ferry's files that are there now. */
void shm_names_take(struct shm_names *names);

/* Files that were not there and stay: nobody keeps one for seconds. */
int shm_names_left(const struct shm_names *before);

#endif
