/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with what it wants included first. */
#ifndef CLI_CMOCKA_H
#define CLI_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
