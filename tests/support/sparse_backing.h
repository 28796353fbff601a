/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In programs that are linked with sparse_backing.c memory of fabrics is not
 * backed before its use, so that it may be larger than the machine's.
 */
#ifndef SPARSE_BACKING_H
#define SPARSE_BACKING_H

#include <stddef.h>

/*
 * Ends the program with status 77 and the reason where the kernel would not
 * give so many bytes of address space and files.
 */
void sparse_backing_need(size_t bytes);

#endif
