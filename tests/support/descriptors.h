/* SPDX-License-Identifier: Apache-2.0 */
/* What a test for leaks counts before and after. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

/* Descriptors that this process has open, and one more. */
int descriptors_count(void);

#endif
